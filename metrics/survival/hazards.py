"""Does a Cox model of the released rows tell the same hazard ratios as one of the real rows?"""

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
from bench.metrics._shared.bootstrap import Array, Estimate
from bench.metrics._shared.intervals import clopper_pearson
from bench.metrics._shared.models import Examples
from bench.metrics.survival import _models as _survival_models
from bench.metrics.survival._cox import CoxFit, fit_cox, independent_columns

DRAWS = 1000

EVENTS_PER_COVARIATE = 2
"""With fewer, a Cox model without penalty runs off to infinite ratios."""

_WIDE = 1.959963984540054
"""Half the width of a 95% interval, in standard errors."""

_TINY_PENALTY = 1e-8
"""Keeps a separated covariate finite, and changes no other one."""

_UNKNOWN = 5.0
"""Standard error of a log ratio, per standard deviation of the covariate, from which on the rows
are taken to say nothing: a category without events, for example."""

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
        "Cox model of the released rows, weighted to the declared shares of events and censored "
        "rows times their own weights, against the same model of the real training rows "
        "(zero-order paper, section 2.5 and table 5). Direction and rank: every encoded column, L2 "
        "penalty of 0.1 as in section 4.7; interval: 1000 draws of both coefficient vectors from "
        "their normal approximation (robust sandwich variance of Lin and Wei), corrected for the "
        "inflation of distances. Coverage: no penalty, because penalised fits have no honest "
        "interval; rows as they read after decoding; categories against the commonest of the real "
        "rows, columns that earlier ones determine in the real rows left out; robust sandwich "
        "variance in both fits; what the release cannot estimate is not covered."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        released = _survival_models.released_cox(evaluation)
        real = _survival_models.real_cox(evaluation)
        ratios = _Ratios.of(evaluation, real, released)
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
            for name, covered in (
                ("hazard/coverage", contrasts.covered(contrasts.real, contrasts.released)),
                ("hazard/coverage-by-real", contrasts.covered(contrasts.released, contrasts.real)),
            ):
                count, of = int(np.count_nonzero(covered)), len(covered)
                scores.append(self.score(name, count / of, *clopper_pearson(count, of)))
        return Scores(tuple(scores), details)


@final
@dataclass(frozen=True)
class _Side:
    """Log hazard ratios of some covariates, in some units, by one table of rows."""

    logs: Array
    covariance: Array
    known: Flags
    """False where the rows cannot estimate the ratio."""

    @classmethod
    def of(cls, fit: CoxFit, columns: npt.NDArray[np.intp], units: Array, known: Flags) -> _Side:
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
        return self.logs - _WIDE * self.errors, self.logs + _WIDE * self.errors


@final
@dataclass(frozen=True)
class _Ratios:
    """The same covariates by both tables."""

    names: list[str]
    units: list[str]
    real: _Side
    released: _Side

    @classmethod
    def of(cls, evaluation: Evaluation, real: CoxFit, released: CoxFit) -> _Ratios:
        """Penalised fits, each column per standard deviation of the real training rows."""
        examples = _survival_models.real_examples(evaluation)
        columns = np.flatnonzero(real.varying)
        spread = np.asarray(examples.features, dtype=np.float64).std(axis=0)[columns]
        names = evaluation.dataset.encoder.names
        return cls(
            [names[column] for column in columns],
            ["standard deviation"] * len(columns),
            _Side.of(real, columns, spread, np.ones(len(columns), dtype=bool)),
            _Side.of(released, columns, spread, released.varying[columns]),
        )

    @staticmethod
    def covered(target: _Side, by: _Side) -> Flags:
        """Does the interval of one side hold the ratio of the other? Both must know it."""
        low, high = by.ends
        inside: Flags = (low <= target.logs) & (target.logs <= high) & target.known & by.known
        return inside

    def table(self) -> pd.DataFrame:
        """One row a covariate; empty where the release cannot estimate it."""
        table: dict[str, object] = {"covariate": self.names, "per": self.units}
        for name, side in (("real", self.real), ("released", self.released)):
            with np.errstate(over="ignore"):
                for end, logs in zip(("", "-low", "-high"), (side.logs, *side.ends), strict=True):
                    table[f"{name}{end}"] = np.where(side.known, np.exp(logs), np.nan)
        return pd.DataFrame(table)


def _directions(metric: Metric, ratios: _Ratios, rng: np.random.Generator) -> tuple[Score, ...]:
    """Agreement of the penalised fits, and its interval by draws from both."""
    real, released = ratios.real, ratios.released
    drawn_real = _draws(real, rng)
    drawn = _draws(released, rng)
    clear = np.abs(real.logs) >= _WIDE * real.errors

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


def _rank(metric: Metric, ratios: _Ratios, drawn_real: Array, drawn: Array) -> Score:
    if len(ratios.names) < 3:
        return metric.absent(
            "hazard/rank", f"{len(ratios.names)} covariates; a rank correlation needs 3"
        )
    value = float(_spearman(ratios.real.logs[None], ratios.released.logs[None])[0])
    if np.isnan(value):
        return metric.absent("hazard/rank", "all hazard ratios are equal: no ranks")
    return _agreement_score(metric, "hazard/rank", value, _spearman(drawn_real, drawn), 2.0)


def _agreement_score(
    metric: Metric, output: str, value: float, samples: Array, span: float
) -> Score:
    """An agreement of at most 1 as a distance from it, so that its interval can be corrected."""
    estimate = Estimate((1 - value) / span, (1 - samples[~np.isnan(samples)]) / span)
    low, high = estimate.distance_interval
    return metric.score(output, value, 1 - span * high, 1 - span * low)


def _draws(side: _Side, rng: np.random.Generator) -> Array:
    return rng.multivariate_normal(
        side.logs, side.covariance, DRAWS, check_valid="ignore", method="eigh"
    )


def _spearman(left: Array, right: Array) -> Array:
    """Rank correlation of each row of two tables; NaN where a row is constant."""
    from scipy.stats import rankdata

    ranks = [rankdata(values, axis=1) for values in (left, right)]
    centred = [values - values.mean(axis=1, keepdims=True) for values in ranks]
    scale = np.sqrt((centred[0] ** 2).sum(axis=1) * (centred[1] ** 2).sum(axis=1))
    above = (centred[0] * centred[1]).sum(axis=1)
    undefined = np.full(len(scale), np.nan)
    correlation: Array = np.divide(above, scale, out=undefined, where=scale > 0)
    return correlation


# Ratios with honest intervals --------------------------------------------------------------------


@final
@dataclass(frozen=True)
class _RealContrasts:
    """What the real rows say, and the design that both fits share."""

    columns: npt.NDArray[np.intp]
    """Encoded columns of the design."""
    units: Array
    spread: Array
    per: list[str]
    fit: CoxFit

    @property
    def told(self) -> npt.NDArray[np.intp]:
        """Columns of the design whose ratios the real rows know."""
        return np.flatnonzero(self.fit.naive * self.spread < _UNKNOWN)


def _contrasts(evaluation: Evaluation) -> _Ratios:
    encoder = evaluation.dataset.encoder
    real = evaluation.reference("survival/contrasts", lambda _: _real_contrasts(evaluation))
    told = real.told
    if not len(told):
        raise NotComputable("the real rows tell no hazard ratio")
    examples = _survival_models.population_examples(evaluation)
    readable = _survival_models.readable(encoder, examples.features)[:, real.columns]
    known = independent_columns(readable, examples.weights)
    if not known.any():
        raise NotComputable("every feature of the released rows is constant: no Cox model fits")
    fit = _widened(_unpenalised(examples, readable[:, known]), np.flatnonzero(known), len(known))
    known &= fit.naive * real.spread < _UNKNOWN
    return _Ratios(
        [encoder.names[column] for column in real.columns[told]],
        [real.per[column] for column in told],
        _Side.of(real.fit, told, real.units[told], np.ones(len(told), dtype=bool)),
        _Side.of(fit, told, real.units[told], known[told]),
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
    return fit_cox(features, times, events, examples.weights, _TINY_PENALTY)


def _widened(fit: CoxFit, columns: npt.NDArray[np.intp], width: int) -> CoxFit:
    """A fit of some columns as one of all, which says nothing about the others."""
    coefficients, naive = np.zeros(width), np.full(width, np.inf)
    covariance, varying = np.zeros((width, width)), np.zeros(width, dtype=bool)
    coefficients[columns], naive[columns], varying[columns] = (
        fit.coefficients,
        fit.naive,
        fit.varying,
    )
    covariance[np.ix_(columns, columns)] = fit.covariance
    return CoxFit(coefficients, covariance, naive, varying, fit.events)
