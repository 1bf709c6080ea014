"""The CURIAL simulator: counts, plausibility, its exact ground truth, and the paper's AUROCs."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy.special import logit
from scipy.stats import johnsonsb, norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from xgboost import XGBClassifier

from bench.datasets.simulators import _curial_parameters as curial
from bench.datasets.simulators._curial_model import (
    FULL_ROWS,
    SITE_BAYES_AUROC,
    SITES,
    bayes_auroc,
    filtration_rate,
    log_likelihood_ratio,
    prevalence,
    simulate,
    simulate_class,
    site_counts,
    true_log_odds,
)
from bench.datasets.simulators._curial_parameters import (
    BOUNDS,
    FEATURES,
    SITE_COLUMN,
    TARGET_COLUMN,
)

# Full-data AUROC, train site to test site: tables 2 and 4 of the zero-order condensation paper.
PAPER_AUROC = {
    ("PUH", "PUH"): 0.901,
    ("OUH", "OUH"): 0.911,
    ("UHB", "UHB"): 0.925,
    ("PUH", "UHB"): 0.830,
    ("OUH", "UHB"): 0.842,
    ("PUH", "OUH"): 0.863,
    ("UHB", "OUH"): 0.778,
}
LINES = ("neutrophil", "lymphocyte", "monocyte", "eosinophil", "basophil")
CELLS = [f"{line}_count" for line in LINES]
every_site = pytest.mark.parametrize("site", SITES)


@functools.cache
def table() -> pd.DataFrame:
    return simulate(20_000, np.random.default_rng(0))


@functools.cache
def both_classes(site: str) -> pd.DataFrame:
    """As many positives as negatives, for comparisons between the classes of one site."""
    rng = np.random.default_rng([1, SITES.index(site)])
    return pd.concat(
        [simulate_class(site, positive, 8_000, rng) for positive in (False, True)],
        ignore_index=True,
    )


@functools.cache
def ratios(site: str) -> npt.NDArray[np.float64]:
    return log_likelihood_ratio(both_classes(site))


def design(frame: pd.DataFrame) -> npt.NDArray[np.float32]:
    return pd.get_dummies(frame[list(FEATURES)]).to_numpy(dtype=np.float32)


def boosted(frame: pd.DataFrame) -> XGBClassifier:
    """Fit the paper's classifier (section 4.7)."""
    labels = frame[TARGET_COLUMN].to_numpy()
    return XGBClassifier(
        learning_rate=0.1,
        max_depth=5,
        subsample=0.7,
        n_estimators=100,
        scale_pos_weight=(labels == 0).sum() / labels.sum(),
        random_state=0,
        n_jobs=1,
    ).fit(design(frame), labels)


def auroc(model: XGBClassifier, frame: pd.DataFrame) -> float:
    return float(roc_auc_score(frame[TARGET_COLUMN], model.predict_proba(design(frame))[:, 1]))


def train_and_test(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """First 60 and last 20 percent of each site and class: rows are in random order already."""
    groups = frame.groupby([SITE_COLUMN, TARGET_COLUMN], observed=True)
    share = groups.cumcount() / groups[TARGET_COLUMN].transform("size")
    return frame[share < 0.6], frame[share >= 0.8]


def test_full_size_is_table_1_with_the_prevalences_of_table_2() -> None:
    negatives, positives = zip(*site_counts().values(), strict=True)
    assert positives == (2_138, 3_090, 1_260)
    assert tuple(map(sum, zip(negatives, positives, strict=True))) == (38_717, 161_955, 95_236)


@every_site
def test_prevalence_gives_back_the_predictive_value(site: str) -> None:
    profile = next(one for one in curial.SITE_PROFILES if one.name == site)
    hits = profile.sensitivity * prevalence(site)
    alarms = hits + (1 - profile.specificity) * (1 - prevalence(site))
    assert hits / alarms == pytest.approx(profile.positive_predictive_value, abs=1e-12)


@pytest.mark.parametrize("rows", [300, 301, 1_000, 6_000, 20_001, 295_907])
def test_counts_add_up_at_every_size(rows: int) -> None:
    counts = site_counts(rows)
    assert tuple(counts) == SITES
    assert sum(map(sum, counts.values())) == rows
    assert all(
        positives >= 10 and negatives > positives for negatives, positives in counts.values()
    )
    excess = [sum(counts[site]) - rows * sum(site_counts()[site]) / FULL_ROWS for site in SITES]
    assert max(map(abs, excess)) < 1
    # Largest remainder: a row moved from one site to another would not bring both closer.
    assert max(excess) - min(excess) <= 1 + 1e-9


def test_too_few_rows_and_unknown_sites_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 300"):
        site_counts(299)
    with pytest.raises(ValueError, match="unknown site 'BH'"):
        simulate_class("BH", True, 5, np.random.default_rng(0))


@pytest.mark.parametrize("rows", [300, 6_000])
def test_table_holds_exactly_the_declared_counts(rows: int) -> None:
    frame = simulate(rows, np.random.default_rng(3))
    found = frame.groupby([SITE_COLUMN, TARGET_COLUMN], observed=True).size()
    assert {site: tuple(found[site]) for site in SITES} == site_counts(rows)
    assert list(frame.index) == list(range(rows))


def test_table_has_29_features_and_no_gaps() -> None:
    assert len(FEATURES) == 29
    assert list(table()) == [*FEATURES, SITE_COLUMN, TARGET_COLUMN]
    assert set(BOUNDS) | {"delivery_device", "sex"} == set(FEATURES)
    assert not table().isna().any(axis=None)
    assert set(table()["delivery_device"]) == set(curial.DEVICES)
    assert set(table()["sex"]) == set(curial.SEXES)


def test_same_seed_gives_the_same_table_and_another_seed_another() -> None:
    first, again, other = (simulate(900, np.random.default_rng(seed)) for seed in (7, 7, 8))
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    assert not first["c_reactive_protein"].equals(other["c_reactive_protein"])


def test_rows_are_in_random_order() -> None:
    # Otherwise the position of a row would tell its site and class.
    sites, labels = table()[SITE_COLUMN].cat.codes.to_numpy(), table()[TARGET_COLUMN].to_numpy()
    assert (sites[1:] == sites[:-1]).mean() < 0.45
    assert labels[1:][labels[:-1] == 1].mean() < 0.06


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_values_lie_in_the_public_bounds_at_the_reported_resolution(name: str) -> None:
    # The rarest patients are the most extreme: both classes of every site, in equal numbers.
    values = np.concatenate([both_classes(site)[name].to_numpy() for site in SITES])
    bounds = BOUNDS[name]
    assert values.min() >= bounds.low
    assert values.max() <= bounds.high
    assert np.array_equal(values, np.round(values, bounds.decimals))
    assert not np.signbit(values).any()
    assert len(np.unique(values)) > 10


def test_definitions_hold_in_every_row() -> None:
    frame = table()
    assert (frame["systolic_blood_pressure"] > frame["diastolic_blood_pressure"]).all()
    parts = frame[CELLS].sum(axis=1)
    assert (parts <= frame["white_cell_count"] + 1e-9).all()
    assert (parts > 0.8 * frame["white_cell_count"]).mean() > 0.99
    concentration = frame["haemoglobin"] / frame["haematocrit"]
    assert concentration.between(285, 375).all()
    rate = filtration_rate(
        frame["creatinine"].to_numpy(), frame["age"].to_numpy(), (frame["sex"] == "male").to_numpy()
    )
    assert np.array_equal(rate, frame["estimated_glomerular_filtration_rate"])


@pytest.mark.parametrize(
    ("milligrams", "age", "male", "expected"),
    # 141 * (1.2 / 0.9)^-1.209 * 0.993^50 and so on, worked out by hand on both sides of kappa.
    [(1.2, 50, True, 70), (1.0, 60, False, 61), (0.7, 40, True, 118), (0.5, 25, False, 135)],
)
def test_filtration_rate_is_ckd_epi(
    milligrams: float, age: float, male: bool, expected: float
) -> None:
    rate = filtration_rate(np.array([milligrams * 88.4]), np.array([age]), np.array([male]))
    assert rate[0] == expected


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ("haemoglobin", "haematocrit", 0.95, 1.0),
        ("neutrophil_count", "white_cell_count", 0.85, 1.0),
        ("creatinine", "urea", 0.5, 0.85),
        ("creatinine", "estimated_glomerular_filtration_rate", -0.95, -0.6),
        ("systolic_blood_pressure", "diastolic_blood_pressure", 0.5, 0.9),
        ("oxygen_saturation", "respiratory_rate", -0.7, -0.25),
        ("oxygen_saturation", "support", -0.7, -0.3),
        ("respiratory_rate", "support", 0.25, 0.6),
        ("temperature", "heart_rate", 0.2, 0.6),
        ("c_reactive_protein", "albumin", -0.7, -0.3),
        ("c_reactive_protein", "neutrophil_count", 0.3, 0.7),
        ("eosinophil_count", "basophil_count", 0.25, 0.6),
        ("age", "urea", 0.35, 0.7),
        ("age", "estimated_glomerular_filtration_rate", -0.85, -0.5),
    ],
)
def test_rank_correlations_are_those_clinicians_expect(
    first: str, second: str, low: float, high: float
) -> None:
    frame = table().assign(support=table()["delivery_device"].cat.codes)
    assert low < frame[first].corr(frame[second], method="spearman") < high


def test_men_have_more_haemoglobin_and_creatinine() -> None:
    means = table().groupby("sex", observed=True)[["haemoglobin", "creatinine"]].mean()
    assert (means.loc["male"] > 1.05 * means.loc["female"]).all()


RISING = ("c_reactive_protein", "temperature", "respiratory_rate", "support")
FALLING = ("oxygen_saturation", "white_cell_count", "platelets", "albumin", *CELLS[1:])


@every_site
@pytest.mark.parametrize("name", RISING + FALLING)
def test_covid_moves_measurements_the_known_way(site: str, name: str) -> None:
    frame = both_classes(site).assign(support=both_classes(site)["delivery_device"].cat.codes)
    # An AUROC of one half is no effect; its standard error here is 0.004.
    sign = 1 if name in RISING else -1
    direction = roc_auc_score(frame[TARGET_COLUMN], sign * frame[name])
    assert direction > (0.65 if name == "eosinophil_count" else 0.505)


def reference_log_ratio(row: pd.Series) -> float:
    """Spell the likelihood ratio out with SciPy's distributions, one number at a time."""
    names = [*(one.name for one in curial.MEASUREMENTS), "device"]
    place = SITES.index(row[SITE_COLUMN])
    profile, sign = curial.SITE_PROFILES[place], 0.5 if row["sex"] == "male" else -0.5
    gain = {name: group.gains[place] for group in curial.EFFECT_GROUPS for name in group.names}
    correlation = pd.DataFrame(np.eye(len(names)), names, names)
    for (first, second), value in curial.CORRELATIONS.items():
        correlation.loc[first, second] = correlation.loc[second, first] = value
    cells = []
    for one in curial.MEASUREMENTS:
        pressure = row["systolic_blood_pressure"] - row["diastolic_blood_pressure"]
        value, half = row.get(one.name, pressure), 10.0**-one.decimals / 2
        start, width = one.low - half, one.high - one.low + 2 * half
        middle, quartile = logit((np.array([one.median, one.upper_quartile]) - start) / width)
        slope = norm.ppf(0.75) / (quartile - middle)
        offset = curial.OFFSETS.get(one.name, (0.0,) * 3)[place]
        edges = value + half * np.array([-1, 0, 1])
        below = johnsonsb.cdf(edges, -middle * slope, slope, start, width)
        cells.append(norm.ppf(below) - offset)
    cuts = [-np.inf, *profile.device_cuts, np.inf]
    number = curial.DEVICES.index(row["delivery_device"])
    cells.append(np.array([cuts[number], np.nan, cuts[number + 1]]))
    total = {False: 0.0, True: 0.0}
    for kind, (one, weight) in enumerate(zip(curial.PHENOTYPES, profile.weights, strict=True)):
        mean = np.array(
            [curial.SHIFTS[name][kind] * (gain[name] if one.covid else 1) for name in names]
        )
        mean += sign * np.array([*(found.male_shift for found in curial.MEASUREMENTS), 0.0])
        chance = weight * (one.male_share if sign > 0 else 1 - one.male_share)
        for j, (lower, _, upper) in enumerate(cells):
            before = correlation.to_numpy()[:j, :j]
            slopes = np.linalg.inv(before) @ correlation.to_numpy()[:j, j]
            middle = mean[j] + slopes @ (np.array([cell[1] for cell in cells[:j]]) - mean[:j])
            spread = np.sqrt(1 - slopes @ before @ slopes)
            chance *= np.diff(norm.cdf([lower, upper], middle, spread))[0]
        total[one.covid] += chance
    return float(np.log(total[True] / total[False]))


@every_site
def test_likelihood_ratio_agrees_with_one_spelled_out(site: str) -> None:
    frame = both_classes(site).iloc[[0, -1]]
    expected = [reference_log_ratio(row) for _, row in frame.iterrows()]
    assert log_likelihood_ratio(frame) == pytest.approx(expected, abs=1e-6)


@every_site
def test_likelihood_ratio_is_the_ratio_of_class_densities(site: str) -> None:
    # Bayes: among equally many of both classes, the log-odds of the class given the ratio is the
    # log-ratio itself, so a logistic regression on it must find slope 1 and intercept 0.
    frame = both_classes(site)
    fit = LogisticRegression(C=np.inf).fit(ratios(site)[:, None], frame[TARGET_COLUMN])
    assert fit.coef_[0, 0] == pytest.approx(1, abs=0.04)
    assert fit.intercept_[0] == pytest.approx(0, abs=0.06)


def test_likelihood_ratio_leaves_nothing_to_explain() -> None:
    # Given the true chance p, the residual y - p is uncorrelated with every function of the row.
    # Its covariance with each column, over its standard error, is then a standard normal number.
    per_site = []
    for site in SITES:
        frame = both_classes(site)
        chance = 1 / (1 + np.exp(-ratios(site)))
        ranks = pd.get_dummies(frame[list(FEATURES)], dtype=float).rank()
        centred = (ranks - ranks.mean()).to_numpy()
        noise = np.sqrt((chance * (1 - chance)) @ centred**2)
        residual = frame[TARGET_COLUMN].to_numpy() - chance
        per_site.append(pd.Series(residual @ centred / noise, index=ranks.columns))
    deviations = pd.concat(per_site, axis=1)
    deviations["together"] = deviations.sum(axis=1) / np.sqrt(len(SITES))
    # 36 columns at three sites: chance alone exceeds 4 in fewer than 1 of 100 tables.
    assert deviations.abs().max(axis=None) < 4, deviations.round(1)


def test_no_other_score_beats_the_likelihood_ratio() -> None:
    for site in SITES:
        frame = both_classes(site).iloc[::5]
        best = roc_auc_score(frame[TARGET_COLUMN], ratios(site)[::5])
        for name in BOUNDS:
            alone = roc_auc_score(frame[TARGET_COLUMN], frame[name])
            assert max(alone, 1 - alone) < best - 0.05
        # Another site's density is a worse guide: the sites really differ.
        for other in set(SITES) - {site}:
            moved = log_likelihood_ratio(frame.assign(**{SITE_COLUMN: other}))
            assert roc_auc_score(frame[TARGET_COLUMN], moved) < best - 0.01


def test_log_odds_add_the_prior_of_the_site() -> None:
    frame = table().head(500)
    gap = pd.Series(true_log_odds(frame) - log_likelihood_ratio(frame))
    for site in SITES:
        here = (frame[SITE_COLUMN] == site).to_numpy()
        odds = prevalence(site) / (1 - prevalence(site))
        assert np.allclose(np.exp(gap[here]), odds)
    # On the whole table the mean posterior is the share of positives.
    chance = 1 / (1 + np.exp(-true_log_odds(table())))
    assert chance.mean() == pytest.approx(table()[TARGET_COLUMN].mean(), abs=0.003)


def test_log_odds_take_plain_strings_and_refuse_unknown_ones() -> None:
    frame = table().head(50)
    plain = frame.astype({"sex": str, "delivery_device": str, SITE_COLUMN: str})
    assert np.array_equal(true_log_odds(plain), true_log_odds(frame))
    with pytest.raises(ValueError, match="delivery_device holds 'helmet'"):
        true_log_odds(plain.assign(delivery_device="helmet"))


@every_site
def test_bayes_auroc_is_the_stated_constant(site: str) -> None:
    estimate = bayes_auroc(site, 8_000, np.random.default_rng(2))
    assert estimate == pytest.approx(SITE_BAYES_AUROC[site], abs=0.007)
    # The rank formula against scikit-learn's, on other rows.
    frame = both_classes(site)
    other = roc_auc_score(frame[TARGET_COLUMN], ratios(site))
    assert other == pytest.approx(estimate, abs=0.008)
    # A model that was learned stays below the best one, by more where positives are few.
    assert 0 < SITE_BAYES_AUROC[site] - PAPER_AUROC[site, site] < 0.03


def test_parameters_are_complete() -> None:
    names = {*(one.name for one in curial.MEASUREMENTS), "device"}
    grouped = [name for group in curial.EFFECT_GROUPS for name in group.names]
    assert sorted(grouped) == sorted(names) == sorted(curial.SHIFTS)
    assert set(curial.OFFSETS) <= names
    assert {name for pair in curial.CORRELATIONS for name in pair} <= names
    for profile in curial.SITE_PROFILES:
        for covid in (False, True):
            weights = zip(curial.PHENOTYPES, profile.weights, strict=True)
            assert sum(weight for one, weight in weights if one.covid == covid) == pytest.approx(1)
        assert list(profile.device_cuts) == sorted(profile.device_cuts)
        assert len(profile.device_cuts) == len(curial.DEVICES) - 1
    assert {len(shifts) for shifts in curial.SHIFTS.values()} == {len(curial.PHENOTYPES)}


def test_boosted_trees_learn_from_twenty_thousand_rows() -> None:
    train, test = train_and_test(table())
    reached = auroc(boosted(train), test)
    # Five seeds gave 0.847 to 0.883; 88 test positives leave a standard error of 0.02.
    assert 0.80 < reached < 0.92
    assert reached < roc_auc_score(test[TARGET_COLUMN], true_log_odds(test))


@pytest.mark.slow
def test_full_size_reproduces_the_discrimination_of_the_paper() -> None:
    train, test = train_and_test(simulate(FULL_ROWS, np.random.default_rng(0)))
    models = {site: boosted(train[train[SITE_COLUMN] == site]) for site in SITES}
    for (here, there), expected in PAPER_AUROC.items():
        reached = auroc(models[here], test[test[SITE_COLUMN] == there])
        # Seeds alone move the transfer from Birmingham, which has 756 positives, by 0.03.
        tolerance = 0.03 if here == there else 0.04
        assert reached == pytest.approx(expected, abs=tolerance), (here, there)
