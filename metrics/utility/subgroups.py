"""How evenly a model trained on the release serves the groups of the real test rows.

Groups are read off the public schema: declared quasi-identifiers and the site.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import (
    Categorical,
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Role,
    Scores,
    Task,
)
from bench.metrics._shared.bootstrap import Array
from bench.metrics.utility import _ranking
from bench.metrics.utility._ranking import LEAST_OF_A_CLASS, LEAST_ROWS, Group, Joint, Ranking

BANDS = 3
"""Bands of equal width that the public range of a numeric column is cut into."""


@final
@dataclass(frozen=True)
class _Real:
    """The groups and the model trained on real rows: the same for every release."""

    scored: tuple[Group, ...]
    small: tuple[tuple[Group, str], ...]
    utility: Joint
    seed: int
    """Of the resamples, so that every release is scored on those of the real model."""


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
        Output(
            "subgroups/worst",
            Direction.HIGHER,
            "Utility in the worst served group.",
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)

    def compute(self, evaluation: Evaluation) -> Scores:
        ranking = Ranking.of(evaluation)
        real = evaluation.reference("subgroups", lambda rng: _real(evaluation, ranking, rng))
        released = ranking.grouped(
            real.scored,
            ranking.answers(_ranking.released_model(evaluation)),
            ranking.strata(),
            np.random.default_rng(real.seed),
        )
        details = {"subgroups": _table(ranking, real, released)}
        low, high = _ranking.lowest_interval(released)
        scores = [self.score("subgroups/worst", float(released.values.min()), low, high)]
        columns = _columns(real.scored)
        if not columns:
            reason = "no column has two groups that are large enough to be compared"
            scores += [
                self.absent(output, reason) for output in ("subgroups/gap", "subgroups/excess")
            ]
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


def _gap_interval(joint: Joint, columns: list[list[int]]) -> tuple[float, float]:
    """Interval of the largest difference between two groups of one column."""
    pairs = np.array([pair for places in columns for pair in itertools.combinations(places, 2)])
    first, second = pairs.T
    differences = joint.values[first] - joint.values[second]
    half = _ranking.bands(differences, joint.samples[first] - joint.samples[second])
    low, high = np.max(np.abs(differences) - half), np.max(np.abs(differences) + half)
    return max(0.0, float(low)), min(1.0, float(high))


def _real(evaluation: Evaluation, ranking: Ranking, rng: np.random.Generator) -> _Real:
    groups = list(groups_of(evaluation))
    if not groups:
        raise NotComputable("the schema declares no quasi-identifiers and no sites: no groups")
    scored, small = ranking.sorted_out(groups)
    if not scored:
        raise NotComputable(
            f"no group of test rows has {LEAST_ROWS} rows and {LEAST_OF_A_CLASS} of each class"
        )
    seed = int(rng.integers(2**31))
    utility = ranking.grouped(
        scored,
        ranking.answers(_ranking.real_model(evaluation)),
        ranking.strata(),
        np.random.default_rng(seed),
    )
    return _Real(scored, small, utility, seed)


def groups_of(evaluation: Evaluation) -> Iterator[Group]:
    """Groups of test rows by the public schema; empty ones are left out."""
    schema, test = evaluation.dataset.schema, evaluation.dataset.test.rows
    decoded = evaluation.dataset.encoder.decode(test.values, test.labels)
    for name in schema.quasi_identifiers:
        column = schema[name]
        if column.role is not Role.FEATURE:
            continue
        if isinstance(column, Categorical):
            codes = decoded[name].cat.codes.to_numpy()
            yield from _ranking.split(name, codes, column.categories)
        elif isinstance(column, Numeric):
            edges = np.round(np.linspace(column.low, column.high, BANDS + 1), 9)
            codes = np.searchsorted(edges[1:-1], decoded[name].to_numpy(), side="right")
            yield from _ranking.split(name, codes, _band_names(edges, column.integer))
    if schema.site is not None:
        yield from _ranking.split(schema.site.name, test.sites, schema.site.categories)


def _band_names(edges: Array, integer: bool) -> list[str]:
    """A value on an edge belongs to the band above it."""
    ends = list(itertools.pairwise(edges))
    if not integer:
        return [f"{low:.4g} to {high:.4g}" for low, high in ends]
    last = len(ends) - 1
    return [
        f"{math.ceil(low)} to {math.floor(high) if band == last else math.ceil(high) - 1}"
        for band, (low, high) in enumerate(ends)
    ]


def _columns(groups: Sequence[Group]) -> list[list[int]]:
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


def _table(ranking: Ranking, real: _Real, released: Joint) -> pd.DataFrame:
    rows = []
    for group, own, reference in zip(
        real.scored, released.each(), real.utility.values, strict=True
    ):
        low, high = own.interval
        rows.append(
            (group.column, *ranking.facts(group), own.value, low, high, float(reference), "")
        )
    for group, why in real.small:
        rows.append(
            (group.column, *ranking.facts(group), math.nan, math.nan, math.nan, math.nan, why)
        )
    names = ["column", "group", "rows", "positives", "value", "low", "high", "real", "reason"]
    return pd.DataFrame(rows, columns=names)
