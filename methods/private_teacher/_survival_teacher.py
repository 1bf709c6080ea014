"""Survival by a private teacher: what is asked of the rows, and what follows from the answers.

Four Gaussian mechanisms on all training rows, planned and charged before the first of them:

1. counts of event status by cell of time (sensitivity 1): when patients die and are censored;
2. a histogram of every feature (sensitivity sqrt(features)): marginals of the pool, and its bins;
3. products of every two features' scores: associations (`_survival_risk.pair_products`);
4. Cox's score, one clipped vector a patient, times as well as events (`_survival_risk`).

Composed they are one Gaussian mechanism; shares of the budget are shares of its squared
sensitivity: a mechanism with the share s has the noise multiplier of all divided by sqrt(s).
All after them is post-processing: a pool of rows inside the schema's rules (`_survival_pool`), the
teacher's posterior mean, and the condensation of IPC rows of each status (`_survival_condense`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from bench import (
    Claim,
    EncodedRows,
    InputError,
    NotApplicable,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    gaussian,
)
from bench.methods._shared.teachers import cox_coefficients
from bench.methods.private_teacher._survival_bins import (
    Array,
    Bins,
    Cells,
    Codes,
    denoised,
    time_cells,
)
from bench.methods.private_teacher._survival_condense import Places, candidates, condense
from bench.methods.private_teacher._survival_pool import Pool, draw_pool
from bench.methods.private_teacher._survival_risk import (
    Hazard,
    Risk,
    correlations,
    pair_products,
    pair_reach,
)

CLAIM = "four Gaussian mechanisms: times, marginals, associations and Cox's score"
_PENALTY = 0.1
"""Of the Cox model that the release is to give, per deviation and row, as the metrics have it."""


@final
@dataclass(frozen=True)
class SurvivalSetting:
    """Hyperparameters of the survival part; the same for every dataset."""

    share_times: float = 0.1
    share_marginals: float = 0.15
    share_associations: float = 0.2
    share_score: float = 0.55
    """Shares of the squared sensitivity; together 1. The score says who is at risk and is the one
    that the C-index hangs on; times are a single histogram of sensitivity 1 and need little; a pool
    without associations overrates risks that go together (stage, nodes, size)."""
    rounds: int = 1
    """Newton steps, each with an equal part of the score's share."""
    bins: int = 4
    """Of a numeric feature in the teacher, at quantiles of its noisy histogram."""
    cells: int = 32
    """Of a numeric feature's histogram."""
    time_cells: int = 32
    """Of the time histogram of each status."""
    pool: int = 4000
    sharpness: float = 2.0
    """Power of the likelihood by which rows are chosen for a status and time. 1 makes a cohort as
    the teacher believes it, with all the chance of who dies first. Above 1 less is left to chance:
    trees, which cannot average over few rows, rank better, and hazard ratios grow. 2 about makes up
    for the shrinkage of Cox's penalty in the metrics; at 3 predicted curves begin to suffer."""

    def __post_init__(self) -> None:
        shares = self.shares
        self._require(min(shares) > 0, "shares", "positive numbers")
        self._require(abs(sum(shares) - 1.0) < 1e-9, "shares", "numbers that sum to 1")
        self._require(self.rounds >= 1, "rounds", "1 or more")
        self._require(self.bins >= 2, "bins", "2 or more")
        self._require(self.cells >= self.bins, "cells", "`bins` or more")
        self._require(self.time_cells >= 2, "time_cells", "2 or more")
        self._require(self.pool >= 100, "pool", "100 or more")
        self._require(self.sharpness > 0, "sharpness", "a positive number")

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """Of times, marginals, associations and score."""
        return (
            self.share_times,
            self.share_marginals,
            self.share_associations,
            self.share_score,
        )

    def _require(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise InputError(
                f"survival teacher: {name}={getattr(self, name)!r}; expected {expected}"
            )


@final
@dataclass(frozen=True)
class Teacher:
    """What the private rows were asked, turned into a model of the cohort."""

    risk: Risk
    hazard: Hazard
    pool: Pool
    events: Array
    """Denoised counts of events, by cell of time."""
    censored: Array
    noise: float

    @property
    def log_risks(self) -> Array:
        """Of the pool."""
        return self.risk.at(self.pool.codes)


def synthesize_survival(
    private: PrivateData,
    spec: Spec,
    rng: np.random.Generator,
    setting: SurvivalSetting | None = None,
    condensed: bool = True,
) -> Release:
    """IPC rows with the event and IPC censored ones, condensed from a private teacher.

    Where not `condensed`, each place gets the first patient that the teacher's law draws for it.
    """
    setting = setting or SurvivalSetting()
    if private.schema.time is None:
        raise NotApplicable("the survival teacher needs a time column")
    teacher = fit_teacher(private, setting, rng)
    sizes = spec.rows_per_class(private.counts)
    places = Places.of(sizes, (teacher.censored, teacher.events))
    sharpness = setting.sharpness if condensed else 1.0
    offered = candidates(places, teacher.pool, teacher.log_risks, teacher.hazard, sharpness, rng)
    chosen = condense(
        places, teacher.pool, teacher.risk.bins, offered, private.counts.by_class, _PENALTY
    )
    features = teacher.pool.features[chosen.rows if condensed else offered[:, 0]]
    values = np.zeros((len(places.labels), private.width), dtype=np.float32)
    values[:, : private.encoder.feature_width] = features
    values[:, -1] = places.times
    own = cox_coefficients(features, places.times + 1.0, places.labels, _PENALTY)
    notes: dict[str, float | str] = {
        "teacher": "cox-score",
        "noise_multiplier": teacher.noise,
        "pool_rows": float(len(teacher.pool.weights)),
        "pool_rows_breaking_rules": float(teacher.pool.broken),
        "log_risk_deviation": float(teacher.log_risks.std()),
        "cox_agreement_cohort": _agreement(teacher, own, chosen.coefficients),
        "cox_agreement_teacher": _agreement(teacher, own, None),
    }
    claim = Claim.of(spec.budget, CLAIM)
    return Release(Rows(values, places.labels), claim=claim, notes=notes)


def fit_teacher(
    private: PrivateData, setting: SurvivalSetting, rng: np.random.Generator
) -> Teacher:
    """Ask the private rows, and fit. Every call to the kernel is in this function."""
    cells = Cells(private.encoder, setting.cells)
    features = len(cells.sizes)
    share = setting.shares
    score_share = share[3] / setting.rounds

    def plans(noise: float) -> list[PlannedEvents]:
        asked = [private.plan(gaussian(noise / np.sqrt(own))) for own in share[:2]]
        if features > 1:
            asked.append(private.plan(gaussian(noise / np.sqrt(share[2]))))
        return [*asked, private.plan(gaussian(noise / np.sqrt(score_share)), setting.rounds)]

    noise = private.calibrate(plans)
    private.reserve_all(plans(noise))
    counts = private.counts

    multiplier = noise / np.sqrt(share[0])
    spans = setting.time_cells
    (noisy,) = private.histograms(_status_times(spans), [2 * spans], multiplier)
    censored, events = (
        denoised(own, multiplier, max(count, 1), ordered=True, doubt=0.0)
        for own, count in zip(noisy.reshape(2, -1), counts.by_class, strict=True)
    )

    multiplier = noise / np.sqrt(share[1])
    answers = private.histograms(lambda rows: cells.codes(rows.values), cells.sizes, multiplier)
    deviation = multiplier * np.sqrt(features)
    marginals = [
        denoised(own, deviation, max(counts.total, 1), ordered=block.stop - block.start == 1)
        for own, block in zip(answers, cells.blocks, strict=True)
    ]
    bins = Bins.of(cells, marginals, setting.bins)

    associations = np.eye(features)
    if features > 1:
        reach, multiplier = pair_reach(bins), noise / np.sqrt(share[2])
        products = private.gaussian_sum(pair_products(cells, bins), reach, multiplier)
        associations = correlations(bins, marginals, products, reach * multiplier, counts.total)
    pool = draw_pool(cells, bins, marginals, associations, setting.pool, rng)

    risk, multiplier = Risk.none(cells, bins), noise / np.sqrt(score_share)
    for _ in range(setting.rounds):
        hazard = Hazard.of(events, censored, risk.at(pool.codes), pool.weights)
        score = private.gaussian_sum(risk.score(hazard), risk.reach, multiplier)
        risk = risk.improved(
            score, risk.reach * multiplier, max(counts.by_class[1], 1), pool.codes, pool.weights
        )
    hazard = Hazard.of(events, censored, risk.at(pool.codes), pool.weights)
    return Teacher(risk, hazard, pool, events, censored, noise)


def _status_times(cells: int) -> Callable[[EncodedRows], Codes]:
    """Row function: the cell of time, counted on after the censored ones for an event."""

    def codes(rows: EncodedRows) -> Codes:
        own = np.asarray(rows.labels, dtype=np.int64) * cells + time_cells(rows.values, cells)
        return own[:, None]

    return codes


def _agreement(teacher: Teacher, own: Array, other: Array | None) -> float:
    """Rank correlation over the pool of Cox's model of the release with another log risk."""
    from scipy.stats import spearmanr

    features = teacher.pool.features
    reference = teacher.log_risks if other is None else features @ other
    if np.ptp(features @ own) < 1e-12 or np.ptp(reference) < 1e-12:
        return 0.0
    return float(spearmanr(features @ own, reference).statistic)
