"""Reads Parquet files of a run directory within bounds on what they unfold to.

A Parquet file of a few kilobytes can state millions of rows, or repeat a long text in each of
them. What would take far more memory than its size is refused before it is decoded.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bench.errors import StoreError
from bench.results.opening import LARGEST_TABLE, open_file

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ALWAYS = 64 << 20
_TIMES = 1_000
"""A table may take this many times its size on disk in memory, and `_ALWAYS` besides: constant
columns shrink a lot, but not as much as a table that was made to fill the memory."""
_AT_MOST = 1 << 34
"""Bytes in memory of any table: 60,000 images of 3,072 pixels take 1.5 GB, 10 million scores 3."""


def read_parquet(
    directory: Path, *parts: str, columns: Sequence[str] | None = None, most: int = LARGEST_TABLE
) -> pa.Table | None:
    """Return a table of a run directory (all columns, or these); None where the file is absent."""
    file = open_file(directory, *parts, most=most)
    if file is None:
        return None
    with file:
        return table_of(file, directory.joinpath(*parts), columns)


def columns_in(directory: Path, *parts: str) -> list[str]:
    """Return the names of the columns of a table, doubled ones twice; none where it is absent."""
    file = open_file(directory, *parts)
    if file is None:
        return []
    with file:
        return list(parquet_file(file, directory.joinpath(*parts)).schema_arrow.names)


def rows_in(directory: Path, *parts: str) -> int | None:
    """Return the number of rows of a table by its footer; None where it is absent."""
    file = open_file(directory, *parts)
    if file is None:
        return None
    with file:
        return int(parquet_file(file, directory.joinpath(*parts)).metadata.num_rows)


def table_of(file: IO[bytes], path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the table in an opened file; `path` is its name in messages."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        texts = _text_columns(parquet_file(file, path).schema_arrow)
        # Texts stay coded until their length is known.
        parquet = parquet_file(file, path, read_dictionary=texts)
        schema = parquet.schema_arrow
        bound = min(_AT_MOST, _ALWAYS + _TIMES * os.fstat(file.fileno()).st_size)
        widths = (_width(f.type) for f in schema if columns is None or f.name in columns)
        _check(parquet.metadata.num_rows * sum(widths), bound, path)
        table = parquet.read(columns=None if columns is None else list(columns))
        unfolded = 0
        for column in table.columns:
            for chunk in column.chunks:
                if pa.types.is_dictionary(chunk.type):
                    lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
                    unfolded += pc.sum(lengths).as_py() or 0
                else:
                    unfolded += chunk.nbytes
        _check(unfolded, bound, path)
        table = table.cast(_plain_schema(table.schema))
        # Text that is not UTF-8 would pass until somebody reads it.
        table.validate(full=True)
    except (OSError, KeyError, ValueError, pa.ArrowException) as problem:
        # A missing column is named in bytes; Arrow's errors are `ValueError` and have many lines.
        first = next(iter(str(problem).splitlines()), "")[:200]
        raise StoreError(f"{path}: cannot be read as Parquet ({first})") from None
    return table


def parquet_file(
    file: IO[bytes], path: Path, read_dictionary: Collection[str] = ()
) -> pq.ParquetFile:
    """Return an opened file as Parquet, read to its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(
            file,
            read_dictionary=list(read_dictionary),
            # Overwritten numbers are numbers still: only a checksum, where there is one, tells.
            page_checksum_verification=True,
        )
    except (OSError, ValueError, pa.ArrowException) as problem:
        first = next(iter(str(problem).splitlines()), "")[:200]
        raise StoreError(f"{path}: cannot be read as Parquet ({first})") from None


def _width(kind: pa.DataType) -> int:
    """Return bytes per value, at least."""
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 4  # a coded text, or a list


def _check(size: int, bound: int, path: Path) -> None:
    if size > bound:
        raise StoreError(
            f"{path}: would take more than {bound:,} bytes of memory, far more than its size; it "
            "was not written by bench"
        )


def _text_columns(schema: pa.Schema) -> list[str]:
    import pyarrow as pa

    def is_text(kind: pa.DataType) -> bool:
        types = pa.types
        return bool(
            types.is_string(kind)
            or types.is_large_string(kind)
            or types.is_binary(kind)
            or types.is_large_binary(kind)
        )

    return [field.name for field in schema if is_text(field.type)]


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the coding of texts."""
    import pyarrow as pa

    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ],
        metadata=schema.metadata,
    )
