"""Fashion-MNIST: photographs of clothes of 28 x 28 pixels, in the files and form of MNIST.

The classes are numbered as in the files; the TOML file names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from bench.datasets.images._images import IdxImages


@final
@dataclass(frozen=True)
class FashionMnist(IdxImages):
    """60,000 images to split and 10,000 official test images in ten classes."""

    name: ClassVar[str] = "fashion-mnist"
    label: ClassVar[str] = "article"
