"""Results of audits in a run directory.

`audits/<key>/audit.json` is the truth about one audit; `audits.parquet` is compiled from all.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.audit.trial_store import write_table, write_text
from bench.errors import StoreError
from bench.results.journal import plain, unplain
from bench.results.records import AuditRow, required, to_table

TABLE = "audits.parquet"
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
    write_table(to_table(_rows(directory), AuditRow), directory / TABLE)


def stored_audit(directory: Path, key: str) -> AuditRow | None:
    """The row of an audit, if there is one."""
    path = folder_of(directory, key) / _ROW
    return _row(path) if path.is_file() else None


def read_audits(directory: Path) -> tuple[AuditRow, ...]:
    """All audits of a run directory, by method, dataset and epsilon; none where there are none."""
    rows = _rows(directory)
    if not rows and (directory / TABLE).is_file():
        rows = _from_table(directory / TABLE)
    return tuple(
        sorted(rows, key=lambda row: (row.label, row.dataset, row.eps_target or 0.0, row.kind))
    )


def _rows(directory: Path) -> list[AuditRow]:
    return [_row(path) for path in sorted((directory / _FOLDER).glob(f"*/{_ROW}"))]


def _row(path: Path) -> AuditRow:
    try:
        return _record(unplain(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise StoreError(
            f"{path}: not an audit that this version can read ({problem!r}); remove its folder "
            "and run the audit again"
        ) from None


def _from_table(path: Path) -> list[AuditRow]:
    try:
        return [_record(row) for row in pq.read_table(path).to_pylist()]
    except (OSError, pa.ArrowInvalid, KeyError) as problem:
        raise StoreError(f"{path}: not a table of audits ({problem!r})") from None


def _record(values: dict[str, object]) -> AuditRow:
    # Later additions have defaults: what an earlier version wrote is read.
    names = [item.name for item in fields(AuditRow) if item.name in values or required(item)]
    return AuditRow(**{name: values[name] for name in names})  # type: ignore[arg-type]
