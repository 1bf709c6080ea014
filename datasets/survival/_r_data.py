"""Tables in the data files of R packages, read without R and without running anything of them.

The package `rdata` parses R's serialisation format, which holds values: code that a file might hold
is not run. A data file of an R package is an `.rda` file, or a lazy-load database: `Rdata.rdx` says
where in `Rdata.rdb` each object lies, packed by itself (R Internals, sections 1.2 and 1.8).
"""

from __future__ import annotations

import bz2
import lzma
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from bench import DataError, read_bytes

_MOST = 256 << 20
"""Bytes of an unpacked object, at most; the largest of a shipped dataset has 6 MB."""
_LAZY_LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
"""R writes the objects of a lazy-load database as LZMA2 without a container."""
_PACKED: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\0", lzma.LZMADecompressor),
)


def rda_table(path: Path, name: str, table: str) -> pd.DataFrame:
    """Return one table of an `.rda` file."""
    try:
        objects = _parsed(_whole(read_bytes(path, name)))
    except _Damaged:
        raise _damaged(path) from None
    return _table(objects, table, path)


def lazy_tables(index: Path, database: Path, *tables: str) -> list[pd.DataFrame]:
    """Return tables of a lazy-load database, `Rdata.rdx` and `Rdata.rdb`."""
    try:
        places = _parsed(_whole(read_bytes(index, index.name)))
        variables, packing = places["variables"], int(places["compressed"][0])
    except (_Damaged, *_WRONG):
        raise _damaged(index) from None
    content = read_bytes(database, database.name)
    found: dict[str, Any] = {}
    for table in tables:
        if table not in variables:
            raise DataError(f"{index}: holds no table {table!r}; obtain the original file")
        try:
            start, size = (int(number) for number in variables[table])
            found[table] = _parsed(_one(content[start : start + size], packing))
        except (_Damaged, *_WRONG):
            raise _damaged(database) from None
    return [_table(found, table, database) for table in tables]


_WRONG = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a file of another content makes of the steps above."""


class _Damaged(Exception):
    """A file that cannot be unpacked or parsed."""


def _damaged(path: Path) -> DataError:
    return DataError(
        f"{path}: truncated or damaged, or no data file of R; obtain the original file"
    )


def _whole(content: bytes) -> bytes:
    """Return the content of an R data file without its compression."""
    for magic, unpacker in _PACKED:
        if content.startswith(magic):
            return _unpacked(unpacker(), content)
    return content


def _one(content: bytes, packing: int) -> bytes:
    """Return one object of a lazy-load database: its size, how it is packed, and its bytes."""
    try:
        (size,) = struct.unpack(">I", content[:4])
    except struct.error:
        raise _Damaged from None
    if packing == 1:
        unpacked = _unpacked(zlib.decompressobj(), content[4:])
    elif content[4:5] == b"2":
        unpacked = _unpacked(bz2.BZ2Decompressor(), content[5:])
    elif content[4:5] == b"Z":
        raw = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_LAZY_LZMA)
        unpacked = _unpacked(raw, content[5:])
    else:
        unpacked = content[5:]
    if len(unpacked) != size:
        raise _Damaged
    return unpacked


def _unpacked(unpacker: Any, content: bytes) -> bytes:
    try:
        result: bytes = unpacker.decompress(content, _MOST)
    except (EOFError, OSError, lzma.LZMAError, zlib.error):
        raise _Damaged from None
    if not unpacker.eof:
        raise _Damaged
    return result


def _parsed(content: bytes) -> Any:
    import rdata

    try:
        with warnings.catch_warnings():
            # Names of columns are ASCII, and an object of a database has no file name. A date of
            # the R package date is a number of days, and stays one.
            warnings.filterwarnings("ignore", "Unknown encoding. Assumed ASCII.")
            warnings.filterwarnings("ignore", "Unknown file type: assumed RDS")
            warnings.filterwarnings("ignore", 'Missing constructor for R class "date"')
            return rdata.conversion.convert(rdata.parser.parse_data(content))
    except (*_WRONG, EOFError, NotImplementedError, OSError, struct.error):
        raise _Damaged from None


def _table(objects: Any, name: str, path: Path) -> pd.DataFrame:
    table = objects.get(name) if isinstance(objects, dict) else None
    if not isinstance(table, pd.DataFrame):
        raise DataError(f"{path}: holds no table {name!r}; obtain the original file")
    return table
