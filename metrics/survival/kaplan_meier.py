"""Do the released rows, and models trained on them, show the survival of the real rows?

A release of half events and half censored rows has a Kaplan-Meier curve that falls far too fast.
Released rows are therefore weighted to the real shares of events and censored rows, times
their own weights. That corrects the curve as far as times are right within each status: the
curve depends on the times of the censored rows as well, and a release whose censoring times are
arbitrary (condensed rows, whose times only have to train a model) still shows another curve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Score, Scores, Task
from bench.metrics._shared import bootstrap
from bench.metrics._shared.bootstrap import Statistic
from bench.metrics._shared.downstream_models import Examples
from bench.metrics.survival import _curves, _survival_models
from bench.metrics.survival._curves import Array, Curves, Flags

RESAMPLES = 200
"""Each resample draws both curves anew; 200 give the ends of an interval."""

AT_RISK = 10
"""A real curve is followed while this many rows are at risk; its last steps are chance."""

GRID = 101
"""Times at which mean predicted curves are compared, evenly from 0 to the horizon."""

_POINTS = 400
"""Points of a stored curve at most."""


@final
class KaplanMeier(Metric):
    """Kaplan-Meier curves of released and of real training rows."""

    name: ClassVar[str] = "km"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("km/gap", Direction.LOWER, "Largest vertical distance of the two curves."),
        Output("km/area", Direction.LOWER, "Area between the curves divided by the horizon."),
        Output(
            "km/follow-up",
            Direction.HIGHER,
            "Share of the real follow-up that the release covers: the horizon over the last time "
            "with 10 real rows at risk. Below 1 the other numbers describe that part only. No "
            "interval.",
        ),
        Output(
            "km/log-rank-p",
            Direction.NEUTRAL,
            "p-value of the weighted log-rank test, variance by Lin and Wei within table and "
            "status. Depends on the number of released rows: a small release passes, a large one "
            "fails on a difference that does not matter. No interval.",
        ),
    )
    definition: ClassVar[str] = (
        "Kaplan-Meier curve of the released rows against that of the real training rows (fidelity "
        "paper, section 3.6.2, which compares p-values only). Released rows are weighted to the "
        "real shares of events and censored rows, times their own weights. Up to the horizon: "
        "the last time with 10 real rows at risk, or the last released time if earlier. Intervals: "
        "200 bootstrap resamples of both tables within status, corrected for the inflation of "
        "distances between resamples."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        released = _survival_models.population_examples(evaluation)
        pair = _CurvePair.of(_survival_models.real_examples(evaluation), released)

        def bootstrapped(summary: Callable[[Array], Array], output: str) -> Score:
            rng = evaluation.generator("bootstrap/km")
            estimate = bootstrap.bootstrap(
                lambda counts: summary(pair.differences(counts)), pair.strata, rng, RESAMPLES
            )
            return estimate.distance_score(self, output)

        scores = (
            bootstrapped(_curves.gap, "km/gap"),
            bootstrapped(lambda values: _curves.area(pair.grid, values, pair.horizon), "km/area"),
            self.score("km/follow-up", pair.horizon / pair.real_horizon),
            _log_rank(self, pair),
        )
        return Scores(scores, {"km": pair.table()})


@final
class PredictedSurvival(Metric):
    """Mean predicted survival curves of models trained on released and on real rows."""

    name: ClassVar[str] = "predicted-km"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = tuple(
        Output(f"predicted-km/{model}-{name}", Direction.LOWER, f"{title}: {text}")
        for model, title in (("cox", "Cox"), ("aft", "XGBoost-AFT"))
        for name, text in (
            ("gap", "largest distance to the curve of the model trained on real rows."),
            ("area", "area to the curve of the model trained on real rows, over the horizon."),
            ("observed-area", "area to the Kaplan-Meier curve of the test rows, over the horizon."),
        )
    )
    definition: ClassVar[str] = (
        "Mean predicted survival of the real test rows by a model trained on the released rows "
        "(zero-order paper, section 2.3 and figure 2): Cox (L2 penalty of 0.1, Breslow's baseline) "
        "and XGBoost-AFT, rows weighted to the real shares of events and censored rows times "
        "their own weights. Compared at 101 even times from 0 to the last with 10 test rows at "
        "risk; a Cox curve stays level after its last event. Intervals: 1000 bootstrap resamples "
        "of the test rows for fixed models, corrected for the inflation of distances."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        truth = _survival_models.held_out_examples(evaluation)
        times, events = _survival_models.times_and_events(truth)
        grid = np.linspace(0.0, _last_time(times), GRID)
        observed = _curves.curves_at(times, events, grid)
        scores: list[Score] = []
        table = {"time": grid, "observed": observed(np.ones((len(times), 1)))[:, 0]}
        for model in _survival_models.MODELS:
            names = [f"predicted-km/{model}-{name}" for name in ("gap", "area", "observed-area")]
            try:
                survival = _survival_models.released_survival(evaluation, model)
            except NotComputable as problem:
                scores += [self.absent(name, str(problem)) for name in names]
                continue
            released = survival.at(truth.features, grid)
            real = _survival_models.real_survival(evaluation, model).at(truth.features, grid)
            table[f"{model}-released"] = released.mean(axis=0)
            table[f"{model}-real"] = real.mean(axis=0)
            statistics = _predicted(released, real, observed)
            for name, statistic in zip(names, statistics, strict=True):
                rng = bootstrap.of_dataset(evaluation)
                estimate = bootstrap.bootstrap(statistic, np.zeros(len(times)), rng)
                scores.append(estimate.distance_score(self, name))
        return Scores(tuple(scores), {"predicted-km": pd.DataFrame(table)})


@final
@dataclass(frozen=True)
class _CurvePair:
    """Real training rows, then released rows; weights of a resample are counts of both."""

    times: Array
    events: Flags
    weights: Array
    """1 for real rows; of mean 1 in the release."""
    real: int
    """Number of real rows."""
    grid: Array
    """Distinct times of both tables up to the horizon."""
    horizon: float
    real_horizon: float
    curves: tuple[Curves, Curves]

    @classmethod
    def of(cls, real: Examples, released: Examples) -> _CurvePair:
        of_real = _survival_models.times_and_events(real)
        of_release = _survival_models.times_and_events(released)
        real_horizon = _last_time(of_real[0])
        horizon = min(real_horizon, float(of_release[0].max()))
        if not horizon > 0:
            raise NotComputable("every released time is 0: there is no curve to compare")
        times = np.concatenate([of_real[0], of_release[0]])
        grid = np.unique(times[times <= horizon])
        return cls(
            times,
            np.concatenate([of_real[1], of_release[1]]),
            np.concatenate([np.ones(len(real.labels)), released.weights]),
            len(real.labels),
            grid,
            horizon,
            real_horizon,
            (
                _curves.curves_at(*of_real, grid),
                _curves.curves_at(*of_release, grid),
            ),
        )

    @property
    def strata(self) -> npt.NDArray[np.int64]:
        """Rows are drawn within table and status: both shares are given by the declaration."""
        table = np.arange(len(self.times)) >= self.real
        return np.where(table, 2, 0) + np.where(self.events, 1, 0)

    def differences(self, counts: Array) -> Array:
        """(times, resamples): curve of the release minus curve of the real rows."""
        weights = counts[self.real :] * self.weights[self.real :, None]
        events = self.events[self.real :]
        for status in (events, ~events):
            # A resample of rows with unequal weights would shift the shares of the two.
            if status.any():
                total = self.weights[self.real :][status].sum()
                weights[status] *= total / weights[status].sum(axis=0)
        return self.curves[1](weights) - self.curves[0](counts[: self.real])

    def table(self) -> pd.DataFrame:
        """Both curves, thinned for plots."""
        places = np.unique(np.linspace(0, len(self.grid) - 1, _POINTS).astype(np.intp))
        ones = np.ones((self.real, 1))
        released = self.curves[1](self.weights[self.real :, None])
        return pd.DataFrame(
            {
                "time": np.append(0.0, self.grid[places]),
                "real": np.append(1.0, self.curves[0](ones)[places, 0]),
                "released": np.append(1.0, released[places, 0]),
            }
        )


def _last_time(times: Array) -> float:
    """The last time with enough real rows at risk."""
    if len(times) < AT_RISK:
        raise NotComputable(f"{len(times)} real rows; a curve needs {AT_RISK} at risk")
    last = float(np.sort(times)[-AT_RISK])
    if not last > 0:
        raise NotComputable(f"fewer than {AT_RISK} real rows are followed beyond time 0")
    return last


def _predicted(
    released: Array, real: Array, observed: Curves
) -> tuple[Statistic, Statistic, Statistic]:
    """Gap and area to the other model, and area to the rows, of mean predicted curves."""
    differences = released - real

    def gap(weights: Array) -> Array:
        return _curves.gap(differences.T @ weights / weights.sum(axis=0))

    def area(weights: Array) -> Array:
        return _even_mean(np.abs(differences.T @ weights / weights.sum(axis=0)))

    def observed_area(weights: Array) -> Array:
        return _even_mean(np.abs(released.T @ weights / weights.sum(axis=0) - observed(weights)))

    return gap, area, observed_area


def _even_mean(values: Array) -> Array:
    """Trapezoidal mean over evenly spaced times along the first axis."""
    inner: Array = (values[1:] + values[:-1]).mean(axis=0) / 2
    return inner


def _log_rank(metric: Metric, pair: _CurvePair) -> Score:
    released = np.arange(len(pair.times)) >= pair.real
    # After the horizon one of the two curves is no longer followed.
    late = pair.times > pair.horizon
    times = np.where(late, pair.horizon, pair.times)
    try:
        _, p_value = _curves.log_rank(times, pair.events & ~late, released, pair.weights)
    except NotComputable as problem:
        return metric.absent("km/log-rank-p", str(problem))
    return metric.score("km/log-rank-p", p_value)
