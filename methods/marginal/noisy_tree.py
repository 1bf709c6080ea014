"""A tree of noisy pairs by Gaussian counts alone: nothing but the kernel is trusted.

In the line of MST (McKenna, Miklau and Sheldon 2021), which it follows but for the choice of the
pairs: theirs needs an exponential mechanism and a library; here the choice is post-processing of
noisy counts, so that the method needs no environment and its verdict trusts nobody.

In every class, a table by itself (classes are disjoint parts: each has the whole budget):

1. All pairs of columns are counted in a few coarse cells each (`coarse` codes per column, where
   neighbours are joined), with the share `choice` of the budget. The score of a pair is the
   distance of its table from independence, |N_ij - N_i N_j / n|_1, less what noise alone adds to
   it in expectation, sigma sqrt(2 / pi) per cell (the term of AIM's score: McKenna et al. 2022).
   The maximum spanning forest of the positive scores is the tree.
2. All columns and the pairs of the tree are counted in fine bins, with the rest of the budget.
3. A graphical model is fitted to these counts (`_graphical_model`), and rows are drawn from it.

Both rounds are Gaussian mechanisms whose multipliers are fixed and reserved before the first
answer. Which pairs the second round counts depends on the first, how noisy it is does not: a row
moves one count in each table, so that t tables with noise sigma have the multiplier
sigma / sqrt(t), and t is that of the largest possible forest. Coarse tables are asked for in
several calls of at most `_AT_ONCE` pairs, which keeps the memory small and costs the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import networkx as nx
import numpy as np
import numpy.typing as npt

from bench import (
    Claim,
    EncodedRows,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    gaussian,
)
from bench.methods._shared.codes import Codes
from bench.methods.marginal._bins import Binning
from bench.methods.marginal._discretise import BinnedMethod
from bench.methods.marginal._graphical_model import check_columns, fit
from bench.privacy.trusted.smartnoise import NoisyMarginal

Pair = tuple[int, int]
CellTable = npt.NDArray[np.float64]

_AT_ONCE = 40
_LEAST = 4
"""Bins of a numeric column, at least."""


@final
@dataclass(frozen=True)
class _Deviations:
    """Standard deviations of the noise on one count, in both rounds."""

    coarse: float
    fine: float


@final
@dataclass(frozen=True)
class NoisyTree(BinnedMethod):
    """A graphical model of a tree of pairs that was chosen from noisy counts."""

    name: ClassVar[str] = "noisy-tree"
    title: ClassVar[str] = "Tree of noisy pairs by Gaussian counts"
    paper: ClassVar[str] = (
        "none: after McKenna, Miklau and Sheldon, Winning the NIST Contest, Journal of Privacy and "
        "Confidentiality 2021"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2108.04978"
    family: ClassVar[str] = "marginals"
    by_maintainers: ClassVar[bool] = True
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "breast-cancer")
    quick: ClassVar[Mapping[str, Any]] = {"bins": 4, "steps": 30}

    filled: float = 0.5
    """Noise on all cells of a pair of numeric columns, as a share of the rows of a class, from
    which there are fewer bins."""
    coarse: int = 5
    """Codes of a column when pairs are compared, at most."""
    choice: float = 0.2
    """Share of the budget (of 1 / multiplier^2) that the choice of pairs takes."""
    steps: int = 1000
    """Steps of the estimation."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        check_columns(private.schema)
        columns = len(Binning(private.encoder, self.bins).sizes) - 1
        pairs = list(itertools.combinations(range(columns), 2))
        parts = private.partition("class")
        chunks = [pairs[at : at + _AT_ONCE] for at in range(0, len(pairs), _AT_ONCE)]

        def deviations(noise: float) -> _Deviations:
            share = self.choice if pairs else 0.0
            coarse = noise * math.sqrt(len(pairs) / share) if pairs else math.inf
            # The largest forest: every column, and one pair less than there are columns.
            return _Deviations(coarse, noise * math.sqrt((2 * columns - 1) / (1.0 - share)))

        def plans(noise: float) -> list[PlannedEvents]:
            sigma = deviations(noise)
            counts = [sigma.coarse / math.sqrt(len(chunk)) for chunk in chunks]
            counts.append(sigma.fine / math.sqrt(2 * columns - 1))
            return [part.plan(gaussian(count)) for part in parts.values() for count in counts]

        cuts, noise = self.reserved(private, plans)
        binning = cuts.binning(self.bins)
        sigma = deviations(noise)
        made, edges = [], 0
        asked = spec.rows_per_class(private.counts)
        totals = [max(1, total) for total in private.counts.by_class]
        for label, (part, total) in enumerate(zip(parts.values(), totals, strict=True)):
            tables = self._coarse_tables(part, binning, chunks, sigma)
            forest = chosen_pairs(tables, total, sigma.coarse, columns)
            edges += len(forest)
            fine = cuts.binning(self._bins(total, sigma.fine))
            marginals = self._fine_counts(part, fine, forest, sigma)
            model = fit(fine.sizes[:-1], marginals, total, self.steps)
            codes = model.draw(asked[label], None, rng)
            codes = np.column_stack([codes, np.full(len(codes), label)])
            made.append(fine.rows(codes, rng))
        rows = Rows(
            np.concatenate([one.values for one in made]),
            np.concatenate([one.labels for one in made]),
        )
        claim = Claim.of(spec.budget, "Gaussian mechanisms on counts of pairs, per class")
        notes = {
            "noise_multiplier": noise,
            "count_deviation": sigma.fine,
            "pairs": edges,
            "discretiser": self.discretiser,
        }
        return Release(rows, claim=claim, notes=notes)

    def _bins(self, total: int, deviation: float) -> int:
        """Return the bins of a numeric column in a class of `total` rows: fewer in much noise.

        The noise of a pair of numeric columns is then about `filled` of its rows.
        """
        enough = math.sqrt(self.filled * total / deviation)
        return max(min(_LEAST, self.bins), min(self.bins, int(enough)))

    def _coarse_tables(
        self,
        part: PrivateData,
        binning: Binning,
        chunks: Sequence[Sequence[Pair]],
        sigma: _Deviations,
    ) -> dict[Pair, CellTable]:
        sizes = [min(self.coarse, size) for size in binning.sizes[:-1]]

        def joined(table: Codes) -> Codes:
            return np.stack(
                [
                    table[:, number] * sizes[number] // binning.sizes[number]
                    for number in range(len(sizes))
                ],
                axis=1,
            )

        tables: dict[Pair, CellTable] = {}
        for chunk in chunks:
            counted = _counts(
                part, lambda rows: joined(binning.codes(rows)), chunk, sizes, sigma.coarse
            )
            tables.update(counted)
        return tables

    def _fine_counts(
        self, part: PrivateData, binning: Binning, forest: Sequence[Pair], sigma: _Deviations
    ) -> tuple[NoisyMarginal, ...]:
        """Count every column and the pairs of the forest.

        Tables of one cell fill up a smaller forest: the multiplier that was reserved is that of
        2 columns - 1 tables.
        """
        columns = len(binning.sizes) - 1
        singles: list[tuple[int, ...]] = [(number,) for number in range(columns)]
        padding: list[tuple[int, ...]] = [()] * (columns - 1 - len(forest))
        asked = [*singles, *forest, *padding]
        bins = [math.prod(binning.sizes[number] for number in one) for one in asked]

        def codes(rows: EncodedRows) -> Codes:
            table = binning.codes(rows)
            return np.stack([_flat(table, one, binning.sizes) for one in asked], axis=1)

        noisy = part.histograms(codes, bins, sigma.fine / math.sqrt(len(asked)))
        return tuple(
            NoisyMarginal(
                one,
                counts.reshape([binning.sizes[number] for number in one]),
                np.full([binning.sizes[number] for number in one], sigma.fine),
            )
            for one, counts in zip(asked, noisy, strict=True)
            if one
        )


def _counts(
    part: PrivateData,
    coarse: Callable[[EncodedRows], Codes],
    pairs: Sequence[Pair],
    sizes: Sequence[int],
    sigma: float,
) -> dict[Pair, CellTable]:
    def codes(rows: EncodedRows) -> Codes:
        table = coarse(rows)
        return np.stack([_flat(table, pair, sizes) for pair in pairs], axis=1)

    bins = [sizes[first] * sizes[second] for first, second in pairs]
    noisy = part.histograms(codes, bins, sigma / math.sqrt(len(pairs)))
    return {
        pair: counts.reshape(sizes[pair[0]], sizes[pair[1]])
        for pair, counts in zip(pairs, noisy, strict=True)
    }


def _flat(table: Codes, columns: Sequence[int], sizes: Sequence[int]) -> Codes:
    """Number of the cell of each row, over these columns; 0 over none."""
    cells = np.zeros(len(table), dtype=np.int64)
    for column in columns:
        cells = cells * sizes[column] + table[:, column]
    return cells


def chosen_pairs(
    tables: Mapping[Pair, CellTable], total: int, deviation: float, columns: int
) -> list[Pair]:
    """Return the maximum spanning forest of the pairs that are dependent beyond the noise."""
    graph = nx.Graph()
    graph.add_nodes_from(range(columns))
    for pair, noisy in tables.items():
        counts = np.maximum(noisy, 0.0)
        rows, others = counts.sum(axis=1), counts.sum(axis=0)
        sum_of_all = max(counts.sum(), 1.0)
        apart = np.abs(noisy - np.outer(rows, others) / sum_of_all).sum()
        score = (apart - math.sqrt(2.0 / math.pi) * deviation * noisy.size) / total
        if score > 0:
            graph.add_edge(*pair, weight=score)
    return sorted((min(edge), max(edge)) for edge in nx.maximum_spanning_tree(graph).edges)
