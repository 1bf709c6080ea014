"""CIFAR-10: colour photographs of 32 x 32 pixels in ten classes, from the binary version.

The Python version of the same images is made of pickles, which can run code when they are read:
only the binary version is accepted. Its archive is read in memory. `data_batch_1` to `data_batch_5`
are split; `test_batch` is the test set that the field uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import Declaration, FileSource
from bench.datasets._shared import declare_alike
from bench.datasets.images._images import (
    CIFAR_SHAPE,
    image_table,
    parse_cifar,
    pixel_names,
    tar_members,
)

_ARCHIVE = "cifar-10-binary.tar.gz"
_TRAINING = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = ("test_batch.bin",)


@final
@dataclass(frozen=True)
class Cifar10(FileSource):
    """50,000 images to split and 10,000 official test images in ten classes."""

    name: ClassVar[str] = "cifar10"

    def declare(self) -> Declaration:
        return declare_alike(self.toml_path(), pixel_names(CIFAR_SHAPE), "pixel")

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        return _table(paths[_ARCHIVE], _TRAINING)

    def load_official_test(self) -> pd.DataFrame:
        return _table(self.paths()[_ARCHIVE], _TEST)


def _table(path: Path, batches: tuple[str, ...]) -> pd.DataFrame:
    members = tar_members(path, _ARCHIVE, batches)
    parts = [parse_cifar(members[name], f"{path}: {name}") for name in batches]
    pixels = np.concatenate([part[0] for part in parts])
    classes = np.concatenate([part[1] for part in parts])
    return image_table(pixels, classes.astype(str), CIFAR_SHAPE, "object")
