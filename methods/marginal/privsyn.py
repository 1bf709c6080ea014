"""PrivSyn: dense marginals, and records that are updated towards them (Zhang et al. 2021).

1. **Columns** are counted with a tenth of rho; codes whose count is below three deviations share
   one code.
2. **DenseMarg.** The InDif score of every pair, the L1 distance of its counts from those of
   independent columns, is released with a tenth of rho (`Dependence` in the kernel is half of it).
   Pairs are chosen greedily (Algorithm 1): the next pair is the one that most reduces

       sum over chosen i of c_i / sqrt(pi rho_i)  +  sum over the others of InDif_i,

   the expected L1 error of noisy counts plus what is lost by taking a pair as independent, where
   c_i is the number of cells; the choice ends when no pair reduces it.
3. **Combination** (Algorithm 2). Cliques of chosen pairs, the largest first, replace their pairs
   where they have at most `combined_cells` cells and at most two columns in common with those
   combined before.
4. **Counts.** The marginals are released with the rest of rho, rho_i proportional to c_i^(2/3),
   which minimises the sum above.
5. **Consistency.** For every set of columns that several tables share, their margins are replaced
   by the average weighted by precision, and tables are projected on counts that are not negative
   and sum to the number of rows; both are repeated.
6. **Gradual update (GUM).** Records start with independent columns. Each update takes one marginal:
   a cell with too few records gets at most alpha times those that it has, from cells with too many;
   a record becomes a copy of one in the new cell, or keeps its other columns, half of the time
   each. alpha falls by the factor 0.84 every 20 rounds.

Choices. Each class is a table without the label (`private.partition`), where the paper has one
table and the label is a column: a class is released in any size, and classes are disjoint, so that
each has the whole budget. All events are fixed in advance: three Gaussian mechanisms, since the
weights of step 4 move noise between tables and not the event. The sensitivity of InDif is 4 for
add/remove of a row (the kernel's proof). The number of rows is declared. Columns in no chosen pair
are counted again in step 4. The paper leaves open in which order cliques of one size are taken
(here: by column), and its implementations have between 50 and 200 rounds of updates. Where more
than 20 000 cliques have one size, larger ones are not looked for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import networkx as nx
import numpy as np
import numpy.typing as npt

from bench import (
    Claim,
    Dependence,
    EncodedRows,
    InputError,
    PlannedEvents,
    PrivateData,
    Release,
    Spec,
    gaussian,
)
from bench.methods._shared.codes import Codes
from bench.methods.marginal._bins import Binning
from bench.methods.marginal._discretise import BinnedMethod
from bench.methods.marginal._graphical_model import (
    CellTable,
    check_columns,
    conditional_draw,
    totals,
    unmerged,
)
from bench.privacy.trusted.smartnoise import (
    Columns,
    NoisyMarginal,
    frequent_codes,
    merged_counts,
    merging,
    nearest_counts,
)

_CLIQUES_AT_MOST = 20_000
_SWEEPS = 20
"""Repetitions of consistency and projection."""
_DECAY, _DECAY_EVERY = 0.84, 20


@final
@dataclass(frozen=True)
class PrivSyn(BinnedMethod):
    """Records updated towards noisy marginals that were chosen by noisy dependences."""

    name: ClassVar[str] = "privsyn"
    title: ClassVar[str] = "PrivSyn"
    paper: ClassVar[str] = (
        "Zhang, Wang, Li, Honorio, Backes, He, Chen and Zhang, PrivSyn: Differentially Private "
        "Data Synthesis, USENIX Security 2021"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2012.15128"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "unknown")
    quick: ClassVar[Mapping[str, Any]] = {"bins": 4, "updates": 10, "records": 300}

    columns_share: float = 0.1
    """Share of rho for the counts of single columns."""
    choice_share: float = 0.1
    """Share of rho for the dependences of pairs."""
    combined_cells: int = 5000
    """Cells of a combined marginal at most (the paper's gamma)."""
    updates: int = 100
    """Rounds of updates of the records, of all marginals each."""
    alpha: float = 1.0
    """Growth of a cell in one update at most, in the first rounds."""
    records: int = 50_000
    """Records that are updated for a smaller release: as many as were declared, but no more."""

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = (self.columns_share, self.choice_share)
        if min(shares) <= 0.0 or sum(shares) >= 1.0 or self.alpha <= 0.0 or self.records < 1:
            raise InputError(
                f"privsyn: columns_share {shares[0]}, choice_share {shares[1]}, alpha "
                f"{self.alpha}, records {self.records}: expected positive numbers, and shares "
                "whose sum is below 1"
            )

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        check_columns(private.schema)
        width = len(Binning(private.encoder, self.bins).sizes) - 1
        parts = list(private.partition("class").values())

        def plans(noise: float) -> list[PlannedEvents]:
            one, choice, counts = self._noise(noise)
            return [
                plan
                for part in parts
                for plan in (
                    part.plan(gaussian(one)),
                    part.plan(gaussian(choice), min(1, width - 1)),
                    part.plan(gaussian(counts)),
                )
            ]

        cuts, noise = self.reserved(private, plans)
        binning = cuts.binning(self.bins)
        declared = totals(private, by_class=True)
        tables: list[Codes] = []
        measured = 0
        requested = spec.rows_per_class(private.counts)
        for label, (part, total, count) in enumerate(zip(parts, declared, requested, strict=True)):
            marginals, kept = self._measured(part, binning, width, total, noise)
            measured += len(marginals) - width
            many = max(count, min(total, self.records))
            records = updated(marginals, many, self.updates, self.alpha, rng)
            records = records[rng.permutation(many)[:count]]
            columns = [unmerged(mask, records[:, n], rng) for n, mask in enumerate(kept)]
            tables.append(np.stack([*columns, np.full(count, label)], axis=1))
        claim = Claim.of(spec.budget, "Zhang et al. 2021, composition of the zCDP of all steps")
        notes = {
            "noise_multiplier": noise,
            "marginals_per_class": measured / len(parts),
            "discretiser": self.discretiser,
        }
        return Release(binning.rows(np.concatenate(tables), rng), claim=claim, notes=notes)

    def _noise(self, noise: float) -> tuple[float, float, float]:
        """Return the multipliers of the three steps, whose rho is 1 / (2 noise^2) together."""
        left = 1.0 - self.columns_share - self.choice_share
        shares = (self.columns_share, self.choice_share, left)
        one, choice, counts = (noise / math.sqrt(share) for share in shares)
        return one, choice, counts

    def _measured(
        self, part: PrivateData, binning: Binning, width: int, total: int, noise: float
    ) -> tuple[list[NoisyMarginal], tuple[npt.NDArray[np.bool_], ...]]:
        """Return consistent marginals, the single columns first, and which codes were kept."""
        one, choice, counts = self._noise(noise)
        rows = part.coded(lambda rows: binning.codes(rows)[:, :width], binning.sizes[:width])
        deviation = one * math.sqrt(width)
        single = [
            NoisyMarginal((column,), noisy, np.full(noisy.shape, deviation))
            for column, noisy in enumerate(
                part.marginals(rows, [(column,) for column in range(width)], one)
            )
        ]
        kept = tuple(frequent_codes(table) for table in single)
        changes = [merging(mask) for mask in kept]
        single = [merged_counts(table, mask) for table, mask in zip(single, kept, strict=True)]
        sizes = [table.counts.size for table in single]

        def merged(rows: EncodedRows) -> Codes:
            codes = binning.codes(rows)
            return np.stack([change[codes[:, n]] for n, change in enumerate(changes)], axis=1)

        rows = part.coded(merged, sizes)
        rho = 0.5 / counts**2
        pairs: list[Columns] = list(itertools.combinations(range(width), 2))
        if pairs:
            scores = part.scores(rows, [Dependence(x, (y,)) for x, y in pairs], choice)
            cells = np.array([sizes[x] * sizes[y] for x, y in pairs], dtype=np.float64)
            chosen = dense_marginals(cells, 2.0 * scores, rho)
            pairs = [pairs[place] for place in chosen]
        sets = combined(pairs, sizes, self.combined_cells)
        covered = set(itertools.chain.from_iterable(sets))
        sets += [(column,) for column in range(width) if column not in covered]
        weights = [math.prod(sizes[column] for column in one) ** (1.0 / 3.0) for one in sets]
        norm = math.hypot(*weights)
        answers = part.marginals(rows, sets, counts, weights)
        tables = [
            NoisyMarginal(columns, noisy, np.full(noisy.shape, counts * norm / weight))
            for columns, noisy, weight in zip(sets, answers, weights, strict=True)
        ]
        return consistent([*single, *tables], float(total)), kept


def dense_marginals(
    cells: npt.NDArray[np.float64], differences: npt.NDArray[np.float64], rho: float
) -> list[int]:
    """Choose marginals greedily: noise error of those chosen, InDif of the others (Algorithm 1).

    With rho_i proportional to c_i^(2/3), the noise error of a choice is
    (sum c_i^(2/3))^(3/2) / sqrt(pi rho).
    """
    shares = cells ** (2.0 / 3.0)
    free = np.ones(len(cells), dtype=bool)
    taken, chosen = 0.0, []
    while free.any():
        gain = differences - ((taken + shares) ** 1.5 - taken**1.5) / math.sqrt(math.pi * rho)
        best = int(np.argmax(np.where(free, gain, -np.inf)))
        if gain[best] <= 0.0:
            break
        free[best] = False
        taken += float(shares[best])
        chosen.append(best)
    return chosen


def combined(pairs: Sequence[Columns], sizes: Sequence[int], most_cells: int) -> list[Columns]:
    """Replace pairs by cliques of them, the largest first (Algorithm 2)."""
    graph = nx.Graph(pairs)
    levels: list[list[Columns]] = []
    level = sorted((min(pair), max(pair)) for pair in pairs)
    larger: list[Columns] = [*level]
    while larger:
        grown = [
            (*clique, node)
            for clique in larger
            for node in sorted(set.intersection(*(set(graph[column]) for column in clique)))
            if node > clique[-1]
            and math.prod(sizes[column] for column in clique) * sizes[node] <= most_cells
        ]
        if len(grown) > _CLIQUES_AT_MOST:
            break
        levels.append(grown)
        larger = grown
    cliques: list[Columns] = []
    inside: set[int] = set()
    for clique in itertools.chain.from_iterable(reversed(levels)):
        if len(inside.intersection(clique)) <= 2:
            cliques.append(clique)
            inside.update(clique)
    return cliques + [pair for pair in level if not any(set(pair) <= set(one) for one in cliques)]


def consistent(tables: Sequence[NoisyMarginal], total: float) -> list[NoisyMarginal]:
    """Return tables that agree on shared columns, sum to `total` and have no negative count."""
    counts = [table.counts.astype(np.float64) for table in tables]
    columns = [table.columns for table in tables]
    variances = [float(np.square(table.deviations).mean()) for table in tables]
    shared = {tuple(sorted(set(a) & set(b))) for a, b in itertools.combinations(columns, 2)}
    shared |= {tuple(sorted(set(a) & set(b))) for a, b in itertools.combinations(shared, 2)}
    # Smaller sets first: agreement on them is kept by averages over larger ones.
    order = sorted(shared - {()}, key=lambda one: (len(one), one))
    for _ in range(_SWEEPS):
        counts = [table + (total - table.sum()) / table.size for table in counts]
        for one in order:
            _agree(one, columns, counts, variances)
        counts = [nearest_counts(table.ravel(), total).reshape(table.shape) for table in counts]
    return [
        NoisyMarginal(table.columns, new, table.deviations)
        for table, new in zip(tables, counts, strict=True)
    ]


def _agree(
    shared: Columns,
    columns: Sequence[Columns],
    counts: list[CellTable],
    variances: Sequence[float],
) -> None:
    """Move all tables with these columns to the average of their margins, in place."""
    holding = [place for place, one in enumerate(columns) if set(shared) <= set(one)]
    margins, precisions = [], []
    for place in holding:
        axes = tuple(axis for axis, column in enumerate(columns[place]) if column not in shared)
        # All sets of columns are sorted, so that the axes of margins are in the same order.
        margin = counts[place].sum(axis=axes)
        margins.append(margin)
        precisions.append(margin.size / (counts[place].size * variances[place]))
    average = np.average(margins, axis=0, weights=precisions)
    for place, margin in zip(holding, margins, strict=True):
        shape = [
            size if column in shared else 1
            for column, size in zip(columns[place], counts[place].shape, strict=True)
        ]
        cells = counts[place].size / margin.size
        counts[place] = counts[place] + ((average - margin) / cells).reshape(shape)


def updated(
    tables: Sequence[NoisyMarginal],
    count: int,
    rounds: int,
    alpha: float,
    rng: np.random.Generator,
) -> Codes:
    """Return records whose marginals were moved to the tables, step by step (GUM).

    The tables are consistent; single columns come first, in their order.
    """
    width = 1 + max(column for table in tables for column in table.columns)
    start = np.zeros(count, dtype=np.int64)
    records = np.stack(
        [conditional_draw(table.counts[None, :], start, rng) for table in tables[:width]], axis=1
    )
    larger = [table for table in tables[width:] if len(table.columns) > 1]
    targets = [table.counts / max(table.counts.sum(), 1e-300) * count for table in larger]
    for number in range(rounds):
        growth = alpha * _DECAY ** (number // _DECAY_EVERY)
        for place in rng.permutation(len(larger)):
            update(records, larger[place].columns, targets[place], growth, rng)
    return records


def update(
    records: Codes, columns: Columns, target: CellTable, growth: float, rng: np.random.Generator
) -> None:
    """Move records from cells of a marginal with too many to cells with too few, in place."""
    wanted = target.ravel()
    cells = np.ravel_multi_index(tuple(records[:, column] for column in columns), target.shape)
    current = np.bincount(cells, minlength=wanted.size)
    lack, excess = np.maximum(wanted - current, 0.0), np.maximum(current - wanted, 0.0)
    # An empty cell cannot grow by a part of itself: it gets that part of what it lacks.
    gained = np.where(current > 0, np.minimum(lack, growth * current), min(growth, 1.0) * lack)
    lost = _reduction(excess, current, float(gained.sum()))
    gains = np.floor(gained + rng.random(wanted.size)).astype(np.int64)
    losses = np.minimum(np.floor(lost + rng.random(wanted.size)), current).astype(np.int64)
    order = np.argsort(cells + rng.random(len(cells)))
    starts = np.cumsum(current) - current
    ordered = cells[order]
    leaving = order[np.arange(len(order)) - starts[ordered] < losses[ordered]]
    arriving = np.repeat(np.arange(wanted.size), gains)
    moves = min(len(leaving), len(arriving))
    leaving, arriving = rng.permutation(leaving)[:moves], rng.permutation(arriving)[:moves]
    copies = (rng.random(moves) < 0.5) & (current[arriving] > 0)
    source = starts[arriving] + (rng.random(moves) * current[arriving]).astype(np.int64)
    before = records[order[source[copies]]]
    records[leaving[copies]] = before
    codes = np.unravel_index(arriving[~copies], target.shape)
    for column, code in zip(columns, codes, strict=True):
        records[leaving[~copies], column] = code


def _reduction(
    excess: npt.NDArray[np.float64], current: npt.NDArray[np.int64], gained: float
) -> npt.NDArray[np.float64]:
    """Return min(excess, beta current), with the beta for which all together lose `gained`."""
    places = np.flatnonzero(excess > 0.0)
    if not len(places):
        return np.zeros_like(excess)
    places = places[np.argsort(excess[places] / current[places])]
    most, have = excess[places], current[places].astype(np.float64)
    rest = np.cumsum(have[::-1])[::-1]
    # At the ratio of place k, those before it lose all their excess and the rest that ratio.
    before = np.cumsum(most) - most
    reached = before + most / have * rest
    first = min(int(np.searchsorted(reached, gained)), len(places) - 1)
    beta = max(0.0, (gained - before[first]) / rest[first])
    lost = np.zeros_like(excess)
    lost[places] = np.minimum(most, beta * have)
    return lost
