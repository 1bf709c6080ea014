"""Jenks natural breaks: the classes of one variable with the least squared deviation inside them.

G. F. Jenks, The data model concept in statistical mapping (1967); exact by the dynamic programme
of W. D. Fisher, On grouping for maximum homogeneity (1958): in sorted order the best classes are
intervals, and the last class of the best k classes leaves the best k - 1 classes of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

GOODNESS = 0.8
"""Fidelity paper, section 4.1.3: the first number of classes whose goodness of fit is above it."""

DISTINCT_AT_MOST = 1000
"""More distinct values are first put into this many groups of about equally many rows."""


@final
@dataclass(frozen=True)
class Breaks:
    """Classes of one variable."""

    upper: Array
    """The largest value of each class, in order."""
    goodness: float
    """Goodness of variance fit: 1 - (squared deviations inside the classes) / (all of them)."""
    grouped: bool
    """True where breaks were looked for between groups of values only (DISTINCT_AT_MOST)."""

    def __len__(self) -> int:
        return len(self.upper)

    def classes(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The class of each value: the first whose largest value is not below it.

        A value between two classes belongs to the upper one, a value above all to the last.
        """
        places = np.searchsorted(self.upper[:-1], np.asarray(values, dtype=np.float64), side="left")
        return places.astype(np.int64)


def natural_breaks(values: npt.ArrayLike, goodness: float = GOODNESS) -> Breaks:
    """The fewest classes whose goodness of variance fit is above `goodness`.

    Equal values are never torn apart. A constant variable is one class that fits perfectly.
    """
    groups = _grouped(np.asarray(values, dtype=np.float64))
    inside = _deviations(groups)
    total = float(inside[0, -1])
    # Rounding errors of the mean are no deviations.
    if total <= 1e-24 * float(np.abs(groups.upper).max()) ** 2:
        return Breaks(groups.upper[-1:], 1.0, False)
    best = inside[0]
    starts: list[npt.NDArray[np.intp]] = []
    while True:
        fit = 1.0 - float(best[-1]) / total
        if fit > goodness or len(starts) + 1 == len(groups.upper):
            return Breaks(groups.upper[_ends(starts, len(groups.upper))], fit, groups.merged)
        # best[j]: least deviations of groups 0..j. The last class starts at group i >= 1.
        candidates = best[:-1, None] + inside[1:]
        last = np.argmin(candidates, axis=0)
        starts.append(last + 1)
        best = candidates[last, np.arange(len(last))]


@final
@dataclass(frozen=True)
class _Groups:
    """Distinct values, or groups of neighbouring ones."""

    upper: Array
    count: Array
    mean: Array
    """Relative to the mean of all rows, for exact sums of squares."""
    within: Array
    """Squared deviations from the mean of the group."""
    merged: bool


def _grouped(values: Array) -> _Groups:
    if not len(values) or np.isnan(values).any():
        raise ValueError("natural breaks need at least one value and no missing ones")
    distinct, counts = np.unique(values, return_counts=True)
    merged = len(distinct) > DISTINCT_AT_MOST
    if merged:
        # Groups of about equally many rows; equal values share the group of the first of them.
        before = np.cumsum(counts) - counts
        numbers = before * DISTINCT_AT_MOST // len(values)
    else:
        numbers = np.arange(len(distinct))
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    centred = distinct - values.mean()
    count = np.add.reduceat(counts, starts).astype(np.float64)
    mean = np.add.reduceat(counts * centred, starts) / count
    spread = centred - np.repeat(mean, np.diff(starts, append=len(distinct)))
    within = np.add.reduceat(counts * spread**2, starts)
    ends = np.append(starts[1:], len(distinct)) - 1
    return _Groups(distinct[ends], count, mean, within, merged)


def _deviations(groups: _Groups) -> Array:
    """Squared deviations from the mean of a class that holds groups i to j; infinite for i > j."""
    count = np.concatenate([[0.0], np.cumsum(groups.count)])
    first = np.concatenate([[0.0], np.cumsum(groups.count * groups.mean)])
    second = np.concatenate([[0.0], np.cumsum(groups.count * groups.mean**2 + groups.within)])
    rows = count[None, 1:] - count[:-1, None]
    sums = first[None, 1:] - first[:-1, None]
    squares = second[None, 1:] - second[:-1, None]
    upper = np.triu(np.ones(rows.shape, dtype=bool))
    inside = np.full(rows.shape, np.inf)
    inside[upper] = np.maximum(squares[upper] - sums[upper] ** 2 / rows[upper], 0.0)
    return inside


def _ends(starts: list[npt.NDArray[np.intp]], groups: int) -> npt.NDArray[np.intp]:
    """The last group of each class, read backwards from the last class."""
    ends = [groups - 1]
    for start in reversed(starts):
        ends.append(int(start[ends[-1]]) - 1)
    return np.array(ends[::-1], dtype=np.intp)
