"""Reads a run directory without writing to it: one that is being run, or a stranger's.

Opening a `RunStore` takes the lock and cuts a torn line off; here nothing is changed. Keys of a
stranger's journal become parts of paths, so they are checked to be plain names first.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import StoreError
from bench.results import run_directory as store
from bench.results.journal import Finished, Journal, json_lines, unplain
from bench.results.records import AuditRow, required

_PLAIN_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]{0,199}")

_BEFORE_CELL = b'{"cell": '
"""How a line of the journal begins."""
_DECODER = json.JSONDecoder()


def is_plain_name(name: object) -> bool:
    """True for what may become one part of a path: no slash, and no dot in front."""
    return isinstance(name, str) and _PLAIN_NAME.fullmatch(name) is not None


def check_run(directory: Path) -> Mapping[str, Any]:
    """What `run.json` says; refuses what is no run directory, or one of another form."""
    store.RunStore.existing(directory)
    path = directory / "run.json"
    manifest = read_object(path)
    if manifest is None:
        raise StoreError(f"{path}: cannot be read as a JSON object; is it a run directory?")
    if manifest.get("form") != store.FORM:
        raise StoreError(
            f"{path}: form {manifest.get('form')!r}, this version reads form {store.FORM}"
        )
    return manifest


def read_object(path: Path) -> dict[str, Any] | None:
    """A JSON object in a file; None where there is none to read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def open_journal(directory: Path) -> Journal:
    """The finished cells; a line that is just being written does not count yet."""
    path = directory / "journal.jsonl"
    try:
        journal = Journal(path)
    except (KeyError, TypeError) as problem:
        raise StoreError(f"{path}: a line is not that of a cell ({problem!r})") from None
    for key in journal:
        if not is_plain_name(key):
            raise StoreError(
                f"{path}: key {str(key)[:60]!r} is not a plain name of letters, digits, '.', '_' "
                "and '-'; the directory was not written by bench"
            )
    return journal


def cells_in(path: Path, place: int = 0) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Cells of a journal line by line with their places, without scores; None for a damaged line.

    A line that is just being written is not there yet. Scores are nearly all of a journal: passing
    over them unread makes this ten times faster than `Journal`, for what is asked often.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(place)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield place, _cell_in(line)
            place += len(line)


def _cell_in(line: bytes) -> dict[str, Any] | None:
    try:
        if line.startswith(_BEFORE_CELL) and line.endswith(b"]}\n"):
            cell, _ = _DECODER.raw_decode(line.decode(), len(_BEFORE_CELL))
        else:
            cell = json.loads(line)["cell"]
        good = isinstance(cell["key"], str) and isinstance(cell["status"], str)
    except (ValueError, KeyError, TypeError):
        return None
    return cell if good else None


def finished_of(journal: Journal, key: str) -> Finished:
    """One cell, with scores that are its own."""
    try:
        row, scores = journal[key]
    except (TypeError, ValueError, AttributeError) as problem:
        raise StoreError(f"the journal's line of cell {key} is damaged ({problem})") from None
    if any(score.key != key for score in scores):
        raise StoreError(f"the journal's line of cell {key} holds scores of another cell")
    return row, scores


def charged_keys(directory: Path) -> set[str]:
    """Cells with secure noise that were started; a torn last line was never acted upon."""
    path = directory / "charges.jsonl"
    if not path.exists():
        return set()
    content = path.read_bytes()
    content = content[: content.rfind(b"\n") + 1]
    lines, whole = json_lines(content)
    keys = [line.get("key") if isinstance(line, dict) else None for line in lines]
    if whole < len(content) or not all(map(is_plain_name, keys)):
        raise StoreError(f"{path}: a line in the middle is damaged; charges may be lost")
    return {str(key) for key in keys}


def in_use(directory: Path) -> bool:
    """True while a driver holds the directory. The lock is tried and let go at once."""
    file = _shared(directory / "lock")
    if file is None:
        return (directory / "lock").exists()
    file.close()
    return False


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep drivers out of a directory that is being read; other readers may come in."""
    path = directory / "lock"
    file = _shared(path)
    if file is None and path.exists():
        raise StoreError(
            f"{directory} is in use by another `bench run`; wait for its end, or interrupt it"
        )
    try:
        yield
    finally:
        if file is not None:
            file.close()


def _shared(path: Path) -> IO[bytes] | None:
    """The lock file, with a shared lock: readers do not take each other for a driver."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StoreError(f"{path}: cannot be opened ({problem.strerror})") from None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def printable(text: str) -> str:
    """Text of a stranger for a terminal: control characters would be obeyed there."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


# Audits ---

AUDITS = "audits.parquet"
AUDIT_ROWS = "audits/*/audit.json"
_FORMER_NAMES = {"eps_detectable": "ceiling"}
"""Columns that earlier versions wrote under another name."""


def read_audits(directory: Path) -> tuple[AuditRow, ...]:
    """Return all audits of a run directory, by method, dataset and epsilon.

    `audits/<key>/audit.json` is the row of one audit; `audits.parquet` is compiled from all of
    them, and is all that a copy for others may hold.
    """
    rows = [read_audit(path) for path in sorted(directory.glob(AUDIT_ROWS))]
    if not rows and (directory / AUDITS).is_file():
        rows = _audit_table(directory / AUDITS)
    return tuple(
        sorted(rows, key=lambda row: (row.label, row.dataset, row.eps_target or 0.0, row.kind))
    )


def read_audit(path: Path) -> AuditRow:
    """Return the audit that an `audit.json` holds."""
    try:
        return _audit(unplain(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise StoreError(
            f"{path}: not an audit that this version can read ({problem!r}); remove its folder "
            "and run the audit again"
        ) from None


def _audit_table(path: Path) -> list[AuditRow]:
    try:
        table = pq.ParquetFile(path).read()
        table.validate(full=True)
        return [_audit(row) for row in table.to_pylist()]
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as problem:
        raise StoreError(
            f"{path}: not a table of audits that this version can read ({problem}); make it again "
            "with `bench audit`"
        ) from None


def _audit(values: dict[str, Any]) -> AuditRow:
    given = {name: values[old] for name, old in _FORMER_NAMES.items() if old in values} | values
    # Later additions have defaults: what an earlier version wrote is read.
    names = [item.name for item in fields(AuditRow) if item.name in given or required(item)]
    row = AuditRow(**{name: given[name] for name in names})
    _check(row)
    return row


_KINDS = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}


def _check(row: AuditRow) -> None:
    for item in fields(AuditRow):
        value, kind = getattr(row, item.name), str(item.type)
        optional = value is None and kind.endswith("| None")
        if not optional and not isinstance(value, _KINDS[kind.removesuffix(" | None")]):
            raise ValueError(f"{value!r} as {item.name}")
    if not isinstance(json.loads(row.parameters), dict):
        raise ValueError("parameters are no JSON object")
    for name in ("p_claim", "p_proof", "replicated_p_claim", "replicated_p_proof"):
        if not 0.0 <= getattr(row, name) <= 1.0:
            raise ValueError(f"{name} {getattr(row, name)} is no probability")
