"""Statistical comparison of methods: pure functions over tables.

The statistical unit is the block: one group of `rank.placements`, that is one dataset, IPC, target
epsilon and setting, in which all compared methods were ranked (so all are sound and within the
target). Seeds are not units: they are averaged within their block.

The results hold for the datasets that were run. For other datasets the tests are anti-conservative,
since blocks of one dataset are correlated: if methods vary between datasets as much as between
blocks, four methods that are equal on average are distinguished in about 18% of benchmarks with 6
datasets of 3 blocks (2% if blocks are independent). `RankComparison.datasets_only` counts each
dataset once, which keeps the level.

Two methods are distinguished if Friedman's test rejects that all are equal, and Wilcoxon's
signed-rank test of the two, with Holm's correction for all pairs, rejects that these two are.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import networkx as nx
import numpy as np
import pandas as pd
from scipy import stats

from bench.leaderboard.ranking import inference
from bench.leaderboard.ranking.inference import Array, Friedman
from bench.leaderboard.ranking.quantities import by_dataset, over_datasets, rank_interval
from bench.leaderboard.ranking.rank import group_identity, placements
from bench.leaderboard.tables.load import records
from bench.results.records import Status
from bench.stats.inference import holm


@final
@dataclass(frozen=True)
class PairTest:
    """Test of two methods, the one with the better mean rank first."""

    first: str
    second: str
    wins: float
    """Share of blocks in which the first beats the second; a tie counts half."""
    p: float
    p_holm: float
    better: str
    """The better method if the two are distinguished; otherwise empty."""


@final
@dataclass(frozen=True)
class ComparedMethod:
    """One method among those it is compared with."""

    label: str
    mean_rank: float
    """As `quantities` defines it, among the methods and over the blocks of this comparison."""
    low: float | None
    """Ends of its interval over datasets; None for too few."""
    high: float | None
    best: int
    """Best place consistent with the tests: one more than the number of better methods."""
    worst: int
    """Worst place consistent with the tests: all methods without the worse ones."""
    better_than: tuple[str, ...]
    wins: Mapping[str, float]
    """Share of blocks won against each other method; a tie counts half."""

    @property
    def place(self) -> str:
        """Place as text: `2`, or `1-3` for a tie."""
        return str(self.best) if self.best == self.worst else f"{self.best}-{self.worst}"


@final
@dataclass(frozen=True)
class DatasetsOnly:
    """Result of the same tests with one block per dataset."""

    blocks: int
    smallest_p: float
    better: frozenset[tuple[str, str]]
    """Pairs of a better and a worse method."""


@final
@dataclass(frozen=True)
class RankComparison:
    """Comparison of methods over common blocks."""

    alpha: float
    blocks: int
    incomplete: int
    standings: tuple[ComparedMethod, ...]
    """Methods by mean rank, best first."""
    friedman: Friedman | None
    """None for two methods: the pair is tested directly."""
    critical_difference: float
    pairs: tuple[PairTest, ...]
    cliques: tuple[tuple[str, ...], ...]
    """Maximal sets of two or more methods that are indistinguishable."""
    smallest_p: float
    """The smallest corrected p-value that is possible with so many blocks and pairs."""
    datasets_only: DatasetsOnly
    of_all: bool = False
    """Whether all ranked methods are compared in all their groups: mean ranks are then those of
    the standings."""

    @property
    def powerless(self) -> bool:
        """True if no possible result could be significant."""
        return self.smallest_p >= self.alpha

    @property
    def finding(self) -> str:
        """Result of the tests in one sentence."""
        return _finding(self)

    @property
    def caution(self) -> str:
        """Result if each dataset counts once, in one sentence; empty if nothing is significant."""
        return _caution(self)


@final
@dataclass(frozen=True)
class UncomparedMethod:
    """A ranked method that is in no comparison."""

    label: str
    blocks: int


def compare(
    table: pd.DataFrame, alpha: float = 0.05
) -> tuple[tuple[RankComparison, ...], tuple[UncomparedMethod, ...]]:
    """Return comparisons over the table of `rank.ranking_table`, and the methods in none.

    Methods may be ranked in different groups, and blocks must be complete. The first comparison is
    the one with the most results (methods times complete blocks). A method that is not in it gets
    another one, with the methods it shares groups with, if a significant result is possible.
    """
    places = placements(table)
    members: dict[tuple[Any, ...], set[str]] = {}
    for record in records(places[places["rank"].notna()]):
        members.setdefault(group_identity(record), set()).add(record["shown_label"])
    groups = list(members.values())
    taken = {name: sum(name in group for group in groups) for name in sorted(set().union(*groups))}
    comparisons: list[RankComparison] = []
    waiting = dict(taken)
    absent = []
    if groups:
        labels = largest_set(groups)
        first = compare_blocks(blocks_of(table, labels), alpha)
        comparisons.append(replace(first, of_all=all(group == labels for group in groups)))
        waiting = {name: count for name, count in taken.items() if name not in labels}
    while waiting:
        name = max(sorted(waiting), key=waiting.__getitem__)
        labels = largest_set([group for group in groups if name in group], keep=name)
        result = compare_blocks(blocks_of(table, labels), alpha)
        if not result.powerless:
            comparisons.append(result)
            waiting = {other: count for other, count in waiting.items() if other not in labels}
        else:
            absent.append(UncomparedMethod(name, waiting.pop(name)))
    return tuple(comparisons), tuple(absent)


def compare_blocks(blocks: Blocks, alpha: float = 0.05) -> RankComparison:
    """Run all tests of one set of blocks."""
    count, labels = blocks.ranks.shape
    means = [
        over_datasets(zip(blocks.datasets, column, strict=True)) for column in blocks.mean_ranks.T
    ]
    order = sorted(range(labels), key=lambda j: (means[j] or 0.0, blocks.labels[j]))
    names = [blocks.labels[j] for j in order]
    ranks, utility = blocks.ranks[:, order], blocks.utility[:, order]
    overall = inference.friedman(ranks) if labels > 2 else None
    pairs = _pairs(names, ranks, utility, alpha, overall)
    once = once_per_dataset(blocks)
    once_overall = inference.friedman(once.ranks) if labels > 2 else None
    once_pairs = _pairs(once.labels, once.ranks, once.utility, alpha, once_overall)
    return RankComparison(
        alpha=alpha,
        blocks=count,
        incomplete=blocks.incomplete,
        standings=_standings(names, blocks, order, pairs, alpha),
        friedman=overall,
        critical_difference=inference.critical_difference(labels, count, alpha),
        pairs=pairs,
        cliques=_cliques(names, pairs),
        smallest_p=inference.smallest_p(count, len(pairs)),
        datasets_only=DatasetsOnly(
            blocks=len(once.ranks),
            smallest_p=inference.smallest_p(len(once.ranks), len(pairs)),
            better=frozenset(_directions(once_pairs)),
        ),
    )


def _pairs(
    names: Sequence[str], ranks: Array, utility: Array, alpha: float, overall: Friedman | None
) -> tuple[PairTest, ...]:
    columns = list(itertools.combinations(range(len(names)), 2))
    # Rounded, so that values that differ by a rounding error are tied.
    differences = [(utility[:, i] - utility[:, j]).round(12) for i, j in columns]
    plain = [inference.signed_rank_p(difference) for difference in differences]
    adjusted = holm(plain)
    differs = overall is None or overall.p < alpha
    tests = []
    for (i, j), difference, p, p_holm in zip(columns, differences, plain, adjusted, strict=True):
        better = ""
        if differs and p_holm < alpha:
            better = names[i] if inference.signed_rank_sum(difference) > 0 else names[j]
        wins = (ranks[:, i] < ranks[:, j]) + (ranks[:, i] == ranks[:, j]) / 2
        tests.append(PairTest(names[i], names[j], float(wins.mean()), p, float(p_holm), better))
    return tuple(tests)


def _directions(pairs: Sequence[PairTest]) -> list[tuple[str, str]]:
    """Return the pairs of better and worse methods that are distinguished."""
    return [
        (pair.better, pair.second if pair.better == pair.first else pair.first)
        for pair in pairs
        if pair.better
    ]


def _standings(
    names: Sequence[str],
    blocks: Blocks,
    order: Sequence[int],
    pairs: Sequence[PairTest],
    alpha: float,
) -> tuple[ComparedMethod, ...]:
    """Return the methods with the places that are consistent with the pairwise tests.

    Since Holm's correction covers all pairs at once, so do the sets (M. Mogstad, J. P. Romano,
    A. M. Shaikh, D. Wilhelm, "Inference for ranks", Review of Economic Studies 91 (2024)).
    """
    distinguished = set(_directions(pairs))
    won = {(pair.first, pair.second): pair.wins for pair in pairs}
    won |= {(pair.second, pair.first): 1 - pair.wins for pair in pairs}
    standings = []
    for column, name in zip(order, names, strict=True):
        ranks = list(zip(blocks.datasets, blocks.mean_ranks[:, column].tolist(), strict=True))
        low, high = rank_interval(by_dataset(ranks), float(len(names)), alpha)
        beaten = tuple(other for other in names if (name, other) in distinguished)
        beating = sum((other, name) in distinguished for other in names)
        standings.append(
            ComparedMethod(
                label=name,
                mean_rank=over_datasets(ranks) or 0.0,
                low=low,
                high=high,
                best=1 + beating,
                worst=len(names) - len(beaten),
                better_than=beaten,
                wins={other: won[name, other] for other in names if other != name},
            )
        )
    return tuple(standings)


def _cliques(names: Sequence[str], pairs: Sequence[PairTest]) -> tuple[tuple[str, ...], ...]:
    graph = nx.Graph()
    graph.add_edges_from((pair.first, pair.second) for pair in pairs if not pair.better)
    place = {name: column for column, name in enumerate(names)}
    cliques = (tuple(sorted(clique, key=place.__getitem__)) for clique in nx.find_cliques(graph))
    return tuple(sorted(cliques, key=lambda clique: [place[name] for name in clique]))


def _finding(result: RankComparison) -> str:
    blocks = f"{result.blocks} block{'' if result.blocks == 1 else 's'}"
    if result.powerless:
        single = inference.smallest_p(result.blocks)
        corrected = f", {result.smallest_p:.2g} after correction for {len(result.pairs)} pairs"
        overall = ""
        if result.friedman is not None and result.friedman.p < result.alpha:
            p = result.friedman.p
            overall = f" However, the methods are not all equal (Friedman test: p = {p:.2g})."
        return (
            f"No pair of methods can be distinguished: with {blocks} the smallest possible "
            f"p-value is {single:.2g}{corrected if len(result.pairs) > 1 else ''}." + overall
        )
    beaten: dict[tuple[str, ...], list[str]] = {}
    for standing in result.standings:
        if standing.better_than:
            beaten.setdefault(standing.better_than, []).append(standing.label)
    if not beaten:
        least = min(pair.p_holm for pair in result.pairs)
        why = f"smallest corrected p-value {least:.2g}"
        if result.friedman is not None:
            why = f"Friedman test: p = {result.friedman.p:.2g}; {why}"
        return f"All methods are statistically indistinguishable over {blocks} ({why})."
    methods = len(result.standings)
    parts = [
        f"{_listed(better)} {'is' if len(better) == 1 else 'are'} better than "
        + ("all others" if 3 < methods == len(better) + len(worse) else _listed(worse))
        for worse, better in beaten.items()
    ]
    parts += [f"{_listed(clique)} are indistinguishable" for clique in result.cliques]
    many = result.datasets_only.blocks
    scope = "On this dataset" if many == 1 else f"On these {many} datasets"
    return f"{scope}: {'; '.join(parts)}."


def _caution(result: RankComparison) -> str:
    once = result.datasets_only
    significant = {(s.label, other) for s in result.standings for other in s.better_than}
    if not significant:
        return ""
    if once.smallest_p >= result.alpha:
        count = "1 dataset" if once.blocks == 1 else f"{once.blocks} datasets"
        return (
            "This does not generalise to other datasets: if each dataset counts once, the smallest "
            f"possible corrected p-value with {count} is {once.smallest_p:.2g}."
        )
    kept = len(significant & once.better)
    return (
        f"For other datasets, {kept} of these {len(significant)} differences are significant if "
        "each dataset counts once."
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# Blocks -------------------------------------------------------------------------------------------


_LARGEST = 1e100
"""Utilities are clipped to this, so that differences stay finite."""


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """Data of the tests: tables of shape (blocks, methods)."""

    labels: tuple[str, ...]
    datasets: tuple[str, ...]
    """Dataset of each block."""
    ranks: Array
    """Ranks within each block, 1 is best; ties share the mean of their ranks."""
    utility: Array
    """Mean utility over the seeds that all methods have; higher is better."""
    incomplete: int
    """Number of blocks left out, because only some of the methods were ranked."""
    means: Array | None = None
    """Means over seeds of the ranks of each seed, of which `ranks` are the order; None for one
    seed, where they are the ranks."""

    @property
    def mean_ranks(self) -> Array:
        """Means over seeds of the ranks of each seed."""
        return self.ranks if self.means is None else self.means


def blocks_of(table: pd.DataFrame, labels: Collection[str]) -> Blocks:
    """Return the complete blocks of these methods, with ranks recomputed among them.

    The ranks of a block order the mean ranks over seeds, in which a failed cell ranks last. In a
    mean utility a failed cell counts as far below the worst result of its block as the best is
    above it.
    """
    chosen = table[table["shown_label"].isin(labels)]
    names = tuple(sorted(labels))
    places: dict[tuple[Any, ...], dict[str, float]] = {}
    for record in records(placements(chosen)):
        if not pd.isna(record["rank"]):
            places.setdefault(group_identity(record), {})[record["shown_label"]] = record["rank"]
    complete = sorted((key for key, ranks in places.items() if len(ranks) == len(names)), key=str)
    cells: dict[tuple[Any, ...], dict[str, dict[str, float]]] = {}
    for cell in records(chosen[chosen["status"] != Status.SKIPPED.value]):
        label = cells.setdefault(group_identity(cell), {}).setdefault(cell["shown_label"], {})
        label[cell["repetition"]] = cell["utility"]
    means = np.array([[places[key][name] for name in names] for key in complete], dtype=np.float64)
    return Blocks(
        labels=names,
        datasets=tuple(str(key[0]) for key in complete),
        ranks=_ranked(means.reshape(-1, len(names))),
        means=means.reshape(-1, len(names)),
        utility=np.array([_block_utility(cells[key], names) for key in complete]).reshape(
            -1, len(names)
        ),
        incomplete=len(places) - len(complete),
    )


def largest_set(groups: Sequence[Collection[str]], keep: str = "") -> frozenset[str]:
    """Return the methods with the most common results: methods times groups that hold all of them.

    A greedy search removes one method at a time, the one whose removal leaves the most results, but
    never `keep`; the result is no worse than the members of any single group.
    """
    members = [frozenset(group) for group in groups]
    now = frozenset[str]().union(*members)

    def results(labels: frozenset[str]) -> int:
        return len(labels) * sum(labels <= group for group in members)

    best = max([now, *members], key=results)
    while len(now) > 2:
        smaller = [now - {name} for name in sorted(now) if name != keep]
        now = max(smaller, key=lambda labels: (results(labels), _taken(labels, members)))
        best = max(best, now, key=results)
    return best


def _taken(labels: frozenset[str], members: Sequence[frozenset[str]]) -> int:
    return sum(len(labels & group) for group in members)


def _ranked(values: Array) -> Array:
    ranked = stats.rankdata(values.round(9), axis=1) if len(values) else values
    return np.asarray(ranked, dtype=np.float64)


def _block_utility(cells: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> Array:
    seeds = sorted(set.intersection(*(set(cells[name]) for name in names)))
    values = np.array([[cells[name][seed] for name in names] for seed in seeds], dtype=np.float64)
    present = np.isfinite(values)
    if not present.any():
        return np.zeros(len(names))
    values = np.clip(values, -_LARGEST, _LARGEST)
    finite = values[present]
    # Any spread will do if all are equal: only order and sign of differences matter.
    spread = float(np.ptp(finite)) or 1.0
    means: Array = np.where(present, values, finite.min() - spread).mean(axis=0)
    return means


def once_per_dataset(blocks: Blocks) -> Blocks:
    """Return one block per dataset: the mean of its blocks, ranked again."""
    datasets = tuple(sorted(set(blocks.datasets)))
    masks = [np.array([name == dataset for name in blocks.datasets]) for dataset in datasets]
    return Blocks(
        labels=blocks.labels,
        datasets=datasets,
        ranks=_ranked(np.array([blocks.ranks[mask].mean(axis=0) for mask in masks])),
        means=np.array([blocks.mean_ranks[mask].mean(axis=0) for mask in masks]),
        utility=np.array([blocks.utility[mask].mean(axis=0) for mask in masks]),
        incomplete=blocks.incomplete,
    )
