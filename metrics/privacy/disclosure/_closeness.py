"""Statistics of distances: quantiles, shares of rows that are not independent, histograms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Evaluation, Metric, NotComputable, Score
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared import distance as _distance
from bench.metrics._shared.bootstrap import Estimate
from bench.metrics._shared.distance import Part
from bench.metrics._shared.records import Sides, Tables

Array = npt.NDArray[np.float64]

LEAST_ROWS = 10
"""Fewer rows on one side say nothing about a difference."""

_BINS = 50


@final
@dataclass(frozen=True)
class Share:
    """A share of rows, or a difference of two, with its 95% interval."""

    value: float
    low: float
    high: float

    def score(self, metric: type[Metric], output: str) -> Score:
        """As that output of a metric."""
        return metric.score(output, self.value, self.low, self.high)


def share(hits: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Share:
    """Weighted share of rows, or of clusters of rows, with a Clopper-Pearson interval.

    Weights make it the interval of Korn and Graubard: the number of trials is the effective one,
    (sum of weights)^2 / sum of squared weights. Equal weights give the plain interval.
    """
    from scipy.stats import beta

    yes = np.asarray(hits, dtype=np.float64)
    weight = np.ones(len(yes)) if weights is None else np.asarray(weights, dtype=np.float64)
    value = min(1.0, float(yes @ weight / weight.sum()))
    trials = float(weight.sum() ** 2 / (weight @ weight))
    successes, failures = value * trials, (1.0 - value) * trials
    tail = (1 - _bootstrap.LEVEL) / 2
    low = float(beta.ppf(tail, successes, failures + 1)) if successes else 0.0
    high = float(beta.ppf(1 - tail, successes + 1, failures)) if failures else 1.0
    return Share(value, low, high)


def difference(first: Share, second: Share) -> Share:
    """First minus second of two independent shares, with the interval of Newcombe (1998).

    His method 10 squares and adds the two sides of both intervals; here they are Clopper-Pearson's,
    which are wider than the score intervals that he took.
    """
    value = first.value - second.value
    below = np.hypot(first.value - first.low, second.high - second.value)
    above = np.hypot(first.high - first.value, second.value - second.low)
    return Share(value, float(value - below), float(value + above))


def beyond_chance(
    evaluation: Evaluation,
    released: npt.NDArray[np.bool_],
    control: npt.NDArray[np.bool_],
) -> Share:
    """Share of released rows minus that of control rows, had they been released in their place.

    Control rows are fresh rows of the same population, whatever the training rows are. They are
    weighted to the class mix of the release, which is often balanced by design.
    """
    if len(control) < LEAST_ROWS:
        raise NotComputable(f"{len(control)} control rows; at least {LEAST_ROWS} are needed")
    weights = in_the_mix_of(evaluation.rows.labels, evaluation.dataset.control.rows.labels)
    return difference(share(released), share(control, weights))


def difference_of_means(first: Array, second: Array) -> Share:
    """First minus second mean of independent rows, with Welch's interval."""
    from scipy.stats import t

    value = float(first.mean() - second.mean())
    squared = [float(rows.var(ddof=1)) / len(rows) for rows in (first, second)]
    total = sum(squared)
    if not total:
        return Share(value, value, value)
    freedom = total**2 / sum(
        part**2 / (len(rows) - 1) for part, rows in zip(squared, (first, second), strict=True)
    )
    reach = float(t.ppf((1 + _bootstrap.LEVEL) / 2, freedom)) * total**0.5
    return Share(value, value - reach, value + reach)


def in_the_mix_of(wanted: npt.NDArray[np.integer], present: npt.NDArray[np.integer]) -> Array:
    """Weights of the rows of class `present` that give them the class shares of `wanted`."""
    size = int(max(wanted.max(initial=0), present.max(initial=0))) + 1
    shares = np.bincount(wanted, minlength=size) / len(wanted)
    counts = np.bincount(present, minlength=size)
    if (shares[counts == 0] > 0).any():
        raise NotComputable("a released class has no control row")
    weights: Array = shares[present] / counts[present]
    return weights


@final
@dataclass(frozen=True)
class Reach:
    """Distances of released rows to training and control rows, all found in one pass."""

    train: Array
    """(released rows, 2): to the two closest training rows."""
    control: Array
    """(released rows, 2), the same of control rows; (released rows, 0) where there are too few."""
    matched_train: Array
    """To the closest of equally many training and"""
    matched_control: Array
    """control rows whose record occurs once; empty where there are too few."""
    pointed: npt.NDArray[np.int64]
    """The closest row of `sides.train`, then `sides.control`; empty where there are too few."""


def reach(tables: Tables, rows: Sides, threads: int, rng: np.random.Generator) -> Reach:
    """Look for the closest rows of every kind; ties of `pointed` are broken at random."""
    if len(tables.train) < 2:
        raise NotComputable(f"{len(tables.train)} training rows: no two closest ones")
    other = np.setdiff1d(np.arange(len(tables.train)), rows.train)
    other_control = np.setdiff1d(np.arange(len(tables.control)), rows.control)
    # Sampled rows of both sides meet in the middle: every part is a run of consecutive rows.
    references = _distance.stacked(
        tables.train.take(np.concatenate([other, rows.train[::-1]])),
        tables.control.take(np.concatenate([rows.control, other_control])),
    )
    middle, matched = len(tables.train), rows.matched
    parts = {"train": Part(0, middle, 2)}
    if len(tables.control) >= LEAST_ROWS:
        parts["control"] = Part(middle, len(references), 2)
    if matched >= LEAST_ROWS:
        parts["once"] = Part(len(other), middle + len(rows.control))
        parts["matched_train"] = Part(middle - matched, middle)
        parts["matched_control"] = Part(middle, middle + matched)
    found = dict(
        zip(
            parts,
            _distance.neighbours_within(
                tables.released, references, list(parts.values()), threads, rng
            ),
            strict=True,
        )
    )
    none = _distance.Neighbours(np.empty((len(tables.released), 0)), np.empty((0, 1), np.int64))
    pointed = found.get("once", none).index[:, 0] - len(other)
    # Back from the order in which rows met to that of the sides.
    pointed = np.where(pointed < len(rows.train), len(rows.train) - 1 - pointed, pointed)
    return Reach(
        found["train"].distances,
        found.get("control", none).distances,
        found.get("matched_train", none).distances.ravel(),
        found.get("matched_control", none).distances.ravel(),
        pointed,
    )


def pointed_rows(
    tables: Tables, rows: Sides, threads: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """`Reach.pointed` alone."""
    both = _distance.stacked(tables.train.take(rows.train), tables.control.take(rows.control))
    return _distance.neighbours(tables.released, both, 1, threads, rng).index[:, 0]


def closer_to_train(pointed: npt.NDArray[np.int64], rows: Sides) -> Share:
    """Do released rows lie at training rather than at control rows?

    Each released row points at the closest row of both kinds together, a tie broken at random;
    pointers per training row are set against pointers per control row,

        (a / n_train) / (a / n_train + b / n_control),

    for a and b released rows that point at each kind. Every row has the same chance to be pointed
    at by a release that does not depend on the split, so that one half is expected whatever the
    two numbers of rows. Released rows that equal a record which occurs more than once in the real
    rows, and so is on neither side, are to be left out before: they would point by chance, and
    leaving them out does not depend on the split. Released rows that point at the same row are one
    cluster: the interval of a / (a + b) counts clusters.

    To compare distances to a sample of the training rows, as many as there are control rows, has
    the same expectation, but does not see copies of the other rows.
    """
    if rows.matched < LEAST_ROWS:
        raise NotComputable(too_few(rows))
    if not len(pointed):
        raise NotComputable("every released row equals a record that occurs more than once")
    count = len(rows.train) + len(rows.control)
    pointers = np.bincount(pointed, minlength=count)
    aimed = np.flatnonzero(pointers)
    raw = share(aimed < len(rows.train), pointers[aimed])
    fresh = len(rows.train) / count

    def rescaled(a: float) -> float:
        of_training, of_control = a / fresh, (1.0 - a) / (1.0 - fresh)
        return of_training / (of_training + of_control)

    return Share(rescaled(raw.value), rescaled(raw.low), rescaled(raw.high))


def too_few(rows: Sides) -> str:
    """Why training and control rows cannot be compared."""
    return (
        f"{len(rows.train)} training and {len(rows.control)} control rows occur only once in the "
        f"two; at least {LEAST_ROWS} of each are needed"
    )


def bootstrap_quantile(
    values: npt.ArrayLike,
    level: float,
    rng: np.random.Generator,
    resamples: int = _bootstrap.RESAMPLES,
) -> Estimate:
    """Bootstrap of a quantile in constant time a resample, exact in distribution.

    As `_bootstrap.bootstrap_median`: the k-th smallest of n uniforms is Beta(k, n + 1 - k), and
    the next one lies above it by a Beta(1, n - k) share of what is left.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    if not count:
        raise NotComputable("no rows to take a quantile of")
    below = int((count - 1) * level)
    part = (count - 1) * level - below
    place = rng.beta(below + 1, count - below, resamples)
    samples = ordered[_floor(place, count)]
    if part > 0:
        place += (1.0 - place) * rng.beta(1, count - below - 1, resamples)
        samples = (1.0 - part) * samples + part * ordered[_floor(place, count)]
    return Estimate(float(np.quantile(ordered, level)), samples)


def _floor(place: Array, count: int) -> npt.NDArray[np.intp]:
    return np.minimum((place * count).astype(np.intp), count - 1)


def histogram(populations: dict[str, Array]) -> pd.DataFrame:
    """Counts in equal bins, the same for each population; the first bin holds exact zeros."""
    largest = max(float(values.max(initial=0.0)) for values in populations.values())
    edges = np.linspace(0.0, largest if largest > 0 else 1.0, _BINS + 1)
    tables = []
    for name, values in populations.items():
        positive = values[values > 0]
        counts = [len(values) - len(positive), *np.histogram(positive, edges)[0]]
        tables.append(
            pd.DataFrame(
                {
                    "rows": name,
                    "low": [0.0, *edges[:-1]],
                    "high": [0.0, *edges[1:]],
                    "count": counts,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)
