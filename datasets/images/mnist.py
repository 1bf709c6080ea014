"""MNIST: handwritten digits of 28 x 28 pixels, from the original idx files.

Who wrote an image is not in the files (it is in the later QMNIST): the unit of privacy is the
image, not its writer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from bench.datasets.images._images import IdxImages


@final
@dataclass(frozen=True)
class Mnist(IdxImages):
    """60,000 images to split and 10,000 official test images in ten classes."""

    name: ClassVar[str] = "mnist"
    label: ClassVar[str] = "digit"
