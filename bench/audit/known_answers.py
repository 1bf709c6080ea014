"""Methods whose true epsilon is known: they prove that the auditor works. None is a plugin.

All release one row, the noisy sum of all rows. The exact one is a Gaussian mechanism of known
epsilon. The other two hold bugs of the kind that an audit is for, which the ledger cannot see: they
go around the kernel, as no plugin may.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from bench.errors import NotApplicable
from bench.plugins.method import Method, Spec
from bench.plugins.release import Claim, Release, Rows
from bench.privacy.accounting import pld_epsilon, smallest_noise
from bench.privacy.events import gaussian
from bench.privacy.kernel import PrivateData
from bench.privacy.noise import NoiseSource


@functools.lru_cache(maxsize=64)
def _noise(epsilon: float, delta: float) -> float:
    """As `calibrate` gives it for one Gaussian sum; the same for every refit, so kept."""
    return smallest_noise(lambda noise: pld_epsilon(((gaussian(noise), 1),), delta), epsilon)


class KnownAnswer(Method):
    """A noisy sum of all rows; subclasses spoil it, or do not."""

    title: ClassVar[str] = "A mechanism of known epsilon, for tests of the auditor"
    uses_ipc: ClassVar[bool] = False

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if spec.budget is None:
            raise NotApplicable("it needs a budget")
        noise = _noise(spec.budget.epsilon, spec.budget.delta)
        private.reserve(gaussian(noise))
        values = self.spoiled(self.summed(private, noise), private, rng)
        rows = Rows(values[None, :], np.zeros(1, dtype=np.int64))
        return Release(rows, claim=Claim.of(spec.budget, "one Gaussian mechanism"))

    def summed(self, private: PrivateData, noise: float) -> npt.NDArray[np.float64]:
        """The noisy sum."""
        return private.gaussian_sum(lambda rows: rows.values, private.encoder.max_norm, noise)

    @abstractmethod
    def spoiled(
        self, values: npt.NDArray[np.float64], private: PrivateData, rng: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """The release, from the noisy sum."""


@final
@dataclass(frozen=True)
class ExactGaussian(KnownAnswer):
    """What it claims, proves and spends is the same."""

    name: ClassVar[str] = "known-exact-gaussian"

    def spoiled(
        self, values: npt.NDArray[np.float64], private: PrivateData, rng: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        return values


@final
@dataclass(frozen=True)
class HalvedNoise(KnownAnswer):
    """A bug: half of the noise that the ledger says. At epsilon 1 it truly spends 2.15."""

    name: ClassVar[str] = "known-halved-noise"

    def summed(self, private: PrivateData, noise: float) -> npt.NDArray[np.float64]:
        private._vault.noise = _Half(private._vault.noise)
        return super().summed(private, noise)

    def spoiled(
        self, values: npt.NDArray[np.float64], private: PrivateData, rng: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        return values


@final
@dataclass(frozen=True)
class RowCopier(KnownAnswer):
    """A bug: now and then the row of lowest position is released as it is, and nobody is told.

    Its true epsilon is infinite at every delta below `probability`.
    """

    name: ClassVar[str] = "known-row-copier"
    probability: float = 0.01

    def spoiled(
        self, values: npt.NDArray[np.float64], private: PrivateData, rng: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        if rng.random() >= self.probability:
            return values
        rows = private._rows
        return np.asarray(rows.values[int(np.argmin(rows.positions))], dtype=np.float64)


@final
class _Half(NoiseSource):
    """Half of another source's noise."""

    reproducible = True

    def __init__(self, source: NoiseSource) -> None:
        self._source = source

    def normal(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        return 0.5 * self._source.normal(size)

    def laplace(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        return 0.5 * self._source.laplace(size)

    def poisson_sample(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        return self._source.poisson_sample(rows, rate)

    def generator(self) -> np.random.Generator:
        return self._source.generator()
