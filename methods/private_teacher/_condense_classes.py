"""Rows of every class drawn from its own counts, balanced: what a small table is worth.

Where the table is so small, or has so many features, that hardly a bin is worth the noise of a
teacher's sums, the whole budget buys counts, and there is nothing that rows could be searched
with. But they need not be drawn at random (`_condense_herding`): each class has the means of a
large pool that was drawn from its counts.

All of it is post-processing of private answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bench.methods.private_teacher._bins import ClassCounts, Grid
from bench.methods.private_teacher._herding import Traits, herded
from bench.methods.private_teacher._pool import draw_pool

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

MOST_BALANCED = 4000
"""Rows of a class; the chance of more is small."""
_CANDIDATES, _FEWEST = 40, 4
"""Of a place, at most and mostly at least; no row is a candidate of two places."""


def drawn_by_class(
    counts: ClassCounts,
    sizes: Sequence[int],
    pool: int,
    rng: np.random.Generator,
    *,
    balanced: bool = True,
) -> tuple[Array, Labels]:
    """So many rows of each class, from a pool of its own."""
    grid, values = counts.grid, []
    nearest = [counts.nearest(column) for column in range(len(grid.columns))]
    for label, size in enumerate(sizes):
        chances = [own[label] for own in nearest]
        offered = draw_pool(grid, chances, max(pool // len(sizes), _FEWEST * size), rng)
        if balanced and 0 < size <= min(MOST_BALANCED, len(offered)):
            chosen = _balanced(grid, chances, offered, size, rng)
        else:
            # Rows that keep no rule are left out of a pool: it may be too small.
            chosen = rng.choice(len(offered), size, replace=size > len(offered))
        values.append(offered[chosen])
    return np.concatenate(values), np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)


def _balanced(
    grid: Grid, chances: list[Array], offered: Array, size: int, rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    unscored = np.zeros((len(offered), 1))
    traits = Traits.of(grid, chances, offered, unscored)
    table = traits.rows(offered, unscored)
    each = min(_CANDIDATES, len(offered) // size)
    index = rng.permutation(len(offered))[: size * each].reshape(size, each)
    kept = herded(table[index] - table.mean(axis=0))
    return np.asarray(index[np.arange(size), kept])
