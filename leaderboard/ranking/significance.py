"""Who is better than whom, and between whom nothing can be told apart: pure functions over tables.

The unit is the block: one group of `rank.placements`, that is one dataset, IPC, target epsilon and
setting, in which all labels that are compared were ranked (so all are sound and keep the target).
Seeds are no units: they are averaged within their block.

Findings hold for the datasets that were run. For other datasets they claim too much, since blocks
of one dataset are alike: if methods differ from dataset to dataset as much as from block to block,
four methods that are alike on average are told apart in about 18% of benchmarks with 6 datasets of
3 blocks (2% if blocks are independent). `MethodComparison.datasets_only` says what is left if each
dataset counts once, which keeps the level.

Two labels are told apart where Friedman's test says that anybody differs and Wilcoxon's
signed-rank test of the two, corrected by Holm for all pairs, says that these two do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import networkx as nx
import numpy as np
import pandas as pd
from scipy import stats

from bench.leaderboard.ranking import inference
from bench.leaderboard.ranking.inference import Array, Friedman
from bench.leaderboard.ranking.rank import group_identity, placements
from bench.leaderboard.tables.load import records
from bench.results.records import Status
from bench.stats.multiple_testing import holm

FEWEST_BLOCKS = 5
"""With fewer, even winning every block has a p-value above 0.1: no interval is given either."""

RESAMPLES = 5000


@final
@dataclass(frozen=True)
class PairTest:
    """Two labels, the one with the better mean rank first."""

    first: str
    second: str
    wins: float
    """Share of blocks in which the first beats the second; a tie counts half."""
    p: float
    p_holm: float
    better: str
    """Which of the two, if they are told apart; otherwise empty."""


@final
@dataclass(frozen=True)
class ComparedMethod:
    """One label among those it is compared with."""

    label: str
    mean_rank: float
    low: float | None
    """Ends of the bootstrap interval over blocks; None for too few blocks."""
    high: float | None
    best: int
    """The places that the tests leave open: one more than how many are better for sure ..."""
    worst: int
    """... to how many there are without those that are worse for sure."""
    better_than: tuple[str, ...]
    wins: Mapping[str, float]
    """Share of blocks won against each other label; a tie counts half."""

    @property
    def place(self) -> str:
        """`2`, or `1-3` where it is shared."""
        return str(self.best) if self.best == self.worst else f"{self.best}-{self.worst}"


@final
@dataclass(frozen=True)
class DatasetsOnly:
    """What the same tests say with one block a dataset."""

    blocks: int
    smallest_p: float
    better: frozenset[tuple[str, str]]
    """Better and worse."""


@final
@dataclass(frozen=True)
class MethodComparison:
    """Methods that met each other in the same blocks."""

    alpha: float
    blocks: int
    incomplete: int
    standings: tuple[ComparedMethod, ...]
    """Best mean rank first."""
    friedman: Friedman | None
    """None for two labels: the pair is tested directly."""
    critical_difference: float
    pairs: tuple[PairTest, ...]
    cliques: tuple[tuple[str, ...], ...]
    """The largest sets within which nothing is told apart, of two or more."""
    smallest_p: float
    """The smallest corrected p-value that so many blocks and pairs can give."""
    datasets_only: DatasetsOnly

    @property
    def powerless(self) -> bool:
        """True where no result whatever could have told anybody apart."""
        return self.smallest_p >= self.alpha

    @property
    def finding(self) -> str:
        """What the tests say, in one sentence."""
        return _finding(self)

    @property
    def caution(self) -> str:
        """What is left if each dataset counts once, in one sentence; empty if nothing was told."""
        return _caution(self)


@final
@dataclass(frozen=True)
class UncomparedMethod:
    """A ranked label that is in no comparison."""

    label: str
    blocks: int


def compare(
    table: pd.DataFrame, rng: np.random.Generator, alpha: float = 0.05
) -> tuple[tuple[MethodComparison, ...], tuple[UncomparedMethod, ...]]:
    """Comparisons over the table of `rank.ranking_table`, and who is in none.

    Not everybody takes part everywhere, and blocks must be complete. The first comparison is that
    with the most results (labels times complete blocks). Who is not in it gets one more,
    with those it met, if that has blocks enough to tell anybody apart.
    """
    places = placements(table)
    members: dict[tuple[Any, ...], set[str]] = {}
    for record in records(places[places["rank"].notna()]):
        members.setdefault(group_identity(record), set()).add(record["shown_label"])
    groups = list(members.values())
    taken = {name: sum(name in own for own in groups) for name in sorted(set().union(*groups))}
    found: list[MethodComparison] = []
    waiting = dict(taken)
    absent = []
    if groups:
        labels = largest_set(groups)
        found.append(compare_blocks(blocks_of(table, labels), rng, alpha))
        waiting = {name: count for name, count in taken.items() if name not in labels}
    while waiting:
        name = max(sorted(waiting), key=waiting.__getitem__)
        labels = largest_set([own for own in groups if name in own], keep=name)
        result = compare_blocks(blocks_of(table, labels), rng, alpha)
        if not result.powerless:
            found.append(result)
            waiting = {other: count for other, count in waiting.items() if other not in labels}
        else:
            absent.append(UncomparedMethod(name, waiting.pop(name)))
    return tuple(found), tuple(absent)


def compare_blocks(
    blocks: Blocks, rng: np.random.Generator, alpha: float = 0.05, resamples: int = RESAMPLES
) -> MethodComparison:
    """All tests of one set of blocks."""
    count, labels = blocks.ranks.shape
    means = blocks.ranks.mean(axis=0)
    order = sorted(range(labels), key=lambda j: (means[j], blocks.labels[j]))
    names = [blocks.labels[j] for j in order]
    ranks, utility = blocks.ranks[:, order], blocks.utility[:, order]
    overall = inference.friedman(ranks) if labels > 2 else None
    pairs = _pairs(names, ranks, utility, alpha, overall)
    once = once_a_dataset(blocks)
    once_overall = inference.friedman(once.ranks) if labels > 2 else None
    once_pairs = _pairs(once.labels, once.ranks, once.utility, alpha, once_overall)
    return MethodComparison(
        alpha=alpha,
        blocks=count,
        incomplete=blocks.incomplete,
        standings=_standings(names, ranks, pairs, _intervals(ranks, rng, alpha, resamples)),
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
    # Rounded, so that what differs by an error of arithmetic is a tie.
    differences = [(utility[:, i] - utility[:, j]).round(12) for i, j in columns]
    plain = [inference.signed_rank_p(difference) for difference in differences]
    adjusted = holm(plain)
    differs = overall is None or overall.p < alpha
    found = []
    for (i, j), difference, p, p_holm in zip(columns, differences, plain, adjusted, strict=True):
        better = ""
        if differs and p_holm < alpha:
            better = names[i] if inference.signed_rank_sum(difference) > 0 else names[j]
        wins = (ranks[:, i] < ranks[:, j]) + (ranks[:, i] == ranks[:, j]) / 2
        found.append(PairTest(names[i], names[j], float(wins.mean()), p, float(p_holm), better))
    return tuple(found)


def _directions(pairs: Sequence[PairTest]) -> list[tuple[str, str]]:
    """Better and worse of all that are told apart."""
    return [
        (pair.better, pair.second if pair.better == pair.first else pair.first)
        for pair in pairs
        if pair.better
    ]


def _intervals(
    ranks: Array, rng: np.random.Generator, alpha: float, resamples: int
) -> list[tuple[float, float]] | None:
    """Percentiles of the mean rank over blocks drawn with replacement.

    Plain percentiles are too narrow for few blocks. They are taken further out, where a normal
    interval would be as wide as Student's (T. Hesterberg, "What teachers should know about the
    bootstrap", The American Statistician 69 (2015), expanded percentiles).
    """
    count = len(ranks)
    if count < FEWEST_BLOCKS:
        return None
    reach = stats.t.ppf(1 - alpha / 2, count - 1) * math.sqrt(count / (count - 1))
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
    ends = [stats.norm.cdf(-reach), stats.norm.cdf(reach)]
    low, high = np.quantile(drawn @ ranks / count, ends, axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _standings(
    names: Sequence[str],
    ranks: Array,
    pairs: Sequence[PairTest],
    intervals: Sequence[tuple[float, float]] | None,
) -> tuple[ComparedMethod, ...]:
    """With the set of places that the pairwise tests leave open for each label.

    Since Holm's correction covers all pairs at once, so do the sets (M. Mogstad, J. P. Romano,
    A. M. Shaikh, D. Wilhelm, "Inference for ranks", Review of Economic Studies 91 (2024)).
    """
    told = set(_directions(pairs))
    won = {(pair.first, pair.second): pair.wins for pair in pairs}
    won |= {(pair.second, pair.first): 1 - pair.wins for pair in pairs}
    found = []
    for column, name in enumerate(names):
        beaten = tuple(other for other in names if (name, other) in told)
        beating = sum((other, name) in told for other in names)
        low, high = intervals[column] if intervals is not None else (None, None)
        found.append(
            ComparedMethod(
                label=name,
                mean_rank=float(ranks[:, column].mean()),
                low=low,
                high=high,
                best=1 + beating,
                worst=len(names) - len(beaten),
                better_than=beaten,
                wins={other: won[name, other] for other in names if other != name},
            )
        )
    return tuple(found)


def _cliques(names: Sequence[str], pairs: Sequence[PairTest]) -> tuple[tuple[str, ...], ...]:
    graph = nx.Graph()
    graph.add_edges_from((pair.first, pair.second) for pair in pairs if not pair.better)
    place = {name: column for column, name in enumerate(names)}
    found = (tuple(sorted(clique, key=place.__getitem__)) for clique in nx.find_cliques(graph))
    return tuple(sorted(found, key=lambda clique: [place[name] for name in clique]))


def _finding(result: MethodComparison) -> str:
    blocks = f"{result.blocks} block{'' if result.blocks == 1 else 's'}"
    if result.powerless:
        single = inference.smallest_p(result.blocks)
        corrected = f", {result.smallest_p:.2g} after the correction for {len(result.pairs)} pairs"
        overall = ""
        if result.friedman is not None and result.friedman.p < result.alpha:
            overall = f" Not all are alike, though (Friedman's test: p = {result.friedman.p:.2g})."
        return (
            f"Nothing can be told apart, pair by pair: the smallest p-value that {blocks} can give "
            f"is {single:.2g}{corrected if len(result.pairs) > 1 else ''}, whatever the results."
            + overall
        )
    beaten: dict[tuple[str, ...], list[str]] = {}
    for standing in result.standings:
        if standing.better_than:
            beaten.setdefault(standing.better_than, []).append(standing.label)
    if not beaten:
        least = min(pair.p_holm for pair in result.pairs)
        why = f"smallest corrected p-value {least:.2g}"
        if result.friedman is not None:
            why = f"Friedman's test: p = {result.friedman.p:.2g}; {why}"
        return f"Nothing can be told apart by {blocks} ({why})."
    everybody = len(result.standings)
    parts = [
        f"{_listed(better)} {'is' if len(better) == 1 else 'are'} better than "
        + ("all others" if 3 < everybody == len(better) + len(worse) else _listed(worse))
        for worse, better in beaten.items()
    ]
    parts += [f"between {_listed(clique)} nothing can be told apart" for clique in result.cliques]
    many = result.datasets_only.blocks
    scope = "On this dataset" if many == 1 else f"On these {many} datasets"
    return f"{scope}: {'; '.join(parts)}."


def _caution(result: MethodComparison) -> str:
    once = result.datasets_only
    told = {(s.label, other) for s in result.standings for other in s.better_than}
    if not told:
        return ""
    start = "For other datasets like these"
    if once.smallest_p >= result.alpha:
        return (
            f"{start} nothing can be told: each counts once, and the smallest corrected p-value "
            f"that {once.blocks} of them can give is {once.smallest_p:.2g}."
        )
    kept = len(told & once.better)
    return f"{start}, each counted once, {kept} of these {len(told)} differences can be told."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# Blocks -------------------------------------------------------------------------------------------


_LARGEST = 1e100
"""Utilities beyond are as good as this one: their differences must stay numbers."""


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """What the tests look at: (blocks, labels) tables."""

    labels: tuple[str, ...]
    datasets: tuple[str, ...]
    """Of each block."""
    ranks: Array
    """Within each block, 1 is best; equal ones share the mean of their ranks."""
    utility: Array
    """Mean over the seeds that all have; higher is better."""
    incomplete: int
    """Blocks in which only some of the labels were ranked, left out."""


def blocks_of(table: pd.DataFrame, labels: Collection[str]) -> Blocks:
    """The complete blocks of these labels, with ranks recomputed among them alone.

    A block's ranks order the mean ranks over seeds, in which a failing cell takes the last place.
    In a mean utility a failing cell counts as much below the worst result of its block as the best
    is above it.
    """
    own = table[table["shown_label"].isin(labels)]
    names = tuple(sorted(labels))
    places: dict[tuple[Any, ...], dict[str, float]] = {}
    for record in records(placements(own)):
        if not pd.isna(record["rank"]):
            places.setdefault(group_identity(record), {})[record["shown_label"]] = record["rank"]
    complete = sorted((key for key, found in places.items() if len(found) == len(names)), key=str)
    cells: dict[tuple[Any, ...], dict[str, dict[str, float]]] = {}
    for cell in records(own[own["status"] != Status.SKIPPED.value]):
        label = cells.setdefault(group_identity(cell), {}).setdefault(cell["shown_label"], {})
        label[cell["repetition"]] = cell["utility"]
    means = np.array([[places[key][name] for name in names] for key in complete], dtype=np.float64)
    return Blocks(
        labels=names,
        datasets=tuple(str(key[0]) for key in complete),
        ranks=_ranked(means.reshape(-1, len(names))),
        utility=np.array([_block_utility(cells[key], names) for key in complete]).reshape(
            -1, len(names)
        ),
        incomplete=len(places) - len(complete),
    )


def largest_set(groups: Sequence[Collection[str]], keep: str = "") -> frozenset[str]:
    """The labels with the most results in common: labels times groups that hold all of them.

    Found by leaving out one label after the other, the one whose absence leaves most, but never
    `keep`; no worse than the members of any one group.
    """
    members = [frozenset(own) for own in groups]
    now = frozenset[str]().union(*members)

    def results(labels: frozenset[str]) -> int:
        return len(labels) * sum(labels <= own for own in members)

    best = max([now, *members], key=results)
    while len(now) > 2:
        smaller = [now - {name} for name in sorted(now) if name != keep]
        now = max(smaller, key=lambda labels: (results(labels), _taken(labels, members)))
        best = max(best, now, key=results)
    return best


def _taken(labels: frozenset[str], members: Sequence[frozenset[str]]) -> int:
    return sum(len(labels & own) for own in members)


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
    # Any spread will do where all are equal: only order and sign of differences are looked at.
    spread = float(np.ptp(finite)) or 1.0
    means: Array = np.where(present, values, finite.min() - spread).mean(axis=0)
    return means


def once_a_dataset(blocks: Blocks) -> Blocks:
    """One block a dataset: the mean of its blocks, ranked again."""
    datasets = tuple(sorted(set(blocks.datasets)))
    own = [np.array([name == dataset for name in blocks.datasets]) for dataset in datasets]
    return Blocks(
        labels=blocks.labels,
        datasets=datasets,
        ranks=_ranked(np.array([blocks.ranks[mask].mean(axis=0) for mask in own])),
        utility=np.array([blocks.utility[mask].mean(axis=0) for mask in own]),
        incomplete=blocks.incomplete,
    )
