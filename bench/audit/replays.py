"""Replays of a transcript: the kernel's noise drawn again, and the exact log-likelihood ratio.

A trial draws, for each answer that the canary moves, the coin of the Poisson sample and the noise,
by the kernel's own sampler and grid (`noise.py`, `grid.py`): what it tests is their code, and the
noise that the kernel chose for the charge that it made. Entries that the canary does not move have
the same law in both worlds, and are not drawn. Nothing of the method is run.

**Score.** With x the noisy integers minus those of the other rows, m the canary's contribution and
P the law of the rounded noise (`noise.py`), an answer has the log-likelihood ratio

    l = sum over entries j of log P(x_j - m_j) - log P(x_j),

and a Poisson-sampled one log(1 - q + q exp(l)), since the canary was sampled with probability q.
A selection is drawn by the kernel's own coins; its ratio is that of the candidate's probabilities.
Given the earlier answers, answers are independent: the score of a trial is the sum over all of
them, the most powerful statistic there is (Neyman and Pearson 1933).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
import numpy.typing as npt

from bench.audit.transcripts import Answer, Choice, Transcript
from bench.privacy.grid import Grid
from bench.privacy.noise import NoiseSource
from bench.privacy.selection import draw

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_NUMBERS_AT_ONCE = 200_000
"""Noise of one draw: it stays in the cache of the processor."""
_COST_OF_A_CHOICE = 400
"""A selection takes as long as so many numbers of noise: its coins are flipped one by one."""
_FINE = 2.0**12
"""From this scale on the mass of a cell is the density at its middle, to 1e-8."""


def normal_log_ratio(noisy: Array, moved: Array, scale: float) -> Array:
    """Return log P(x - m) - log P(x) for a rounded normal of this scale, entry by entry."""
    if scale >= _FINE:
        return np.asarray(moved * (2.0 * noisy - moved) / (2.0 * scale * scale))
    return _normal_log_mass(noisy - moved, scale) - _normal_log_mass(noisy, scale)


def _normal_log_mass(number: Array, scale: float) -> Array:
    from scipy.special import log_ndtr

    # In the lower tail, where the difference of two small masses is exact.
    high, low = (0.5 - np.abs(number)) / scale, (-0.5 - np.abs(number)) / scale
    upper = log_ndtr(high)
    return np.asarray(upper + np.log1p(-np.exp(log_ndtr(low) - upper)))


def laplace_log_ratio(noisy: Array, moved: Array, scale: float) -> Array:
    """Return log P(x - m) - log P(x) for a rounded Laplace number of this scale."""
    return _laplace_log_mass(noisy - moved, scale) - _laplace_log_mass(noisy, scale)


def _laplace_log_mass(number: Array, scale: float) -> Array:
    """P(0) = 1 - exp(-h), P(k) = exp(-|k| / scale) sinh(h), h = 1 / (2 scale)."""
    half = 0.5 / scale
    at_zero = math.log(-math.expm1(-half))
    return np.asarray(
        np.where(number == 0.0, at_zero, math.log(math.sinh(half)) - np.abs(number) / scale)
    )


@final
@dataclass(frozen=True)
class _Group:
    """Answers with the same noise and the same sampling rate, drawn together."""

    mechanism: str
    rate: float
    grid: Grid
    moved: Integers
    """Entries of all of them, one after the other."""
    starts: npt.NDArray[np.intp]
    """Place of the first entry of each answer."""

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> _Group:
        first, sizes = answers[0], [len(answer.moved) for answer in answers]
        moved = np.concatenate([answer.moved for answer in answers])
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
        return cls(first.mechanism, first.rate, first.grid, moved, starts)

    def scores(self, trials: int, inside: bool, noise: NoiseSource) -> Array:
        """Return the log-likelihood ratio of all answers of so many trials."""
        width, calls = len(self.moved), len(self.starts)
        exact = np.zeros((trials, width), dtype=np.int64)
        if inside and self.rate >= 1.0:
            exact += self.moved
        elif inside:
            coins = np.zeros(trials * calls, dtype=bool)
            coins[noise.poisson_sample(len(coins), self.rate)] = True
            sizes = np.diff(np.append(self.starts, width))
            exact = np.where(
                np.repeat(coins.reshape(trials, calls), sizes, axis=1), self.moved, exact
            )
        draw: Callable[[float, int], Integers]
        draw, ratio = (
            (noise.laplace, laplace_log_ratio)
            if self.mechanism == "laplace"
            else (noise.normal, normal_log_ratio)
        )
        unit = 2.0**-self.grid.exponent
        # A multiple of a power of two: exact.
        noisy = self.grid.answer(exact, draw) * unit
        each = ratio(noisy, self.moved.astype(np.float64), self.grid.scale * unit)
        ratios = np.add.reduceat(each, self.starts, axis=1)
        if self.rate < 1.0:
            ratios = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + ratios)
        return np.asarray(ratios.sum(axis=1))


def replayed(
    transcripts: Sequence[Transcript], trials: int, inside: bool, noise: NoiseSource
) -> Array:
    """Return the scores of so many trials, in turns of each transcript."""
    scores = np.zeros(trials)
    for number, transcript in enumerate(transcripts):
        chosen = np.arange(number, trials, len(transcripts))
        for group in _groups(transcript):
            size = max(1, _NUMBERS_AT_ONCE // len(group.moved))
            for start in range(0, len(chosen), size):
                some = chosen[start : start + size]
                scores[some] += group.scores(len(some), inside, noise)
        for choice in transcript.choices:
            scores[chosen] += _chosen(choice, len(chosen), inside, noise)
    return scores


def _chosen(choice: Choice, trials: int, inside: bool, noise: NoiseSource) -> Array:
    """Return the log-likelihood ratios of so many selections, drawn by the kernel's own coins."""
    weights = choice.inside if inside else choice.outside
    # Less noise is more epsilon, by which weights are multiplied.
    factor = noise.factor if isinstance(noise, Weakened) else 1.0
    exponents = [Fraction(float(weight) / factor) for weight in weights]
    picked = np.array([draw(exponents, noise.words) for _ in range(trials)], dtype=np.intp)
    return choice.ratios[picked]


def cost(transcripts: Sequence[Transcript]) -> float:
    """Return how many numbers of noise a trial takes."""
    total = sum(len(answer.moved) for one in transcripts for answer in one.answers)
    total += sum(_COST_OF_A_CHOICE * len(one.choices) for one in transcripts)
    return max(1.0, total / max(1, len(transcripts)))


def _groups(transcript: Transcript) -> list[_Group]:
    alike: dict[tuple[str, float, Grid], list[Answer]] = {}
    for answer in transcript.answers:
        alike.setdefault((answer.mechanism, answer.rate, answer.grid), []).append(answer)
    return [_Group.of(answers) for answers in alike.values()]


@final
class Weakened(NoiseSource):
    """A planted bug: a source of less noise than it is asked for."""

    reproducible = True

    def __init__(self, source: NoiseSource, factor: float) -> None:
        self._source = source
        self.factor = factor

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return self._source.words(count)

    def normal(self, scale: float, size: int) -> Integers:
        return self._source.normal(self.factor * scale, size)

    def laplace(self, scale: float, size: int) -> Integers:
        return self._source.laplace(self.factor * scale, size)

    def generator(self) -> np.random.Generator:
        return self._source.generator()
