"""The blocks that entrants are compared over: groups in which all of them were ranked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd
from scipy import stats

from bench.leaderboard.ranking.rank import group_identity, placements
from bench.leaderboard.ranking.rank_tests import Array
from bench.leaderboard.tables.load import records
from bench.results.records import Status

_LARGEST = 1e100
"""Utilities beyond are as good as this one: their differences must stay numbers."""


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """What the tests look at: (blocks, entrants) tables."""

    entrants: tuple[str, ...]
    datasets: tuple[str, ...]
    """Of each block."""
    ranks: Array
    """Within each block, 1 is best; equal ones share the mean of their ranks."""
    utility: Array
    """Mean over the seeds that all have; higher is better."""
    incomplete: int
    """Blocks in which only some of the entrants were ranked, left out."""


def blocks_of(table: pd.DataFrame, entrants: Collection[str]) -> Blocks:
    """The complete blocks of these entrants, with ranks recomputed among them alone.

    A block's ranks order the mean ranks over seeds, in which a failing cell takes the last place.
    In a mean utility a failing cell counts as much below the worst result of its block as the best
    is above it.
    """
    own = table[table["entrant"].isin(entrants)]
    names = tuple(sorted(entrants))
    places: dict[tuple[Any, ...], dict[str, float]] = {}
    for record in records(placements(own)):
        if not pd.isna(record["rank"]):
            places.setdefault(group_identity(record), {})[record["entrant"]] = record["rank"]
    complete = sorted((key for key, found in places.items() if len(found) == len(names)), key=str)
    cells: dict[tuple[Any, ...], dict[str, dict[str, float]]] = {}
    for cell in records(own[own["status"] != Status.SKIPPED.value]):
        entrant = cells.setdefault(group_identity(cell), {}).setdefault(cell["entrant"], {})
        entrant[cell["repetition"]] = cell["utility"]
    means = np.array([[places[key][name] for name in names] for key in complete], dtype=np.float64)
    return Blocks(
        entrants=names,
        datasets=tuple(str(key[0]) for key in complete),
        ranks=_ranked(means.reshape(-1, len(names))),
        utility=np.array([_utility(cells[key], names) for key in complete]).reshape(-1, len(names)),
        incomplete=len(places) - len(complete),
    )


def largest_set(groups: Sequence[Collection[str]], keep: str = "") -> frozenset[str]:
    """The entrants with the most results in common: entrants times groups that hold all of them.

    Found by leaving out one entrant after the other, the one whose absence leaves most, but never
    `keep`; no worse than the members of any one group.
    """
    members = [frozenset(own) for own in groups]
    now = frozenset[str]().union(*members)

    def results(entrants: frozenset[str]) -> int:
        return len(entrants) * sum(entrants <= own for own in members)

    best = max([now, *members], key=results)
    while len(now) > 2:
        smaller = [now - {name} for name in sorted(now) if name != keep]
        now = max(smaller, key=lambda entrants: (results(entrants), _taken(entrants, members)))
        best = max(best, now, key=results)
    return best


def _taken(entrants: frozenset[str], members: Sequence[frozenset[str]]) -> int:
    return sum(len(entrants & own) for own in members)


def _ranked(values: Array) -> Array:
    ranked = stats.rankdata(values.round(9), axis=1) if len(values) else values
    return np.asarray(ranked, dtype=np.float64)


def _utility(cells: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> Array:
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
        entrants=blocks.entrants,
        datasets=datasets,
        ranks=_ranked(np.array([blocks.ranks[mask].mean(axis=0) for mask in own])),
        utility=np.array([blocks.utility[mask].mean(axis=0) for mask in own]),
        incomplete=blocks.incomplete,
    )
