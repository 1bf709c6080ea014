"""How well a model trained on the release serves groups of the real test rows, and other sites.

Groups come from the public schema: declared quasi-identifiers and the site.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Categorical,
    Direction,
    Evaluation,
    Family,
    Floats,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Role,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared import downstream_models
from bench.metrics._shared.auroc import auroc, one_against_rest
from bench.metrics._shared.bootstrap import Array, Counted, Joint, jointly, seed_of_dataset, stacked
from bench.metrics._shared.c_index import concordance
from bench.metrics._shared.rows import real_test_rows
from bench.metrics.utility.classification import real_scores, released_scores

BANDS = 3
"""Bands of equal width that the public range of a numeric column is cut into."""

LEAST_ROWS = 50
LEAST_OF_A_CLASS = 10
"""Smaller groups are listed, not scored: their noise would be the largest gap. A survival group
needs as many events."""

Index = npt.NDArray[np.intp]


@final
class Subgroups(Metric):
    """Utility by sex, race, age band, site: whatever the schema declares."""

    name: ClassVar[str] = "subgroups"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "Utility on the real test rows of each group, of the model trained on the released rows "
        "or of the model that was released: AUROC of XGBoost (more than two classes: mean of one "
        "against the rest), C-index of a Cox model for survival. Groups: categories of declared "
        f"quasi-identifiers and sites, numeric quasi-identifiers in {BANDS} bands of equal width "
        f"of the public range; groups under {LEAST_ROWS} rows or {LEAST_OF_A_CLASS} of a class "
        "(or events) are listed, not scored. Intervals: 1000 bootstrap resamples of the test rows "
        "within each class (survival: of all), simultaneous over the groups: an extreme of many "
        "noisy numbers is biased, and percentiles of it would be more so."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "subgroups/gap",
            Direction.LOWER,
            "Largest difference of utility between two groups of one column. Chance alone makes a "
            "largest difference: read it beside `subgroups/excess`.",
        ),
        Output(
            "subgroups/excess",
            Direction.LOWER,
            "`subgroups/gap` minus that of the same model trained on the real training rows: what "
            "the release adds to the gap that the real data have. Interval: percentiles of the "
            "difference on the same resamples.",
        ),
        Output("subgroups/worst", Direction.HIGHER, "Utility in the worst served group."),
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)

    def compute(self, evaluation: Evaluation) -> Scores:
        ranking = RankedRows.of(evaluation)

        def build(_: np.random.Generator) -> _RealUtility:
            groups = list(groups_of(evaluation))
            if not groups:
                raise NotComputable(
                    "the schema declares no quasi-identifiers and no sites: no groups"
                )
            return _RealUtility.of(evaluation, ranking, groups, ranking.strata())

        real = evaluation.reference("subgroups", build)
        released = real.of_release(evaluation, ranking)
        details = {"subgroups": _subgroup_table(ranking, real, released)}
        low, high = released.lowest_interval()
        scores = [self.score("subgroups/worst", float(released.values.min()), low, high)]
        columns = _columns(real.scored)
        if not columns:
            reason = "no column has two groups that are large enough to be compared"
            outputs = ("subgroups/gap", "subgroups/excess")
            scores += [self.absent(output, reason) for output in outputs]
            return Scores(tuple(scores), details)
        gap = float(_gap(released.values[:, None], columns)[0])
        low, high = _gap_interval(released, columns)
        half = len(real.scored)
        excess = released.beside(real.utility).estimate(
            lambda numbers: _gap(numbers[:half], columns) - _gap(numbers[half:], columns)
        )
        scores += [
            self.score("subgroups/gap", gap, low, high),
            excess.score(self, "subgroups/excess"),
        ]
        return Scores(tuple(scores), details)


@final
class CrossSite(Metric):
    """External validation: train on the release of one site, test at the others."""

    name: ClassVar[str] = "cross-site"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "Utility by site of the model trained on a release made from the rows of one site, the "
        "home (zero-order paper, section 2.4 and table 4; AUROC of XGBoost, C-index of a Cox "
        "model for survival), or of the model that was released. The paper tests on the held-out "
        "rows of the other sites; here all their rows are held out. Needs the split "
        f"`site:<name>`. Sites under {LEAST_ROWS} rows or {LEAST_OF_A_CLASS} "
        "of a class (or events) are listed, not scored. Intervals: 1000 bootstrap resamples of "
        "the test rows within each site and class (survival: within each site)."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("cross-site/home", Direction.HIGHER, "On the held-out rows of the home site."),
        Output("cross-site/away", Direction.HIGHER, "Mean over the other sites."),
        Output(
            "cross-site/worst",
            Direction.HIGHER,
            "At the worst other site; interval simultaneous over the sites.",
        ),
        Output(
            "cross-site/ratio",
            Direction.HIGHER,
            "`cross-site/away` divided by that of the same model trained on the real rows of the "
            "home site; above 1 the release transfers better than the rows it was made from.",
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)

    def compute(self, evaluation: Evaluation) -> Scores:
        home = evaluation.dataset.home
        if home is None:
            raise NotComputable(
                "the training rows come from all sites together; a release from one site is made "
                'with `split = "site:<name>"` in the grid file, for datasets with sites'
            )
        ranking = RankedRows.of(evaluation)

        def build(_: np.random.Generator) -> _RealUtility:
            site, codes = evaluation.dataset.schema.site, evaluation.dataset.test.rows.sites
            if site is None:
                raise NotComputable("the schema declares no sites")
            groups = split(site.name, codes, site.categories)
            strata = ranking.strata() + ranking.classes * codes
            return _RealUtility.of(evaluation, ranking, groups, strata)

        real = evaluation.reference("cross-site", build)
        released = real.of_release(evaluation, ranking)
        details = {"cross-site": _site_table(ranking, real, released, home)}
        return Scores(self._scores(real, released, home), details)

    def _scores(self, real: _RealUtility, released: Joint, home: str) -> tuple[Score, ...]:
        at_home = [place for place, site in enumerate(real.scored) if site.name == home]
        away = [place for place, site in enumerate(real.scored) if site.name != home]
        if at_home:
            estimate = released.estimate(lambda numbers: numbers[at_home[0]])
            home_score = estimate.score(self, "cross-site/home")
        else:
            reason = next((why for site, why in real.small if site.name == home), "no test rows")
            home_score = self.absent("cross-site/home", f"the home site has {reason}")
        if not away:
            reason = "no other site has enough test rows to be scored"
            others = ("cross-site/away", "cross-site/worst", "cross-site/ratio")
            return (home_score, *(self.absent(output, reason) for output in others))
        there = released.take(away)
        mean = there.estimate(lambda numbers: np.nanmean(numbers, axis=0))
        low, high = there.lowest_interval()
        both = there.beside(real.utility.take(away))
        ratio = both.estimate(
            lambda numbers: (
                np.nanmean(numbers[: len(away)], axis=0) / np.nanmean(numbers[len(away) :], axis=0)
            )
        )
        return (
            home_score,
            mean.score(self, "cross-site/away"),
            self.score("cross-site/worst", float(there.values.min()), low, high),
            ratio.score(self, "cross-site/ratio"),
        )


# Groups of test rows -----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class RowGroup:
    """Some of the test rows."""

    column: str
    name: str
    rows: Index


def split(column: str, codes: npt.NDArray[np.integer], names: Sequence[str]) -> Iterator[RowGroup]:
    """Yield groups by one code per row; empty ones are left out."""
    for code, name in enumerate(names):
        rows = np.flatnonzero(codes == code)
        if len(rows):
            yield RowGroup(column, name, rows)


def groups_of(evaluation: Evaluation) -> Iterator[RowGroup]:
    """Yield groups of test rows by the public schema; empty ones are left out."""
    schema, test = evaluation.dataset.schema, evaluation.dataset.test.rows
    decoded = evaluation.dataset.encoder.decode(test.values, test.labels, complete=True)
    for name in schema.quasi_identifiers:
        column = schema[name]
        if column.role is not Role.FEATURE:
            continue
        if isinstance(column, Categorical):
            codes = decoded[name].cat.codes.to_numpy()
            yield from split(name, codes, column.categories)
        elif isinstance(column, Numeric):
            edges = np.round(np.linspace(column.low, column.high, BANDS + 1), 9)
            codes = np.searchsorted(edges[1:-1], decoded[name].to_numpy(), side="right")
            yield from split(name, codes, _band_names(edges, column.integer))
    if schema.site is not None:
        yield from split(schema.site.name, test.sites, schema.site.categories)


def _band_names(edges: Array, integer: bool) -> list[str]:
    """Names of the bands; a value on an edge belongs to the band above it."""
    ends = list(itertools.pairwise(edges))
    if not integer:
        return [f"{low:.4g} to {high:.4g}" for low, high in ends]
    last = len(ends) - 1
    return [
        f"{math.ceil(low)} to {math.floor(high) if band == last else math.ceil(high) - 1}"
        for band, (low, high) in enumerate(ends)
    ]


def _columns(groups: Sequence[RowGroup]) -> list[list[int]]:
    """Places of the groups of each column that has two or more."""
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group.column, []).append(place)
    return [listed for listed in places.values() if len(listed) > 1]


def _gap(numbers: Array, columns: list[list[int]]) -> Array:
    gaps = [
        np.nanmax(numbers[places], axis=0) - np.nanmin(numbers[places], axis=0)
        for places in columns
    ]
    largest: Array = np.max(gaps, axis=0)
    return largest


def _gap_interval(joint: Joint, columns: list[list[int]]) -> tuple[float, float]:
    """Interval of the largest difference between two groups of one column."""
    pairs = np.array([pair for places in columns for pair in itertools.combinations(places, 2)])
    first, second = (joint.take(places) for places in pairs.T)
    differences = Joint(first.values - second.values, first.samples - second.samples)
    half, sizes = differences.half_widths(), np.abs(differences.values)
    return max(0.0, float(np.max(sizes - half))), min(1.0, float(np.max(sizes + half)))


# Utility in each group ---------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class RankedRows:
    """Real test rows, to be ranked by a model: AUROC of classes, C-index of survival."""

    features: Floats
    labels: npt.NDArray[np.integer]
    times: Array | None
    classes: int

    @classmethod
    def of(cls, evaluation: Evaluation) -> RankedRows:
        """The test rows of an evaluation."""
        encoder, test = evaluation.dataset.encoder, real_test_rows(evaluation)
        truth = downstream_models.Examples.of(encoder, test.values, test.labels)
        return cls(truth.features, truth.labels, truth.times, len(encoder.schema.classes))

    def statistic(self, rows: Index, answers: Array) -> Counted:
        """Utility on some of the rows; weights are those of all rows.

        Two classes: area under the ROC curve. More: its mean over the classes, each against the
        rest. Survival: Harrell's C-index.
        """
        labels, scores = self.labels[rows], answers[rows]
        if self.times is not None:
            return concordance(self.times[rows], labels, scores).at(rows)
        if self.classes == 2:
            return auroc(labels, scores).at(rows)
        return one_against_rest(auroc, labels, scores).at(rows)

    def too_small(self, rows: Index) -> str:
        """Reason why the rows cannot be scored, or an empty text."""
        if len(rows) < LEAST_ROWS:
            return f"{len(rows)} rows, at least {LEAST_ROWS} are needed"
        counts = np.bincount(self.labels[rows], minlength=self.classes)
        if self.times is not None:
            counts = counts[1:]
        if counts.min() < LEAST_OF_A_CLASS:
            what = "events" if self.times is not None else "rows of the smallest class"
            return f"{counts.min()} {what}, at least {LEAST_OF_A_CLASS} are needed"
        return ""

    def facts(self, group: RowGroup) -> tuple[str, int, int]:
        """Name, rows, and rows of the second class or with the event."""
        positives = int(np.count_nonzero(self.labels[group.rows] == 1))
        return group.name, len(group.rows), positives

    def strata(self) -> npt.NDArray[np.integer]:
        """Strata of the resamples: each class on its own; all patients of a survival table."""
        return self.labels if self.times is None else np.zeros_like(self.labels)

    def grouped(
        self,
        groups: Sequence[RowGroup],
        answers: Array,
        strata: npt.NDArray[np.integer],
        seed: int,
    ) -> Joint:
        """Utility of these predictions in each group, on the same resamples of the test rows."""
        parts = [self.statistic(group.rows, answers) for group in groups]
        return jointly(stacked(parts), strata, np.random.default_rng(seed))


@final
@dataclass(frozen=True)
class _RealUtility:
    """The groups, and the model trained on real rows in each: the same for every release."""

    scored: tuple[RowGroup, ...]
    small: tuple[tuple[RowGroup, str], ...]
    """Groups that are too small, and why."""
    utility: Joint
    strata: npt.NDArray[np.integer]
    seed: int
    """Seed of the resamples, so that every release is scored on those of the real model."""

    @classmethod
    def of(
        cls,
        evaluation: Evaluation,
        ranking: RankedRows,
        groups: Iterable[RowGroup],
        strata: npt.NDArray[np.integer],
    ) -> _RealUtility:
        reasons = [(group, ranking.too_small(group.rows)) for group in groups]
        scored = tuple(group for group, why in reasons if not why)
        if not scored:
            raise NotComputable(
                f"no group of test rows has {LEAST_ROWS} rows and {LEAST_OF_A_CLASS} of each class"
            )
        small = tuple((group, why) for group, why in reasons if why)
        seed = seed_of_dataset(evaluation)
        utility = ranking.grouped(scored, real_answers(evaluation, ranking), strata, seed)
        return cls(scored, small, utility, strata, seed)

    def of_release(self, evaluation: Evaluation, ranking: RankedRows) -> Joint:
        """Utility of the model trained on the release, on the same resamples."""
        answers = released_answers(evaluation, ranking)
        return ranking.grouped(self.scored, answers, self.strata, self.seed)


def released_answers(evaluation: Evaluation, ranking: RankedRows) -> Array:
    """What the model of the task predicts for every test row: XGBoost, or Cox for survival.

    It is trained on the release. Two classes and survival: one number per row.
    """
    if evaluation.dataset.task is Task.SURVIVAL:
        return downstream_models.one_score(downstream_models.cox(evaluation), ranking.features)
    answers = released_scores(evaluation, "xgboost").test
    return answers[:, 1] if ranking.classes == 2 else answers


def real_answers(evaluation: Evaluation, ranking: RankedRows) -> Array:
    """The same of the model that is trained on the real training rows."""
    if evaluation.dataset.task is Task.SURVIVAL:
        cox = evaluation.reference(
            "model/cox",
            lambda _: downstream_models.fit_cox(downstream_models.real_examples(evaluation)),
        )
        return downstream_models.one_score(cox, ranking.features)
    answers = real_scores(evaluation, "xgboost").test
    return answers[:, 1] if ranking.classes == 2 else answers


def _subgroup_table(ranking: RankedRows, real: _RealUtility, released: Joint) -> pd.DataFrame:
    rows = []
    for group, estimate, reference in zip(
        real.scored, released.each(), real.utility.values, strict=True
    ):
        numbers = (estimate.value, *estimate.interval, float(reference))
        rows.append((group.column, *ranking.facts(group), *numbers, ""))
    for group, why in real.small:
        rows.append((group.column, *ranking.facts(group), *(math.nan,) * 4, why))
    names = ["column", "group", "rows", "positives", "value", "low", "high", "real", "reason"]
    return pd.DataFrame(rows, columns=names)


def _site_table(
    ranking: RankedRows, real: _RealUtility, released: Joint, home: str
) -> pd.DataFrame:
    """One row per site: the model trained on the release beside the one trained on real rows."""
    rows = []
    for site, estimate, reference in zip(
        real.scored, released.each(), real.utility.each(), strict=True
    ):
        numbers = (estimate.value, *estimate.interval, reference.value, *reference.interval)
        rows.append((*ranking.facts(site), site.name == home, *numbers, ""))
    for site, why in real.small:
        rows.append((*ranking.facts(site), site.name == home, *(math.nan,) * 6, why))
    names = ["site", "rows", "positives", "home", "value", "low", "high"]
    return pd.DataFrame(rows, columns=[*names, "real", "real-low", "real-high", "reason"])
