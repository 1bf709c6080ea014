"""Divergence, support coverage and moments of columns; the bootstrap of groups behind them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, ks_2samp, kstwo, wasserstein_distance
from sdmetrics.single_column import CategoryCoverage

from bench.data.dataset import Dataset
from bench.data.encoder import Encoder
from bench.data.schema import Numeric
from bench.errors import NotComputable
from bench.metrics.fidelity import _pooled, columns
from bench.metrics.fidelity._pooled import PooledRows, pooled
from bench.metrics.fidelity.columns import (
    KolmogorovSmirnov,
    KolmogorovSmirnovTest,
    KruskalWallis,
    KullbackLeibler,
    Moments,
    SupportCoverage,
    TotalVariation,
    Wasserstein,
    kruskal_wallis,
)
from bench.plugins.metric import Scores
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import Answers, evaluate, named, only, release_of

ALL = (KullbackLeibler(), Moments(), SupportCoverage())


def balanced(table, per_class: int) -> Release:
    rows = table.train.rows
    chosen = np.concatenate([np.flatnonzero(rows.labels == k)[:per_class] for k in (0, 1)])
    return Release(Rows(rows.values[chosen], rows.labels[chosen]))


def class_weights(table, per_class: int) -> np.ndarray:
    """Weights of as many rows of each class that have the class shares of the training rows."""
    shares = np.bincount(table.train.rows.labels) / len(table.train)
    return np.repeat(shares / per_class, per_class)


def test_divergence_is_that_of_scipy_after_smoothing():
    """Real 6 2 0 rows, released 1 3 1: half a row is added to each."""
    value = columns.divergence(np.array([0.75, 0.25, 0.0]), np.array([0.2, 0.6, 0.2]), 8, 5)
    assert value == pytest.approx(entropy([6.5, 2.5, 0.5], [1.5, 3.5, 1.5]), abs=1e-12)


def test_absent_categories_leave_the_divergence_finite():
    value = columns.divergence(np.array([0.5, 0.5]), np.array([1.0, 0.0]), 100.0, 100.0)
    assert value == pytest.approx(entropy([50.5, 50.5], [100.5, 0.5]))
    assert 1.0 < value < 3.0


def test_divergence_of_a_release_with_class_weights(table):
    """100 rows of each class stand for the real shares, and count as Kish's effective number."""
    evaluation = evaluate(table, balanced(table, 100))
    scores = KullbackLeibler().compute(evaluation)
    by_column = scores.details["kl"].set_index("column")["statistic"]
    rows = pooled(evaluation)
    weights = class_weights(table, 100)
    effective = 1 / np.square(weights).sum()
    assert rows.effective == pytest.approx(effective)
    stage = rows.frame["stage"].cat.codes.to_numpy()
    real = np.bincount(stage[: rows.real], minlength=3) + 0.5
    released = effective * np.bincount(stage[rows.real :], weights, minlength=3) + 0.5
    assert by_column["stage"] == pytest.approx(entropy(real, released))
    assert list(by_column.index) == ["age", "marker", "smoker", "stage"]
    assert only(scores)[0] == pytest.approx(by_column.mean())


def test_bins_come_from_the_schema():
    frame = pd.DataFrame({"wide": [0.0, 4.9, 5.0, 99.9, 100.0], "small": [0.0, 1.0, 2.0, 3.0, 3.0]})
    rows = PooledRows(frame, np.array([0, 0, 0, 1, 1]), np.ones(2), np.ones(2))
    codes, bins = columns.binned(rows, Numeric(name="wide", low=0, high=100))
    assert (codes.tolist(), bins) == ([0, 0, 1, 19, 19], 20)
    codes, bins = columns.binned(rows, Numeric(name="small", low=-1, high=3, integer=True))
    assert (codes.tolist(), bins) == ([1, 2, 3, 4, 4], 5)


def test_coverage_is_that_of_sdmetrics_where_no_category_is_new(table):
    rows = table.train.rows
    kept = rows.values[:, 3] == 0  # without stage I
    scores = SupportCoverage().compute(
        evaluate(table, Release(Rows(rows.values[kept], rows.labels[kept])))
    )
    details = scores.details["support-coverage"].set_index("column")
    frame = table.train.frame
    for name in ("smoker", "stage"):
        expected = CategoryCoverage.compute(frame[name], frame[name][kept])
        assert details.loc[name, "statistic"] == pytest.approx(expected)
    assert details.loc["stage", "statistic"] == pytest.approx(2 / 3)
    assert scores.scores[0].value == pytest.approx((1 + 2 / 3) / 2)


def test_a_category_that_no_training_row_has_covers_nothing(table):
    """Training rows without stage I, released rows with stage I only: the printed ratio is 1/2."""
    rows = table.train.rows
    kept = rows.values[:, 3] == 0
    split = replace(table.train, rows=rows.take(kept), frame=table.train.frame[kept])
    dataset = replace(table, train=split)
    release = Release(Rows(rows.values[~kept], rows.labels[~kept]))
    details = SupportCoverage().compute(evaluate(dataset, release)).details["support-coverage"]
    stage = details.set_index("column").loc["stage"]
    assert (stage["real"], stage["released"], stage["covered"], stage["statistic"]) == (2, 1, 0, 0)


def test_expected_coverage_is_that_of_random_draws():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [60, 40])
    codes = np.where(rng.random(100) < 0.8, 0, rng.integers(0, 12, 100)) + 3 * labels
    asked = np.repeat([0, 1], [10, 4])
    simulated = []
    for _ in range(3000):
        drawn = np.concatenate([rng.choice(codes[labels == k], n) for k, n in ((0, 10), (1, 4))])
        simulated.append(len(np.unique(drawn)) / len(np.unique(codes)))
    expected = columns.expected_coverage(codes, labels, asked)
    assert expected == pytest.approx(np.mean(simulated), abs=4 * np.std(simulated) / 3000**0.5)


def test_moments_of_the_columns_with_class_weights(table):
    scores = Moments().compute(evaluate(table, balanced(table, 100)))
    details = scores.details["moments"].set_index("column")
    frame = table.train.frame
    chosen = np.concatenate([np.flatnonzero(frame["outcome"] == k)[:100] for k in (0, 1)])
    weights = class_weights(table, 100)
    for name in ("age", "marker"):
        real, released = frame[name].to_numpy(float), frame[name].to_numpy(float)[chosen]
        mean = weights @ released
        sd = np.sqrt(weights @ (released - mean) ** 2)
        entry = details.loc[name, ["real_mean", "released_mean", "real_sd", "released_sd"]]
        assert list(entry) == pytest.approx([real.mean(), mean, real.std(), sd], rel=1e-5)
    standardised = (details["released_mean"] - details["real_mean"]).abs() / details["real_sd"]
    assert named(scores, "moments/mean").value == pytest.approx(standardised.mean())
    ratio = (details["released_sd"] - details["real_sd"]).abs() / details["real_sd"]
    assert named(scores, "moments/sd").value == pytest.approx(ratio.mean())
    shares = scores.details["shares"].set_index(["column", "category"])
    positive = (table.train.rows.labels == 1).mean()
    assert shares.loc[("outcome", "1"), "released"] == pytest.approx(positive)
    assert shares.loc[("stage", "II"), "real"] == pytest.approx((frame["stage"] == "II").mean())


def test_training_rows_are_at_zero_and_control_rows_near(table, patients):
    for dataset in (table, patients):
        for metric in (KullbackLeibler(), Moments()):
            for score in metric.compute(evaluate(dataset, dataset.train)).scores:
                assert score.value == pytest.approx(0.0, abs=1e-3)
                assert score.low == 0.0
            for score in metric.compute(evaluate(dataset, dataset.control)).scores:
                assert 0.0 < score.value < 0.25
                assert score.low <= score.value <= score.high
        coverage = SupportCoverage().compute(evaluate(dataset, dataset.train)).scores[0]
        assert coverage.value == 1.0


def test_a_shifted_release_is_seen_by_all(table):
    rows = table.train.rows
    values = rows.values.copy()
    values[:, :2] += 0.3
    release = Release(Rows(values, rows.labels))
    assert only(KullbackLeibler().compute(evaluate(table, release)))[1] > 0.5
    score = named(Moments().compute(evaluate(table, release)), "moments/mean")
    assert 1.0 < score.low < score.value < score.high


def test_columns_that_never_vary_are_left_out_of_the_moments(table):
    values = table.train.rows.values.copy()
    values[:, 0] = 0.5
    split = replace(table.train, rows=replace(table.train.rows, values=values))
    scores = Moments().compute(evaluate(replace(table, train=split), table.control))
    details = scores.details["moments"].set_index("column")
    marker = details.loc["marker"]
    expected = abs(marker["released_mean"] - marker["real_mean"]) / marker["real_sd"]
    assert named(scores, "moments/mean").value == pytest.approx(expected)
    values = values.copy()
    values[:, 1] = 0.1
    split = replace(table.train, rows=replace(table.train.rows, values=values))
    scores = Moments().compute(evaluate(replace(table, train=split), table.control))
    assert "no numeric column varies" in named(scores, "moments/sd").reason


def test_absent_where_there_is_nothing_to_compare(table, images):
    with pytest.raises(NotComputable, match="no categorical"):
        SupportCoverage().compute(evaluate(images, images.train))
    for metric in ALL:
        with pytest.raises(NotComputable, match="a model, not rows"):
            metric.compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))
        nothing = release_of(table.train, weights=np.zeros(len(table.train)))
        with pytest.raises(NotComputable, match="weight 0"):
            metric.compute(evaluate(table, nothing))


def test_weights_are_repeated_rows(table):
    rows = table.train.rows
    counts = np.random.default_rng(0).integers(0, 4, len(rows))
    repeated = np.repeat(np.arange(len(rows)), counts)
    weighted = Moments().compute(evaluate(table, release_of(table.train, weights=counts)))
    plain = Moments().compute(
        evaluate(table, Release(Rows(rows.values[repeated], rows.labels[repeated])))
    )
    for name in ("moments/mean", "moments/sd"):
        assert named(weighted, name).value == pytest.approx(named(plain, name).value, abs=1e-12)


def test_a_group_bootstrap_spreads_as_one_of_rows_does(table):
    """Standard error of weighted means: 100 groups of a large release against the formula."""
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1], [3000, 1000])
    values = np.zeros((4000, table.encoder.width), dtype=np.float32)
    values[:, 1] = np.clip(rng.normal(0.3 * labels, 0.1 + 0.2 * labels), -1, 1)
    values[:, 3] = 1.0
    evaluation = evaluate(table, Release(Rows(values, labels)))
    both = _pooled.grouped_tables(evaluation, 2000)
    assert len(both.released.starts) == 100
    assert both.released.draws[0] == pytest.approx(1.0)
    numbers = pooled(evaluation).numbers("marker")[:, None]
    means = both.released.means(numbers)[:, 0]
    real = len(table.train)
    parts = [numbers[real:, 0][labels == k] for k in (0, 1)]
    negative, positive = np.bincount(table.train.rows.labels) / real
    assert means[0] == pytest.approx(negative * parts[0].mean() + positive * parts[1].mean())
    error = np.sqrt(negative**2 * parts[0].var() / 3000 + positive**2 * parts[1].var() / 1000)
    # The variance of 50 group means is known to a tenth or so.
    assert means[1:].std() == pytest.approx(error, rel=0.3)
    shares = both.released.shares(np.concatenate([np.zeros(real, int), labels]), 2)
    assert shares[:, 1] == pytest.approx(positive)


def test_few_rows_are_their_own_groups(table):
    both = _pooled.grouped_tables(evaluate(table, balanced(table, 5)))
    assert len(both.released.starts) == len(both.released.rows) == 10
    real = len(table.train)
    assert sorted(both.released.rows) == list(range(real, real + 10))
    assert len(both.real.starts) == 100


def test_intervals_of_groups_and_of_rows_agree(table):
    """Total variation is computed by rows; the same from shares by groups."""
    evaluation = evaluate(table, table.control)
    _, low, high = only(TotalVariation().compute(evaluation))
    both, rows = _pooled.grouped_tables(evaluation), pooled(evaluation)
    distances = np.zeros(1 + 200)
    for name, categories in (("smoker", 2), ("stage", 3)):
        codes = rows.codes(name)
        gap = both.real.shares(codes, categories) - both.released.shares(codes, categories)
        distances += np.abs(gap).sum(axis=1) / 4
    estimate = columns.Estimate(float(distances[0]), distances[1:])
    assert estimate.distance_interval() == pytest.approx((low, high), abs=0.03)


def test_edges_of_a_drawn_histogram():
    """The percentiles of 0..100 are 1 and 99; whole numbers get whole numbers of values a bin."""
    whole = np.arange(101.0)
    edges = columns.drawn_edges(whole, whole + 20, integer=False)
    assert (edges[0], edges[-1], len(edges)) == pytest.approx((1, 119, 25))
    edges = columns.drawn_edges(whole, whole, integer=True)
    assert edges[0] == 0.5
    assert set(np.diff(edges)) == {5.0}
    assert edges[-1] >= 99.5
    assert columns.drawn_edges(np.array([1.0, 2.0]), np.array([3.0]), integer=True).tolist() == [
        0.5,
        1.5,
        2.5,
        3.5,
    ]
    same = columns.drawn_edges(np.full(3, 7.0), np.full(2, 7.0), integer=False)
    assert same[0] < 7 < same[-1]


def test_histograms_are_those_of_numpy(table):
    evaluation = evaluate(table, balanced(table, 100))
    histograms = Moments().compute(evaluation).details["histograms"]
    assert list(histograms["column"].unique()) == ["age", "marker"]
    for name, histogram in histograms.groupby("column"):
        assert histogram[["real", "released"]].sum().tolist() == pytest.approx([1, 1])
        edges = np.append(histogram["low"], histogram["high"].iloc[-1])
        numbers = pooled(evaluation).numbers(str(name)).clip(edges[0], edges[-1])
        real = len(table.train)
        counts, _ = np.histogram(numbers[:real], edges)
        assert histogram["real"].to_numpy() == pytest.approx(counts / real)
        # The classes of the population, 100 rows each.
        weighted, _ = np.histogram(numbers[real:], edges, weights=class_weights(table, 100))
        assert histogram["released"].to_numpy() == pytest.approx(weighted)


# Distances of distributions -----------------------------------------------------------------------


@pytest.mark.parametrize("levels", [None, 3])
def test_ks_without_weights_is_that_of_scipy(levels):
    rng = np.random.default_rng(0)
    real, synthetic = rng.normal(size=80), rng.normal(0.4, 1.2, size=50)
    if levels is not None:
        real, synthetic = np.round(real * levels), np.round(synthetic * levels)
    signed = np.repeat([-1 / 80, 1 / 50], [80, 50])[:, None]
    values = np.concatenate([real, synthetic])
    distances = columns.distribution_distances(values, 2.0)(signed)[:, 0]
    assert distances[0] == pytest.approx(ks_2samp(real, synthetic).statistic, abs=1e-12)
    assert distances[1] == pytest.approx(wasserstein_distance(real, synthetic) / 2, abs=1e-12)


def test_weighted_ks_of_a_hand_table():
    """Real 1 2 3 4, each 1/4. Released 1 (0.2), 2 (0.5), 4 (0.3).

    Cumulated: real 0.25 0.50 0.75 1, released 0.2 0.7 0.7 1; the largest gap is 0.2, after 2, and
    the area between them 0.05 + 0.2 + 0.05, a tenth of the range.
    """
    values = np.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 4.0])
    signed = np.array([-0.25] * 4 + [0.2, 0.5, 0.3])[:, None]
    distances = columns.distribution_distances(values, 3.0)(signed)[:, 0]
    assert distances == pytest.approx([0.2, 0.1])


def test_total_variation_of_a_hand_table():
    """Real shares 1/2 1/4 1/4, released 0.1 0.9 0: (0.4 + 0.65 + 0.25) / 2."""
    codes = np.array([0, 0, 1, 2, 0, 1])
    signed = np.array([-0.25] * 4 + [0.1, 0.9])[:, None]
    assert columns.total_variation(codes, 3)(signed)[0, 0] == pytest.approx(0.65)
    # Independent of our code: TV <= sqrt(2 ln 2) JS distance, and >= JS divergence in bits.
    distance = jensenshannon([0.5, 0.25, 0.25], [0.1, 0.9, 0.0], base=2)
    assert distance**2 <= 0.65 <= np.sqrt(2 * np.log(2)) * distance


def test_a_balanced_subset_of_the_training_rows_is_faithful_only_with_class_weights(table):
    """The class shifts `marker`: 100 of each class have another mean than some 180 and 120."""
    rows = table.train.rows
    chosen = np.concatenate([np.flatnonzero(rows.labels == label)[:100] for label in (0, 1)])
    release = Release(Rows(rows.values[chosen], rows.labels[chosen]))
    scores = KolmogorovSmirnov().compute(evaluate(table, release))
    columns = scores.details["ks"].set_index("column")["statistic"]
    frame = table.train.frame
    unweighted = ks_2samp(frame["marker"], frame["marker"].to_numpy()[chosen]).statistic
    assert columns["marker"] < 0.6 * unweighted
    # By hand: the share of each class over 100, against one over the number of training rows.
    grid = np.sort(frame["marker"].to_numpy())
    weights = class_weights(table, 100)
    picked = frame["marker"].to_numpy()[chosen]
    released = np.array([weights[picked <= value].sum() for value in grid])
    expected = np.abs(released - np.arange(1, len(grid) + 1) / len(grid)).max()
    assert columns["marker"] == pytest.approx(expected, abs=1e-9)


def test_release_weights_multiply_class_shares(table):
    rows = table.train.rows
    counts = np.random.default_rng(0).integers(0, 4, len(rows))
    repeated = np.repeat(np.arange(len(rows)), counts)
    for metric in (KolmogorovSmirnov(), TotalVariation()):
        weighted = metric.compute(evaluate(table, release_of(table.train, weights=counts)))
        plain = metric.compute(
            evaluate(table, Release(Rows(rows.values[repeated], rows.labels[repeated])))
        )
        assert only(weighted)[0] == pytest.approx(only(plain)[0], abs=1e-12)


def test_training_rows_have_distance_zero_and_others_do_not(table, patients):
    for dataset in (table, patients):
        for metric in (KolmogorovSmirnov(), TotalVariation()):
            value, low, high = only(metric.compute(evaluate(dataset, dataset.train)))
            assert value == pytest.approx(0.0, abs=1e-12)
            assert low == 0.0
            assert 0.0 < high < 0.1
            value, low, high = only(metric.compute(evaluate(dataset, dataset.control)))
            assert 0.0 < value < 0.2
            assert low <= value <= high


def test_table_of_columns_and_mean(patients):
    scores = KolmogorovSmirnov().compute(evaluate(patients, patients.validation))
    table = scores.details["ks"]
    assert list(table["column"]) == ["risk", "months"]
    assert set(table["kind"]) == {"numeric"}
    assert only(scores)[0] == pytest.approx(table["statistic"].mean())
    scores = TotalVariation().compute(evaluate(patients, patients.validation))
    table = scores.details["tvd"]
    assert (list(table["column"]), list(table["kind"])) == (["arm"], ["categorical"])
    real, released = (
        (split.frame["arm"] == "treated").groupby(split.frame["death"]).mean()
        for split in (patients.train, patients.validation)
    )
    shares = np.bincount(patients.train.rows.labels) / len(patients.train)
    assert table["statistic"][0] == pytest.approx(abs(((real - released) * shares).sum()), abs=1e-9)


def test_a_shifted_release_is_far_and_its_interval_excludes_zero(table):
    rows = table.train.rows
    values = rows.values.copy()
    values[:, :2] += 0.3
    value, low, high = only(
        KolmogorovSmirnov().compute(evaluate(table, Release(Rows(values, rows.labels))))
    )
    assert 0.3 < low < value < high


def test_a_class_that_the_release_lacks_is_left_out(table):
    rows = table.train.rows
    kept = rows.labels == 1
    release = Release(Rows(rows.values[kept], rows.labels[kept]))
    scores = KolmogorovSmirnov().compute(evaluate(table, release))
    frame = table.train.frame
    expected = ks_2samp(frame["marker"], frame["marker"][kept]).statistic
    columns = scores.details["ks"].set_index("column")["statistic"]
    assert columns["marker"] == pytest.approx(expected, abs=1e-9)


def test_same_seed_same_interval(table):
    first, again, other = (
        only(KolmogorovSmirnov().compute(evaluate(table, table.control, seed)))
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first[0] == other[0]
    assert first[1:] != other[1:]


def test_no_such_column_no_rows_no_weight(table, images):
    with pytest.raises(NotComputable, match="no categorical"):
        TotalVariation().compute(evaluate(images, images.train))
    with pytest.raises(NotComputable, match="a model, not rows"):
        KolmogorovSmirnov().compute(
            evaluate(table, Release(model=Answers(lambda values: values[:, 0])))
        )
    nothing = release_of(table.train, weights=np.zeros(len(table.train)))
    with pytest.raises(NotComputable, match="weight 0"):
        KolmogorovSmirnov().compute(evaluate(table, nothing))


def test_no_numeric_column(table):
    schema = table.schema
    columns = tuple(schema[name] for name in ("smoker", "stage", "outcome"))
    small = replace(schema, columns=columns, quasi_identifiers=(), sensitive=(), rules=())
    rows = replace(table.train.rows, values=table.train.rows.values[:, 2:])
    dataset = replace(
        table,
        declaration=replace(table.declaration, schema=small),
        encoder=Encoder(small),
        train=replace(table.train, rows=rows),
    )
    with pytest.raises(NotComputable, match="no numeric"):
        KolmogorovSmirnov().compute(evaluate(dataset, dataset.train))
    assert only(TotalVariation().compute(evaluate(dataset, dataset.train)))[0] == pytest.approx(0.0)


@pytest.mark.parametrize("distinct", [1, 2, 3, 20, 100, 400, 100_000])
def test_smirnov_of_few_and_of_many_values_agree_with_a_plain_loop(distinct: int) -> None:
    rng = np.random.default_rng(distinct)
    values = rng.integers(0, distinct, 500).astype(float)
    values[rng.random(500) < 0.5] = distinct // 2  # a common value in the middle
    signed = rng.random((500, 3))
    signed[:200] /= -signed[:200].sum(axis=0)
    signed[200:] /= signed[200:].sum(axis=0)
    plain = [
        max(abs(signed[values <= value, column].sum()) for value in np.unique(values))
        for column in range(3)
    ]
    distances = columns.distribution_distances(values, 1.0)(signed)
    assert distances[0] == pytest.approx(plain, abs=1e-12)
    for column in range(3):
        expected = wasserstein_distance(
            values[:200], values[200:], -signed[:200, column], signed[200:, column]
        )
        assert distances[1, column] == pytest.approx(expected, abs=1e-9)


def test_p_values_are_those_of_scipy_and_stand_in_the_table(exact_table):
    """Rows of equal weight: classes released in the real shares."""
    table = exact_table
    scores = KolmogorovSmirnov().compute(evaluate(table, table.control))
    details = scores.details["ks"].set_index("column")
    for name in ("age", "marker"):
        expected = ks_2samp(table.train.frame[name], table.control.frame[name], method="asymp")
        assert details.loc[name, "statistic"] == pytest.approx(expected.statistic, abs=1e-9)
        assert details.loc[name, "p"] == pytest.approx(expected.pvalue, rel=1e-6)
    assert (details["holm"] >= details["p"]).all()


def test_p_values_use_the_effective_number_of_weighted_rows(table):
    """Nine tenths of the weight on a tenth of the rows: far fewer rows than were released."""
    rows = len(table.train)
    weights = np.where(np.arange(rows) % 10 == 0, 81.0, 1.0)
    evaluation = evaluate(table, release_of(table.train, weights=weights))
    effective = pooled(evaluation).effective
    assert 30 < effective < 45
    p = columns.smirnov_p_values(np.array([0.2]), pooled(evaluation))[0]
    assert p == pytest.approx(kstwo.sf(0.2, round(rows * effective / (rows + effective))))


def test_adjusted_p_values_of_a_hand_table():
    assert columns.holm(np.array([0.01, 0.04, 0.03, 0.5])) == pytest.approx([0.04, 0.09, 0.09, 0.5])


def test_the_share_of_columns_that_pass(table):
    rows = table.train.rows
    values = rows.values.copy()
    values[:, 1] += 0.3
    shifted = evaluate(table, Release(Rows(values, rows.labels)))
    assert KolmogorovSmirnovTest().compute(shifted).scores[0].value == 0.5
    alike = KolmogorovSmirnovTest().compute(evaluate(table, table.control)).scores[0]
    assert (alike.value, alike.low, alike.high) == (1.0, None, None)


def test_wasserstein_of_a_shift_is_the_shift_over_the_range(table):
    rows = table.train.rows
    values = rows.values.copy()
    values[:, 1] += 0.2  # of a range of 2
    scores = Wasserstein().compute(evaluate(table, Release(Rows(values, rows.labels))))
    columns = scores.details["wasserstein"].set_index("column")["statistic"]
    assert columns["marker"] == pytest.approx(0.1, abs=1e-6)
    assert columns["age"] == pytest.approx(0.0, abs=1e-12)
    value, low, high = only(scores)
    assert value == pytest.approx(0.05, abs=1e-6)
    assert 0.03 < low < value < high < 0.07


def test_columns_of_sdmetrics_where_the_definitions_agree(exact_table):
    """They know no weights: classes are released in the real shares."""
    from sdmetrics.single_column import KSComplement, TVComplement

    table = exact_table
    evaluation = evaluate(table, table.control)
    ks = KolmogorovSmirnov().compute(evaluation).details["ks"].set_index("column")["statistic"]
    tvd = TotalVariation().compute(evaluation).details["tvd"].set_index("column")["statistic"]
    real, released = table.train.frame, table.control.frame
    for name in ("age", "marker"):
        assert ks[name] == pytest.approx(1 - KSComplement.compute(real[name], released[name]))
    for name in ("smoker", "stage"):
        assert tvd[name] == pytest.approx(1 - TVComplement.compute(real[name], released[name]))


def test_shuffled_columns_are_not_seen_by_single_columns(table):
    rng = np.random.default_rng(0)
    rows = table.train.rows
    values = rows.values.copy()
    values[:, 0], values[:, 1] = rng.permutation(values[:, 0]), rng.permutation(values[:, 1])
    release = Release(Rows(values, rows.labels))
    for metric in (KolmogorovSmirnov(), Wasserstein(), TotalVariation()):
        assert only(metric.compute(evaluate(table, release)))[0] == pytest.approx(0.0, abs=1e-12)


def values(scores: Scores) -> dict[str, float | None]:
    return {score.metric.split("/")[1]: score.value for score in scores.scores}


# Kruskal-Wallis -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", [False, True])
def test_the_statistic_is_that_of_scipy(ties: bool) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(0, 2, 300), rng.normal(0.4, 1, 170)
    if ties:
        first, second = np.round(first), np.round(second)
    expected = stats.kruskal(first, second)
    assert kruskal_wallis(first, second) == pytest.approx((expected.statistic, expected.pvalue))


def test_by_hand_one_group_above_the_other() -> None:
    # Ranks 1, 2 and 3, 4: H = 12 / 20 (9 / 2 + 49 / 2) - 15 = 2.4.
    statistic, p_value = kruskal_wallis(np.array([1.0, 2.0]), np.array([5.0, 9.0]))
    assert statistic == pytest.approx(2.4)
    assert p_value == pytest.approx(stats.chi2.sf(2.4, 1))


def test_no_variation_is_no_difference() -> None:
    assert kruskal_wallis(np.ones(4), np.ones(3)) == (0.0, 1.0)


def test_the_training_rows_do_not_differ_from_themselves(table: Dataset) -> None:
    scores = KruskalWallis().compute(evaluate(table, table.train))
    assert values(scores) == {"differing": 0.0, "effect": pytest.approx(0.0, abs=1e-12)}


def test_a_shifted_column_differs_and_is_listed(table: Dataset) -> None:
    moved = table.train.rows.values.copy()
    moved[:, 0] = np.clip(moved[:, 0] + 0.5, -1, 1)
    scores = KruskalWallis().compute(evaluate(table, Release(Rows(moved, table.train.rows.labels))))
    tests = scores.details["kruskal-wallis"].set_index("column")
    # Age, marker, and smoker with its two categories; the stage has three, and no order.
    assert list(tests.index) == ["age", "marker", "smoker"]
    assert list(tests["p"] < 0.05) == [True, False, False]
    assert values(scores)["differing"] == pytest.approx(1 / 3)
    assert tests.loc["age", "released_median"] > tests.loc["age", "real_median"]


def test_weights_have_no_ranks(table: Dataset) -> None:
    weights = np.linspace(1, 2, len(table.train))
    with pytest.raises(NotComputable, match="weights"):
        KruskalWallis().compute(evaluate(table, release_of(table.train, weights=weights)))
