"""Draws that are balanced: few rows whose means are those of the many that they stand for.

Rows drawn at random miss the means of what they are drawn from by chance, and a model fitted to two
hundred of them learns that chance. Of several candidates for every place one is kept so that the
traits of all kept rows together have the mean of the distribution that was drawn from (herding;
Welling, ICML 2009). Traits of a row are what models see of it: its encoded values, coarse bins of
every column, and how high the teacher scores it.

All of it is post-processing of private answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.methods.private_teacher._bins import Codes, Grid, merged_bins

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

_SWEEPS = 12
_PARTS = 8
"""Coarse bins of a column hold an eighth of the pool each, or a category of that size."""
_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Quantiles of a class's scores between which rows are counted."""
_LEAST_DEVIATION = 0.1
"""Traits are divided by their deviation over the pool, or by this where it is smaller."""


def herded(centred: Array, rest: Array | None = None) -> Places:
    """Of each place the candidate that brings the sum of all traits closest to zero.

    `centred` is (places, candidates, traits), less the mean that is asked for; `rest` the sum over
    rows that stay as they are. Coordinate descent on |rest + sum over places of the kept|^2 from
    the first candidates: every step lowers it, and it ends where no single exchange helps.
    """
    kept = np.zeros(len(centred), dtype=np.intp)
    total = centred[:, 0].sum(axis=0)
    total = total if rest is None else total + rest
    for _ in range(_SWEEPS):
        changed = False
        for place, own in enumerate(centred):
            others = total - own[kept[place]]
            best = int(np.argmin(((others + own) ** 2).sum(axis=1)))
            changed |= best != kept[place]
            kept[place] = best
            total = others + own[best]
        if not changed:
            break
    return kept


@final
@dataclass(frozen=True)
class Traits:
    """What is balanced of a row."""

    grid: Grid
    coarse: tuple[Codes, ...]
    """Of each feature, the coarse bin of each fine one."""
    levels: Array
    """(quantiles, classes) of the teacher's scores over the pool."""
    scale: Array

    @classmethod
    def of(cls, grid: Grid, chances: list[Array], pool: Array, scores: Array) -> Traits:
        """By the chances of the bins that the pool was drawn with, and its teacher's scores."""
        coarse = tuple(
            merged_bins(own / own.sum(), column.ordered, 1.0 / _PARTS)
            for own, column in zip(chances, grid.columns, strict=True)
        )
        levels = np.quantile(_margins(scores), _LEVELS, axis=0)
        plain = cls(grid, coarse, levels, np.ones(1)).rows(pool, scores)
        return cls(grid, coarse, levels, np.maximum(plain.std(axis=0), _LEAST_DEVIATION))

    def rows(self, values: Array, scores: Array) -> Array:
        """(rows, traits)."""
        codes, parts = self.grid.codes(values), [values[:, : self.grid.encoder.feature_width]]
        for number, own in enumerate(self.coarse):
            if own.max() > 0:
                parts.append(np.eye(int(own.max()) + 1)[own[codes[:, number]]])
        margins = _margins(scores)
        for level, margin in zip(self.levels.T, margins.T, strict=True):
            parts.append(np.eye(len(_LEVELS) + 1)[np.searchsorted(level, margin)])
        return np.asarray(np.hstack([*parts, margins]) / self.scale)


def _margins(scores: Array) -> Array:
    """How far a class is above the mean of all; two classes say the same thing twice."""
    centred: Array = scores - scores.mean(axis=1, keepdims=True)
    return centred[:, 1:] if scores.shape[1] == 2 else centred
