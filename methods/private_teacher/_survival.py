"""Survival by a private teacher: the private calls, and what follows from the answers.

Four Gaussian mechanisms on all training rows, planned and charged before the first of them:

1. counts of event status by bin of time (sensitivity 1): when patients die and are censored;
2. a histogram of every feature (sensitivity sqrt(features)): marginals of the pool, and its bins;
3. products of every two features' scores: associations (`pair_products`);
4. Cox's score, one clipped vector per patient, times as well as events (`CoxRisk.score`).

Composed they are one Gaussian mechanism; shares of the budget are shares of its squared
sensitivity: a mechanism with the share s has the noise multiplier of all divided by sqrt(s).
All after them is post-processing: a pool of rows within the schema's rules and the teacher's
posterior mean (`_survival_model`), and the condensation of IPC rows of each status
(`_survival_condense`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from bench import (
    Claim,
    EncodedRows,
    NotApplicable,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    gaussian,
)
from bench.methods._shared.cox import cox_coefficients
from bench.methods._shared.parameters import check_parameters
from bench.methods.private_teacher._bins import Array, Codes, FeatureGrid, MergedBins
from bench.methods.private_teacher._survival_condense import ReleasePlaces, candidates, condense
from bench.methods.private_teacher._survival_model import (
    BaselineHazard,
    CoxRisk,
    WeightedPool,
    correlations,
    denoised,
    draw_weighted_pool,
    pair_norm,
    pair_products,
    time_bins,
)

CLAIM = "four Gaussian mechanisms: times, marginals, associations and Cox's score"
_PENALTY = 0.1
"""Penalty of the Cox model that the release is to reproduce; the metrics have the same."""


@final
@dataclass(frozen=True)
class SurvivalSetting:
    """Hyperparameters of the survival part; the same for every dataset."""

    share_times: float = 0.1
    share_marginals: float = 0.15
    share_associations: float = 0.2
    share_score: float = 0.55
    """Shares of the squared sensitivity; together 1. The score says who is at risk, and the C-index
    depends on it; times are a single histogram of sensitivity 1 and need little; a pool without
    associations overrates risks that occur together (stage, nodes, size)."""
    rounds: int = 1
    """Newton steps, each with an equal part of the score's share."""
    bins: int = 4
    """Merged bins per numeric feature in the teacher, at quantiles of its noisy histogram."""
    feature_bins: int = 32
    """Bins of a numeric feature's histogram."""
    time_bins: int = 32
    """Bins of the time histogram of each status."""
    pool: int = 4000
    sharpness: float = 2.0
    """Power of the likelihood by which rows are chosen for a status and time. 1 draws a cohort from
    the teacher's model, with all the chance of who dies first. Above 1 less is left to chance:
    trees, which cannot average over few rows, rank better, and hazard ratios grow. 2 about makes up
    for the shrinkage of Cox's penalty in the metrics; at 3 predicted curves begin to suffer."""

    def __post_init__(self) -> None:
        shares = self.shares
        check_parameters(
            self,
            "survival teacher",
            {
                "shares": (
                    min(shares) > 0 and abs(sum(shares) - 1.0) < 1e-9,
                    "positive numbers that sum to 1",
                ),
                "rounds": (self.rounds >= 1, "1 or more"),
                "bins": (self.bins >= 2, "2 or more"),
                "feature_bins": (self.feature_bins >= self.bins, "`bins` or more"),
                "time_bins": (self.time_bins >= 2, "2 or more"),
                "pool": (self.pool >= 100, "100 or more"),
                "sharpness": (self.sharpness > 0, "a positive number"),
            },
        )

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """Shares of times, marginals, associations and score."""
        return (
            self.share_times,
            self.share_marginals,
            self.share_associations,
            self.share_score,
        )


@final
@dataclass(frozen=True)
class SurvivalTeacher:
    """The private answers, turned into a model of the dataset."""

    risk: CoxRisk
    hazard: BaselineHazard
    pool: WeightedPool
    events: Array
    """Denoised counts of events, by bin of time."""
    censored: Array
    noise: float

    @property
    def log_risks(self) -> Array:
        """Log risks of the pool."""
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
    places = ReleasePlaces.of(sizes, (teacher.censored, teacher.events))
    sharpness = setting.sharpness if condensed else 1.0
    offered = candidates(places, teacher.pool, teacher.log_risks, teacher.hazard, sharpness, rng)
    cohort = condense(
        places, teacher.pool, teacher.risk.bins, offered, private.counts.by_class, _PENALTY
    )
    features = teacher.pool.features[cohort.rows if condensed else offered[:, 0]]
    values = np.zeros((len(places.labels), private.width), dtype=np.float32)
    values[:, : private.encoder.feature_width] = features
    values[:, -1] = places.times
    released = cox_coefficients(features, places.times + 1.0, places.labels, _PENALTY)
    notes: dict[str, float | str] = {
        "teacher": "cox-score",
        "noise_multiplier": teacher.noise,
        "pool_rows": float(len(teacher.pool.weights)),
        "pool_rows_breaking_rules": float(teacher.pool.broken),
        "log_risk_deviation": float(teacher.log_risks.std()),
        "cox_agreement_cohort": _agreement(teacher, released, cohort.coefficients),
        "cox_agreement_teacher": _agreement(teacher, released, None),
    }
    claim = Claim.of(spec.budget, CLAIM)
    return Release(Rows(values, places.labels), claim=claim, notes=notes)


def fit_teacher(
    private: PrivateData, setting: SurvivalSetting, rng: np.random.Generator
) -> SurvivalTeacher:
    """Ask the private rows, and fit. Every call to the kernel is in this function."""
    grid = FeatureGrid.equal_widths(private.encoder, setting.feature_bins)
    features = len(grid.columns)
    share = setting.shares
    score_share = share[3] / setting.rounds

    def plans(noise: float) -> list[PlannedEvents]:
        planned = [private.plan(gaussian(noise / np.sqrt(part))) for part in share[:2]]
        if features > 1:
            planned.append(private.plan(gaussian(noise / np.sqrt(share[2]))))
        return [*planned, private.plan(gaussian(noise / np.sqrt(score_share)), setting.rounds)]

    noise = private.calibrate(plans)
    private.reserve_all(plans(noise))
    counts = private.counts

    multiplier = noise / np.sqrt(share[0])
    statuses = _status_times(setting.time_bins)
    (noisy,) = private.histograms(statuses, [2 * setting.time_bins], multiplier)
    censored, events = (
        denoised(times, multiplier, max(count, 1), ordered=True, doubt=0.0)
        for times, count in zip(noisy.reshape(2, -1), counts.by_class, strict=True)
    )

    multiplier = noise / np.sqrt(share[1])
    answers = private.histograms(lambda rows: grid.codes(rows.values), grid.sizes, multiplier)
    deviation = multiplier * np.sqrt(features)
    blocks = [column.block for column in grid.columns]
    marginals = [
        denoised(answer, deviation, max(counts.total, 1), ordered=block.stop - block.start == 1)
        for answer, block in zip(answers, blocks, strict=True)
    ]
    bins = MergedBins.by_mass(grid, marginals, setting.bins)

    associations = np.eye(features)
    if features > 1:
        clip, multiplier = pair_norm(bins), noise / np.sqrt(share[2])
        products = private.gaussian_sum(pair_products(bins), clip, multiplier)
        associations = correlations(bins, marginals, products, clip * multiplier, counts.total)
    pool = draw_weighted_pool(bins, marginals, associations, setting.pool, rng)

    risk, multiplier = CoxRisk.none(bins), noise / np.sqrt(score_share)
    for _ in range(setting.rounds):
        hazard = BaselineHazard.of(events, censored, risk.at(pool.codes), pool.weights)
        score = private.gaussian_sum(risk.score(hazard), risk.score_norm, multiplier)
        deviation = risk.score_norm * multiplier
        happened = max(counts.by_class[1], 1)
        risk = risk.improved(score, deviation, happened, pool.codes, pool.weights)
    hazard = BaselineHazard.of(events, censored, risk.at(pool.codes), pool.weights)
    return SurvivalTeacher(risk, hazard, pool, events, censored, noise)


def _status_times(bins: int) -> Callable[[EncodedRows], Codes]:
    """Row function: the bin of time, and for an event that plus `bins`."""

    def codes(rows: EncodedRows) -> Codes:
        status = np.asarray(rows.labels, dtype=np.int64)
        return (status * bins + time_bins(rows.values, bins))[:, None]

    return codes


def _agreement(teacher: SurvivalTeacher, released: Array, other: Array | None) -> float:
    """Rank correlation over the pool of Cox's model of the release with another log risk."""
    from scipy.stats import spearmanr

    features = teacher.pool.features
    reference = teacher.log_risks if other is None else features @ other
    if np.ptp(features @ released) < 1e-12 or np.ptp(reference) < 1e-12:
        return 0.0
    return float(spearmanr(features @ released, reference).statistic)
