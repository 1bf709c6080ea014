"""Singling out: does the release reveal how to describe exactly one training row?

A predicate such as "age >= 88 and ward == b" that fits one released record only is a guess that it
fits one person only. Guesses come from the release; they are checked on training rows, and on
control rows, which the release was not made from, for the success of such guesses without leakage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Score, Scores, Task
from bench.metrics._shared.bootstrap import Array
from bench.metrics._shared.intervals import Interval, residual_risk, success_rate
from bench.metrics._shared.record_distance import (
    Records,
    distinct_records,
    real_records,
)

Counts = npt.NDArray[np.int64]

EQUAL, AT_MOST, AT_LEAST = 0, 1, 2

LEAST_ATTACKS = 20
"""Fewer predicates are too few for a rate."""

LEAST_ROWS = 20
"""Fewer control rows cannot be extrapolated."""

_CENSORED = 3
"""Predicates with as many matches or more are counted together: few matches decide about one."""

_BATCH = 1000


@final
@dataclass(frozen=True)
class Predicates:
    """Conjunctions of conditions `column operator value`, all with as many conditions."""

    columns: npt.NDArray[np.intp]
    operators: npt.NDArray[np.int8]
    values: Array

    def __len__(self) -> int:
        return len(self.columns)

    def take(self, index: npt.NDArray[np.intp]) -> Predicates:
        """The predicates at `index`."""
        return Predicates(self.columns[index], self.operators[index], self.values[index])

    def counts(self, table: Array, enough: int | None = None) -> Counts:
        """Number of rows of a (columns, rows) table that each predicate fits.

        With `enough`, counts of at least that many are lower bounds: counting stops there.
        """
        return self._fitting(table, enough)[0]

    def hits(self, table: Array) -> PredicateHits:
        """Rows that the predicates fit, and how often the same row is singled out."""
        counts, first = self._fitting(table)
        alone = first[counts == 1]
        times = np.bincount(alone) if len(alone) else np.ones(1)
        together = float((times**2).sum() / times.sum()) if self.univariate else 1.0
        return PredicateHits(counts, table.shape[1], together)

    def _fitting(self, table: Array, enough: int | None = None) -> tuple[Counts, Counts]:
        """Number of rows that each predicate fits, and the first of them."""
        from bench.metrics.privacy.disclosure import _predicate_kernel

        if not self.columns.shape[1]:
            raise ValueError("a predicate needs at least one condition")
        counts, first = np.zeros((2, len(self)), dtype=np.int64)
        _predicate_kernel.count_fitting(
            np.ascontiguousarray(self.columns, dtype=np.intp),
            np.ascontiguousarray(self.operators, dtype=np.int8),
            np.ascontiguousarray(self.values, dtype=np.float64),
            np.ascontiguousarray(table, dtype=np.float64),
            table.shape[1] + 1 if enough is None else enough,
            counts,
            first,
        )
        return counts, first

    @property
    def univariate(self) -> bool:
        """True for predicates of one condition."""
        return len(self.columns.T) == 1


@final
@dataclass(frozen=True)
class PredicateHits:
    """Rows of a table that predicates fit."""

    counts: Counts
    """Rows that each predicate fits."""
    rows: int
    together: float
    """Number of successes that weigh as much as an independent one."""


@final
class SinglingOut(Metric):
    """Risk that a predicate made from the release singles out a training row.

    * `singling-out/univariate`, lower is better: predicates on one column, "equal to a value that
      one released record has", and for numbers also "at most the least" and "at least the
      largest" where one released record has it.
    * `singling-out/multivariate`, lower is better: a random released record and three random
      columns; "equal" for categories, "at least" or "at most" the record's number, whichever
      points away from the released median. Kept where it fits that one released record only.
    * `singling-out/univariate-control` and `singling-out/multivariate-control`: the success rate
      of the same predicates on as many fresh rows as there are training rows.

    Predicates come from distinct released records, in the units of the schema. Real rows are
    not made distinct, other than in the paper's code: of two alike neither is singled out.

    How many predicates fit exactly one of n rows depends on n, and control rows are fewer than
    training rows. The paper's code fits a curve to control subsamples of 1,000 rows and more,
    and extrapolates it; below that it has nothing to fit. Here the number of control rows that each
    predicate fits is extrapolated to as many rows as there are training rows
    (`exactly_one`; values of one column have similar probabilities, extremes have others).
    Evaluating on a training subsample of the control's size would need no extrapolation, but would
    hide five of six sources: full copies would be given a risk of about one sixth.

    The control has a share h of the rows: Wilson's interval is that of h A attacks, not A.
    One-column predicates on the same row succeed together: A is divided by sum m^2 / sum m, for
    rows that were singled out m times. For three columns that would be far too cautious (matching
    one row more turns as many failures into successes as the other way round). Fresh rows of
    breast-cancer in 60 splits: 3 and 1 intervals above 0, means 0.012 and 0.008.
    """

    name: ClassVar[str] = "singling-out"
    family: ClassVar[Family] = Family.PRIVACY
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "singling-out/univariate",
            Direction.LOWER,
            "Residual risk of one-column guesses.",
            weak="of Adult, 10,000 released training rows gave 0.15 [-0.17, 0.36] and 100 gave "
            "0.00 [-0.27, 0.05]; of breast-cancer, 100 gave 0.89",
        ),
        Output(
            "singling-out/univariate-control",
            Direction.NEUTRAL,
            "Success rate of one-column guesses on as many fresh rows as training rows.",
        ),
        Output(
            "singling-out/multivariate",
            Direction.LOWER,
            "Residual risk of guesses on three columns around a released record.",
            weak="100 released training rows of Adult gave 0.00 [-0.04, 0.01], 10,000 gave 0.31; "
            "of breast-cancer, 100 gave 0.34",
            shown=True,
        ),
        Output(
            "singling-out/multivariate-control",
            Direction.NEUTRAL,
            "Success rate of three-column guesses on as many fresh rows as training rows.",
        ),
    )
    definition: ClassVar[str] = (
        "Share of up to 1,000 predicates, each true for one released record, that are true for "
        "exactly one training row, against fresh rows: (r_main - r_control) / (1 - r_control) "
        "(Giomi et al., PoPETs 2023, singling-out attack and residual risk). r_control is "
        "extrapolated from the control rows to the number of training rows by a Beta-binomial "
        "fit. Not clipped: below 0 is chance. 95% interval: Wilson's, propagated as in the "
        "paper; the control counts as fewer attacks, in proportion to its rows, and so do "
        "one-column predicates that hit the same row."
    )
    cost: ClassVar[str] = "a few seconds"

    attacks: ClassVar[int] = 1000
    conditions: ClassVar[int] = 3
    attempts: ClassVar[int] = 100_000
    """Predicates tried until enough fit one released record only."""

    def compute(self, evaluation: Evaluation) -> Scores:
        train = real_records(evaluation, "train")
        control = real_records(evaluation, "control")
        if min(len(train), len(control)) < LEAST_ROWS:
            raise NotComputable(
                f"{len(train)} training and {len(control)} control rows; at least {LEAST_ROWS} of "
                "each are needed"
            )
        released = distinct_records(evaluation)
        numeric = released.numbers.shape[1]
        rng = evaluation.generator("singling-out/predicates")
        guesses = {
            "univariate": univariate(columns_of(released), numeric, self.attacks, rng),
            "multivariate": multivariate(
                columns_of(released), numeric, self.conditions, self.attacks, self.attempts, rng
            ),
        }
        scores: list[Score] = []
        attacks: list[pd.DataFrame] = []
        for kind, predicates in guesses.items():
            risk, rate = f"singling-out/{kind}", f"singling-out/{kind}-control"
            if len(predicates) < LEAST_ATTACKS:
                reason = (
                    f"{len(predicates)} predicates fit exactly one released record; at least "
                    f"{LEAST_ATTACKS} are needed"
                )
                scores += [self.absent(risk, reason), self.absent(rate, reason)]
                continue
            main = predicates.hits(columns_of(train))
            fresh = predicates.hits(columns_of(control))
            on_train, on_fresh = rates(predicates, main, fresh)
            scores += [
                residual_risk(on_train, on_fresh).score(self, risk),
                on_fresh.score(self, rate),
            ]
            attacks.append(_table(kind, main.counts, fresh.counts))
        details = {"singling-out": pd.concat(attacks, ignore_index=True)} if attacks else {}
        return Scores(tuple(scores), details)


def rates(
    predicates: Predicates, main: PredicateHits, control: PredicateHits
) -> tuple[Interval, Interval]:
    """Success rates on the training rows, and on as many fresh rows."""
    extreme = np.full(len(predicates), predicates.univariate)
    extreme &= predicates.operators[:, 0] != EQUAL
    fresh = 0.0
    for part in (extreme, ~extreme):
        if part.any():
            # A value of a column is about as rare as the other rare values of that column.
            alike = predicates.columns[part, 0] if predicates.univariate else None
            groups = None if part is extreme else alike
            share = exactly_one(control.counts[part], control.rows, main.rows, groups)
            fresh += share * int(np.count_nonzero(part))
    seen = min(1.0, control.rows / main.rows)
    return (
        _rate(float(np.count_nonzero(main.counts == 1)), len(predicates), 1 / main.together),
        _rate(fresh, len(predicates), seen / control.together),
    )


def _rate(successes: float, attacks: int, weight: float) -> Interval:
    """A rate whose interval is that of fewer attacks."""
    value = success_rate(successes, attacks).value
    fewer = success_rate(weight * successes, weight * attacks)
    return Interval(value, min(value, fewer.low), max(value, fewer.high))


def _table(kind: str, main: Counts, control: Counts) -> pd.DataFrame:
    """Number of predicates by the number of training and control rows they fit; 2 is 2 or more."""
    table = pd.DataFrame(
        {
            "kind": kind,
            "training-rows": np.minimum(main, 2),
            "control-rows": np.minimum(control, 2),
        }
    )
    counted = table.value_counts(sort=False).rename("predicates").reset_index()
    return counted.sort_values(["training-rows", "control-rows"], ignore_index=True)


def columns_of(records: Records) -> Array:
    """(columns, rows): numbers first, then category codes."""
    return np.ascontiguousarray(np.column_stack([records.numbers, records.codes]).T)


def univariate(released: Array, numeric: int, attacks: int, rng: np.random.Generator) -> Predicates:
    """Values that one released record has, and extremes that one has; a random choice of them."""
    candidates: list[tuple[int, int, float]] = []
    for column, cells in enumerate(released):
        values, counts = np.unique(cells, return_counts=True)
        candidates += [(column, EQUAL, float(value)) for value in values[counts == 1]]
        if column < numeric and counts[0] == 1:
            candidates.append((column, AT_MOST, float(values[0])))
        if column < numeric and counts[-1] == 1:
            candidates.append((column, AT_LEAST, float(values[-1])))
    chosen = rng.permutation(len(candidates))[:attacks]
    conditions = np.array(candidates, dtype=np.float64).reshape(-1, 3)[chosen]
    return Predicates(
        conditions[:, :1].astype(np.intp),
        conditions[:, 1:2].astype(np.int8),
        conditions[:, 2:].astype(np.float64),
    )


def multivariate(
    released: Array,
    numeric: int,
    conditions: int,
    attacks: int,
    attempts: int,
    rng: np.random.Generator,
) -> Predicates:
    """Predicates around random released records that fit no other; distinct ones only."""
    width, rows = released.shape
    conditions = min(conditions, width)
    medians = np.median(released, axis=1)
    parts: list[Predicates] = []
    count = 0
    tried: set[bytes] = set()
    for _ in range(0, attempts, _BATCH):
        records = rng.integers(rows, size=_BATCH)
        columns = np.sort(rng.random((_BATCH, width)).argsort(axis=1)[:, :conditions], axis=1)
        values = released[columns, records[:, None]]
        away = np.where(values > medians[columns], AT_LEAST, AT_MOST)
        operators = np.where(columns < numeric, away, EQUAL).astype(np.int8)
        # The operator follows from column and value.
        keys = [a.tobytes() + b.tobytes() for a, b in zip(columns, values, strict=True)]
        new: list[int] = []
        for number, key in enumerate(keys):
            if key not in tried:
                tried.add(key)
                new.append(number)
        if not new:
            break  # nearly all predicates were tried
        batch = Predicates(columns, operators, values).take(np.array(new, dtype=np.intp))
        alone = np.flatnonzero(batch.counts(released, enough=2) == 1)[: attacks - count]
        parts.append(batch.take(alone))
        count += len(alone)
        if count >= attacks:
            break
    return Predicates(
        np.concatenate([part.columns for part in parts]),
        np.concatenate([part.operators for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


# Extrapolation of the control ---------------------------------------------------------------------


def exactly_one(
    matches: Counts, rows: int, wanted: int, groups: npt.NDArray[np.intp] | None = None
) -> float:
    """Share of predicates that would fit exactly one of `wanted` rows.

    Given how many of `rows` rows of the same kind each predicate fits. For `wanted` up to `rows`
    it is the mean over all subsets, by the hypergeometric distribution.

    Above, it is extrapolated. Each predicate fits a row with some probability, Beta
    distributed among predicates; the parameters are those of the largest likelihood, given how many
    predicates fit 0, 1, 2, and more rows. Predicates may come in groups: then each group has its
    mean, and one shape is common, if Akaike's criterion prefers that to one mean.
    """
    if wanted <= rows:
        from scipy.stats import hypergeom

        return float(hypergeom.pmf(1, rows, matches, wanted).mean())
    together = _extrapolated(matches, rows, wanted, np.zeros(len(matches), dtype=np.intp))
    if groups is None:
        return together.rate
    apart = _extrapolated(matches, rows, wanted, groups)
    return apart.rate if apart.criterion < together.criterion else together.rate


@final
@dataclass(frozen=True)
class _Extrapolation:
    rate: float
    criterion: float
    """Akaike's, up to a constant and a factor: number of means minus the log-likelihood."""


def _extrapolated(
    matches: Counts, rows: int, wanted: int, groups: npt.NDArray[np.intp]
) -> _Extrapolation:
    """Beta-binomial fit on a grid: no start value and no search that could fail."""
    from scipy.special import betaln

    names, group = np.unique(groups, return_inverse=True)
    cells = _CENSORED + 1
    places = group * cells + np.minimum(matches, _CENSORED)
    counts = np.bincount(places, minlength=len(names) * cells).reshape(-1, cells)
    shape = np.geomspace(0.05, 50.0, 31)[:, None]
    mean = np.geomspace(1e-3 / wanted, 0.5, 301)
    other = shape * (1.0 - mean) / mean

    def chance(hits: int, among: int) -> Array:
        ways = -math.log(among + 1.0) - float(betaln(hits + 1, among - hits + 1))
        logs = betaln(hits + shape, among - hits + other) - betaln(shape, other)
        chances: Array = np.exp(ways + logs)
        return chances

    few = np.stack([chance(hits, rows) for hits in range(_CENSORED)])
    chances = np.concatenate([few, 1.0 - few.sum(axis=0, keepdims=True)])
    likelihood = np.einsum("gc,csm->gsm", counts, np.log(np.maximum(chances, 1e-300)))
    by_shape = likelihood.max(axis=2).sum(axis=0)
    best = int(by_shape.argmax())
    rates = chance(1, wanted)[best, likelihood[:, best].argmax(axis=1)]
    # Where no row was hit, the likeliest probability is 0, not the least of the grid.
    rates = np.where(counts[:, 1:].any(axis=1), rates, 0.0)
    rate = float(rates @ counts.sum(axis=1) / len(matches))
    return _Extrapolation(rate, len(names) - float(by_shape[best]))
