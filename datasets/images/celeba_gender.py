"""CelebA: is the celebrity in the photograph a man or a woman (the attribute `Male`)?

The aligned and cropped images (178 x 218) are cut to their middle square and reduced to 32 x 32
with Pillow's bilinear filter. The publisher's partition is kept: its training and validation
images are split by the harness, its test images are the test set.

202,599 images show 10,177 people: the unit of privacy is the image, and protecting an image is not
protecting the person, who is in about 20 of them. NDPDC, whose experiments this dataset serves,
counts the same way.

`rows` takes the first images in file order (and as large a share of the test images), because the
whole table is 2.2 GB when encoded. Its class counts are then the published shares of those rows,
not a count: they stay public, and may differ from the rows by chance.
"""

from __future__ import annotations

import dataclasses
import io
import operator
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import DataError, Declaration, FileSource, InputError, read_bytes
from bench.datasets._shared import declare_alike
from bench.datasets.images._images import Bytes, Shape, image_table, pixel_names

_IMAGES = "img_align_celeba.zip"
_ATTRIBUTES = "list_attr_celeba.txt"
_PARTITION = "list_eval_partition.txt"

_SHAPE: Shape = (3, 32, 32)
_CLASSES = ("female", "male")
_SPLIT_ROWS = 182_637
"""162,770 training and 19,867 validation images."""
_TEST_BY_CLASS = (12_247, 7_715)


@final
@dataclass(frozen=True)
class CelebaGender(FileSource):
    """182,637 images to split and 19,962 official test images in two classes."""

    name: ClassVar[str] = "celeba-gender"

    rows: int = _SPLIT_ROWS

    def __post_init__(self) -> None:
        try:
            good = 20 <= operator.index(self.rows) <= _SPLIT_ROWS
        except TypeError:
            good = False
        if not good:
            raise InputError(
                f"celeba-gender: rows={self.rows!r} must be 20 to {_SPLIT_ROWS:,}, a whole number"
            )

    def declare(self) -> Declaration:
        whole = declare_alike(self.toml_path(), pixel_names(_SHAPE), "pixel")
        female = round(whole.by_class[0] * self.rows / _SPLIT_ROWS)
        return dataclasses.replace(whole, by_class=(female, self.rows - female))

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        return _table(paths, _listing(paths).query("part != 2").head(self.rows))

    def load_official_test(self) -> pd.DataFrame:
        rows = round(sum(_TEST_BY_CLASS) * self.rows / _SPLIT_ROWS)
        paths = self.paths()
        return _table(paths, _listing(paths).query("part == 2").head(rows))

    def check(self) -> list[str]:
        """Counts by the two lists and the archive's index, without decoding 200,000 images."""
        paths = self.paths()
        listing = _listing(paths)
        published = declare_alike(self.toml_path(), pixel_names(_SHAPE), "pixel").by_class
        differences: list[str] = []
        for part, chosen, expected in (
            ("training and validation", listing["part"] != 2, published),
            ("test", listing["part"] == 2, _TEST_BY_CLASS),
        ):
            genders = listing.loc[chosen, "gender"]
            counts = tuple(int((genders == name).sum()) for name in _CLASSES)
            if counts != expected:
                differences.append(f"{part} images by class {counts}, expected {expected}")
        with _archive(paths[_IMAGES]) as archive:
            absent = set(listing["image"]) - {Path(name).name for name in archive.namelist()}
        if absent:
            differences.append(
                f"{_IMAGES}: lacks {len(absent)} listed images, for example {min(absent)}"
            )
        return differences


def _listing(paths: Mapping[str, Path]) -> pd.DataFrame:
    """Name, gender and part (0 training, 1 validation, 2 test) of every image, in file order."""
    genders = _genders(_lines(paths, _ATTRIBUTES), paths[_ATTRIBUTES])
    parts: dict[str, int] = {}
    for line in _lines(paths, _PARTITION):
        words = line.split()
        if len(words) != 2 or words[1] not in ("0", "1", "2"):
            raise DataError(
                f"{paths[_PARTITION]}: {line[:60]!r} is not an image name and a part 0, 1 or 2"
            )
        parts[words[0]] = int(words[1])
    if set(parts) != set(genders):
        odd = min(set(parts) ^ set(genders))
        raise DataError(f"{paths[_PARTITION]}: does not list the images of {_ATTRIBUTES}: {odd}")
    return pd.DataFrame(
        {
            "image": list(genders),
            "gender": list(genders.values()),
            "part": [parts[image] for image in genders],
        }
    )


def _genders(lines: Sequence[str], path: Path) -> dict[str, str]:
    """Read the attribute list: number of images, names of attributes, then one line per image."""
    names = lines[1].split() if len(lines) > 1 else []
    if "Male" not in names or not lines[0].strip().isdigit():
        raise DataError(
            f"{path}: expected the number of images in the first line and the attribute Male among "
            f"the names in the second; obtain the original {_ATTRIBUTES}"
        )
    place = 1 + names.index("Male")
    genders: dict[str, str] = {}
    for line in lines[2:]:
        words = line.split()
        if len(words) != 1 + len(names) or words[place] not in ("-1", "1"):
            raise DataError(
                f"{path}: {line[:60]!r} is not an image name and {len(names)} values of -1 or 1"
            )
        genders[words[0]] = _CLASSES[int(words[place] == "1")]
    if len(genders) != int(lines[0]):
        raise DataError(
            f"{path}: {len(genders)} images, its first line announces {lines[0].strip()}; "
            "truncated: obtain the file again"
        )
    return genders


def _lines(paths: Mapping[str, Path], name: str) -> list[str]:
    try:
        text = read_bytes(paths[name], name).decode("ascii")
    except UnicodeDecodeError:
        raise DataError(f"{paths[name]}: not plain text; obtain the original {name}") from None
    return [line for line in text.splitlines() if line.strip()]


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as problem:
        raise DataError(
            f"{path}: not a whole zip archive ({problem}); obtain the file again"
        ) from None


def _table(paths: Mapping[str, Path], listing: pd.DataFrame) -> pd.DataFrame:
    path = paths[_IMAGES]
    pixels = np.empty((len(listing), *_SHAPE), dtype=np.uint8)
    with _archive(path) as archive:
        members = {Path(name).name: name for name in archive.namelist()}
        for row, image in enumerate(listing["image"]):
            if image not in members:
                raise DataError(f"{path}: holds no {image}, which {_ATTRIBUTES} lists")
            try:
                pixels[row] = _reduced(archive.read(members[image]))
            except (OSError, zipfile.BadZipFile, zlib.error, SyntaxError) as problem:
                raise DataError(f"{path}: {image} is not a readable image ({problem})") from None
    return image_table(pixels, listing["gender"].to_numpy(dtype=np.str_), _SHAPE, "gender")


def _reduced(content: bytes) -> Bytes:
    """Return the middle square, reduced, channels first."""
    from PIL import Image

    with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        square = (left, top, left + side, top + side)
        small = image.convert("RGB").crop(square).resize(_SHAPE[1:], Image.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.uint8).transpose(2, 0, 1)
