"""Image files: the idx format of MNIST, the binary format of CIFAR-10, tables of pixels.

All parsers read bytes with numpy and nothing else: no format here can run code. A file that is
truncated, of another kind or of another image size is refused.
"""

from __future__ import annotations

import gzip
import math
import struct
import tarfile
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
