"""CIFAR-10: colour photographs of 32 x 32 pixels in ten classes, from the binary version.

The Python version of the same images is made of pickles, which can run code when they are read:
only the binary version is accepted, or the same batches as PNG images, one line per photograph,
with the classes in JSON. The binary archive is read in memory. `data_batch_1` to `data_batch_5` are
split; `test_batch` is the test set that the field uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import Declaration, FileSource, read_bytes
from bench.datasets._shared import declare_alike
from bench.datasets.images._images import (
    CIFAR_SHAPE,
    check_classes,
    image_table,
    parse_cifar,
    parse_cifar_png,
    parse_json_classes,
    pixel_names,
    tar_members,
)

_ARCHIVE = "cifar-10-binary.tar.gz"
_TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
_TRAINING_CLASSES = "train_lables.json"  # spelled as published
_TEST = ("test_batch",)
_TEST_CLASSES = "test_lables.json"


@final
@dataclass(frozen=True)
class Cifar10(FileSource):
    """50,000 images to split and 10,000 official test images in ten classes."""

    name: ClassVar[str] = "cifar10"

    def declare(self) -> Declaration:
        return declare_alike(self.toml_path(), pixel_names(CIFAR_SHAPE), "pixel")

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        return _table(paths, _TRAINING, _TRAINING_CLASSES)

    def load_official_test(self) -> pd.DataFrame:
        return _table(self.paths(), _TEST, _TEST_CLASSES)


def _table(paths: Mapping[str, Path], batches: tuple[str, ...], classes: str) -> pd.DataFrame:
    """Return the batches in their order, which both forms share."""
    if _ARCHIVE in paths:
        path = paths[_ARCHIVE]
        members = tar_members(path, _ARCHIVE, tuple(f"{name}.bin" for name in batches))
        parts = [parse_cifar(members[f"{name}.bin"], f"{path}: {name}.bin") for name in batches]
        pixels = np.concatenate([part[0] for part in parts])
        labels = np.concatenate([part[1] for part in parts])
    else:
        images = {f"{name}.png": paths[f"{name}.png"] for name in batches}
        pixels = np.concatenate(
            [parse_cifar_png(read_bytes(path, name), str(path)) for name, path in images.items()]
        )
        labels = parse_json_classes(read_bytes(paths[classes], classes), str(paths[classes]))
        check_classes(labels, len(pixels), str(paths[classes]))
    return image_table(pixels, labels.astype(str), CIFAR_SHAPE, "object")
