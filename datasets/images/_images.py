"""Image files: the idx format of MNIST, the binary and PNG batches of CIFAR-10, tables of pixels.

All parsers read bytes with numpy and nothing else: no format here can run code. A file that is
truncated, of another kind or of another image size is refused.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import DataError, Declaration, FileSource, open_data, read_bytes
from bench.datasets._shared import declare_alike

Bytes: TypeAlias = npt.NDArray[np.uint8]
Shape: TypeAlias = tuple[int, int, int]
"""Channels, height, width."""

_IDX_BYTES = 0x08
"""The idx type code of unsigned bytes, the only one in use here."""


def pixel_names(shape: Shape) -> tuple[str, ...]:
    """One name a pixel, channel by channel and row by row: `pixel_<channel>_<row>_<column>`.

    A grey image has no channel in its names.
    """
    channels, height, width = shape
    return tuple(
        f"pixel_{channel}_{row}_{column}" if channels > 1 else f"pixel_{row}_{column}"
        for channel in range(channels)
        for row in range(height)
        for column in range(width)
    )


def image_table(
    pixels: Bytes, labels: npt.NDArray[np.str_], shape: Shape, label: str
) -> pd.DataFrame:
    """Return one row per image; pixels stay bytes, as 60,000 images of MNIST are 47 MB."""
    frame = pd.DataFrame(
        pixels.reshape(len(pixels), math.prod(shape)), columns=pd.Index(pixel_names(shape))
    )
    return pd.concat([frame, pd.Series(labels.astype(object), name=label)], axis=1)


def parse_idx(content: bytes, where: str, dimensions: int) -> Bytes:
    """An idx file: two zero bytes, type, number of dimensions, big-endian sizes, then the values.

    Format: http://yann.lecun.com/exdb/mnist/, at the end of the page.
    """
    magic = bytes((0, 0, _IDX_BYTES, dimensions))
    if content[:4] != magic:
        raise DataError(
            f"{where}: starts with {content[:4].hex() or 'nothing'}, an idx file of bytes in "
            f"{dimensions} dimensions with {magic.hex()}; is it another file, or packed twice?"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(f"{where}: truncated within its header; obtain the file again")
    sizes = struct.unpack(f">{dimensions}I", content[4:start])
    expected = start + math.prod(sizes)
    if len(content) != expected:
        raise DataError(
            f"{where}: {len(content)} bytes, its header announces {expected}; truncated or "
            "altered: obtain the file again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(sizes)


class IdxImages(FileSource):
    """MNIST and what was published in its form: four idx files, ten classes, 28 x 28 grey pixels.

    `train-*` is split by the harness; `t10k-*` is the test set that the field uses.
    """

    shape: ClassVar[Shape] = (1, 28, 28)
    label: ClassVar[str]

    def declare(self) -> Declaration:
        return declare_alike(self.toml_path(), pixel_names(self.shape), "pixel")

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        return self._table(paths, "train")

    def load_official_test(self) -> pd.DataFrame:
        return self._table(self.paths(), "t10k")

    def _table(self, paths: Mapping[str, Path], part: str) -> pd.DataFrame:
        images, labels = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
        pixels = parse_idx(read_bytes(paths[images], images), str(paths[images]), 3)
        classes = parse_idx(read_bytes(paths[labels], labels), str(paths[labels]), 1)
        if pixels.shape[1:] != self.shape[1:]:
            raise DataError(
                f"{paths[images]}: images of {pixels.shape[1]} x {pixels.shape[2]} pixels, "
                f"expected {self.shape[1]} x {self.shape[2]}"
            )
        check_classes(classes, len(pixels), str(paths[labels]))
        return image_table(pixels, classes.astype(str), self.shape, self.label)


def check_classes(classes: Bytes, images: int, where: str) -> None:
    """Check that there is one of ten classes per image."""
    if len(classes) != images:
        raise DataError(
            f"{where}: {len(classes)} labels for {images} images; the two files are of different "
            "parts"
        )
    if not images:
        raise DataError(f"{where}: no images")
    if classes.max() > 9:
        raise DataError(f"{where}: a label {classes.max()}, expected 0 to 9")


CIFAR_SHAPE: Shape = (3, 32, 32)
_CIFAR_RECORD = 1 + math.prod(CIFAR_SHAPE)
_CIFAR_IMAGES = 10_000
"""Of a batch file: nothing larger is unpacked."""


def parse_cifar(content: bytes, where: str) -> tuple[Bytes, Bytes]:
    """Pixels and classes of a batch: a byte for the class, then red, green and blue, row by row."""
    if not content or len(content) % _CIFAR_RECORD:
        raise DataError(
            f"{where}: {len(content)} bytes are not whole records of {_CIFAR_RECORD}; truncated, "
            "or not the binary version"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
    check_classes(records[:, 0], len(records), where)
    return records[:, 1:], records[:, 0]


_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_PNG_WIDTH = math.prod(CIFAR_SHAPE[1:])


def parse_cifar_png(content: bytes, where: str) -> Bytes:
    """Pixels of a batch that was stored as one PNG image: a line per image, a column per pixel.

    Only the kind of PNG that holds CIFAR-10 is read: 8 bits of red, green and blue, not interlaced.
    Filters as in section 9 of the PNG specification (W3C, 2003).
    """
    header, packed = _png_chunks(content, where)
    width, height, *kind = struct.unpack(">IIBBBBB", header)
    if width != _PNG_WIDTH or not 0 < height <= _CIFAR_IMAGES or kind != [8, 2, 0, 0, 0]:
        raise DataError(
            f"{where}: an image of {width} x {height} pixels, kind {kind}; expected {_PNG_WIDTH} "
            f"columns and up to {_CIFAR_IMAGES} lines of 8-bit red, green and blue"
        )
    expected = height * (1 + 3 * width)
    try:
        raw = zlib.decompressobj().decompress(packed, expected)
    except zlib.error as problem:
        raise DataError(f"{where}: damaged ({problem}); obtain the file again") from None
    if len(raw) != expected:
        raise DataError(f"{where}: truncated: {len(raw)} of {expected} bytes of pixels")
    stored = np.frombuffer(raw, dtype=np.uint8).reshape(height, 1 + 3 * width)
    lines = _unfiltered(stored[:, 0], stored[:, 1:].reshape(height, width, 3), where)
    return np.ascontiguousarray(lines.transpose(0, 2, 1)).reshape(height, 3 * width)


def _png_chunks(content: bytes, where: str) -> tuple[bytes, bytes]:
    """Header and packed pixels of a PNG image, whose checksums are compared."""
    header, packed, at = b"", [], len(_PNG_MAGIC)
    if not content.startswith(_PNG_MAGIC):
        raise DataError(f"{where}: not a PNG image; obtain the file again")
    while True:
        if at + 12 > len(content):
            raise DataError(f"{where}: truncated; obtain the file again")
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        body, at = content[at + 8 : at + 8 + length], at + 12 + length
        if zlib.crc32(kind + body) != int.from_bytes(content[at - 4 : at]):
            raise DataError(f"{where}: damaged or truncated; obtain the file again")
        if kind == b"IHDR" and len(body) == 13:
            header = body
        elif kind == b"IDAT":
            packed.append(body)
        elif kind == b"IEND" and header:
            return header, b"".join(packed)
        elif kind == b"IEND":
            raise DataError(f"{where}: a PNG image without a header; obtain the file again")


def _unfiltered(filters: Bytes, stored: Bytes, where: str) -> Bytes:
    if filters.max() > 4:
        raise DataError(f"{where}: damaged: no filter {filters.max()} in PNG")
    lines = stored.copy()
    left = filters == 1
    # Sums modulo 256: bytes wrap around.
    lines[left] = np.cumsum(stored[left], axis=1, dtype=np.uint8)
    for number in np.flatnonzero(filters > 1):
        above = lines[number - 1] if number else np.zeros_like(lines[0])
        if filters[number] == 2:
            lines[number] = stored[number] + above
        else:
            _predicted(lines[number], above.astype(int), paeth=bool(filters[number] == 4))
    return lines


def _predicted(line: Bytes, above: npt.NDArray[np.int_], *, paeth: bool) -> None:
    """Add to each pixel its prediction from those to the left, above and above left."""
    a = c = np.zeros(3, dtype=int)
    for column, b in enumerate(above):
        if paeth:
            p = a + b - c
            da, db, dc = abs(p - a), abs(p - b), abs(p - c)
            guess = np.where((da <= db) & (da <= dc), a, np.where(db <= dc, b, c))
        else:
            guess = (a + b) // 2
        a = (line[column] + guess) % 256
        line[column] = a
        c = b


def parse_json_classes(content: bytes, where: str) -> Bytes:
    """Classes as a JSON list of numbers from 0 to 9."""
    try:
        classes = json.loads(content)
        if not all(type(item) is int and 0 <= item <= 9 for item in classes):
            raise ValueError
        return np.array(classes, dtype=np.uint8)
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"{where}: not a list of classes 0 to 9; obtain the file again") from None


def tar_members(path: Path, name: str, wanted: tuple[str, ...]) -> dict[str, bytes]:
    """Read files of a gzipped tar archive into memory, by base name."""
    members: dict[str, bytes] = {}
    with open_data(path, name) as file, gzip.GzipFile(fileobj=file) as unpacked:
        try:
            with tarfile.open(fileobj=unpacked, mode="r:") as archive:
                for member in archive:
                    short = Path(member.name).name
                    if short not in wanted or not member.isreg():
                        continue
                    if member.size > _CIFAR_IMAGES * _CIFAR_RECORD:
                        raise DataError(f"{path}: {short} is larger than a batch of CIFAR-10")
                    content = archive.extractfile(member)
                    members[short] = content.read() if content is not None else b""
        except tarfile.TarError as problem:
            raise DataError(
                f"{path}: not a whole .tar.gz archive ({problem}); obtain the file again"
            ) from None
        while unpacked.read(1 << 20):
            pass  # the checksum of the whole stands at its end
    missing = [short for short in wanted if short not in members]
    if missing:
        raise DataError(
            f"{path}: holds no {missing[0]}; expected the binary version of CIFAR-10, not the "
            "Python or Matlab one"
        )
    return members
