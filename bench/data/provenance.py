"""Where each bound and category list of a user's table comes from, on record beside its schema.

A schema is public only if it does not come from the rows. Of every column, a file beside the TOML
file records what was declared and by which source:

    inferred    proposed from the rows by `bench data add`: non-private access
    dictionary  read from a data dictionary that the owner gave
    confirmed   a person says that the declaration is public knowledge, with name, day and reason

A declaration counts only as long as it is the one on record. A bound that was changed by hand, or a
column that nobody recorded, is treated like one that was read off the rows until it is confirmed.
Records are appended, and each holds the digest of the one before, so that an edited or shortened
file is noticed: then none of it counts. This guards against mistakes and shortcuts, not against a
person who forges the whole file.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from bench.data.schema import Categorical, Column, Numeric, Role
from bench.errors import DataError

_LARGEST = 64 << 20
"""Bytes of a file of sources: thousands of columns with categories, confirmed several times."""
_SHOWN_CATEGORIES = 30
_LONGEST = 500
"""Characters of a name or a reason."""


class Source(enum.StrEnum):
    """Kinds of sources."""

    INFERRED = "inferred"
    DICTIONARY = "dictionary"
    CONFIRMED = "confirmed"


@final
@dataclass(frozen=True)
class SourceRecord:
    """One declaration of one column, and where it comes from."""

    column: str
    source: Source
    facts: Mapping[str, Any]
    """What was declared: see `facts_of`."""
    at: str
    """Day, as in 2026-01-31."""
    by: str = ""
    because: str = ""
    file: str = ""
    """Name of the dictionary."""
    sha256: str = ""
    """Digest of the dictionary."""

    @property
    def in_words(self) -> str:
        """Return the source as the TOML file and the dossier state it."""
        match self.source:
            case Source.CONFIRMED:
                return f"confirmed by {self.by} on {self.at} because {self.because}"
            case Source.DICTIONARY:
                more = f": {self.because}" if self.because else ""
                return f"dictionary {self.file} (SHA-256 {self.sha256[:12]}, read {self.at}){more}"
            case Source.INFERRED:
                return f"inferred from the rows on {self.at}"


_STANDING = ("confirmed by ", "dictionary ", "fixed: ")


def is_public(text: str) -> bool:
    """Return whether a source in words (`ColumnSource.text`) is one that stands for its facts."""
    return text.startswith(_STANDING)


@final
@dataclass(frozen=True)
class ColumnSource:
    """What is on record about the present declaration of a column."""

    public: bool
    """True where a dictionary or a person stands for it."""
    text: str


def facts_of(column: Column) -> dict[str, Any]:
    """Return what a source has to stand for, as plain values: all that encodes by the column."""
    facts: dict[str, Any] = {"role": column.role.value}
    if isinstance(column, Numeric):
        facts |= {"kind": "integer" if column.integer else "number"}
        facts |= {"low": column.low, "high": column.high, "missing": column.missing}
    if isinstance(column, Categorical):
        facts |= {"kind": "ordinal" if column.ordered else "category"}
        facts["categories"] = list(column.categories)
    if column.fill is not None:
        facts["fill"] = column.fill
    if column.decimal:
        facts["decimal"] = True
    return facts


def declared_text(column: Column) -> str:
    """Return what a column declares, in one line for people."""
    return facts_in_words(facts_of(column))


def facts_in_words(facts: Mapping[str, Any]) -> str:
    """Return the facts of `facts_of` in one line for people."""
    kind = str(facts.get("kind", ""))
    if "low" in facts:
        text = f"{kind} from {facts['low']:.10g} to {facts['high']:.10g}"
    else:
        listed = [str(one) for one in facts.get("categories", [])]
        more = len(listed) - _SHOWN_CATEGORIES
        tail = [f"and {more} more"] if more > 0 else []
        text = f"{kind} of {', '.join([*listed[:_SHOWN_CATEGORIES], *tail])}"
    if facts.get("decimal"):
        text += ", written as 1.0"
    if facts.get("missing"):
        text += ", can be missing"
    return text + (f", missing ones count as {facts['fill']}" if "fill" in facts else "")


def today() -> str:
    """Return the day as records state it."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def sources_file(toml: Path) -> Path:
    """Return the file of sources beside the TOML file of a table."""
    return toml.with_suffix(".sources.jsonl")


@final
@dataclass(frozen=True)
class SchemaSources:
    """The records of one table, in the order in which they were made."""

    records: tuple[SourceRecord, ...] = ()
    problem: str = ""
    """Why the file does not count; empty where it does."""

    def proposal(self, column: str) -> Mapping[str, Any] | None:
        """Return what was last proposed from the rows for a column; None where nothing was."""
        proposals = [
            record.facts
            for record in self.records
            if record.column == column and record.source is Source.INFERRED
        ]
        return proposals[-1] if proposals else None

    def of(self, column: Column) -> ColumnSource:
        """Return where the present declaration of a column comes from."""
        facts = json.loads(json.dumps(facts_of(column)))
        own = [record for record in self.records if record.column == column.name]
        if column.role is Role.EVENT and facts.get("categories") == ["0", "1"]:
            # Nothing was looked up in the rows: other tables are refused.
            return ColumnSource(True, "fixed: an event is 0 or 1 in every survival table")
        if self.problem:
            return ColumnSource(False, self.problem)
        if not own:
            return ColumnSource(False, "no source on record")
        # The last that stands for these very facts: `confirmed` and then edited back is confirmed.
        standing = [record for record in own if record.facts == facts]
        if not standing:
            text = f"changed by hand since it was {own[-1].in_words}"
            return ColumnSource(False, text)
        best = next(
            (one for one in reversed(standing) if one.source is not Source.INFERRED), standing[-1]
        )
        return ColumnSource(best.source is not Source.INFERRED, best.in_words)


def read_sources(toml: Path) -> SchemaSources:
    """Read the records of a table; without a file there are none."""
    path = sources_file(toml)
    try:
        if not path.exists():
            return SchemaSources()
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return SchemaSources(problem=f"{path.name} is no file of sources")
        lines = path.read_bytes().splitlines()
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror})") from None
    records: list[SourceRecord] = []
    before = ""
    for number, line in enumerate(lines, start=1):
        record = _record(line, before)
        if record is None:
            return SchemaSources(
                tuple(records), f"{path.name} was altered at line {number}: no record counts"
            )
        records.append(record)
        before = _digest(line)
    return SchemaSources(tuple(records))


def _record(line: bytes, before: str) -> SourceRecord | None:
    try:
        fields = json.loads(line)
        if fields.pop("before") != before:
            return None
        record = SourceRecord(**{**fields, "source": Source(fields["source"])})
        texts = (record.column, record.at, record.by, record.because, record.file, record.sha256)
        good = all(isinstance(text, str) for text in texts) and isinstance(record.facts, dict)
        return record if good else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def record_sources(toml: Path, records: Iterable[SourceRecord]) -> None:
    """Append records, all or nothing; the file can be read by its owner only."""
    path = sources_file(toml)
    known = read_sources(toml)
    if known.problem:
        raise DataError(
            f"{known.problem}; restore {path} from a copy, or remove it and confirm every column "
            "again"
        )
    before = ""
    with contextlib.suppress(FileNotFoundError):
        lines = path.read_bytes().splitlines()
        before = _digest(lines[-1]) if lines else ""
    content: list[bytes] = []
    for record in records:
        line = json.dumps({**asdict(record), "before": before}, sort_keys=True).encode()
        content.append(line + b"\n")
        before = _digest(line)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            place = os.lseek(descriptor, 0, os.SEEK_END)
            try:
                _write_all(descriptor, b"".join(content))
                os.fsync(descriptor)
            except BaseException:
                os.ftruncate(descriptor, place)
                raise
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise DataError(f"{path}: cannot be written ({problem.strerror})") from None


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def confirmations(
    columns: Sequence[Column], by: str, because: str, at: str = ""
) -> list[SourceRecord]:
    """Return the records of a person who says that these declarations are public knowledge."""
    for what, text in (("--by", by), ("--because", because)):
        if not text.strip() or len(text) > _LONGEST or not text.isprintable():
            raise DataError(
                f"{what} needs a text of up to {_LONGEST} printable characters: it is printed in "
                "the dossier of every release"
            )
    return [
        SourceRecord(
            column.name,
            Source.CONFIRMED,
            facts_of(column),
            at or today(),
            by=by.strip(),
            because=because.strip(),
        )
        for column in columns
    ]
