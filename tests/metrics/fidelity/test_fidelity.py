"""KS with its test, Wasserstein and total variation of a release."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import ks_2samp, kstwo, wasserstein_distance

from bench.data.encoder import Encoder
from bench.errors import NotComputable
from bench.metrics.fidelity import fidelity
from bench.metrics.fidelity._pooled import pooled
from bench.metrics.fidelity.fidelity import (
    KolmogorovSmirnov,
    KolmogorovSmirnovTest,
    TotalVariation,
    Wasserstein,
)
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import Answers, evaluate, only, release_of


@pytest.mark.parametrize("levels", [None, 3])
def test_ks_without_weights_is_that_of_scipy(levels):
    rng = np.random.default_rng(0)
    real, synthetic = rng.normal(size=80), rng.normal(0.4, 1.2, size=50)
    if levels is not None:
        real, synthetic = np.round(real * levels), np.round(synthetic * levels)
    signed = np.repeat([-1 / 80, 1 / 50], [80, 50])[:, None]
    values = np.concatenate([real, synthetic])
    distances = fidelity.distribution_distances(values, 2.0)(signed)[:, 0]
    assert distances[0] == pytest.approx(ks_2samp(real, synthetic).statistic, abs=1e-12)
    assert distances[1] == pytest.approx(wasserstein_distance(real, synthetic) / 2, abs=1e-12)


def test_weighted_ks_of_a_hand_table():
    """Real 1 2 3 4, each 1/4. Released 1 (0.2), 2 (0.5), 4 (0.3).

    Cumulated: real 0.25 0.50 0.75 1, released 0.2 0.7 0.7 1; the largest gap is 0.2, after 2, and
    the area between them 0.05 + 0.2 + 0.05, a tenth of the range.
    """
    values = np.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 4.0])
    signed = np.array([-0.25] * 4 + [0.2, 0.5, 0.3])[:, None]
    distances = fidelity.distribution_distances(values, 3.0)(signed)[:, 0]
    assert distances == pytest.approx([0.2, 0.1])


def test_total_variation_of_a_hand_table():
    """Real shares 1/2 1/4 1/4, released 0.1 0.9 0: (0.4 + 0.65 + 0.25) / 2."""
    codes = np.array([0, 0, 1, 2, 0, 1])
    signed = np.array([-0.25] * 4 + [0.1, 0.9])[:, None]
    assert fidelity.total_variation(codes, 3)(signed)[0, 0] == pytest.approx(0.65)
    # Independent of our code: TV <= sqrt(2 ln 2) JS distance, and >= JS divergence in bits.
    distance = jensenshannon([0.5, 0.25, 0.25], [0.1, 0.9, 0.0], base=2)
    assert distance**2 <= 0.65 <= np.sqrt(2 * np.log(2)) * distance


def test_a_balanced_subset_of_the_training_rows_is_faithful_only_with_class_weights(table):
    """The class shifts `marker`: 120 of each class have another mean than 180 and 120."""
    rows = table.train.rows
    chosen = np.concatenate([np.flatnonzero(rows.labels == label)[:100] for label in (0, 1)])
    release = Release(Rows(rows.values[chosen], rows.labels[chosen]))
    scores = KolmogorovSmirnov().compute(evaluate(table, release))
    columns = scores.details["ks"].set_index("column")["statistic"]
    frame = table.train.frame
    unweighted = ks_2samp(frame["marker"], frame["marker"].to_numpy()[chosen]).statistic
    assert columns["marker"] < 0.6 * unweighted
    # By hand: weights 0.6 / 100 and 0.4 / 100 against 1/300 each.
    grid = np.sort(frame["marker"].to_numpy())
    weights = np.repeat([0.006, 0.004], 100)
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


def test_training_rows_have_distance_zero_and_others_do_not(table, cohort):
    for dataset in (table, cohort):
        for metric in (KolmogorovSmirnov(), TotalVariation()):
            value, low, high = only(metric.compute(evaluate(dataset, dataset.train)))
            assert value == pytest.approx(0.0, abs=1e-12)
            assert low == 0.0
            assert 0.0 < high < 0.1
            value, low, high = only(metric.compute(evaluate(dataset, dataset.control)))
            assert 0.0 < value < 0.2
            assert low <= value <= high


def test_table_of_columns_and_mean(cohort):
    scores = KolmogorovSmirnov().compute(evaluate(cohort, cohort.validation))
    table = scores.details["ks"]
    assert list(table["column"]) == ["risk", "months"]
    assert set(table["kind"]) == {"numeric"}
    assert only(scores)[0] == pytest.approx(table["statistic"].mean())
    scores = TotalVariation().compute(evaluate(cohort, cohort.validation))
    table = scores.details["tvd"]
    assert (list(table["column"]), list(table["kind"])) == (["arm"], ["categorical"])
    real, released = (
        (split.frame["arm"] == "treated").groupby(split.frame["death"]).mean()
        for split in (cohort.train, cohort.validation)
    )
    shares = np.array(cohort.counts.by_class) / cohort.counts.total
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
    distances = fidelity.distribution_distances(values, 1.0)(signed)
    assert distances[0] == pytest.approx(plain, abs=1e-12)
    for column in range(3):
        expected = wasserstein_distance(
            values[:200], values[200:], -signed[:200, column], signed[200:, column]
        )
        assert distances[1, column] == pytest.approx(expected, abs=1e-9)


def test_p_values_are_those_of_scipy_and_stand_in_the_table(table):
    """Rows of equal weight: classes released in the declared shares."""
    scores = KolmogorovSmirnov().compute(evaluate(table, table.control))
    details = scores.details["ks"].set_index("column")
    for name in ("age", "marker"):
        expected = ks_2samp(table.train.frame[name], table.control.frame[name], method="asymp")
        assert details.loc[name, "statistic"] == pytest.approx(expected.statistic, abs=1e-9)
        assert details.loc[name, "p"] == pytest.approx(expected.pvalue, rel=1e-6)
    assert (details["holm"] >= details["p"]).all()


def test_p_values_use_the_effective_number_of_weighted_rows(table):
    """Nine tenths of the weight on a tenth of the rows: far fewer rows than were released."""
    weights = np.where(np.arange(len(table.train)) % 10 == 0, 81.0, 1.0)
    evaluation = evaluate(table, release_of(table.train, weights=weights))
    effective = pooled(evaluation).effective
    assert 30 < effective < 45
    p = fidelity.smirnov_p_values(np.array([0.2]), pooled(evaluation))[0]
    assert p == pytest.approx(kstwo.sf(0.2, round(300 * effective / (300 + effective))))


def test_adjusted_p_values_of_a_hand_table():
    assert fidelity.holm(np.array([0.01, 0.04, 0.03, 0.5])) == pytest.approx(
        [0.04, 0.09, 0.09, 0.5]
    )


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


def test_columns_of_sdmetrics_where_the_definitions_agree(table):
    from sdmetrics.single_column import KSComplement, TVComplement

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
