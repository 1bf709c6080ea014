"""KS and total variation of a release."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import ks_2samp

from bench.core.encode import Encoder
from bench.core.errors import NotComputable
from bench.core.release import Release, Rows
from bench.metrics import fidelity
from bench.metrics.fidelity import KolmogorovSmirnov, TotalVariation
from tests.metrics.helpers import Answers, evaluate, only, release_of


@pytest.mark.parametrize("levels", [None, 3])
def test_ks_without_weights_is_that_of_scipy(levels):
    rng = np.random.default_rng(0)
    real, synthetic = rng.normal(size=80), rng.normal(0.4, 1.2, size=50)
    if levels is not None:
        real, synthetic = np.round(real * levels), np.round(synthetic * levels)
    signed = np.repeat([-1 / 80, 1 / 50], [80, 50])[:, None]
    value = fidelity.kolmogorov_smirnov(np.concatenate([real, synthetic]))(signed)[0]
    assert value == pytest.approx(ks_2samp(real, synthetic).statistic, abs=1e-12)


def test_weighted_ks_of_a_hand_table():
    """Real 1 2 3 4, each 1/4. Released 1 (0.2), 2 (0.5), 4 (0.3).

    Cumulated: real 0.25 0.50 0.75 1, released 0.2 0.7 0.7 1; the largest gap is 0.2, after 2.
    """
    values = np.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 4.0])
    signed = np.array([-0.25] * 4 + [0.2, 0.5, 0.3])[:, None]
    assert fidelity.kolmogorov_smirnov(values)(signed)[0] == pytest.approx(0.2)


def test_total_variation_of_a_hand_table():
    """Real shares 1/2 1/4 1/4, released 0.1 0.9 0: (0.4 + 0.65 + 0.25) / 2."""
    codes = np.array([0, 0, 1, 2, 0, 1])
    signed = np.array([-0.25] * 4 + [0.1, 0.9])[:, None]
    assert fidelity.total_variation(codes, 3)(signed)[0] == pytest.approx(0.65)
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
    assert fidelity.kolmogorov_smirnov(values)(signed) == pytest.approx(plain, abs=1e-12)
