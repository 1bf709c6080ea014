"""Reads the files that a run stores for one cell.

A run directory is untrusted input: a file may be of any kind, huge, a link to another place, or
lack columns. What cannot be shown is reported in one line, and the rest of the page is still
written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import BenchError, StoreError
from bench.leaderboard.tables.show import shortened
from bench.results.opening import read_bytes

Array = npt.NDArray[np.float64]

LARGEST_FILE = 16 << 20
LARGEST_TEXTS = 4 << 20
"""Total bytes of the distinct texts of a column."""
MOST_ROWS = 400_000
LONGEST_TEXT = 120
"""Characters; longer texts are truncated."""
LARGEST_NUMBER = 1e100
"""Larger numbers cannot be drawn."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")


@final
class Unavailable(BenchError):
    """Something cannot be shown; the message is part of the page."""


@final
class NoSuchFile(BenchError):
    """The cell has no such table; the reason is in the scores of its metric."""


@final
@dataclass(frozen=True)
class DetailTable:
    """Columns of a table; all numbers as float64, missing ones as NaN."""

    numbers: Mapping[str, Array]
    texts: Mapping[str, tuple[str, ...]]
    rows: int

    def finite(self, *names: str) -> tuple[Array, ...]:
        """Return these columns; raise `Unavailable` if a number cannot be drawn."""
        for name in names:
            if not (np.abs(self.numbers[name]) < LARGEST_NUMBER).all():
                raise Unavailable(f"the column {name} holds numbers that cannot be drawn")
        return tuple(self.numbers[name] for name in names)

    def where(self, kept: npt.NDArray[np.bool_]) -> DetailTable:
        """Return the rows that are kept."""
        places = np.flatnonzero(kept)
        return DetailTable(
            {name: values[places] for name, values in self.numbers.items()},
            {name: tuple(values[k] for k in places) for name, values in self.texts.items()},
            len(places),
        )

    def drawable(self, *names: str) -> DetailTable:
        """Return the rows in which all these numbers can be drawn."""
        kept = np.ones(self.rows, dtype=bool)
        for name in names:
            kept &= np.abs(self.numbers[name]) < LARGEST_NUMBER
        return self.where(kept)


@final
@dataclass(frozen=True)
class CellFiles:
    """The files of one cell within its run directory."""

    home: Path | None
    key: str

    def read(self, name: str, numbers: Sequence[str], texts: Sequence[str] = ()) -> DetailTable:
        """Read columns of a table of details."""
        return read_columns(self.file("details", f"{name}.parquet"), numbers, texts)

    def file(self, folder: str, name: str) -> CellFile:
        """Return a regular file of the cell within its run; links are rejected."""
        if self.home is None or not _PLAIN.fullmatch(self.key):
            raise NoSuchFile("the key of the cell is not a valid folder name")
        try:
            content = read_bytes(self.home, folder, self.key, name, most=LARGEST_FILE)
        except StoreError:
            # The reason would name the key, which a public site does not show.
            raise Unavailable(
                f"{name} is not a plain file of the run, or larger than {LARGEST_FILE >> 20} MB"
            ) from None
        if content is None:
            raise NoSuchFile(f"the run holds no {name} of this cell")
        return CellFile(name, content)


@final
@dataclass(frozen=True)
class CellFile:
    """A file of a cell, read whole."""

    name: str
    content: bytes


def read_columns(
    stored: CellFile, numbers: Sequence[str], texts: Sequence[str] = ()
) -> DetailTable:
    """The columns of a Parquet file, each there once and of the right type."""
    table = _read(stored, numbers, texts)
    return DetailTable(
        {name: _numbers(table.column(name)) for name in numbers},
        {name: _texts(stored.name, table.column(name)) for name in texts},
        table.num_rows,
    )


def open_parquet(stored: CellFile, texts: Sequence[str] = ()) -> pq.ParquetFile:
    """A file of few enough rows; text columns stay coded, so that a small file stays small."""
    try:
        file = pq.ParquetFile(
            pa.BufferReader(stored.content),
            read_dictionary=list(texts),
            # Overwritten numbers are numbers still: only a checksum, where there is one, tells.
            page_checksum_verification=True,
        )
        if file.metadata.num_rows > MOST_ROWS:
            raise Unavailable(f"{stored.name} has more than {MOST_ROWS:,} rows")
    except KeyError as problem:
        raise Unavailable(
            f"{stored.name} is malformed: column {_decoded(problem)} is missing"
        ) from None
    except (OSError, pa.ArrowException) as problem:
        raise Unavailable(f"{stored.name} is no Parquet file ({type(problem).__name__})") from None
    return file


def _decoded(problem: KeyError) -> str:
    """Return the name of the missing column, which Arrow gives in bytes."""
    name = problem.args[0]
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _read(stored: CellFile, numbers: Sequence[str], texts: Sequence[str]) -> pa.Table:
    file = open_parquet(stored, texts)
    schema = file.schema_arrow
    for name in (*numbers, *texts):
        places = schema.get_all_field_indices(name)
        if len(places) != 1:
            fault = "twice" if places else "missing"
            raise Unavailable(f"{stored.name} is malformed: column {name} is {fault}")
        kind = schema.field(places[0]).type
        if not (_is_number(kind) if name in numbers else _is_text(kind)):
            raise Unavailable(f"{stored.name} is malformed: column {name} is {kind}")
    try:
        table = file.read(columns=[*numbers, *texts], use_threads=False)
        table.validate(full=True)
    except (OSError, pa.ArrowException) as problem:
        raise Unavailable(f"{stored.name} cannot be read ({type(problem).__name__})") from None
    if not table.num_rows:
        raise Unavailable(f"{stored.name} has no rows")
    return table


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _numbers(column: pa.ChunkedArray) -> Array:
    # Missing values become NaN.
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _texts(name: str, column: pa.ChunkedArray) -> tuple[str, ...]:
    texts: list[str] = []
    for chunk in column.chunks:
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if coded.dictionary.nbytes > LARGEST_TEXTS or coded.null_count:
            raise Unavailable(f"{name} is malformed: texts are missing or too long")
        words = [shortened(word or "", LONGEST_TEXT) for word in coded.dictionary.to_pylist()]
        texts += [words[code] for code in coded.indices.to_pylist()]
    return tuple(texts)
