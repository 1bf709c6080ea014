"""What the simulators share: bounded measurements, correlated scores, exact class counts."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import InputError

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

_UPPER_QUARTILE_OF_NORMAL = 0.6744897501960817


@final
@dataclass(frozen=True)
class Measurement:
    """A rounded number between bounds, made from a standard normal score.

    Johnson's bounded transform (S_B, Biometrika 36:149, 1949),

        T(z) = a + (b - a) / (1 + exp(-(g + d z))),    a = low - h/2, b = high + h/2,

    where h is the resolution after rounding, so that every reported value lies in [low, high];
    g and d follow in closed form from the median and the upper quartile of the value.
    """

    name: str
    low: float
    high: float
    decimals: int
    median: float
    upper_quartile: float
    unit: str = ""
    reason: str = ""
    """Why nothing lies beyond the bounds."""
    male_shift: float = 0.0
    """Distance between the mean scores of men and women."""

    def report(self, score: Array) -> Array:
        """Return the values that belong to scores."""
        start, width, location, slope = self._transform()
        value = start + width / (1.0 + np.exp(-(location + slope * score)))
        # Adding zero turns the -0.0 that rounding can leave into 0.0.
        return np.asarray(np.clip(np.round(value, self.decimals), self.low, self.high) + 0.0)

    def score(self, value: Array) -> Array:
        """Return the scores that belong to values; at the ends of the support they are infinite."""
        start, width, location, slope = self._transform()
        share = np.clip((value - start) / width, 0.0, 1.0)
        with np.errstate(divide="ignore"):
            return np.asarray((np.log(share) - np.log1p(-share) - location) / slope)

    def _transform(self) -> tuple[float, float, float, float]:
        """Return lower end, width, location and slope of the transform, in closed form."""
        half = 0.5 * 10.0**-self.decimals
        start, width = self.low - half, self.high - self.low + 2 * half
        location, quartile = (
            math.log((value - start) / (start + width - value))
            for value in (self.median, self.upper_quartile)
        )
        return start, width, location, (quartile - location) / _UPPER_QUARTILE_OF_NORMAL


def correlation_matrix(
    names: Sequence[str], pairs: Mapping[tuple[str, str], float]
) -> npt.NDArray[np.float64]:
    """Return a correlation matrix from its entries that are not zero."""
    matrix = np.eye(len(names))
    for (first, second), value in pairs.items():
        row, column = names.index(first), names.index(second)
        matrix[row, column] = matrix[column, row] = value
    return matrix


def correlated_scores(count: int, correlation: Array, rng: np.random.Generator) -> Array:
    """Draw standard normal scores with a correlation matrix, one column per score.

    Not a matrix product: BLAS may add in another order with another number of threads, and the
    same seed must give the same table.
    """
    factor = np.linalg.cholesky(correlation)
    noise = rng.standard_normal((len(factor), count))
    scores = np.zeros((count, len(factor)), order="F")
    for row in range(len(factor)):
        for column in range(row + 1):
            scores[:, row] += factor[row, column] * noise[column]
    return scores


def with_counts(
    counts: Sequence[int],
    draw: Callable[[int], tuple[pd.DataFrame, Labels]],
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Draw rows until each class has its count, and shuffle them.

    Surplus rows of a class are dropped, which leaves the law of a row given its class as it is.
    Where the counts are the population's shares of the classes, almost nothing is dropped.
    """
    total = sum(counts)
    missing = np.array(counts, dtype=np.int64)
    parts: list[pd.DataFrame] = []
    size = total
    while missing.any():
        frame, labels = draw(size)
        keep = np.zeros(len(labels), dtype=bool)
        for label in range(len(missing)):
            members = np.flatnonzero(labels == label)[: missing[label]]
            keep[members] = True
            missing[label] -= len(members)
        parts.append(frame[keep])
        # A tenth more at a time: the rarer class is short of some rows by chance.
        size = max(1_000, total // 10)
    table = pd.concat(parts, ignore_index=True)
    return table.iloc[rng.permutation(total)].reset_index(drop=True)


def whole_number(source: str, name: str, value: int, low: int, high: int | None = None) -> int:
    """Return the value of a size parameter; refuse what is not a whole number in the limits."""
    limits = f"{low:,} or more" if high is None else f"{low:,} to {high:,}"
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{source}: {name}={value!r} must be a whole number, {limits}") from None
    if number < low or (high is not None and number > high):
        raise InputError(f"{source}: {name}={number} is out of range; give {limits}")
    return number
