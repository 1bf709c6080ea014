"""Statistics over weights against scikit-learn, lifelines and plain resampling."""

from __future__ import annotations

import numpy as np
import pytest
from lifelines.utils import concordance_index
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from bench.errors import NotComputable
from bench.metrics._shared import bootstrap
from bench.metrics._shared.auroc import auprc, auroc, one_against_rest
from bench.metrics._shared.c_index import concordance


def _recorded(statistic, strata, resamples=40, seed=0):
    """The estimate, and the weights that it was made from."""
    seen = []

    def recording(weights):
        seen.append(weights.copy())
        return statistic(weights)

    estimate = bootstrap.bootstrap(
        recording, strata, np.random.default_rng(seed), resamples=resamples
    )
    return estimate, np.concatenate(seen[1:], axis=1).astype(int)


def _classes(rng, rows=300, levels=None):
    labels = (rng.random(rows) < 0.3).astype(int)
    scores = rng.normal(labels, 1.0)
    return labels, scores if levels is None else np.round(scores * levels) / levels


def _patients(rng, rows=200, tied=False, censored=0.4):
    times, risks = rng.exponential(10, rows), rng.normal(size=rows)
    events = (rng.random(rows) >= censored).astype(int)
    risks -= 0.05 * times
    if tied:
        times, risks = np.ceil(times), np.round(risks * 2) / 2
    return times, events, risks


@pytest.mark.parametrize("levels", [None, 2])
def test_auroc_and_its_resamples_equal_scikit_learn_on_duplicated_rows(levels):
    labels, scores = _classes(np.random.default_rng(1), levels=levels)
    estimate, weights = _recorded(auroc(labels, scores), labels)
    assert estimate.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    for value, counts in zip(estimate.samples, weights.T, strict=True):
        drawn = np.repeat(np.arange(len(labels)), counts)
        assert value == pytest.approx(roc_auc_score(labels[drawn], scores[drawn]), abs=1e-12)


@pytest.mark.parametrize("levels", [None, 2])
def test_auprc_and_its_resamples_equal_scikit_learn(levels):
    labels, scores = _classes(np.random.default_rng(1), levels=levels)
    estimate, weights = _recorded(auprc(labels, scores), labels)
    assert estimate.value == pytest.approx(average_precision_score(labels, scores), abs=1e-12)
    for value, counts in zip(estimate.samples, weights.T, strict=True):
        expected = average_precision_score(labels, scores, sample_weight=counts)
        assert value == pytest.approx(expected, abs=1e-12)


def test_auprc_of_a_hand_table():
    """Thresholds 0.9, 0.7, 0.4: recall 0, 1/2, 1 at precision 0, 1/2, 2/4."""
    statistic = auprc([0, 1, 0, 1], [0.9, 0.7, 0.4, 0.4])
    assert statistic(np.ones((4, 1)))[0] == pytest.approx(0.5 * 1 / 2 + 0.5 * 2 / 4)
    # Without the row at 0.9 the first positive leads; the second is found among three.
    without = np.array([[0.0], [1.0], [1.0], [1.0]])
    assert statistic(without)[0] == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)


def _three_classes(rng, rows=240):
    labels = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    scores = rng.dirichlet(np.ones(3), rows) + 0.4 * np.eye(3)[labels]
    return labels, scores / scores.sum(axis=1, keepdims=True)


def test_several_classes_are_averaged_one_against_the_rest_as_in_scikit_learn():
    labels, scores = _three_classes(np.random.default_rng(2))
    areas, weights = _recorded(one_against_rest(auroc, labels, scores), labels)
    precisions, _ = _recorded(one_against_rest(auprc, labels, scores), labels)
    every = [np.ones(len(labels)), *weights.T]
    for number, counts in enumerate(every):
        area, precision = (
            estimate.value if number == 0 else estimate.samples[number - 1]
            for estimate in (areas, precisions)
        )
        options = {"average": "macro", "sample_weight": counts}
        assert area == pytest.approx(roc_auc_score(labels, scores, multi_class="ovr", **options))
        expected = average_precision_score(np.eye(3)[labels], scores, **options)
        assert precision == pytest.approx(expected)


def test_a_class_without_rows_is_named():
    with pytest.raises(NotComputable, match=r"classes \[1\]"):
        one_against_rest(auroc, [0, 2, 2], np.ones((3, 3)))


def test_auroc_interval_has_the_width_of_delong():
    """The variance in closed form, from how often each row wins."""
    labels, scores = _classes(np.random.default_rng(3), rows=600)
    positive, negative = scores[labels == 1], scores[labels == 0]
    wins = positive[:, None] > negative[None, :]
    variance = wins.mean(axis=1).var(ddof=1) / len(positive)
    variance += wins.mean(axis=0).var(ddof=1) / len(negative)
    estimate = bootstrap.bootstrap(auroc(labels, scores), labels, np.random.default_rng(0), 4000)
    assert estimate.samples.std() == pytest.approx(np.sqrt(variance), rel=0.05)
    low, high = estimate.interval
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(variance), rel=0.07)


def test_several_statistics_see_the_resamples_that_each_would_see_alone():
    labels, scores = _classes(np.random.default_rng(4))
    statistics = {
        "area": auroc(labels, scores),
        "undefined": bootstrap.share(np.zeros(300), np.zeros(300)),
        "seldom": bootstrap.share(np.arange(300) == 0, np.arange(300) == 0),
        "mean": bootstrap.mean(scores),
    }
    estimates = bootstrap.bootstrap_all(statistics, np.arange(300) % 5, np.random.default_rng(5))
    assert list(estimates) == list(statistics)
    for name in ("area", "mean"):
        alone = bootstrap.bootstrap(statistics[name], np.arange(300) % 5, np.random.default_rng(5))
        assert estimates[name].value == alone.value
        assert estimates[name].samples.tobytes() == alone.samples.tobytes()
    assert "not defined" in str(estimates["undefined"])
    # A given row is in 63% of the resamples.
    assert 0.58 < len(estimates["seldom"].samples) / 1000 < 0.68
    assert bootstrap.bootstrap_all({}, labels, np.random.default_rng(5)) == {}


def test_quotients_and_differences_are_those_of_the_same_resample():
    labels, scores = _classes(np.random.default_rng(6))
    other = np.random.default_rng(7).normal(labels, 1.0)
    first, second = auroc(labels, scores), auroc(labels, other)
    one, two, ratio, gap = (
        bootstrap.bootstrap(statistic, labels, np.random.default_rng(8), 50)
        for statistic in (
            first,
            second,
            bootstrap.quotient(first, second),
            bootstrap.difference(first, second),
        )
    )
    np.testing.assert_allclose(ratio.samples, one.samples / two.samples)
    np.testing.assert_allclose(gap.samples, one.samples - two.samples)
    paired = bootstrap.paired(first, second, labels, np.random.default_rng(8), 50)
    assert paired.samples.tobytes() == gap.samples.tobytes()
    nothing = bootstrap.quotient(first, bootstrap.mean(np.zeros(len(labels))))
    with pytest.raises(NotComputable, match="not defined"):
        bootstrap.bootstrap(nothing, labels, np.random.default_rng(8))


def test_p_value_counts_both_sides_of_zero():
    assert bootstrap.Estimate(0.0, np.zeros(999)).p_value == 1.0
    assert bootstrap.Estimate(1.0, np.ones(999)).p_value == pytest.approx(2 * 1 / 1000)
    samples = np.concatenate([np.full(49, -1.0), np.full(950, 1.0)])
    assert bootstrap.Estimate(1.0, samples).p_value == pytest.approx(2 * 50 / 1000)
    assert bootstrap.Estimate(-1.0, -samples).p_value == pytest.approx(2 * 50 / 1000)


def _p_values(gain, repeats=200, rows=200):
    p_values = []
    for repeat in range(repeats):
        rng = np.random.default_rng([repeat, rows])
        labels = (rng.random(rows) < 0.4).astype(int)
        shared = rng.normal(size=rows)
        first, second = (
            auroc(labels, more * labels + shared + rng.normal(size=rows))
            for more in (1.0 + gain, 1.0)
        )
        p_values.append(bootstrap.paired(first, second, labels, rng, 199).p_value)
    return np.array(p_values)


def test_p_values_of_equal_models_are_nearly_uniform():
    p_values = _p_values(0.0)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    assert 0.01 <= (p_values < 0.05).mean() <= 0.10


def test_p_values_of_a_better_model_are_small():
    p_values = _p_values(0.8)
    assert (p_values < 0.05).mean() > 0.8


def test_resamples_keep_the_size_of_every_stratum_and_differ():
    strata = np.array([0] * 30 + [1] * 5 + [2])
    _, weights = _recorded(bootstrap.mean(np.arange(36)), strata, resamples=300)
    for stratum, size in ((0, 30), (1, 5), (2, 1)):
        assert (weights[strata == stratum].sum(axis=0) == size).all()
    # Counts of one row are binomial(30, 1/30): mean 1, variance 29/30.
    assert weights[:30].mean() == pytest.approx(1.0)
    assert weights[:30].var() == pytest.approx(29 / 30, rel=0.05)
    assert len(np.unique(weights[:30], axis=1).T) == 300


def test_blocks_of_resamples_all_count(monkeypatch):
    """The last block is smaller than the others."""
    monkeypatch.setattr(bootstrap, "_BLOCK_CELLS", 7 * 50)
    labels, scores = _classes(np.random.default_rng(2), rows=50)
    estimate, weights = _recorded(auroc(labels, scores), labels, resamples=30)
    assert len(estimate.samples) == weights.shape[1] == 30


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("censored", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("rows", [2, 17, 200])
def test_concordance_equals_lifelines(tied, censored, rows):
    rng = np.random.default_rng([rows, tied])
    checked = 0
    for _ in range(10):
        times, events, risks = _patients(rng, rows, tied, censored)
        try:
            expected = concordance_index(times, -risks, events)
        except ZeroDivisionError:
            with pytest.raises(NotComputable, match="no two rows"):
                concordance(times, events, risks)
            continue
        checked += 1
        value = concordance(times, events, risks)(np.ones((rows, 1)))[0]
        assert value == pytest.approx(expected, abs=1e-12)
    assert checked or rows == 2


@pytest.mark.parametrize("tied", [False, True])
def test_resampled_concordance_equals_lifelines_on_duplicated_rows(tied):
    times, events, risks = _patients(np.random.default_rng(3), tied=tied)
    estimate, weights = _recorded(
        concordance(times, events, risks), np.zeros(len(times)), resamples=20
    )
    for value, counts in zip(estimate.samples, weights.T, strict=True):
        drawn = np.repeat(np.arange(len(times)), counts)
        expected = concordance_index(times[drawn], -risks[drawn], events[drawn])
        assert value == pytest.approx(expected, abs=1e-12)


def test_concordance_of_a_hand_table():
    """Pairs: (1, 2) right, (1, 3) tied, (1, 4) wrong, (3, 4) wrong; row 2 is censored at 2."""
    times, events, risks = [1, 2, 3, 3], [1, 0, 1, 0], [5.0, 1.0, 5.0, 9.0]
    value = concordance(times, events, risks)(np.ones((4, 1)))[0]
    assert value == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert value == pytest.approx(concordance_index(times, -np.array(risks), events))


def test_accuracy_interval_is_that_of_a_binomial():
    right = np.arange(400) < 300
    estimate = bootstrap.bootstrap(
        bootstrap.mean(right), np.zeros(400), np.random.default_rng(0), 4000
    )
    assert estimate.value == 0.75
    assert estimate.samples.std() == pytest.approx(np.sqrt(0.75 * 0.25 / 400), rel=0.05)
    low, high = estimate.interval
    assert (low, high) == pytest.approx(stats.binom(400, 0.75).ppf([0.025, 0.975]) / 400, abs=0.006)


@pytest.mark.parametrize("rows", [1, 2, 9, 10, 101])
def test_bootstrap_of_a_median_has_the_distribution_of_plain_resampling(rows):
    rng = np.random.default_rng(rows)
    values = rng.exponential(size=rows)
    fast = bootstrap.bootstrap_median(values, rng, 4000)
    plain = np.median(values[rng.integers(0, rows, (4000, rows))], axis=1)
    assert fast.value == np.median(values)
    assert stats.ks_2samp(fast.samples, plain).pvalue > 0.001


def test_interval_of_a_distance_holds_its_value_and_takes_the_bias_back():
    estimate = bootstrap.Estimate(0.10, np.linspace(0.11, 0.17, 1001))
    low, high = estimate.distance_interval()
    upper = estimate.interval[1]
    assert low == pytest.approx(0.2 - upper)
    assert high == pytest.approx(0.10 + upper - 0.14)
    assert bootstrap.Estimate(0.01, estimate.samples).distance_interval()[0] == 0.0


def test_sums_of_a_large_table_vary_as_those_of_single_rows():
    """Rows in groups: the same value, and the standard error of theory; few rows one by one."""
    rng = np.random.default_rng(0)
    values, others = rng.exponential(size=20_300), rng.normal(3.0, 1.0, 20_300)
    sums = bootstrap.ResampledSums(len(values), rng)
    first, second = sums.column(values), sums.column(others)
    assert sums.sums(first)[0] == pytest.approx(values.sum())
    means = sums.sums(first)[1:] / len(values)
    assert means.mean() == pytest.approx(values.mean(), abs=0.001)
    error = values.std() / np.sqrt(len(values))
    # The standard deviation of 1000 resamples of 1000 groups is known to 3.2%.
    assert means.std() == pytest.approx(error, rel=0.12)
    joint = np.corrcoef(means, sums.sums(second)[1:])[0, 1]
    assert joint == pytest.approx(np.corrcoef(values, others)[0, 1], abs=0.15)
    few = bootstrap.ResampledSums(40, np.random.default_rng(1))
    place = few.column(values[:40])
    (weights,) = bootstrap.resampled_weights(np.zeros(40), np.random.default_rng(1), 1000)
    assert few.sums(place)[1:] == pytest.approx(values[:40] @ weights)


def test_same_generator_same_samples():
    labels, scores = _classes(np.random.default_rng(4))
    statistic = auroc(labels, scores)
    first, again, other = (
        bootstrap.bootstrap(statistic, labels, np.random.default_rng(seed)).samples
        for seed in (5, 5, 6)
    )
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_one_class_and_no_rows_have_no_value():
    with pytest.raises(NotComputable, match="one class only"):
        auroc([1, 1], [0.1, 0.2])
    with pytest.raises(NotComputable, match="no rows"):
        bootstrap.bootstrap_median([], np.random.default_rng(0))


def test_too_few_comparable_resamples_have_no_interval():
    """One event among 3 rows: a resample without it, or with nothing after it, has no pair."""
    statistic = concordance([1, 2, 3], [0, 1, 0], [1.0, 2.0, 3.0])
    with pytest.raises(NotComputable, match="of 1000 bootstrap resamples"):
        bootstrap.bootstrap(statistic, np.zeros(3), np.random.default_rng(0))
