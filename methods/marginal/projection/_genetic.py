"""The genetic search of Private-GSD as compiled loops. Import lazily: it brings in numba.

A dataset is a table of codes with one weight per row, whose labels (the last column) are fixed. Its
loss is the weighted squared distance of its marginals from noisy ones,

    L(X) = sum over measured S, cells x of f_S (p_S(x) - y_S(x))^2.

Changing column c of a row of weight w moves w from one cell of every S that holds c to another: the
residuals r = p - y of the best dataset are kept, and a candidate's loss differs from it by

    sum over S with c of 2 w f_S (w - r_S(old cell) + r_S(new cell)),

two look-ups per marginal. The elite are the best E datasets that were ever seen. None of them but
the first ones is stored: every candidate is the best dataset of its time with one value changed,
and at most E better ones have come since, whose changes are undone by a short journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from numba import njit

from bench.methods._shared.codes import Codes
from bench.methods.marginal.projection._adaptive import Columns, Measured

Vector = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Targets:
    """Noisy marginals as one flat vector."""

    shares: Vector
    factors: Vector
    """Weight of each marginal in the loss."""
    strides: npt.NDArray[np.int64]
    """(marginals, columns): what a code adds to the number of a cell; 0 outside the marginal."""
    starts: npt.NDArray[np.int64]
    """Number of the first cell of each marginal."""
    holding: npt.NDArray[np.int64]
    """(columns, marginals): the marginals that hold a column, filled up by -1."""

    @classmethod
    def of(cls, measured: Sequence[Measured], width: int) -> Targets:
        """Lay out marginals of a table of `width` columns."""
        # In units of the largest deviation, as in `_mixture`.
        largest = max(one.deviation for one in measured)
        strides = np.zeros((len(measured), width), dtype=np.int64)
        for place, one in enumerate(measured):
            step = 1
            for column, size in zip(one.columns[::-1], one.shares.shape[::-1], strict=True):
                strides[place, column] = step
                step *= size
        sizes = np.array([one.shares.size for one in measured])
        # One column more, of -1, ends every list.
        holding = np.full((width, len(measured) + 1), -1, dtype=np.int64)
        for column in range(width):
            places = [place for place, one in enumerate(measured) if column in one.columns]
            holding[column, : len(places)] = places
        return cls(
            np.concatenate([one.shares.ravel() for one in measured]),
            np.array([(largest / one.deviation) ** 2 for one in measured]),
            strides,
            np.cumsum(sizes) - sizes,
            holding,
        )

    def cells(self, table: Codes) -> Codes:
        """Return the number of the cell of every row in every marginal."""
        return np.asarray(table @ self.strides.T + self.starts, dtype=np.int64)

    def residuals(self, table: Codes, weights: Vector) -> Vector:
        """Return the shares of a table less the noisy ones."""
        cells = self.cells(table)
        each = np.repeat(weights, cells.shape[1])
        return np.bincount(cells.ravel(), each, len(self.shares)) - self.shares

    def loss(self, table: Codes, weights: Vector) -> float:
        """Return L."""
        ends = np.append(self.starts[1:], len(self.shares))
        each = np.repeat(self.factors, ends - self.starts)
        return float((each * self.residuals(table, weights) ** 2).sum())


@final
@dataclass(frozen=True)
class Search:
    """Settings of the search; see `PrivateGsd`."""

    generations: int
    mutations: int
    crossovers: int
    elite: int
    patience: int


def marginal(table: Codes, weights: Vector, sizes: Sequence[int], columns: Columns) -> Vector:
    """Return the weighted marginal of some columns, one axis per column."""
    shape = [sizes[column] for column in columns]
    cells = np.ravel_multi_index(tuple(table[:, column] for column in columns), shape)
    counted = np.bincount(cells, weights, int(np.prod(shape))).reshape(shape)
    return np.asarray(counted, dtype=np.float64)


def evolved(
    population: Sequence[Codes],
    weights: Vector,
    sizes: Sequence[int],
    targets: Targets,
    search: Search,
    rng: np.random.Generator,
) -> Codes:
    """Return the best dataset that descends from a first population of as many rows each."""
    losses = np.array([targets.loss(one, weights) for one in population])
    best = int(np.argmin(losses))
    table = population[best].copy()
    order = [best, *(place for place in range(len(population)) if place != best)]
    _evolve(
        table,
        np.stack([population[place] for place in order]),
        losses[order],
        weights,
        np.asarray(sizes, dtype=np.int64),
        targets.cells(table),
        targets.residuals(table, weights),
        targets.factors,
        targets.strides,
        targets.holding,
        search.generations,
        search.mutations,
        search.crossovers,
        search.patience,
        rng,
    )
    return table


_compiled = njit(nogil=True, cache=True)


@_compiled
def _value(table, roots, elite, journal, version, row, column):  # type: ignore[no-untyped-def]
    """Return one value of a member of the elite, which is (root, version, row, column, code)."""
    root, base = elite[0], elite[1]
    if root > 0:
        return roots[root, row, column]
    if elite[2] == row and elite[3] == column:
        return elite[4]
    value = table[row, column]
    for change in range(version, base, -1):
        entry = journal[change % len(journal)]
        if entry[0] == row and entry[1] == column:
            value = entry[2]
    return value


@_compiled
def _evolve(  # type: ignore[no-untyped-def]
    table,
    roots,
    losses,
    weights,
    sizes,
    cells,
    residuals,
    factors,
    strides,
    holding,
    generations,
    mutations,
    crossovers,
    patience,
    rng,
):
    """Take all generations; `table`, `cells` and `residuals` follow the best dataset in place."""
    rows, features = table.shape[0], table.shape[1] - 1
    members = len(losses)
    # Root 0 is the dataset that `table` starts from: version 0 of the best one.
    elite = np.full((members, 5), -1, dtype=np.int64)
    for place in range(members):
        elite[place, 0], elite[place, 1] = place, 0
    journal = np.zeros((members + 2, 3), dtype=np.int64)
    version, unchanged, loss = 0, 0, losses[0]
    change = np.empty(3, dtype=np.int64)
    for _ in range(generations):
        gained = 0.0
        for number in range(mutations + crossovers):
            row = int(rng.random() * rows)
            column = int(rng.random() * features)
            if number < mutations:
                code = int(rng.random() * sizes[column])
            else:
                chosen = elite[int(rng.random() * members)]
                other = int(rng.random() * rows)
                code = _value(table, roots, chosen, journal, version, other, column)
            old = table[row, column]
            if code == old:
                continue
            weight = weights[row]
            moved = 0.0
            for entry in holding[column]:
                if entry < 0:
                    break
                before = cells[row, entry]
                after = before + (code - old) * strides[entry, column]
                moved += factors[entry] * (weight - residuals[before] + residuals[after])
            moved *= 2.0 * weight
            worst = np.argmax(losses)
            if loss + moved < losses[worst]:
                losses[worst] = loss + moved
                elite[worst, 0], elite[worst, 1] = 0, version
                elite[worst, 2], elite[worst, 3], elite[worst, 4] = row, column, code
            if moved < gained:
                gained = moved
                change[0], change[1], change[2] = row, column, code
        # Rounding must not let the search turn in a circle of equal losses.
        if gained > -1e-15 * loss:
            unchanged += 1
            if unchanged >= patience:
                break
            continue
        unchanged = 0
        row, column, code = int(change[0]), int(change[1]), int(change[2])
        old = table[row, column]
        for entry in holding[column]:
            if entry < 0:
                break
            before = cells[row, entry]
            after = before + (code - old) * strides[entry, column]
            residuals[before] -= weights[row]
            residuals[after] += weights[row]
            cells[row, entry] = after
        table[row, column] = code
        version += 1
        slot = version % len(journal)
        journal[slot, 0], journal[slot, 1], journal[slot, 2] = row, column, old
        loss += gained
