"""A generative model of the closed CURIAL data: emergency patients at three NHS trusts.

The model is a mixture of clinical phenotypes in each class (PHENOTYPES: four without and three with
COVID-19), with weights that differ by site. Given the phenotype and the sex of a patient, every
measurement j has a Gaussian latent score that depends linearly on the *reported* scores of the
measurements before it,

    z_j = m_j + sum_{i<j} B_ji (r_i - m_i) + s_j e_j,    e_j ~ N(0, 1),

where m is the phenotype's mean (its shifts times the site's gains, plus half the distance of the
sexes) and B, s come from the correlation matrix R of CORRELATIONS: B_j = R_{j,<j} R_{<j,<j}^-1 and
s_j^2 = 1 - B_j R_{<j,j}. The value is x_j = T_j(o_j + z_j) with the site's calibration offset o_j
and Johnson's bounded transform (S_B, Biometrika 1949)

    T(u) = a + (b - a) / (1 + exp(-(g + d u))),    a = low - h/2, b = high + h/2,

so that after rounding to the reported resolution h every value lies in the bounds [low, high];
g and d follow from the median and the upper quartile. r_j is the score of the rounded value. The
oxygen delivery device is a last latent score, cut into categories at site-specific points.

Because each score depends on earlier columns through reported values only, the probability of a
reported row is a product of differences of normal distribution functions, summed over phenotypes.
`log_likelihood_ratio` is therefore exact for the very table a user sees, rounding and detection
limits included, and no classifier can have a higher expected AUROC than it has.

Columns that follow from others by definition: systolic pressure is diastolic plus pulse pressure,
white cells are the sum of the five counts and some unclassified cells, haematocrit is haemoglobin
over a cell concentration, and the filtration rate is CKD-EPI 2009. What they add to their parents
has the same law in both classes, so it cancels from the likelihood ratio.

Site sizes are table 1 of the zero-order condensation paper. It does not print prevalences; they
follow from sensitivity Se, specificity Sp and positive predictive value V of table 2 (full data).
Solving V = Se p / (Se p + (1 - Sp)(1 - p)) for p gives p = V (1 - Sp) / (Se (1 - V) + V (1 - Sp)):

    PUH  0.316 * 0.095 / (0.751 * 0.684 + 0.316 * 0.095) = 0.0552
    OUH  0.126 * 0.102 / (0.756 * 0.874 + 0.126 * 0.102) = 0.0191
    UHB  0.135 * 0.064 / (0.745 * 0.865 + 0.135 * 0.064) = 0.0132
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.datasets.simulators._curial_parameters import (
    CORRELATIONS,
    DEVICES,
    EFFECT_GROUPS,
    FEATURES,
    MEAN_CELL_HAEMOGLOBIN,
    MEASUREMENTS,
    OFFSETS,
    PHENOTYPES,
    SEXES,
    SHIFTS,
    SITE_COLUMN,
    SITE_PROFILES,
    TARGET_COLUMN,
    UNCLASSIFIED_CELLS,
    SiteProfile,
)

Array = npt.NDArray[np.float64]

SITES: tuple[str, ...] = tuple(profile.name for profile in SITE_PROFILES)
SITE_SIZES: Mapping[str, int] = {profile.name: profile.rows for profile in SITE_PROFILES}
FULL_ROWS: int = sum(SITE_SIZES.values())
# The best AUROC of any classifier within a site: `bayes_auroc` with 400,000 rows per class, which
# leaves a standard error below 0.0004.
SITE_BAYES_AUROC: Mapping[str, float] = {"PUH": 0.9284, "OUH": 0.9258, "UHB": 0.9443}
# Enough positives for each of four splits (60/10/10/20) of a site to hold at least one.
MINIMUM_POSITIVES: int = 10
MINIMUM_ROWS: int = 300

_SCORES: tuple[str, ...] = (*(one.name for one in MEASUREMENTS), "device")
_SMALLEST = 1e-300


@final
@dataclass(frozen=True)
class _SiteModel:
    """The parameters of one site as arrays; rows are phenotypes, columns latent scores."""

    means: Array
    log_weights: Array
    male_shares: Array
    offsets: Array
    device_cuts: Array


@final
@dataclass(frozen=True)
class _Chain:
    """Regression of each score on those before it: coefficients (lower triangle) and spreads."""

    coefficients: Array
    spreads: Array
    half_sex_distances: Array


def prevalence(site: str) -> float:
    """Share of positives at a site, from the paper's table 2 (derivation: module docstring)."""
    profile = _profile(site)
    false_alarms = profile.positive_predictive_value * (1 - profile.specificity)
    hits = profile.sensitivity * (1 - profile.positive_predictive_value)
    return false_alarms / (hits + false_alarms)


def site_counts(rows: int = FULL_ROWS) -> dict[str, tuple[int, int]]:
    """Negatives and positives at each site for a table of `rows` rows: constants, not draws.

    Rows are allotted to sites in proportion to table 1 by largest remainder; positives are the
    site's prevalence rounded to a whole number, at least MINIMUM_POSITIVES.
    """
    if rows < MINIMUM_ROWS:
        raise ValueError(
            f"rows={rows} is too small for {len(SITES)} sites with {MINIMUM_POSITIVES} positives "
            f"each; ask for at least {MINIMUM_ROWS}"
        )
    shares = {site: divmod(rows * size, FULL_ROWS) for site, size in SITE_SIZES.items()}
    missing = rows - sum(whole for whole, _ in shares.values())
    by_remainder = sorted(SITES, key=lambda site: -shares[site][1])
    counts = {}
    for site in SITES:
        total = shares[site][0] + (site in by_remainder[:missing])
        positives = max(MINIMUM_POSITIVES, round(total * prevalence(site)))
        counts[site] = (total - positives, positives)
    return counts


def simulate(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw a table of 29 features, `site` and `covid` with exactly `site_counts(rows)` rows.

    Rows come in random order; the same generator state gives the same table.
    """
    parts = [
        simulate_class(site, positive, count, rng)
        for site, counts in site_counts(rows).items()
        for positive, count in zip((False, True), counts, strict=True)
    ]
    return pd.concat(parts, ignore_index=True).iloc[rng.permutation(rows)].reset_index(drop=True)


def simulate_class(site: str, positive: bool, count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw `count` patients of one class at one site."""
    model, chain = _site_model(site), _chain()
    members = _phenotypes(positive)
    phenotype = rng.choice(members, size=count, p=np.exp(model.log_weights[members]))
    male = rng.random(count) < model.male_shares[phenotype]
    middle = np.where(male[:, None], 1.0, -1.0) * chain.half_sex_distances
    middle += model.means[phenotype]

    values: dict[str, Array] = {}
    deviations = np.empty((count, len(_SCORES)))
    for position, one in enumerate(MEASUREMENTS):
        expected = middle[:, position] + _regress(deviations, chain, position)
        score = expected + chain.spreads[position] * rng.standard_normal(count)
        reported = one.report(score + model.offsets[position])
        values[one.name] = reported
        deviations[:, position] = (
            one.score(reported) - model.offsets[position] - middle[:, position]
        )
    need = middle[:, -1] + _regress(deviations, chain, len(MEASUREMENTS))
    need += chain.spreads[-1] * rng.standard_normal(count)
    device = np.searchsorted(model.device_cuts, need)
    frame = pd.DataFrame(values)
    frame["delivery_device"] = pd.Categorical.from_codes(device, categories=pd.Index(DEVICES))
    frame["sex"] = pd.Categorical.from_codes(male.astype(np.int8), categories=pd.Index(SEXES))
    frame[SITE_COLUMN] = pd.Categorical([site] * count, categories=list(SITES))
    frame[TARGET_COLUMN] = np.full(count, int(positive), dtype=np.int64)
    _add_derived(frame, male, rng)
    return frame[[*FEATURES, SITE_COLUMN, TARGET_COLUMN]]


def filtration_rate(creatinine: Array, age: Array, male: npt.NDArray[np.bool_]) -> Array:
    """CKD-EPI 2009 without ethnicity (Levey et al., Ann Intern Med 150:604, table 2), rounded.

    141 min(c/k, 1)^a max(c/k, 1)^-1.209 0.993^age (1.018 for women), c in mg/dL.
    """
    kappa = np.where(male, 0.9, 0.7)
    alpha = np.where(male, -0.411, -0.329)
    ratio = creatinine / 88.4 / kappa
    rate = 141 * np.minimum(ratio, 1) ** alpha * np.maximum(ratio, 1) ** -1.209 * 0.993**age
    return np.round(rate * np.where(male, 1.0, 1.018))


def log_likelihood_ratio(frame: pd.DataFrame) -> Array:
    """Exact log p(row | covid, site) - log p(row | no covid, site) of the reported values."""
    ratio = np.empty(len(frame))
    site_of_row = _codes(frame, SITE_COLUMN, SITES)
    for number, site in enumerate(SITES):
        here = np.flatnonzero(site_of_row == number)
        if here.size:
            logs = _phenotype_log_probabilities(frame.iloc[here], site)
            positive, negative = _phenotypes(True), _phenotypes(False)
            ratio[here] = np.logaddexp.reduce(logs[:, positive], axis=1) - np.logaddexp.reduce(
                logs[:, negative], axis=1
            )
    return ratio


def true_log_odds(frame: pd.DataFrame) -> Array:
    """Bayes log-odds of COVID-19 for each row: likelihood ratio plus the site's prior log-odds."""
    prior = np.log([prevalence(site) / (1 - prevalence(site)) for site in SITES])
    return log_likelihood_ratio(frame) + prior[_codes(frame, SITE_COLUMN, SITES)]


def bayes_auroc(site: str, rows_per_class: int, rng: np.random.Generator) -> float:
    """Monte Carlo estimate of the best AUROC any classifier can reach within a site."""
    negative, positive = (
        np.sort(log_likelihood_ratio(simulate_class(site, covid, rows_per_class, rng)))
        for covid in (False, True)
    )
    below = np.searchsorted(negative, positive, side="left")
    not_above = np.searchsorted(negative, positive, side="right")
    return float((below + not_above).mean() / (2 * rows_per_class))


def _profile(site: str) -> SiteProfile:
    for profile in SITE_PROFILES:
        if profile.name == site:
            return profile
    raise ValueError(f"unknown site {site!r}; the sites are {', '.join(SITES)}")


def _phenotypes(positive: bool) -> npt.NDArray[np.intp]:
    return np.flatnonzero([one.covid == positive for one in PHENOTYPES])


@cache
def _chain() -> _Chain:
    size = len(_SCORES)
    correlation = np.eye(size)
    for (first, second), value in CORRELATIONS.items():
        row, column = _SCORES.index(first), _SCORES.index(second)
        correlation[row, column] = correlation[column, row] = value
    coefficients = np.zeros((size, size))
    spreads = np.ones(size)
    for row in range(1, size):
        across = correlation[row, :row]
        coefficients[row, :row] = np.linalg.solve(correlation[:row, :row], across)
        spreads[row] = math.sqrt(1 - coefficients[row, :row] @ across)
    sexes = np.array([*(one.male_shift / 2 for one in MEASUREMENTS), 0.0])
    return _Chain(coefficients, spreads, sexes)


@cache
def _site_model(site: str) -> _SiteModel:
    profile, number = _profile(site), SITES.index(site)
    gain_of = {name: group.gains[number] for group in EFFECT_GROUPS for name in group.names}
    gains = np.array([gain_of[name] for name in _SCORES])
    means = np.array([SHIFTS[name] for name in _SCORES]).T
    means[_phenotypes(True)] *= gains
    return _SiteModel(
        means=means,
        log_weights=np.log(profile.weights),
        male_shares=np.array([one.male_share for one in PHENOTYPES]),
        offsets=np.array([OFFSETS[name][number] if name in OFFSETS else 0.0 for name in _SCORES]),
        device_cuts=np.array(profile.device_cuts),
    )


def _regress(deviations: Array, chain: _Chain, position: int) -> Array:
    # Not a matrix product: BLAS may add in another order with another number of threads, and the
    # same seed must give the same table.
    return np.asarray(
        np.einsum("ij,j->i", deviations[:, :position], chain.coefficients[position, :position])
    )


def _add_derived(
    frame: pd.DataFrame, male: npt.NDArray[np.bool_], rng: np.random.Generator
) -> None:
    count = len(frame)
    frame["systolic_blood_pressure"] = frame["diastolic_blood_pressure"] + frame["pulse_pressure"]
    concentration = MEAN_CELL_HAEMOGLOBIN.report(rng.standard_normal(count))
    frame["haematocrit"] = np.round(frame["haemoglobin"] / concentration, 3)
    cells = [name for name in _SCORES if name.endswith("_count")]
    unclassified = UNCLASSIFIED_CELLS.report(rng.standard_normal(count))
    frame["white_cell_count"] = np.round(frame[cells].sum(axis=1) + unclassified, 2)
    frame["estimated_glomerular_filtration_rate"] = filtration_rate(
        frame["creatinine"].to_numpy(), frame["age"].to_numpy(), male
    )


def _phenotype_log_probabilities(frame: pd.DataFrame, site: str) -> Array:
    """log(weight * p(sex) * product over columns of p(cell | reported columns before it))."""
    model, chain = _site_model(site), _chain()
    male = _codes(frame, "sex", SEXES) == SEXES.index("male")
    device = _codes(frame, "delivery_device", DEVICES)
    side = np.where(male[:, None], 1.0, -1.0) * chain.half_sex_distances
    logs = np.where(male[:, None], np.log(model.male_shares), np.log1p(-model.male_shares))
    logs += model.log_weights

    # Scores relative to the sex, so that a phenotype only adds a constant to each regression.
    relative = np.empty((len(frame), len(_SCORES) - 1))
    cuts = np.concatenate(([-np.inf], model.device_cuts, [np.inf]))
    for position, name in enumerate(_SCORES):
        regression = chain.coefficients[position, :position]
        moved = side[:, position] + _regress(relative, chain, position)
        if name == "device":
            lower, upper = cuts[device], cuts[device + 1]
        else:
            one = MEASUREMENTS[position]
            value = _reported_column(frame, name)
            half = 0.5 * 10.0**-one.decimals
            lower, score, upper = (
                one.score(value + step) - model.offsets[position] for step in (-half, 0.0, half)
            )
            relative[:, position] = score - side[:, position]
        for phenotype, mean in enumerate(model.means):
            expected = moved + (mean[position] - mean[:position] @ regression)
            logs[:, phenotype] += _log_cell(
                (lower - expected) / chain.spreads[position],
                (upper - expected) / chain.spreads[position],
            )
    return logs


def _codes(frame: pd.DataFrame, name: str, categories: tuple[str, ...]) -> npt.NDArray[np.intp]:
    codes = pd.Categorical(frame[name], categories=list(categories)).codes.astype(np.intp)
    if (codes < 0).any():
        strange = frame[name][codes < 0].iloc[0]
        raise ValueError(f"{name} holds {strange!r}; expected one of {', '.join(categories)}")
    return codes


def _reported_column(frame: pd.DataFrame, name: str) -> Array:
    if name == "pulse_pressure":
        return (frame["systolic_blood_pressure"] - frame["diastolic_blood_pressure"]).to_numpy()
    return frame[name].to_numpy(dtype=np.float64)


def _log_cell(lower: Array, upper: Array) -> Array:
    """log(Phi(upper) - Phi(lower)), taken in the left tail, where differences keep their digits."""
    from scipy.special import ndtr

    right = lower > 0
    left_end = np.where(right, -upper, lower)
    right_end = np.where(right, -lower, upper)
    probability: Array = np.maximum(ndtr(right_end) - ndtr(left_end), _SMALLEST)
    return np.log(probability)
