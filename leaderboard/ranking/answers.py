"""Which sound method is best for a task at one target epsilon, by how much, and how sure that is.

The best method is the one with the highest win rate (`quantities.standings`) among those that are
ranked on at least half of the task's datasets. It is compared with each of the others in utility:

- A *group* is one dataset, size and setting, as everywhere. Releases that have no size (models) are
  ranked among themselves, and left out here where releases of rows are ranked. Two methods are
  compared in the groups in which both are ranked, over the seeds that both have finished in all
  groups of a dataset.
- The difference on a dataset is the mean over groups and seeds of the difference in its headline
  metric, the difference as a whole the mean over datasets.
- Its error has two components per dataset, which are independent over datasets: the spread over
  seeds, and the test rows, from the intervals of both scores. The test rows are the same for both
  methods: where they err on the same rows, as models of one task usually do, this component is
  larger than the truth (conservative). Groups of a dataset share
  their test rows: their errors are not averaged away. Degrees of freedom are those of Welch and
  Satterthwaite, as in `bench leaderboard --check`.
- All pairs of these methods are tested, and p-values are corrected for all of them (Holm): which
  method is best was chosen with the same results, so that its own pairs alone would be too few.

The datasets are those that were run: nothing is said about others. With one seed the spread over
seeds is not known, and `one_seed` says so.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import pandas as pd

from bench.leaderboard.ranking import quantities
from bench.leaderboard.ranking.inference import (
    VarianceComponent,
    difference,
    from_interval,
    from_seeds,
)
from bench.leaderboard.ranking.quantities import Standing
from bench.leaderboard.ranking.rank import group_identity, headline_metrics, is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables.load import Results, records
from bench.plugins.metric import Direction
from bench.results.records import Status
from bench.stats.inference import holm

HEADLINE_TARGET = 1.0
"""The target epsilon that is asked about first."""

DATA: Mapping[str, str] = {
    "classification": "tables",
    "survival": "survival cohorts",
    "image": "images",
}
"""What the datasets of a task are called, in the order in which they are told."""


@final
@dataclass(frozen=True)
class Against:
    """The best method against another one."""

    label: str
    difference: float
    """Positive where the best method has more utility."""
    low: float
    high: float
    p: float
    p_holm: float
    datasets: int
    seeds: int
    """The smallest number of seeds of a dataset."""
    one_seed: bool
    """The interval covers the test rows only."""

    def distinguishable(self, alpha: float) -> bool:
        """Return whether one of the two is better by the corrected test."""
        return self.p_holm < alpha


@final
@dataclass(frozen=True)
class Answer:
    """The best sound method of a task at a target epsilon."""

    task: str
    target: float
    alpha: float
    metrics: tuple[str, ...]
    """Headline metrics of the datasets; more than one where a dataset lacks the usual one."""
    datasets: tuple[str, ...]
    best: Standing | None
    """None where no two sound methods were compared on half of the datasets."""
    against: tuple[Against, ...]
    """All others that can be compared, in the order of their win rates."""
    not_compared: tuple[str, ...]
    """Ranked on less than half of the datasets, or without a seed in common with the best."""
    pairs: int
    """Tests that the p-values are corrected for."""
    tuned: tuple[str, ...] = ()
    """Sound methods without any rank here, because their defaults were chosen with these datasets
    in view."""
    ranked_on: tuple[str, ...] = ()
    """Datasets on which the best method is ranked."""
    chosen_on: tuple[str, ...] = ()
    """Datasets on which it is not, because its defaults were chosen with them in view."""

    @property
    def not_run(self) -> tuple[str, ...]:
        """Return the other datasets on which the best method has no rank."""
        known = {*self.ranked_on, *self.chosen_on}
        return tuple(name for name in self.datasets if name not in known)

    @property
    def what(self) -> str:
        """Return what kind of data the task is about."""
        return DATA.get(self.task, self.task or "unknown tasks")

    @property
    def next(self) -> Against | None:
        """Return the method with the second highest win rate."""
        return self.against[0] if self.against else None

    @property
    def tied(self) -> tuple[str, ...]:
        """Return the methods that cannot be distinguished from the best."""
        return tuple(one.label for one in self.against if not one.distinguishable(self.alpha))

    @property
    def beaten(self) -> tuple[str, ...]:
        """Return the methods that have significantly less utility."""
        sure = [one for one in self.against if one.distinguishable(self.alpha)]
        return tuple(one.label for one in sure if one.difference > 0)

    @property
    def ahead(self) -> tuple[str, ...]:
        """Return methods with significantly more utility, though a smaller win rate."""
        sure = [one for one in self.against if one.distinguishable(self.alpha)]
        return tuple(one.label for one in sure if one.difference < 0)

    @property
    def one_seed(self) -> bool:
        """Return whether an interval covers the test rows only."""
        return any(one.one_seed for one in self.against)


def answers(
    results: Results,
    rows: Sequence[Row],
    places: pd.DataFrame,
    target: float = HEADLINE_TARGET,
    alpha: float = 0.05,
) -> tuple[Answer, ...]:
    """Return the answer for each task that has cells at the target epsilon."""
    tasks = {row.task for row in rows if row.epsilons.target == target}
    order = [task for task in DATA if task in tasks] + sorted(tasks - set(DATA))
    return tuple(_answer(results, rows, places, task, target, alpha) for task in order)


def _answer(
    results: Results,
    rows: Sequence[Row],
    places: pd.DataFrame,
    task: str,
    target: float,
    alpha: float,
) -> Answer:
    here = [row for row in rows if row.task == task and row.epsilons.target == target]
    reals = [row for row in rows if row.epsilons.target is None]
    datasets = tuple(sorted({row.dataset for row in here}))
    chosen = places[places["shown_dataset"].isin(datasets) & (places["eps_target"] == target)]
    # A rank among four models is not one among twenty tables: they never meet in a group.
    sized = chosen["shown_ipc"] != quantities.OWN_SIZE
    if sized.any():
        chosen = chosen[sized]
        here = [row for row in here if row.ipc != quantities.OWN_SIZE]
    standings = quantities.standings(chosen, [*here, *reals], alpha)
    compared = [one for one in standings if not one.apart]
    few = [one.label for one in standings if one not in compared]
    ranked = {one.label for one in standings}
    tuned = {row.label for row in here if row.tuned and is_sound(row.verdict)} - ranked
    headlines = headline_metrics(results.cells, results.scores)
    metrics = tuple(sorted({headlines[name] for name in datasets if name in headlines}))
    if not compared:
        left = (tuple(few), 0, tuple(sorted(tuned)))
        return Answer(task, target, alpha, metrics, datasets, None, (), *left)
    scores = utilities(results, chosen, headlines)
    labels = [one.label for one in compared]
    tested = {
        (one, two): found
        for one, two in itertools.combinations(labels, 2)
        if (found := versus(scores[one], scores[two], two, alpha)) is not None
    }
    corrected = holm([found.p for found in tested.values()])
    best = compared[0]
    against = []
    for (pair, found), p in zip(tested.items(), corrected, strict=True):
        if pair[0] == best.label:
            against.append(replace(found, p_holm=float(p)))
    own = chosen[(chosen["shown_label"] == best.label) & chosen["rank"].notna()]
    ranked_on = set(own["shown_dataset"])
    in_view = {row.dataset for row in here if row.label == best.label and row.tuned}
    missing = [label for label in labels[1:] if (best.label, label) not in tested]
    return Answer(
        task=task,
        target=target,
        alpha=alpha,
        metrics=metrics,
        datasets=datasets,
        best=best,
        against=tuple(against),
        not_compared=(*missing, *few),
        pairs=len(tested),
        tuned=tuple(sorted(tuned)),
        ranked_on=tuple(sorted(ranked_on)),
        chosen_on=tuple(sorted(in_view - ranked_on)),
    )


@final
@dataclass(frozen=True)
class _Score:
    """The headline of one cell, signed so that higher is better."""

    value: float
    half: float
    """Half the width of its interval over test rows; NaN where there is none."""


Scores = dict[tuple[str, tuple[Any, ...]], dict[str, _Score]]
"""Of one method: by dataset and group, the scores of its seeds."""


def utilities(
    results: Results, places: pd.DataFrame, headlines: Mapping[str, str]
) -> dict[str, Scores]:
    """Return the scores of every method in the groups in which it is ranked."""
    ranked = {
        (record["shown_label"], group_identity(record))
        for record in records(places[places["rank"].notna()])
    }
    chosen = results.scores[results.scores["metric"].isin(set(headlines.values()))]
    score_of = {(score["key"], score["metric"]): score for score in records(chosen)}
    found: dict[str, Scores] = {label: {} for label, _ in ranked}
    for cell in records(results.cells[results.cells["status"] == Status.OK.value]):
        label, group = cell["shown_label"], group_identity(cell)
        if (label, group) not in ranked:
            continue
        dataset = cell["shown_dataset"]
        score = score_of.get((cell["key"], headlines.get(dataset, "")))
        if score is None or pd.isna(score["value"]):
            continue
        sign = -1.0 if score["direction"] == Direction.LOWER.value else 1.0
        half = (float(score["high"]) - float(score["low"])) / 2
        one = _Score(sign * float(score["value"]), half)
        found[label].setdefault((dataset, group), {})[cell["repetition"]] = one
    return found


@final
@dataclass(frozen=True)
class _OnDataset:
    """Two methods on one dataset."""

    difference: float
    parts: tuple[VarianceComponent, ...]
    seeds: int


def of_reals(results: Results, headlines: Mapping[str, str], like: Scores) -> Scores:
    """Return the scores of the real rows in the groups and seeds of a method.

    Real rows have no epsilon and one size: their mean over seeds stands in every group.
    """
    cells = results.cells
    cells = cells[(cells["shown_label"] == "real") & (cells["status"] == Status.OK.value)]
    scores = cells.merge(results.scores, on="key")
    found: Scores = {}
    for (dataset, group), seeds in like.items():
        own = scores[
            (scores["shown_dataset"] == dataset) & (scores["metric"] == headlines.get(dataset, ""))
        ]
        own = own[own["value"].notna()]
        if own.empty:
            continue
        sign = -1.0 if (own["direction"] == Direction.LOWER.value).any() else 1.0
        half = float((own["high"] - own["low"]).astype(float).mean()) / 2
        score = _Score(sign * float(own["value"].mean()), half)
        found[dataset, group] = dict.fromkeys(seeds, score)
    return found


def versus(first: Scores, second: Scores, label: str, alpha: float) -> Against | None:
    """Return the difference of two methods; None where nothing is common or nothing is known."""
    both = [place for place in first if place in second]
    found = []
    for dataset in dict.fromkeys(name for name, _ in both):
        groups = [place for place in both if place[0] == dataset]
        one = _on_dataset([first[place] for place in groups], [second[place] for place in groups])
        if one is not None:
            found.append(one)
    if not found:
        return None
    count = len(found)
    parts = [
        VarianceComponent(part.variance / count**2, part.freedom)
        for one in found
        for part in one.parts
    ]
    tested = difference(statistics.fmean(one.difference for one in found), parts, alpha)
    if tested is None:
        return None
    seeds = min(one.seeds for one in found)
    return Against(
        label=label,
        difference=tested.value,
        low=tested.low,
        high=tested.high,
        p=tested.p,
        p_holm=tested.p,
        datasets=count,
        seeds=seeds,
        one_seed=seeds == 1,
    )


def _on_dataset(
    first: Sequence[Mapping[str, _Score]], second: Sequence[Mapping[str, _Score]]
) -> _OnDataset | None:
    seeds = sorted(set.intersection(*(set(scores) for scores in (*first, *second))))
    if not seeds:
        return None
    by_seed = [
        statistics.fmean(
            one[seed].value - two[seed].value for one, two in zip(first, second, strict=True)
        )
        for seed in seeds
    ]
    parts = [from_seeds(statistics.stdev(by_seed), len(seeds))] if len(seeds) > 1 else []
    sides = [[scores[seed].half for scores in side for seed in seeds] for side in (first, second)]
    known = [all(map(math.isfinite, halves)) for halves in sides]
    if not any(known) and parts:
        return _OnDataset(statistics.fmean(by_seed), tuple(parts), len(seeds))
    if not all(known):
        return None  # the error is not known here, and a smaller one would be wrong
    for halves in sides:
        half = statistics.fmean(halves)
        parts.append(from_interval(-half, half))
    return _OnDataset(statistics.fmean(by_seed), tuple(parts), len(seeds))
