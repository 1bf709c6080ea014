"""Sources of the kernel's randomness. Methods never hold one of these."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import final

import numpy as np
import numpy.typing as npt


class NoiseSource(ABC):
    """Sampling and noise of the privacy kernel."""

    reproducible: bool

    @abstractmethod
    def normal(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw standard normal numbers."""

    @abstractmethod
    def laplace(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Draw Laplace numbers of scale 1."""

    @abstractmethod
    def poisson_sample(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        """Draw the indices of a sample with each row independently with probability `rate`."""

    @abstractmethod
    def generator(self) -> np.random.Generator:
        """Return a new generator for a trusted library that draws its own noise."""


@final
class SeededNoise(NoiseSource):
    """Reproducible noise for studies. Anyone who knows the seed can subtract the noise."""

    reproducible = True

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def normal(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        return self._generator.standard_normal(size)

    def laplace(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        return self._generator.laplace(size=size)

    def poisson_sample(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        # Size, then a uniform subset of that size: the same distribution as one coin per row, at a
        # cost that grows with the sample instead of the data.
        size = int(self._generator.binomial(rows, rate))
        return self._generator.choice(rows, size=size, replace=False, shuffle=False)

    def generator(self) -> np.random.Generator:
        return self._generator.spawn(1)[0]


@final
class SystemNoise(NoiseSource):
    """Noise from the operating system's entropy: it cannot be repeated or predicted.

    Every draw comes from `os.urandom` (not from a generator seeded once), normals by inversion.
    Floating-point attacks on the Gaussian mechanism (Mironov 2012; Jin et al. 2022) are not
    addressed: outputs are doubles.
    """

    reproducible = False

    def _uniform(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        count = int(np.prod(size))
        words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        # 52 bits, moved to the middle of their cell: never 0 or 1 (53 bits would round up to 1), so
        # that inversion is finite.
        return (((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(size)

    def normal(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        from scipy.special import ndtri

        return np.asarray(ndtri(self._uniform(size)), dtype=np.float64)

    def laplace(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        centred = self._uniform(size) - 0.5
        return -np.sign(centred) * np.log1p(-2.0 * np.abs(centred))

    def poisson_sample(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self._uniform(rows) < rate)

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(int.from_bytes(os.urandom(32), "big"))
