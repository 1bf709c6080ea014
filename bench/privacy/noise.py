"""Where the kernel's randomness comes from: bits, and the noise that is sampled from them exactly.

Methods never hold a noise source. No rounding of a double decides what an answer can be: the noise
of an answer is a *rounded* normal or Laplace number, an integer K with

    P(K = k) = P(k - 1/2 <= scale X < k + 1/2),     X standard normal (or Laplace of scale 1).

For an integer a, round(a + scale X) = a + round(scale X): adding K to a sum of integers is the
continuous mechanism followed by rounding, which is post-processing. Every guarantee of the
continuous mechanism (RDP, PLD, with Poisson sampling, in any number of dimensions) therefore holds
for it without a correction. The discrete Gaussian of Canonne, Kamath and Steinke (2020) has the
same zCDP parameter, but its privacy-loss distribution in several dimensions is not that of the
continuous one and would need another accountant.

Sampling is exact in the sense of real numbers. A uniform U is an infinite sequence of random bits,
of which the first 64 are drawn. K is a step function of U. The step is computed in doubles together
with a bound on the error of that computation; where the bound cannot exclude the next step, U gets
more bits and the comparison is made in multiple precision until it is decided. That happens about
once in ten thousand numbers. Time is not constant: attacks that measure it are not covered.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.errors import PrivacyContractError

Words = Callable[[int], npt.NDArray[np.uint64]]
"""Gives so many independent, uniform words of 64 bits."""

Counts = npt.NDArray[np.int64]


class NoiseSource(ABC):
    """Sampling and noise of the privacy kernel, made of random bits.

    A source provides bits; noise and samples are computed from them in one way, so that what is
    tested with seeded bits is what is released with those of the operating system.
    """

    reproducible: bool

    @abstractmethod
    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return independent, uniform words of 64 bits."""

    @abstractmethod
    def generator(self) -> np.random.Generator:
        """Return a fresh generator for a trusted library that draws its own noise."""

    def normal(self, scale: float, size: int) -> Counts:
        """Return integers round(scale X), X standard normal."""
        return rounded_normal(scale, size, self.words)

    def laplace(self, scale: float, size: int) -> Counts:
        """Return integers round(scale X), X Laplace of scale 1."""
        return rounded_laplace(scale, size, self.words)

    def poisson_sample(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        """Return indices of a sample that holds each row independently with probability `rate`."""
        return bernoulli_sample(rows, rate, self.words)


@final
class SeededNoise(NoiseSource):
    """Reproducible noise for studies. Whoever knows the seed can subtract the noise."""

    reproducible = True

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return self._generator.integers(2**64, size=count, dtype=np.uint64, endpoint=False)

    def generator(self) -> np.random.Generator:
        return self._generator.spawn(1)[0]


@final
class SystemNoise(NoiseSource):
    """Noise from the operating system's entropy: nobody can replay or predict it.

    Every bit comes from `os.urandom`, not from a generator seeded once.
    """

    reproducible = False

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(int.from_bytes(os.urandom(32), "big"))


# Exact sampling -----------------------------------------------------------------------------------

_RELATIVE = 2.0**-44
"""Bound on the relative error of `ndtri`, `log` and what is computed from them; measured errors
are below 2^-49 (tests compare with mpmath)."""

LARGEST_SCALE = 2.0**32
"""Beyond it doubles would leave too many numbers undecided."""


class _Steps(ABC):
    """A non-increasing map from u in (0, 1) to a real y >= 0, whose floor is wanted."""

    @abstractmethod
    def value(self, u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return y(u) in doubles."""

    @abstractmethod
    def slope(
        self, u: npt.NDArray[np.float64], value: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Return |dy/du|, as y(u) changes by the unknown further bits of u."""

    @abstractmethod
    def boundary(self, step: int, mp: Any) -> Any:
        """Return the u with y(u) = step, in the precision of the context `mp`."""


@final
class _Normal(_Steps):
    """y(u) = scale |x| + 1/2 where u = P(|X| > |x|) for a standard normal X."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def value(self, u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        from scipy.special import ndtri

        return np.asarray(self._scale * -ndtri(0.5 * u) + 0.5)

    def slope(
        self, u: npt.NDArray[np.float64], value: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        x = (value - 0.5) / self._scale
        return np.asarray(self._scale * math.sqrt(math.pi / 2.0) * np.exp(0.5 * x * x))

    def boundary(self, step: int, mp: Any) -> Any:
        x = (mp.mpf(step) - mp.mpf(1) / 2) / mp.mpf(self._scale)
        return mp.erfc(x / mp.sqrt(2)) if x > 0 else mp.mpf(1)


@final
class _Laplace(_Steps):
    """y(u) = -scale ln u + 1/2 where u = P(|X| > |x|) for a Laplace number X of scale 1."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def value(self, u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(-self._scale * np.log(u) + 0.5)

    def slope(
        self, u: npt.NDArray[np.float64], value: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        return np.asarray(self._scale / u)

    def boundary(self, step: int, mp: Any) -> Any:
        x = (mp.mpf(step) - mp.mpf(1) / 2) / mp.mpf(self._scale)
        return mp.exp(-x) if x > 0 else mp.mpf(1)


@final
class _Gaps(_Steps):
    """y(u) = ln u / ln(1 - rate): failures before the next success of coins with this rate."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._log = math.log1p(-rate)

    def value(self, u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(np.log(u) / self._log)

    def slope(
        self, u: npt.NDArray[np.float64], value: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        return np.asarray(-1.0 / (u * self._log))

    def boundary(self, step: int, mp: Any) -> Any:
        return (1 - mp.mpf(self._rate)) ** step


def _floors(steps: _Steps, bits: npt.NDArray[np.uint64], drawn: int, words: Words) -> Counts:
    """Return floor(y(U)) exactly; `bits` hold the first `drawn` bits of each U."""
    unit = 2.0**-drawn
    u = (bits.astype(np.float64) + 0.5) * unit
    value = steps.value(u)
    # Half a unit of unknown bits, and the rounding of u to a double.
    error = steps.slope(u, value) * (unit + 2.0**-52 * u) + _RELATIVE * (value + 1.0)
    floors = np.floor(value)
    undecided = (np.floor(value - error) != floors) | (np.floor(value + error) != floors)
    result = floors.astype(np.int64)
    for index in np.flatnonzero(undecided):
        low = max(0, math.floor(value[index] - error[index]) - 1)
        high = math.floor(value[index] + error[index]) + 1
        result[index] = _decide(steps, int(bits[index]), drawn, low, high, words)
    return result


def _decide(steps: _Steps, bits: int, drawn: int, low: int, high: int, words: Words) -> int:
    """Return the step of U between `low` and `high`, drawing more of its bits as needed."""
    import mpmath

    # y >= step if and only if U <= boundary(step).
    while low < high:
        step = (low + high + 1) // 2
        while True:
            context = mpmath.mp.clone()
            context.prec = drawn + 128
            boundary = steps.boundary(step, context)
            slack = context.mpf(2) ** -(drawn + 64)
            if context.mpf(bits + 1) / context.mpf(2) ** drawn <= boundary - slack:
                low = step
                break
            if context.mpf(bits) / context.mpf(2) ** drawn >= boundary + slack:
                high = step - 1
                break
            bits, drawn = (bits << 64) | int(words(1)[0]), drawn + 64
    return low


def _signed(steps: _Steps, size: int, words: Words) -> Counts:
    """Return symmetric integers: one bit is the sign, 63 bits begin U."""
    drawn = words(size)
    magnitude = _floors(steps, drawn >> np.uint64(1), 63, words)
    negative = (drawn & np.uint64(1)).astype(bool)
    return np.where(negative, -magnitude, magnitude)


def rounded_normal(scale: float, size: int, words: Words) -> Counts:
    """Return `size` integers round(scale X), X standard normal and independent."""
    _check(scale)
    return _signed(_Normal(scale), size, words)


def rounded_laplace(scale: float, size: int, words: Words) -> Counts:
    """Return `size` integers round(scale X), X Laplace of scale 1 and independent."""
    _check(scale)
    return _signed(_Laplace(scale), size, words)


def _check(scale: float) -> None:
    if not 0.0 < scale <= LARGEST_SCALE:
        raise PrivacyContractError(
            f"noise of scale {scale:g} in units of the kernel's grid is not in "
            f"(0, {LARGEST_SCALE:g}]; ask for less noise"
        )


def bernoulli_sample(rows: int, rate: float, words: Words) -> npt.NDArray[np.intp]:
    """Return the indices of a sample that holds each of `rows` independently with this rate.

    Gaps between members are geometric, so that the cost grows with the sample instead of the rows.
    """
    if rate >= 1.0:
        return np.arange(rows)
    steps = _Gaps(rate)
    pieces: list[npt.NDArray[np.intp]] = []
    last = -1
    while last < rows:
        left = (rows - 1 - last) * rate
        size = max(8, int(left + 4.0 * math.sqrt(left) + 4.0))
        gaps = np.minimum(_floors(steps, words(size), 64, words), rows)
        places = last + np.cumsum(gaps + 1)
        pieces.append(places[places < rows])
        last = int(places[-1])
    return np.concatenate(pieces)
