"""Reads a user's own table, CSV or Parquet, in pieces of bounded size, whatever is in the file.

Every entry is read by itself. CSV entries stay texts: pandas would guess the type of a column from
all of its rows, so that one row with a text would change how the others are read ("01" or 1), and
two tables that differ in one row would differ in many.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

import pandas as pd

from bench.data.files import check_columns, not_utf8, open_data, plausible_size, read_header
from bench.errors import DataError, shortened

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_CELLS = 2_000_000
"""Entries of one piece: some hundred megabytes as texts."""
_MOST_ROWS = 200_000
_MOST_COLUMNS = 10_000
_LONGEST_NAME = 1_000
_SMALL = 32_000_000
_PLAUSIBLE_RATIO = 200
"""A Parquet file may hold up to `_PLAUSIBLE_RATIO` entries per byte, or this many: equal entries
take no space, and some kilobytes could stand for a billion rows."""
_PANDAS_INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")
"""Names under which pandas writes, or reads again, an index."""

Answer = TypeVar("Answer")


@final
@dataclass(frozen=True)
class TableFile:
    """Where a table is, and how a delimited text is separated."""

    path: Path
    member: str = ""
    """Name of the text inside a .gz or .zip; found where it is empty."""
    separator: str = ","

    @property
    def parquet(self) -> bool:
        """True for a Parquet file; everything else is delimited text."""
        return self.path.suffix == ".parquet"


def table_file(path: Path, member: str = "", separator: str = ",") -> TableFile:
    """Return the file, checked as far as that is possible without reading a row."""
    separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    odd = len(separator) != 1 or not separator.isascii() or separator.isalnum()
    if odd or separator in "\"'\n\r\0.+-_":
        raise DataError(
            f"separator {shortened(separator)}: expected one character such as , ; | or \\t"
        )
    try:
        present, regular = path.exists(), path.is_file()
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise DataError(f"{shortened(str(path))}: cannot be read ({reason})") from None
    if not regular:
        raise DataError(f"{path}: {'not a regular file' if present else 'no such file'}")
    if path.suffix == ".parquet":
        return TableFile(path)
    return TableFile(path, member or _member_name(path), separator)


def _member_name(path: Path) -> str:
    if path.suffix != ".zip":
        return path.name.removesuffix(".gz")
    try:
        with zipfile.ZipFile(path) as archive:
            inside = [name for name in archive.namelist() if name.endswith((".csv", ".tsv"))]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as problem:
        raise DataError(f"{path}: truncated or damaged ({problem})") from None
    if len(inside) != 1:
        raise DataError(f"{path}: expected one CSV file inside, it holds {len(inside)}")
    return Path(inside[0]).name


def is_pandas_index(name: str) -> bool:
    """Return True for a column without a name, or with the one that pandas gives to an index."""
    return not name or _PANDAS_INDEX.fullmatch(name) is not None


def column_names(file: TableFile) -> list[str]:
    """Return the names of the columns, in order; "" for a column without a name."""
    names = _parquet_names(file.path) if file.parquet else _csv_head(file)[0]
    if len(names) > _MOST_COLUMNS:
        raise DataError(
            f"{file.path}: {len(names)} columns; a table has at most {_MOST_COLUMNS}: keep those "
            "that you need"
        )
    for place, name in enumerate(names, start=1):
        if len(name) > _LONGEST_NAME or not (name.isprintable() or not name):
            raise DataError(
                f"{file.path}: the name of column {place} is {shortened(name)}; names have at most "
                f"{_LONGEST_NAME} characters, and neither line breaks nor control characters"
            )
    doubled = sorted(name for name, count in Counter(filter(None, names)).items() if count > 1)
    if doubled:
        raise DataError(f"{file.path}: the column {doubled[0]!r} is there twice; rename one")
    return names


def pieces(file: TableFile, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield these columns piece by piece; the index of a piece counts the rows of the file from 1.

    Entries of a CSV file are texts or missing; those of a Parquet file have the column's type.
    """
    present = column_names(file)
    check_columns(file.path, present, columns, "" if file.parquet else file.separator)
    read = _parquet_pieces if file.parquet else _csv_pieces
    rows = 0
    for piece in read(file, present, list(columns)):
        piece.index = pd.RangeIndex(rows + 1, rows + 1 + len(piece))
        rows += len(piece)
        yield piece
    if not rows:
        raise DataError(f"{file.path}: a header and no rows")


def _piece_rows(columns: int) -> int:
    return max(1, min(_MOST_ROWS, _CELLS // max(1, columns)))


# Delimited text -----------------------------------------------------------------------------------


def _csv_head(file: TableFile) -> tuple[list[str], int]:
    """Return the names of the columns, and how many lines of the text they take."""
    with open_data(file.path, file.member, lines=True) as content:
        text = io.TextIOWrapper(content, encoding="utf-8", newline="")
        taken = 0

        def lines() -> Iterator[str]:
            nonlocal taken
            for line in text:
                taken += 1
                yield line.replace("\0", "")

        source = lines()
        try:
            names = [name.strip() for name in read_header(file.path, source, file.separator)]
            header = taken
            first = _first_record(file, source)
        except UnicodeDecodeError:
            raise not_utf8(file.path) from None
    if len(first) > len(names):
        raise DataError(
            f"{file.path}: the header has {len(names)} columns and row 1 has {len(first)}; not a "
            "regular table"
        )
    return names, header


def _first_record(file: TableFile, lines: Iterator[str]) -> list[str]:
    """Return the first row: pandas takes its number of fields for that of the header."""
    try:
        reader = csv.reader(lines, delimiter=file.separator, skipinitialspace=True)
        return next((row for row in reader if row), [])
    except csv.Error as problem:
        raise DataError(f"{file.path}: row 1 cannot be read ({problem})") from None


def _csv_pieces(file: TableFile, present: list[str], columns: list[str]) -> Iterator[pd.DataFrame]:
    _, header = _csv_head(file)
    places = [present.index(name) for name in columns]
    rows = 0
    with open_data(file.path, file.member, lines=True) as content:
        text = io.TextIOWrapper(content, encoding="utf-8", newline="")
        try:
            for _ in range(header):
                text.readline()
            # All columns are read, as rows with too many fields would pass unseen otherwise.
            for piece in pd.read_csv(
                text,
                sep=file.separator,
                names=list(range(len(present))),
                header=None,
                index_col=False,
                dtype=str,
                skipinitialspace=True,
                chunksize=_piece_rows(len(present)),
            ):
                chosen = piece[places]
                chosen.columns = pd.Index(columns)
                rows += len(chosen)
                yield chosen
        except UnicodeDecodeError:
            raise not_utf8(file.path, rows) from None
        except pd.errors.EmptyDataError:
            return
        except pd.errors.ParserError as problem:
            # pandas counts lines from the end of the header.
            reason = re.sub(
                r"(?<=line )\d+", lambda found: str(int(found[0]) + header), str(problem)
            )
            raise DataError(f"{file.path}: not a regular table ({reason.strip()})") from None


# Parquet ------------------------------------------------------------------------------------------


def _guarded(path: Path, what: str, read: Callable[[], Answer]) -> Answer:
    """Call a function of Arrow, whose errors about a damaged file are of many types.

    Their texts can hold entries of the table and are not repeated.
    """
    import pyarrow as pa

    try:
        return read()
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as problem:
        raise DataError(
            f"{path}: {what} cannot be read ({type(problem).__name__}): damaged, or not a Parquet "
            "file; write it again"
        ) from None


def _open_parquet(path: Path, **options: Any) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    file = _guarded(path, "the file", lambda: pq.ParquetFile(path, **options))
    metadata = file.metadata
    size = path.stat().st_size
    sizes = [metadata.row_group(number).total_byte_size for number in range(file.num_row_groups)]
    if min(sizes, default=0) < 0 or metadata.num_rows < 0:
        raise DataError(f"{path}: negative sizes; damaged, or not a Parquet file: write it again")
    entries = metadata.num_rows * max(1, metadata.num_columns)
    if sum(sizes) > plausible_size(size) or entries > max(_SMALL, _PLAUSIBLE_RATIO * size):
        raise DataError(
            f"{path}: holds far more than a file of that size can ({metadata.num_rows} rows, "
            f"{sum(sizes) >> 20} MiB); damaged, or made to fill the memory"
        )
    return file


def _parquet_names(path: Path) -> list[str]:
    return _guarded(path, "the schema", lambda: list(_open_parquet(path).schema_arrow.names))


def _parquet_pieces(file: TableFile, _: list[str], columns: list[str]) -> Iterator[pd.DataFrame]:
    path = file.path
    schema = _guarded(path, "the schema", lambda: _open_parquet(path).schema_arrow)
    for name in columns:
        _check_type(path, name, schema.field(name).type)
    # Texts stay in dictionaries: a long one that is repeated would otherwise fill the memory.
    texts = [name for name in columns if _is_text(schema.field(name).type)]
    table = _open_parquet(path, read_dictionary=texts)
    size = _piece_rows(len(columns))
    for group in range(table.num_row_groups):
        batches = table.iter_batches(size, row_groups=[group], columns=columns)
        while True:
            try:
                batch = _guarded(path, f"row group {group + 1}", partial(next, batches, None))
            except DataError:
                raise _with_column(path, table, group, columns) from None
            if batch is None:
                break
            yield pd.DataFrame({name: _series(path, name, batch.column(name)) for name in columns})


def _with_column(path: Path, table: pq.ParquetFile, group: int, columns: list[str]) -> DataError:
    """Return the error about a group of rows that cannot be read, with the first such column."""
    before = sum(table.metadata.row_group(number).num_rows for number in range(group))
    rows = f"rows {before + 1} to {before + table.metadata.row_group(group).num_rows}"
    for name in columns:
        try:
            _guarded(path, f"column {name!r}, {rows}", partial(_drain, table, group, name))
        except DataError as problem:
            return problem
    return DataError(f"{path}: {rows} cannot be read; write the file again")


def _drain(table: pq.ParquetFile, group: int, name: str) -> None:
    for _ in table.iter_batches(_MOST_ROWS, row_groups=[group], columns=[name]):
        pass


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _check_type(path: Path, name: str, kind: pa.DataType) -> None:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    plain = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_decimal,
        types.is_temporal,
        types.is_null,
        _is_text,
    )
    if not any(test(kind) for test in plain):
        raise DataError(
            f"{path}: column {name!r} is of the Parquet type {shortened(str(kind))}; expected "
            "numbers, texts, booleans or dates: flatten it into columns of its own, or drop it"
        )


def _series(path: Path, name: str, column: pa.Array) -> pd.Series[Any]:
    """Return one column of a piece, each entry whatever the others are."""
    import pyarrow as pa
    import pyarrow.types as types

    def converted() -> pd.Series[Any]:
        kind = column.type
        if types.is_dictionary(kind) and _is_text(kind.value_type):
            codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            words = [*column.dictionary.to_pylist(), None]
            return pd.Series([words[code] for code in codes], dtype=object)
        plain = column.dictionary_decode() if types.is_dictionary(kind) else column
        if types.is_temporal(plain.type):
            plain = plain.cast(pa.string())
        if types.is_decimal(plain.type) or types.is_float16(plain.type):
            plain = plain.cast(pa.float64())
        # Integers beside a missing entry would become floats, and large ones lose digits.
        return pd.Series(plain.to_pandas(integer_object_nulls=True))

    return _guarded(path, f"column {name!r}", converted)
