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
of which the first 63 or 64 are drawn. K is a step function of U. The step is computed in doubles
together with a bound on the error of that computation; where the bound cannot exclude the next
step, U gets more bits and the comparison is made in multiple precision until it is decided. That
happens about once in ten thousand numbers of the largest scale, and once in ten million of the
usual one. Time is not constant: attacks that measure it are not covered.

**Error bound.** The steps are floor(y(U)), y = scale q(U) + offset, where q is the quantile at U
of |X|: -ln U for Laplace numbers and gaps between coins, -ndtri(U / 2) for normal ones. In both
cases q decreases, and |dq/dU| <= c / U with c = sqrt(pi / 2): for normal numbers U |dq/dU| is the
Mills ratio of q, which decreases from c at q = 0. Let b >= 1 be the drawn bits as an integer, so
that U lies in [b, b + 1) 2^-63, and u the double that stands for (b + 1/2) 2^-63, at a relative
distance of at most 2^-52. Then

    |q(U) - q(u)| <= c ln((b + 1/2) / b) + c 2^-52 <= c (1 / (b + 1/2) + 2^-52),

to which the error of computing q, and y from it, is added: `_RELATIVE` (y + 1). At b = 0 only the
lower bound holds, q being unbounded near 0: such a number is always decided with more bits.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.errors import PrivacyContractError
from bench.privacy.compiled import compiled

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
        # The same numbers as `integers` draws over the whole range, without its overhead.
        raw = generator.bit_generator.random_raw
        self._raw = raw if isinstance(generator.bit_generator, np.random.PCG64) else None

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        if self._raw is not None:
            return np.asarray(self._raw(count), dtype=np.uint64)
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
        # A pool of eight words: the default one would keep 128 of the 256 bits.
        entropy = np.random.SeedSequence(int.from_bytes(os.urandom(32), "big"), pool_size=8)
        return np.random.Generator(np.random.PCG64(entropy))


# Exact sampling -----------------------------------------------------------------------------------

_RELATIVE = 2.0**-44
"""Bound on the relative error of `ndtri`, `log` and what is computed from them; measured errors
are below 2^-50 (tests compare with mpmath)."""

_SLOPE = 1.2534
"""Above sqrt(pi / 2): U |dq/dU| is at most this."""

LARGEST_SCALE = 2.0**32
"""Beyond it doubles would leave too many numbers undecided."""

_UNLIMITED = 2.0**62
"""Above all numbers of noise: 2^32 times the quantile of 2^-63."""


class _Steps(ABC):
    """A map from u in (0, 1) to y(u) = scale q(u) + offset, non-increasing; its floor is wanted."""

    scale: float
    offset: float

    @abstractmethod
    def quantiles(self, words: npt.NDArray[np.uint64], sign: int) -> npt.NDArray[np.float64]:
        """Return q(u) of each word in doubles; the last `sign` bits are no part of u."""

    @abstractmethod
    def boundary(self, step: int, mp: Any) -> Any:
        """Return the u with y(u) = step, in the precision of `mp`; the step is 1 or more."""


@final
class _Normal(_Steps):
    """y(u) = scale |x| + 1/2 where u = P(|X| > |x|) for a standard normal X."""

    offset = 0.5

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def quantiles(self, words: npt.NDArray[np.uint64], sign: int) -> npt.NDArray[np.float64]:
        return np.asarray(-_ndtri()(_uniforms(words, sign, 0.5)))

    def boundary(self, step: int, mp: Any) -> Any:
        x = (mp.mpf(step) - mp.mpf(1) / 2) / mp.mpf(self.scale)
        return mp.erfc(x / mp.sqrt(2))


@final
class _Laplace(_Steps):
    """y(u) = -scale ln u + 1/2 where u = P(|X| > |x|) for a Laplace number X of scale 1."""

    offset = 0.5

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def quantiles(self, words: npt.NDArray[np.uint64], sign: int) -> npt.NDArray[np.float64]:
        return np.asarray(-np.log(_uniforms(words, sign, 1.0)))

    def boundary(self, step: int, mp: Any) -> Any:
        x = (mp.mpf(step) - mp.mpf(1) / 2) / mp.mpf(self.scale)
        return mp.exp(-x)


@final
class _Gaps(_Steps):
    """y(u) = 1 + ln u / ln(1 - rate): coins with this rate up to and including the next success."""

    offset = 1.0

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self.scale = -1.0 / math.log1p(-rate)

    def quantiles(self, words: npt.NDArray[np.uint64], sign: int) -> npt.NDArray[np.float64]:
        return np.asarray(-np.log(_uniforms(words, sign, 1.0)))

    def boundary(self, step: int, mp: Any) -> Any:
        return mp.exp((step - 1) * mp.log1p(-mp.mpf(self._rate)))


@functools.cache
def _ndtri() -> Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
    from scipy.special import ndtri

    inverse: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]] = ndtri
    return inverse


@compiled
def _uniforms(words: npt.NDArray[np.uint64], sign: int, factor: float) -> npt.NDArray[np.float64]:
    """Return the middles of the cells that the words begin, times a power of two."""
    unit = 2.0 ** (sign - 64) * factor
    u = np.empty(words.size, dtype=np.float64)
    for index in range(words.size):
        u[index] = (np.float64(words[index] >> np.uint64(sign)) + 0.5) * unit
    return u


@compiled
def _sure_floors(
    words: npt.NDArray[np.uint64],
    sign: int,
    quantiles: npt.NDArray[np.float64],
    scale: float,
    offset: float,
    limit: float,
    relative: float,
) -> tuple[Counts, npt.NDArray[np.int64]]:
    """Return floor(y) at most `limit`, with its sign; and the places where doubles do not decide.

    At these places the floor is the likely one, without its sign.
    """
    floors = np.empty(words.size, dtype=np.int64)
    undecided = np.empty(words.size, dtype=np.int64)
    count = 0
    for index in range(words.size):
        bits = words[index] >> np.uint64(sign)
        value = scale * quantiles[index] + offset
        spread = _SLOPE * (1.0 / (np.float64(bits) + 0.5) + 2.0**-52)
        error = scale * spread + relative * (value + 1.0)
        if value - error >= limit:
            floor = limit
        else:
            floor = np.floor(value)
            if bits == 0 or value - error < floor or value + error >= floor + 1.0:
                undecided[count] = index
                count += 1
                floors[index] = np.int64(min(floor, limit))
                continue
        negative = sign == 1 and (words[index] & np.uint64(1)) == np.uint64(1)
        floors[index] = -np.int64(floor) if negative else np.int64(floor)
    return floors, undecided[:count]


def _floors(steps: _Steps, size: int, sign: int, limit: float, words: Words) -> Counts:
    """Return `size` numbers floor(y(U)) exactly, but at most `limit`.

    With `sign` the last bit of each word is the sign, and the others begin U.
    """
    drawn = words(size)
    floors, undecided = _sure_floors(
        drawn,
        sign,
        steps.quantiles(drawn, sign),
        steps.scale,
        steps.offset,
        limit,
        _RELATIVE,
    )
    for index in undecided:
        word = int(drawn[index])
        uniform = _Uniform(word >> sign, 64 - sign, words)
        floor = min(_decided(steps, uniform, int(floors[index])), int(limit))
        floors[index] = -floor if sign and word & 1 else floor
    return floors


@final
class _Uniform:
    """A uniform number U, of which further bits are drawn as comparisons need them."""

    def __init__(self, bits: int, drawn: int, words: Words) -> None:
        self._bits = bits
        self._drawn = drawn
        self._words = words

    def reaches(self, steps: _Steps, step: int) -> bool:
        """Whether y(U) >= step, which is U <= boundary(step)."""
        while True:
            mp = _context(self._drawn + 128)
            boundary = steps.boundary(step, mp)
            slack = mp.mpf(2) ** -(self._drawn + 64)
            if mp.mpf(self._bits + 1) / mp.mpf(2) ** self._drawn <= boundary - slack:
                return True
            if mp.mpf(self._bits) / mp.mpf(2) ** self._drawn >= boundary + slack:
                return False
            self._bits = (self._bits << 64) | int(self._words(1)[0])
            self._drawn += 64


_contexts = threading.local()


def _context(bits: int) -> Any:
    """Return this thread's context of mpmath, set to a precision; making one is slow."""
    import mpmath

    if not hasattr(_contexts, "mp"):
        _contexts.mp = mpmath.mp.clone()
    _contexts.mp.prec = bits
    return _contexts.mp


def _decided(steps: _Steps, uniform: _Uniform, likely: int) -> int:
    """Return floor(y(U)), searched from a likely value in steps that double."""
    low, width = likely, 1
    while low > 0 and not uniform.reaches(steps, low):
        low, width = max(0, low - width), 2 * width
    high, width = max(likely, low) + 1, 1
    while uniform.reaches(steps, high):
        low, high, width = high, high + width, 2 * width
    while high - low > 1:
        middle = (low + high) // 2
        if uniform.reaches(steps, middle):
            low = middle
        else:
            high = middle
    return low


def rounded_normal(scale: float, size: int, words: Words) -> Counts:
    """Return `size` integers round(scale X), X standard normal and independent."""
    _check(scale)
    return _floors(_Normal(scale), size, 1, _UNLIMITED, words)


def rounded_laplace(scale: float, size: int, words: Words) -> Counts:
    """Return `size` integers round(scale X), X Laplace of scale 1 and independent."""
    _check(scale)
    return _floors(_Laplace(scale), size, 1, _UNLIMITED, words)


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
    while last < rows - 1:
        left = (rows - 1 - last) * rate
        size = max(8, int(left + 4.0 * math.sqrt(left) + 4.0))
        places = _floors(steps, size, 0, rows + 1.0, words).cumsum() + last
        pieces.append(places[: places.searchsorted(rows)])
        last = int(places[-1])
    return pieces[0] if len(pieces) == 1 else np.concatenate([*pieces, _NOTHING])


_NOTHING = np.zeros(0, dtype=np.intp)
