"""Are predicted survival probabilities right, and is risk ranked well at each time?

Both scores weight the test rows by the inverse probability of censoring (IPC). The censoring
distribution is that of the real test rows themselves: they are the ones that were censored, and
then the weights of the rows that are judged at a time sum to the number of rows exactly. Released
censoring times play no part; in a balanced or condensed release they would be wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Scores, Task
from bench.metrics._shared import bootstrap, downstream_models
from bench.metrics._shared.auroc import RankedPairs
from bench.metrics._shared.bootstrap import Estimate, Statistic
from bench.metrics._shared.intervals import score_or_reason
from bench.metrics.survival import _curves, _survival_models
from bench.metrics.survival._curves import Array, Flags

GRID = 25
"""Times, evenly spaced from the 10th to the 90th percentile of the real test event times."""

LEAST_EVENTS = 10
"""Fewer events among the test rows give no usable percentiles."""

_COMMON = (
    "Times: 25, evenly from the 10th to the 90th percentile of the event times of the real test "
    "rows. Inverse-probability-of-censoring weights from the Kaplan-Meier estimate of censoring "
    "among the real test rows: 1 / G(T-) for an event at T (events come before censored rows of "
    "the same time), 1 / G(t) for a row at risk after t. Interval: 1000 bootstrap resamples of "
    "the test rows, the censoring weights held fixed."
)


@final
class IntegratedBrier(Metric):
    """Mean squared error of predicted survival, over time."""

    name: ClassVar[str] = "brier"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "brier/cox",
            Direction.LOWER,
            "Cox model (L2 penalty of 0.1) with Breslow's baseline hazard of the released rows.",
        ),
        Output(
            "brier/aft",
            Direction.LOWER,
            "XGBoost-AFT, S(t) = 1 - Phi(log(t / s) - m(x)) with the time scale s of the "
            "zero-order paper's equation 1.",
        ),
    )
    definition: ClassVar[str] = (
        "Integrated Brier score (Graf et al., 1999) on the real test rows of survival models "
        "trained on the released rows, which are weighted to the real shares of events and "
        "censored rows times their own weights; trapezoidal mean over the times. 0 is perfect; the "
        "table `brier` holds the score of the Kaplan-Meier curve of the real training rows, which "
        "uses no covariate. " + _COMMON
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        judged = censored_rows(evaluation)
        truth = _survival_models.held_out_examples(evaluation)
        tables = [_real_brier(evaluation, judged)]

        def statistic(model: str) -> Statistic:
            survival = _survival_models.released_survival(evaluation, model)
            losses = judged.squared_errors(survival.at(truth.features, judged.grid))
            tables.append(_table(judged, model, "released", losses.mean(axis=0)))
            return bootstrap.mean(losses @ judged.trapezoid)

        return _scores(self, evaluation, statistic, tables)


@final
class TimeDependentAuc(Metric):
    """AUC of events up to a time against rows at risk after it, over time."""

    name: ClassVar[str] = "td-auc"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("td-auc/cox", Direction.HIGHER, "The Cox model of c-index/cox."),
        Output("td-auc/aft", Direction.HIGHER, "The XGBoost-AFT model of c-index/aft."),
    )
    definition: ClassVar[str] = (
        "Cumulative/dynamic area under the ROC curve (Uno et al., 2007; Hung and Chiang, 2010) on "
        "the real test rows: events up to t, with their censoring weights, against rows at risk "
        "after t, ranked by the risk of a model trained on the released rows, or of the model that "
        "was released; a tied pair counts one half. Mean over the times weighted by the drops of "
        "the test rows' Kaplan-Meier curve, held fixed (Lambert and Chevret, 2014). " + _COMMON
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        judged = censored_rows(evaluation)
        truth = _survival_models.held_out_examples(evaluation)
        models = {"cox": downstream_models.cox, "aft": downstream_models.tree_survival}
        tables: list[pd.DataFrame] = []

        def statistic(model: str) -> Statistic:
            risks = downstream_models.one_score(models[model](evaluation), truth.features)
            mean, by_time = judged.areas(risks)
            tables.append(_table(judged, model, "released", by_time))
            return mean

        return _scores(self, evaluation, statistic, tables)


@final
@dataclass(frozen=True)
class CensoredRows:
    """Test rows, the times at which predictions are judged, and the censoring weights."""

    times: Array
    events: Flags
    grid: Array
    event_weights: Array
    """Weight of each row: 1 / G(T-) for an event, 0 for a censored row."""
    later_weights: Array
    """Weight 1 / G(t) of each time."""
    drops: Array
    """Drop of the Kaplan-Meier curve since the time before each time, of sum 1."""

    @classmethod
    def of(cls, times: Array, events: Flags, grid: Array) -> CensoredRows:
        """Weights by the censoring of these same rows; the grid ends before the last row."""
        stays = _curves.censoring(times, events)
        survival = _curves.kaplan_meier(times, events).at(grid)
        event_weights = np.zeros(len(times))
        event_weights[events] = 1.0 / stays.before(times[events])
        drops = -np.diff(np.concatenate([[1.0], survival]))
        return cls(
            times, events, grid, event_weights, 1.0 / stays.at(grid), drops / (1.0 - survival[-1])
        )

    @property
    def trapezoid(self) -> Array:
        """Weights of the times in a mean by the trapezoidal rule."""
        halves = np.diff(self.grid) / 2
        weights = np.zeros(len(self.grid))
        weights[:-1] += halves
        weights[1:] += halves
        scaled: Array = weights / (self.grid[-1] - self.grid[0])
        return scaled

    def squared_errors(self, survival: Array) -> Array:
        """(rows, times): S^2 for an event up to t, (1 - S)^2 after t, with censoring weights."""
        after = self.times[:, None] > self.grid
        happened = self.event_weights[:, None] * ~after
        result: Array = happened * survival**2 + after * self.later_weights * (1 - survival) ** 2
        return result

    def areas(self, risks: Array) -> tuple[Statistic, Array]:
        """Mean AUC over the times as a statistic, and the AUC of the rows at each time."""
        parts = []
        for time in self.grid:
            controls = np.flatnonzero(self.times > time)
            cases = np.flatnonzero((self.times <= time) & self.events)
            parts.append(RankedPairs.of(cases, controls, risks, self.event_weights))
        mean = bootstrap.combined(parts, lambda *areas: self.drops @ np.stack(areas))
        once = np.ones((len(risks), 1))
        return mean, np.array([part(once)[0] for part in parts])


def censored_rows(evaluation: Evaluation) -> CensoredRows:
    """Test rows of the dataset with their times and censoring weights."""

    def build(_: np.random.Generator) -> CensoredRows:
        truth = _survival_models.held_out_examples(evaluation)
        times, events = _survival_models.times_and_events(truth)
        count = int(np.count_nonzero(events))
        if count < LEAST_EVENTS:
            raise NotComputable(f"{count} test rows have the event; {LEAST_EVENTS} are needed")
        low, high = np.quantile(times[events], [0.1, 0.9])
        # Nobody is at risk after the last row; usually the 90th percentile is earlier.
        earlier = times[times < times.max()]
        high = min(high, earlier.max(initial=low))
        if not low < high:
            raise NotComputable("all events of the test rows have the same time")
        return CensoredRows.of(times, events, np.linspace(low, high, GRID))

    return evaluation.reference("survival/judged", build)


def _real_brier(evaluation: Evaluation, judged: CensoredRows) -> pd.DataFrame:
    """Brier scores over time of models of the real training rows, without and with covariates."""

    def build(_: np.random.Generator) -> pd.DataFrame:
        truth = _survival_models.held_out_examples(evaluation)
        rows = _survival_models.times_and_events(_survival_models.real_examples(evaluation))
        curve = _curves.kaplan_meier(*rows).at(judged.grid)
        tables = [_table(judged, "kaplan-meier", "real", judged.squared_errors(curve).mean(axis=0))]
        for model in _survival_models.MODELS:
            survival = _survival_models.real_survival(evaluation, model)
            losses = judged.squared_errors(survival.at(truth.features, judged.grid))
            tables.append(_table(judged, model, "real", losses.mean(axis=0)))
        return pd.concat(tables, ignore_index=True)

    return evaluation.reference("survival/brier", build)


def _table(judged: CensoredRows, model: str, trained: str, values: Array) -> pd.DataFrame:
    return pd.DataFrame(
        {"model": model, "trained-on": trained, "time": judged.grid, "value": values}
    )


def _scores(
    metric: Metric,
    evaluation: Evaluation,
    statistic: Callable[[str], Statistic],
    tables: list[pd.DataFrame],
) -> Scores:
    """The score of each model; a model that cannot be trained is absent, the other is not."""
    strata = np.zeros(len(evaluation.dataset.test))

    def estimate(model: str) -> Estimate:
        rng = bootstrap.of_dataset(evaluation)
        return bootstrap.bootstrap(statistic(model), strata, rng)

    scores = tuple(
        score_or_reason(metric, f"{metric.name}/{model}", functools.partial(estimate, model))
        for model in _survival_models.MODELS
    )
    details = {metric.name: pd.concat(tables, ignore_index=True)} if tables else {}
    return Scores(scores, details)
