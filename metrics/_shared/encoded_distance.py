"""Exact distances from real rows to their nearest released rows, in encoded space.

Euclidean, Manhattan and cosine distance at once. Most encoded columns of real rows hold two values
only (one-hot columns 0 and 1, binary ones -1 and 1). What such a column adds to a squared or an
absolute difference is, for a query with value a or b and any reference r, fractional ones included,

    |a - r| + [query has b] (|b - r| - |a - r|),

so that a query costs one addition for each column in which it has the rarer value: some ten
instead of a hundred in a table with many categories. The cosine distance follows from the
Euclidean one and the norms. Everything is in double precision, in blocks of references.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

DISTANCES = ("euclidean", "manhattan", "cosine")

_REFERENCES = 512
"""References at a time: sums and tables stay in the cache."""

_QUERIES = 256
"""Queries of one task."""


@final
@dataclass(frozen=True)
class NearestDistances:
    """Ascending distances of each query to its k nearest references, (queries, k) each."""

    euclidean: Array
    manhattan: Array
    cosine: Array

    def by_name(self) -> dict[str, Array]:
        """The three tables in the order of `DISTANCES`."""
        return {name: getattr(self, name) for name in DISTANCES}


def neighbours(queries: Array, references: Array, k: int, threads: int = 1) -> NearestDistances:
    """Return the k smallest distances of each query by each of the three distances.

    The cosine distance to a row of zeros is 1.
    """
    best = _search(queries, references, k, threads, everything=True)
    return NearestDistances(np.sqrt(best[0]), best[1], best[2])


def euclidean(queries: Array, references: Array, k: int, threads: int = 1) -> Array:
    """Return the k smallest Euclidean distances of each query, (queries, k)."""
    distances: Array = np.sqrt(_search(queries, references, k, threads, everything=False)[0])
    return distances


def _search(queries: Array, references: Array, k: int, threads: int, everything: bool) -> Array:
    from bench.metrics._shared import kernels

    if not 1 <= k <= len(references):
        raise ValueError(f"{k} nearest of {len(references)} reference rows")
    best = np.full((3 if everything else 1, len(queries), k), np.inf)
    layout = _Layout.of(queries)
    tasks = [
        (first, min(first + _QUERIES, len(queries))) for first in range(0, len(queries), _QUERIES)
    ]
    # The types of a compiled function do not survive the unpacking below.
    update: Any = kernels.update
    with ThreadPoolExecutor(max_workers=max(1, threads)) as pool:
        for start in range(0, len(references), _REFERENCES):
            block = references[start : start + _REFERENCES]
            base, tables = layout.tables(block)
            numbers = np.ascontiguousarray(block[:, layout.numeric].T)
            norms = np.sqrt(np.einsum("ij,ij->i", block, block))

            def task(bounds: tuple[int, int], given: tuple[Array, ...]) -> None:
                update(*bounds, *layout.queries, *given, everything, best)

            given = (numbers, base, tables, norms)
            # Queries do not depend on each other: the result is the same for any number of threads.
            list(pool.map(task, tasks, [given] * len(tasks)))
    np.maximum(best, 0.0, out=best)
    return best


@final
@dataclass(frozen=True)
class _Layout:
    """Which columns of the queries hold two values, and which queries hold the rarer one."""

    usual: Array
    other: Array
    two_valued: npt.NDArray[np.intp]
    numeric: npt.NDArray[np.intp]
    queries: tuple[Array, npt.NDArray[np.int64], npt.NDArray[np.int64], Array]
    """Numbers, where the flags of each query start, the flags, and norms."""

    @classmethod
    def of(cls, queries: Array) -> _Layout:
        low, high = queries.min(axis=0), queries.max(axis=0)
        at_high = queries == high
        two = (at_high | (queries == low)).all(axis=0)
        two_valued, numeric = np.flatnonzero(two), np.flatnonzero(~two)
        mostly_high = 2 * np.count_nonzero(at_high, axis=0) > len(queries)
        usual = np.where(mostly_high, high, low)[two_valued]
        other = np.where(mostly_high, low, high)[two_valued]
        rarer = queries[:, two_valued] != usual
        starts = np.concatenate([[0], np.cumsum(np.count_nonzero(rarer, axis=1))])
        flags = np.nonzero(rarer)[1]
        norms = np.sqrt(np.einsum("ij,ij->i", queries, queries))
        numbers = np.ascontiguousarray(queries[:, numeric])
        return cls(
            usual,
            other,
            two_valued,
            numeric,
            (numbers, starts.astype(np.int64), flags.astype(np.int64), norms),
        )

    def tables(self, references: Array) -> tuple[Array, Array]:
        """Sums of two-valued columns for the usual value, and changes for the other one."""
        values = references[:, self.two_valued]
        usual, other = np.abs(values - self.usual), np.abs(values - self.other)
        base = np.stack([(usual**2).sum(axis=1), usual.sum(axis=1)])
        tables = np.stack([(other**2 - usual**2).T, (other - usual).T])
        return base, np.ascontiguousarray(tables)
