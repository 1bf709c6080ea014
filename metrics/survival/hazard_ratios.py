"""Does a Cox model of the released rows have the hazard ratios of a model of the real rows?"""

from __future__ import annotations

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
    Metric,
    NotComputable,
    Output,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared.bootstrap import Array, Estimate, rank_correlation
from bench.metrics._shared.downstream_models import Examples
from bench.metrics._shared.intervals import QUANTILE, share
from bench.metrics.survival import _survival_models
from bench.metrics.survival._cox import CoxFit, fit_weighted_cox, independent_columns

DRAWS = 1000

EVENTS_PER_COVARIATE = 2
"""Events needed per covariate: with fewer, a Cox model without penalty diverges."""

_TINY_PENALTY = 1e-8
_SAME_RATIO = 6  # decimals of log hazard ratios that ranks look at
"""Keeps a separated covariate finite, and changes no other one."""

_UNKNOWN = 5.0
"""Standard error of a log ratio, per standard deviation of the covariate, above which the rows
are taken to determine nothing: a category without events, for example."""

Flags = npt.NDArray[np.bool_]


@final
class HazardRatios(Metric):
    """Hazard ratios of the released rows against those of the real training rows."""

    name: ClassVar[str] = "hazard"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "hazard/direction",
            Direction.HIGHER,
            "Share of covariates with a ratio on the same side of 1, from the penalised fits. A "
            "covariate that is constant in the release has no direction.",
        ),
        Output(
            "hazard/direction-clear",
            Direction.HIGHER,
            "The same among covariates whose real penalised ratio is 1.96 robust standard errors "
            "or more away from 1.",
        ),
        Output(
            "hazard/rank",
            Direction.HIGHER,
            "Spearman's correlation of the log hazard ratios of the penalised fits, each for one "
            "standard deviation of the covariate among the real training rows.",
        ),
        Output(
            "hazard/coverage",
            Direction.HIGHER,
            "Share of covariates whose real ratio lies in the 95% interval of the release, from "
            "fits without penalty. Fresh rows of the same number give 0.83, not 0.95: both ratios "
            "are estimates. Wide intervals of a small release cover easily. Interval: "
            "Clopper-Pearson over covariates as if they were independent.",
        ),
        Output(
            "hazard/coverage-by-real",
            Direction.HIGHER,
            "The other way: share of covariates whose released ratio lies in the 95% interval of "
            "the real rows. Interval as for hazard/coverage.",
        ),
    )
    definition: ClassVar[str] = (
        "Cox model of the released rows, weighted to the real shares of events and censored "
        "rows times their own weights, against the same model of the real training rows "
        "(zero-order paper, section 2.5 and table 5). Direction and rank: every encoded column, L2 "
        "penalty of 0.1 as in section 4.7; interval: 1000 draws of both coefficient vectors from "
        "their normal approximation (robust sandwich variance of Lin and Wei), corrected for the "
        "inflation of distances. Coverage: no penalty, because penalised fits have no valid "
        "interval; rows as they read after decoding; categories against the commonest of the real "
        "rows, columns that earlier ones determine in the real rows left out; robust sandwich "
        "variance in both fits; what the release cannot estimate counts as not covered."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        released = _survival_models.released_cox(evaluation)
        real = _survival_models.real_cox(evaluation)
        ratios = _RatioPair.of(evaluation, real, released)
        scores = [*_directions(self, ratios, evaluation.generator("draws/hazards"))]
        details = {"hazards": ratios.table()}
        try:
            contrasts = _contrasts(evaluation)
        except NotComputable as problem:
            scores += [
                self.absent(name, str(problem))
                for name in ("hazard/coverage", "hazard/coverage-by-real")
            ]
        else:
            details["hazard-contrasts"] = contrasts.table()
            by_release = contrasts.covered(contrasts.real, contrasts.released)
            by_real = contrasts.covered(contrasts.released, contrasts.real)
            scores += [
                share(by_release).score(self, "hazard/coverage"),
                share(by_real).score(self, "hazard/coverage-by-real"),
            ]
        return Scores(tuple(scores), details)


@final
@dataclass(frozen=True)
class _LogRatios:
    """Log hazard ratios of some covariates, in some units, by one table of rows."""

    logs: Array
    covariance: Array
    known: Flags
    """False where the rows cannot estimate the ratio."""

    @classmethod
    def of(
        cls, fit: CoxFit, columns: npt.NDArray[np.intp], units: Array, known: Flags
    ) -> _LogRatios:
        """The columns of a fit, for so many encoded units each."""
        return cls(
            fit.coefficients[columns] * units,
            fit.covariance[np.ix_(columns, columns)] * np.outer(units, units),
            known,
        )

    @property
    def errors(self) -> Array:
        return np.sqrt(np.diag(self.covariance))

    @property
    def ends(self) -> tuple[Array, Array]:
        return self.logs - QUANTILE * self.errors, self.logs + QUANTILE * self.errors


@final
@dataclass(frozen=True)
class _RatioPair:
    """The same covariates by both tables."""

    names: list[str]
    units: list[str]
    real: _LogRatios
    released: _LogRatios

    @classmethod
    def of(cls, evaluation: Evaluation, real: CoxFit, released: CoxFit) -> _RatioPair:
        """Penalised fits, each column per standard deviation of the real training rows."""
        examples = _survival_models.real_examples(evaluation)
        columns = np.flatnonzero(real.varying)
        spread = np.asarray(examples.features, dtype=np.float64).std(axis=0)[columns]
        names = evaluation.dataset.encoder.names
        return cls(
            [names[column] for column in columns],
            ["standard deviation"] * len(columns),
            _LogRatios.of(real, columns, spread, np.ones(len(columns), dtype=bool)),
            _LogRatios.of(released, columns, spread, released.varying[columns]),
        )

    @staticmethod
    def covered(target: _LogRatios, by: _LogRatios) -> Flags:
        """Whether the interval of one side holds the ratio of the other; both must determine it."""
        low, high = by.ends
        inside: Flags = (low <= target.logs) & (target.logs <= high) & target.known & by.known
        return inside

    def table(self) -> pd.DataFrame:
        """One row per covariate; empty where the release cannot estimate it."""
        table: dict[str, object] = {"covariate": self.names, "per": self.units}
        for name, side in (("real", self.real), ("released", self.released)):
            with np.errstate(over="ignore"):
                for end, logs in zip(("", "-low", "-high"), (side.logs, *side.ends), strict=True):
                    table[f"{name}{end}"] = np.where(side.known, np.exp(logs), np.nan)
        return pd.DataFrame(table)


def _directions(metric: Metric, ratios: _RatioPair, rng: np.random.Generator) -> tuple[Score, ...]:
    """Agreement of the penalised fits, and its interval by draws from both."""
    real, released = ratios.real, ratios.released
    drawn_real = _draws(real, rng)
    drawn = _draws(released, rng)
    clear = np.abs(real.logs) >= QUANTILE * real.errors

    def agreement(output: str, among: Flags) -> Score:
        if not among.any():
            return metric.absent(output, "no real hazard ratio is clearly different from 1")

        def share(of_real: Array, of_release: Array) -> Array:
            same = (np.sign(of_real) == np.sign(of_release)) & released.known
            result: Array = same[..., among].mean(axis=-1)
            return result

        value = float(share(real.logs, released.logs))
        return _agreement_score(metric, output, value, share(drawn_real, drawn), 1.0)

    return (
        agreement("hazard/direction", np.ones(len(clear), dtype=bool)),
        agreement("hazard/direction-clear", clear),
        _rank(metric, ratios, drawn_real, drawn),
    )


def _rank(metric: Metric, ratios: _RatioPair, drawn_real: Array, drawn: Array) -> Score:
    if len(ratios.names) < 3:
        return metric.absent(
            "hazard/rank", f"{len(ratios.names)} covariates; a rank correlation needs 3"
        )
    # Columns that say the same have one ratio, up to the order in which a machine sums.
    of_real, of_release, drawn_real, drawn = (
        np.round(logs, _SAME_RATIO)
        for logs in (ratios.real.logs, ratios.released.logs, drawn_real, drawn)
    )
    value = float(rank_correlation(of_real[:, None], of_release[:, None])[0])
    if np.isnan(value):
        return metric.absent("hazard/rank", "all hazard ratios are equal: no ranks")
    return _agreement_score(
        metric, "hazard/rank", value, rank_correlation(drawn_real.T, drawn.T), 2.0
    )


def _agreement_score(
    metric: Metric, output: str, value: float, samples: Array, span: float
) -> Score:
    """An agreement of at most 1 as a distance from it, so that its interval can be corrected."""
    estimate = Estimate((1 - value) / span, (1 - samples[~np.isnan(samples)]) / span)
    low, high = estimate.distance_interval()
    return metric.score(output, value, 1 - span * high, 1 - span * low)


def _draws(side: _LogRatios, rng: np.random.Generator) -> Array:
    return rng.multivariate_normal(
        side.logs, side.covariance, DRAWS, check_valid="ignore", method="eigh"
    )


# Ratios with valid intervals ---------------------------------------------------------------------


@final
@dataclass(frozen=True)
class _RealContrasts:
    """Ratios of the real rows, and the design that both fits share."""

    columns: npt.NDArray[np.intp]
    """Encoded columns of the design."""
    units: Array
    spread: Array
    per: list[str]
    fit: CoxFit

    @property
    def known_columns(self) -> npt.NDArray[np.intp]:
        """Columns of the design whose ratios the real rows determine."""
        return np.flatnonzero(self.fit.naive * self.spread < _UNKNOWN)


def _contrasts(evaluation: Evaluation) -> _RatioPair:
    encoder = evaluation.dataset.encoder
    real = evaluation.reference("survival/contrasts", lambda _: _real_contrasts(evaluation))
    columns = real.known_columns
    if not len(columns):
        raise NotComputable("the real rows determine no hazard ratio")
    examples = _survival_models.population_examples(evaluation)
    readable = _survival_models.readable(encoder, examples.features)[:, real.columns]
    known = independent_columns(readable, examples.weights)
    if not known.any():
        raise NotComputable("every feature of the released rows is constant: no Cox model fits")
    fit = _widened(_unpenalised(examples, readable[:, known]), np.flatnonzero(known), len(known))
    known &= fit.naive * real.spread < _UNKNOWN
    return _RatioPair(
        [encoder.names[column] for column in real.columns[columns]],
        [real.per[column] for column in columns],
        _LogRatios.of(real.fit, columns, real.units[columns], np.ones(len(columns), dtype=bool)),
        _LogRatios.of(fit, columns, real.units[columns], known[columns]),
    )


def _real_contrasts(evaluation: Evaluation) -> _RealContrasts:
    encoder = evaluation.dataset.encoder
    examples = _survival_models.real_examples(evaluation)
    readable = _survival_models.readable(encoder, examples.features)
    spread = readable.std(axis=0)
    units, per = spread.copy(), ["standard deviation"] * len(spread)
    offered = np.ones(len(spread), dtype=bool)
    for block in encoder.blocks:
        column = block.column
        if not isinstance(column, Categorical):
            continue
        if column.binary:
            units[block.start] = 2.0
            per[block.start] = f"{column.categories[1]} against {column.categories[0]}"
            continue
        commonest = int(np.argmax(readable[:, block.slice].sum(axis=0)))
        units[block.slice] = 1.0
        per[block.slice] = [f"against {column.categories[commonest]}"] * len(column.categories)
        offered[block.start + commonest] = False
    columns = np.flatnonzero(offered)
    columns = columns[independent_columns(readable[:, columns], examples.weights)]
    if not len(columns):
        raise NotComputable("every feature of the real training rows is constant")
    fit = _unpenalised(examples, readable[:, columns])
    return _RealContrasts(
        columns, units[columns], spread[columns], [per[column] for column in columns], fit
    )


def _unpenalised(examples: Examples, features: Array) -> CoxFit:
    times, events = _survival_models.times_and_events(examples)
    count, covariates = int(np.count_nonzero(events)), features.shape[1]
    if count < EVENTS_PER_COVARIATE * covariates:
        raise NotComputable(
            f"{count} events for {covariates} covariates: a Cox model without penalty needs "
            f"{EVENTS_PER_COVARIATE} for each"
        )
    return fit_weighted_cox(features, times, events, examples.weights, _TINY_PENALTY)


def _widened(fit: CoxFit, columns: npt.NDArray[np.intp], width: int) -> CoxFit:
    """A fit of some columns as one of all, which has no information on the others."""
    coefficients, naive = np.zeros(width), np.full(width, np.inf)
    covariance, varying = np.zeros((width, width)), np.zeros(width, dtype=bool)
    coefficients[columns], naive[columns], varying[columns] = (
        fit.coefficients,
        fit.naive,
        fit.varying,
    )
    covariance[np.ix_(columns, columns)] = fit.covariance
    return CoxFit(coefficients, covariance, naive, varying, fit.events)
