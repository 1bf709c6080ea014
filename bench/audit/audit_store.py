"""Results of audits in a run directory.

`audits/<key>/audit.json` is the truth about one audit; `audits.parquet` is compiled from all.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from bench.audit.trial_store import write_table, write_text
from bench.errors import StoreError
from bench.results.journal import plain
from bench.results.reading import AUDITS, read_audit, read_audits
from bench.results.records import AuditRow, to_table

_FOLDER = "audits"
_ROW = "audit.json"


def folder_of(directory: Path, key: str) -> Path:
    """Where one audit is kept."""
    return directory / _FOLDER / key


def write_audit(directory: Path, row: AuditRow) -> None:
    """Keep a row, and compile the table anew."""
    try:
        text = json.dumps(plain(asdict(row)), indent=1)
        write_text(text + "\n", folder_of(directory, row.key) / _ROW)
    except OSError as problem:
        raise StoreError(
            f"{directory}: cannot be written ({problem.strerror or problem}); name another --out"
        ) from None
    write_table(to_table(read_audits(directory), AuditRow), directory / AUDITS)


def stored_audit(directory: Path, key: str) -> AuditRow | None:
    """The row of an audit, if there is one."""
    path = folder_of(directory, key) / _ROW
    return read_audit(path) if path.is_file() else None
