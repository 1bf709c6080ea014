"""The released rows themselves: as a table to download, and as pictures where they are images."""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from bench.leaderboard.tables.details import Files, Unavailable, open_parquet, read_columns

LARGEST_CSV = 1 << 20
"""Bytes; larger releases stay in the run directory."""
_MOST_VALUES = 4_000_000

_IMAGES_A_CLASS = 8
_LARGEST_GRID = 90_000
"""Bytes of pixels."""
_MOST_CLASSES = 20
_PIXEL = re.compile(r"pixel_(?:(\d{1,3})_)?(\d{1,3})_(\d{1,3})")

# A cell that starts like this is run by a spreadsheet instead of being shown.
_FORMULA = re.compile(r"\s*[=+\-@\t\r](?!\s*[\d.,eE+-]*$)")

Bytes = npt.NDArray[np.uint8]


@final
@dataclass(frozen=True)
class Grid:
    """Released images in one picture, a row for each class."""

    source: str
    """A data address."""
    width: int
    height: int
    classes: tuple[str, ...]
    images: int


def as_csv(files: Files) -> bytes:
    """The released rows in the units of the schema."""
    path = files.path("releases", "synthetic.parquet")
    file = _small(open_parquet(path))
    try:
        table = file.read(use_threads=False)
        table.validate(full=True)
        plain = pa.table({name: _plain(name, table.column(name)) for name in table.column_names})
        buffer = io.BytesIO()
        pyarrow.csv.write_csv(plain, buffer)
    except (OSError, pa.ArrowException) as problem:
        raise Unavailable(f"the release cannot be read ({type(problem).__name__})") from None
    content = buffer.getvalue()
    if len(content) > LARGEST_CSV:
        raise Unavailable(_too_large())
    return content


def _small(file: pq.ParquetFile) -> pq.ParquetFile:
    names = file.schema_arrow.names
    if file.metadata.num_rows * len(names) > _MOST_VALUES or len(set(names)) < len(names):
        raise Unavailable(_too_large())
    return file


def _too_large() -> str:
    return f"the release is larger than {LARGEST_CSV >> 20} MB: take it from the run directory"


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as they are, texts as texts; what a spreadsheet would run is refused."""
    if _FORMULA.match(name):
        raise Unavailable("the release names a column by what a spreadsheet would run")
    kind = column.type
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return column
    coded = types.is_dictionary(kind)
    inner = kind.value_type if coded else kind
    if not (types.is_string(inner) or types.is_large_string(inner)):
        raise Unavailable(f"the release holds values that are neither numbers nor texts ({kind})")
    words = [chunk.dictionary if coded else chunk for chunk in column.chunks]
    if sum(chunk.nbytes for chunk in words) > LARGEST_CSV:
        raise Unavailable(_too_large())
    if any(_FORMULA.match(word or "") for chunk in words for word in chunk.unique().to_pylist()):
        raise Unavailable("the release holds texts that a spreadsheet would run")
    return column.cast(pa.string())


def image_grid(files: Files) -> Grid:
    """The first images of each class."""
    path = files.path("releases", "synthetic.parquet")
    names = _small(open_parquet(path)).schema_arrow.names
    places = {name: _place(name) for name in names}
    pixels = [name for name, place in places.items() if place is not None]
    others = [name for name, place in places.items() if place is None]
    if not pixels or len(others) != 1:
        raise Unavailable("the release has no columns of pixels and one of classes")
    where = np.array([place for place in places.values() if place is not None])
    channels, rows, columns = (int(size) for size in where.max(axis=0) + 1)
    if channels * rows * columns != len(pixels) or channels not in (1, 3):
        raise Unavailable("the pixels of the release make no rectangle")
    table = read_columns(path, pixels, others)
    values = np.stack(table.finite(*pixels), axis=1)
    labels = np.array(table.texts[others[0]])
    classes = tuple(sorted(set(labels.tolist()), key=lambda name: (len(name), name)))[
        :_MOST_CLASSES
    ]
    each = max(1, min(_IMAGES_A_CLASS, _LARGEST_GRID // (len(classes) * len(pixels))))
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low if high > low else 1.0) * 255
    canvas = np.full((len(classes) * (rows + 1) - 1, each * (columns + 1) - 1, channels), 128.0)
    count = 0
    for line, name in enumerate(classes):
        for turn, row in enumerate(np.flatnonzero(labels == name)[:each]):
            top, left = line * (rows + 1), turn * (columns + 1)
            image = np.empty((rows, columns, channels))
            image[where[:, 1], where[:, 2], where[:, 0]] = scaled[row]
            canvas[top : top + rows, left : left + columns] = image
            count += 1
    data = base64.b64encode(png(canvas.astype(np.uint8))).decode()
    zoom = max(1, round(28 / columns))
    height, width = canvas.shape[:2]
    return Grid(f"data:image/png;base64,{data}", zoom * width, zoom * height, classes, count)


def _place(name: str) -> tuple[int, int, int] | None:
    found = _PIXEL.fullmatch(name)
    if found is None:
        return None
    channel, row, column = found.groups()
    return int(channel or 0), int(row), int(column)


def png(pixels: Bytes) -> bytes:
    """(height, width, 1 or 3) bytes as a PNG file (RFC 2083), without filters."""
    height, width, channels = pixels.shape
    lines = np.concatenate(
        [np.zeros((height, 1), np.uint8), pixels.reshape(height, width * channels)], axis=1
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
