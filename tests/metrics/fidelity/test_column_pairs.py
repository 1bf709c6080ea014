"""Correlations and associations of pairs of columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency
from scipy.stats.contingency import association as scipy_association
from sdmetrics.column_pairs import CorrelationSimilarity

from bench.data.dataset import Declaration
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import NotComputable
from bench.metrics.fidelity import _pooled, column_pairs
from bench.metrics.fidelity._pooled import pooled
from bench.metrics.fidelity.column_pairs import Association, PairwiseCorrelation
from bench.metrics.fidelity.columns import KullbackLeibler
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from tests.metrics.helpers import Answers, evaluate, named, only, release_of

ORDERED = ["age", "marker", "smoker", "outcome"]


@final
@dataclass(frozen=True)
class Mirror(DatasetSource):
    """Two numbers that are the same, so that a mirrored release is as wrong as can be."""

    name: ClassVar[str] = "mirror"

    def declare(self) -> Declaration:
        columns = (
            Numeric(name="x", low=-1, high=1),
            Numeric(name="y", low=-1, high=1),
            Categorical(name="outcome", categories=("0", "1", "2"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION)
        return Declaration("Mirror", schema, (300, 0, 0), {}, "CC0", "", "", simulated=True)

    def load(self) -> pd.DataFrame:
        x = np.random.default_rng(2).uniform(-1, 1, 300)
        return pd.DataFrame({"x": x, "y": x, "outcome": "0"})


def shuffled(table) -> Release:
    """Every feature keeps its values and loses its company."""
    rng = np.random.default_rng(0)
    rows = table.train.rows
    values = rows.values.copy()
    for block in table.encoder.blocks:
        values[:, block.slice] = values[rng.permutation(len(values)), block.slice]
    return Release(Rows(values, rows.labels))


def coded(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": frame["age"].astype(float),
            "marker": frame["marker"].astype(float),
            "smoker": (frame["smoker"] == "yes").astype(float),
            "outcome": frame["outcome"].astype(float),
        }
    )


def test_correlations_are_those_of_numpy_and_sdmetrics(exact_table):
    """They know no weights: classes are released in the real shares."""
    table = exact_table
    scores = PairwiseCorrelation().compute(evaluate(table, table.control))
    real, released = coded(table.train.frame), coded(table.control.frame)
    difference = np.corrcoef(real.T) - np.corrcoef(released.T)
    upper = difference[np.triu_indices(4, 1)]
    assert named(scores, "pcd/l1").value == pytest.approx(np.abs(upper).mean() / 2, rel=1e-5)
    expected = np.sqrt(np.square(upper).mean()) / 2
    assert named(scores, "pcd/l2").value == pytest.approx(expected, rel=1e-5)
    listed = scores.details["correlations"]
    assert list(listed[["first", "second"]].itertuples(index=False, name=None)) == [
        (first, second) for k, first in enumerate(ORDERED) for second in ORDERED[k + 1 :]
    ]
    for entry in listed.itertuples():
        similarity = CorrelationSimilarity.compute(
            real[[entry.first, entry.second]], released[[entry.first, entry.second]]
        )
        assert 1 - abs(entry.real - entry.released) / 2 == pytest.approx(similarity, abs=1e-6)


def test_weighted_correlations_are_those_of_repeated_rows(table):
    counts = np.random.default_rng(3).integers(0, 4, len(table.train))
    evaluation = evaluate(table, release_of(table.train, weights=counts))
    listed = PairwiseCorrelation().compute(evaluation).details["correlations"]
    frame = coded(table.train.frame)
    # Class shares of the training rows: a weight for each class on top of the counts.
    labels = table.train.rows.labels
    shares = np.bincount(labels) / len(labels) / np.bincount(labels, counts)
    covariance = np.cov(frame.T, aweights=counts * shares[labels])
    expected = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert listed["released"].to_numpy() == pytest.approx(expected[np.triu_indices(4, 1)], abs=1e-6)


def test_correlations_turned_around_are_the_worst():
    dataset = build_dataset(Mirror())
    rows = dataset.train.rows
    values = rows.values.copy()
    values[:, 1] *= -1
    scores = PairwiseCorrelation().compute(evaluate(dataset, Release(Rows(values, rows.labels))))
    assert named(scores, "pcd/l1").value == pytest.approx(1.0)
    assert named(scores, "pcd/l2").value == pytest.approx(1.0)


def test_training_rows_are_at_zero_control_rows_near_and_shuffled_ones_far(table, patients):
    for dataset in (table, patients):
        for metric in (PairwiseCorrelation(), Association()):
            copied = metric.compute(evaluate(dataset, dataset.train)).scores
            fresh = metric.compute(evaluate(dataset, dataset.control)).scores
            torn = metric.compute(evaluate(dataset, shuffled(dataset))).scores
            for copy, control, far in zip(copied, fresh, torn, strict=True):
                assert copy.value == pytest.approx(0.0, abs=1e-9)
                assert copy.low == 0.0
                assert 0.0 < control.value < 0.15
                assert control.low <= control.value <= control.high
                assert far.low > 0.01
    # Single columns do not see it.
    assert only(KullbackLeibler().compute(evaluate(table, shuffled(table))))[0] < 1e-9


def test_a_column_that_only_the_release_holds_constant_has_lost_its_correlations(table):
    rows = table.train.rows
    values = rows.values.copy()
    values[:, 1] = 0.25
    scores = PairwiseCorrelation().compute(evaluate(table, Release(Rows(values, rows.labels))))
    listed = scores.details["correlations"]
    touched = (listed["first"] == "marker") | (listed["second"] == "marker")
    assert (listed.loc[touched, "released"] == 0.0).all()
    assert named(scores, "pcd/l1").value == pytest.approx(
        listed.loc[touched, "real"].abs().sum() / 6 / 2
    )
    columns = scores.details["pcd-columns"].set_index("column")
    assert columns["constant_in_release"].tolist() == [False, True, False, False]


def test_pairs_with_a_column_that_never_varies_are_left_out_and_listed(table):
    values = table.train.rows.values.copy()
    values[:, 1] = 0.25
    values[:, 3:] = [0.0, 1.0, 0.0]
    split = replace(table.train, rows=replace(table.train.rows, values=values))
    evaluation = evaluate(replace(table, train=split), table.control)
    scores = PairwiseCorrelation().compute(evaluation)
    assert len(scores.details["correlations"]) == 3
    columns = scores.details["pcd-columns"].set_index("column")["left_out"]
    assert columns["marker"] == "constant among the training rows"
    assert columns["age"] == ""
    named_pairs = Association().compute(evaluation).details["associations"]
    assert not {"marker", "stage"} & {*named_pairs["first"], *named_pairs["second"]}
    assert len(named_pairs) == 3


def test_nothing_to_pair(table):
    values = table.train.rows.values.copy()
    values[:, :3] = 0.25
    split = replace(table.train, rows=replace(table.train.rows, values=values))
    dataset = replace(table, train=split)
    with pytest.raises(NotComputable, match="1 numeric or two-category columns vary"):
        PairwiseCorrelation().compute(evaluate(dataset, table.control))
    values = values.copy()
    values[:, 3:] = [0.0, 1.0, 0.0]
    split = replace(table.train, rows=replace(table.train.rows, values=values))
    with pytest.raises(NotComputable, match="1 columns vary"):
        Association().compute(evaluate(replace(table, train=split), table.control))
    for metric in (PairwiseCorrelation(), Association()):
        with pytest.raises(NotComputable, match="a model, not rows"):
            metric.compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))


def test_many_columns_in_blocks_give_the_same(images, monkeypatch):
    whole = PairwiseCorrelation().compute(evaluate(images, images.control)).scores
    listed = Association().compute(evaluate(images, images.control)).details["associations"]
    assert len(listed) == 65 * 64 // 2
    monkeypatch.setattr(_pooled, "_CELLS", 64 * 201 * 7)
    parts = PairwiseCorrelation().compute(evaluate(images, images.control))
    for one, other in zip(whole, parts.scores, strict=True):
        assert (one.value, one.low, one.high) == pytest.approx(
            (other.value, other.low, other.high), abs=1e-12
        )
    expected = np.corrcoef(images.train.frame.iloc[:, :64].T)[np.triu_indices(64, 1)]
    table = parts.details["correlations"].sort_values(["first", "second"])
    names = [f"p{k}" for k in range(64)]
    order = pd.MultiIndex.from_arrays(
        [np.array(names)[index] for index in np.triu_indices(64, 1)], names=["first", "second"]
    )
    reals = table.set_index(["first", "second"])["real"].reindex(order)
    assert reals.to_numpy() == pytest.approx(expected, abs=1e-5)


def test_very_many_columns_are_summed_up_only(images, monkeypatch):
    monkeypatch.setattr(column_pairs, "LISTED_COLUMNS", 10)
    monkeypatch.setattr(column_pairs, "RESAMPLED_COLUMNS", 10)
    for metric in (PairwiseCorrelation(), Association()):
        scores = metric.compute(evaluate(images, images.control))
        assert set(scores.details) <= {"pcd-columns"}
        for score in scores.scores:
            assert score.value > 0
            assert score.low is score.high is None


def test_correlation_ratios_are_adjusted_shares_of_variance(exact_table):
    """Kelley's epsilon squared is the adjusted R squared of a regression on the categories."""
    from sklearn.linear_model import LinearRegression

    # Rows of equal weight, since classes are released in the real shares.
    evaluation = evaluate(exact_table, exact_table.control)
    both, rows = _pooled.grouped_tables(evaluation), pooled(evaluation)
    codes = np.digitize(rows.numbers("age"), [40, 48, 55])
    values = rows.numbers("marker")[:, None]
    ratio = column_pairs.correlation_ratios(both.released, values, codes, 6)[0, 0]
    released, numbers = codes[rows.real :], values[rows.real :]
    dummies = (released[:, None] == np.arange(1, 4)).astype(float)
    plain = LinearRegression().fit(dummies, numbers).score(dummies, numbers)
    count = len(released)
    adjusted = 1 - (1 - plain) * (count - 1) / (count - 4)
    assert ratio == pytest.approx(np.sqrt(max(0.0, adjusted)), abs=1e-9)
    # Of 300 rows the correction is small.
    real = column_pairs.correlation_ratios(both.real, values, codes, 6)[0, 0]
    means = pd.Series(values[: rows.real, 0]).groupby(codes[: rows.real]).transform("mean")
    assert real == pytest.approx(means.std() / values[: rows.real, 0].std(), abs=0.05)


def test_cramers_v_is_that_of_scipy_after_the_correction(table):
    evaluation = evaluate(table, table.control)
    both, rows = _pooled.grouped_tables(evaluation), pooled(evaluation)
    first = np.digitize(rows.numbers("marker"), [0.0, 1.5])
    second = rows.codes("outcome")
    v = column_pairs.cramers_v(both.real, first, 3, second, 2)[0]
    cross = pd.crosstab(first[: rows.real], second[: rows.real]).to_numpy()
    count = rows.real
    phi = chi2_contingency(cross, correction=False).statistic / count
    corrected = max(0.0, phi - 2 * 1 / (count - 1))
    assert v == pytest.approx(np.sqrt(corrected / (1 - 1 / (count - 1))))
    assert v == pytest.approx(scipy_association(cross, method="cramer"), abs=0.02)


def test_categories_that_do_not_occur_change_nothing(table):
    evaluation = evaluate(table, table.control)
    both, rows = _pooled.grouped_tables(evaluation), pooled(evaluation)
    first, second = rows.codes("smoker"), rows.codes("outcome")
    few = column_pairs.cramers_v(both.real, first, 2, second, 2)
    many = column_pairs.cramers_v(both.real, first, 9, second, 5)
    assert few == pytest.approx(many, abs=1e-12)


def test_associations_of_chance_are_near_zero_in_small_releases(table):
    """Some 50 rows, 20 categories: the plain ratio would be sqrt(19 / 49) = 0.62."""
    rng = np.random.default_rng(4)
    ratios, strengths = [], []
    for seed in range(40):
        evaluation = evaluate(table, table.control, seed)
        released = _pooled.grouped_tables(evaluation, 0).released
        rows = len(table.train) + len(table.control)
        noise = rng.normal(size=(rows, 1))
        codes, others = rng.integers(0, 20, (2, rows))
        ratios.append(column_pairs.correlation_ratios(released, noise, codes, 20)[0, 0] ** 2)
        strengths.append(column_pairs.cramers_v(released, codes, 20, others, 20)[0] ** 2)
    assert np.mean(ratios) < 0.1
    assert np.mean(strengths) < 0.05


def test_the_mean_of_the_listed_differences_is_the_score(table):
    scores = Association().compute(evaluate(table, table.control))
    listed = scores.details["associations"]
    assert len(listed) == 10
    assert only(scores)[0] == pytest.approx((listed["real"] - listed["released"]).abs().mean())
    assert listed[["real", "released"]].min().min() >= 0.0
    assert listed[["real", "released"]].max().max() <= 1.0


def test_rows_of_a_class_that_no_training_row_has_weigh_nothing():
    dataset = build_dataset(Mirror())
    rows = dataset.train.rows
    values = np.concatenate([rows.values, -rows.values[:, ::-1] * [1, -1]])
    labels = np.concatenate([rows.labels, np.ones(len(rows), dtype=np.int64)])
    for metric in (PairwiseCorrelation(), Association(), KullbackLeibler()):
        for score in metric.compute(evaluate(dataset, Release(Rows(values, labels)))).scores:
            assert score.value == pytest.approx(0.0, abs=1e-9)
            assert np.isfinite([score.low, score.high]).all()
