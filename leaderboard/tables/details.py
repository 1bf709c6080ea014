"""Reads the files that a run keeps about one cell, whoever wrote them.

A run directory may come from a stranger: a file may be anything, huge, a link to somewhere else, or
hold other columns than it should. Whatever cannot be shown is said in one line, and the rest of the
page is written all the same.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import BenchError
from bench.leaderboard.tables.show import shortened

Array = npt.NDArray[np.float64]

LARGEST_FILE = 16 << 20
LARGEST_TEXTS = 4 << 20
"""Bytes of all different texts of a column together."""
MOST_ROWS = 400_000
LONGEST_TEXT = 120
"""Characters; longer ones are cut."""
LARGEST_NUMBER = 1e100
"""Beyond, no axis can show it."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")


@final
class Unavailable(BenchError):
    """Why something cannot be shown, as the page says it."""


@final
class NoSuchFile(BenchError):
    """The cell has no such table: its metric knows why."""


@final
@dataclass(frozen=True)
class DetailTable:
    """Some columns of a table; all numbers as float64, absent ones as NaN."""

    numbers: Mapping[str, Array]
    texts: Mapping[str, tuple[str, ...]]
    rows: int

    def finite(self, *names: str) -> tuple[Array, ...]:
        """These columns, all of whose numbers must be finite and of a size that can be drawn."""
        for name in names:
            if not (np.abs(self.numbers[name]) < LARGEST_NUMBER).all():
                raise Unavailable(f"the column {name} holds numbers that cannot be drawn")
        return tuple(self.numbers[name] for name in names)

    def where(self, kept: npt.NDArray[np.bool_]) -> DetailTable:
        """The rows that are kept."""
        places = np.flatnonzero(kept)
        return DetailTable(
            {name: values[places] for name, values in self.numbers.items()},
            {name: tuple(values[k] for k in places) for name, values in self.texts.items()},
            len(places),
        )

    def drawable(self, *names: str) -> DetailTable:
        """The rows in which all these numbers can be drawn."""
        kept = np.ones(self.rows, dtype=bool)
        for name in names:
            kept &= np.abs(self.numbers[name]) < LARGEST_NUMBER
        return self.where(kept)


@final
@dataclass(frozen=True)
class CellFiles:
    """The folders of one cell within its run."""

    home: Path | None
    key: str

    def read(self, name: str, numbers: Sequence[str], texts: Sequence[str] = ()) -> DetailTable:
        """Columns of a table of details."""
        return read_columns(self.path("details", f"{name}.parquet"), numbers, texts)

    def path(self, folder: str, name: str) -> Path:
        """A plain file of the cell, within its run: not a link to somewhere else."""
        if self.home is None or not _PLAIN.fullmatch(self.key):
            raise NoSuchFile("the cell's key is no name of a folder")
        path = self.home / folder / self.key / name
        try:
            status = path.lstat()
        except OSError:
            raise NoSuchFile(f"the run holds no {name} of this cell") from None
        if not stat.S_ISREG(status.st_mode) or not path.resolve().is_relative_to(
            self.home.resolve()
        ):
            raise Unavailable(f"{name} is not a plain file of the run")
        if status.st_size > LARGEST_FILE:
            raise Unavailable(f"{name} is larger than {LARGEST_FILE >> 20} MB")
        return path


def read_columns(path: Path, numbers: Sequence[str], texts: Sequence[str] = ()) -> DetailTable:
    """The columns of a Parquet file, each there once and of the right type."""
    table = _read(path, numbers, texts)
    return DetailTable(
        {name: _numbers(table.column(name)) for name in numbers},
        {name: _texts(path.name, table.column(name)) for name in texts},
        table.num_rows,
    )


def open_parquet(path: Path, texts: Sequence[str] = ()) -> pq.ParquetFile:
    """A file of few enough rows; text columns stay coded, so that a small file stays small."""
    try:
        # As a file, not as a dataset: folders named `a=b` above it must not become columns.
        file = pq.ParquetFile(
            path,
            read_dictionary=list(texts),
            memory_map=False,
            # Overwritten numbers are numbers still: only a checksum, where there is one, tells.
            page_checksum_verification=True,
        )
        if file.metadata.num_rows > MOST_ROWS:
            raise Unavailable(f"{path.name} has more than {MOST_ROWS:,} rows")
    except KeyError as problem:
        raise Unavailable(
            f"{path.name} is not what it should be: column {_decoded(problem)} is missing"
        ) from None
    except (OSError, pa.ArrowException) as problem:
        raise Unavailable(f"{path.name} is no Parquet file ({type(problem).__name__})") from None
    return file


def _decoded(problem: KeyError) -> str:
    """Arrow names the column that it did not find in bytes."""
    name = problem.args[0]
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _read(path: Path, numbers: Sequence[str], texts: Sequence[str]) -> pa.Table:
    file = open_parquet(path, texts)
    schema = file.schema_arrow
    for name in (*numbers, *texts):
        places = schema.get_all_field_indices(name)
        if len(places) != 1:
            fault = "twice" if places else "missing"
            raise Unavailable(f"{path.name} is not what it should be: column {name} is {fault}")
        kind = schema.field(places[0]).type
        if not (_is_number(kind) if name in numbers else _is_text(kind)):
            raise Unavailable(f"{path.name} is not what it should be: column {name} is {kind}")
    try:
        table = file.read(columns=[*numbers, *texts], use_threads=False)
        table.validate(full=True)
    except (OSError, pa.ArrowException) as problem:
        raise Unavailable(f"{path.name} cannot be read ({type(problem).__name__})") from None
    if not table.num_rows:
        raise Unavailable(f"{path.name} has no rows")
    return table


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _numbers(column: pa.ChunkedArray) -> Array:
    # What is absent becomes NaN on the way.
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _texts(name: str, column: pa.ChunkedArray) -> tuple[str, ...]:
    found: list[str] = []
    for chunk in column.chunks:
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if coded.dictionary.nbytes > LARGEST_TEXTS or coded.null_count:
            raise Unavailable(f"{name} is not what it should be: texts are absent or too long")
        words = [shortened(word or "", LONGEST_TEXT) for word in coded.dictionary.to_pylist()]
        found += [words[code] for code in coded.indices.to_pylist()]
    return tuple(found)
