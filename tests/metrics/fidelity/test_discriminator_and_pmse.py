"""Discriminator and propensity score: all columns together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from bench.data.dataset import Declaration
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import NotComputable
from bench.metrics.fidelity import discriminator_and_pmse
from bench.metrics.fidelity._pooled import PooledRows, feature_columns, pooled
from bench.metrics.fidelity.columns import KolmogorovSmirnov, TotalVariation
from bench.metrics.fidelity.discriminator_and_pmse import Discriminator, PropensityError
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from tests.metrics.helpers import Answers, evaluate, named, only, release_of


@final
@dataclass(frozen=True)
class Exclusive(DatasetSource):
    """Two fair coins of which exactly one shows heads: no column and no pair of means shows it."""

    name: ClassVar[str] = "exclusive"

    def declare(self) -> Declaration:
        columns = (
            Categorical(name="first", categories=("no", "yes")),
            Categorical(name="second", categories=("no", "yes")),
            Numeric(name="noise", low=-5, high=5),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION)
        return Declaration("Exclusive", schema, (600, 400), {}, "CC0", "", "", simulated=True)

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(8)
        heads = rng.random(1000) < 0.5
        return pd.DataFrame(
            {
                "first": np.where(heads, "yes", "no"),
                "second": np.where(heads, "no", "yes"),
                "noise": np.clip(rng.normal(size=1000), -5, 5),
                "outcome": np.repeat([0, 1], [600, 400]),
            }
        )


def area(dataset, release, seed: int = 0):
    return only(Discriminator().compute(evaluate(dataset, release, seed)))


def shuffled(dataset) -> Release:
    rng = np.random.default_rng(0)
    rows = dataset.train.rows
    values = rows.values.copy()
    for block in dataset.encoder.blocks:
        values[:, block.slice] = values[rng.permutation(len(values)), block.slice]
    return Release(Rows(values, rows.labels))


def test_training_rows_are_indistinguishable_from_themselves(table, patients):
    """Every record has its twin in the same fold: predictions are the same for both."""
    for dataset in (table, patients):
        value, low, high = area(dataset, dataset.train)
        assert value == pytest.approx(0.5, abs=1e-9)
        assert low < 0.5 < high


def test_twins_in_different_folds_would_drive_the_area_below_one_half(table, monkeypatch):
    def careless(records, released, rng):
        return rng.integers(0, 5, len(records))

    monkeypatch.setattr(discriminator_and_pmse, "folds_of_records", careless)
    assert area(table, table.train)[0] < 0.45


def test_equal_records_share_a_fold_and_each_fold_has_both_tables():
    rng = np.random.default_rng(0)
    records = np.concatenate([rng.integers(0, 60, 200), rng.integers(40, 70, 50)])
    released = np.arange(250) >= 200
    folds = discriminator_and_pmse.folds_of_records(records, released, rng)
    for record in np.unique(records):
        assert len(np.unique(folds[records == record])) == 1
    for table in (released, ~released):
        assert set(folds[table]) == set(range(5))
    few = np.where(released, 0, records)
    with pytest.raises(NotComputable, match="1 distinct released"):
        discriminator_and_pmse.folds_of_records(few, released, rng)


def test_fresh_rows_are_indistinguishable():
    """Over 8 splits the mean area is within its standard error of one half."""
    areas = []
    for split_seed in range(8):
        dataset = build_dataset(Exclusive(), split_seed=split_seed)
        areas.append(area(dataset, dataset.test)[0])
    assert abs(np.mean(areas) - 0.5) < 3 * np.std(areas, ddof=1) / np.sqrt(8)
    assert abs(np.mean(areas) - 0.5) < 0.03


def test_shuffled_columns_are_seen_by_the_discriminator_only():
    lows = []
    for split_seed in range(4):
        dataset = build_dataset(Exclusive(), split_seed=split_seed)
        release = shuffled(dataset)
        value, low, high = area(dataset, release)
        assert 0.6 < low < value < high
        lows.append(low)
        for metric in (KolmogorovSmirnov(), TotalVariation()):
            found = only(metric.compute(evaluate(dataset, release)))[0]
            assert found == pytest.approx(0.0, abs=1e-9)
        # Main effects see no interaction: pMSE stays where chance puts it.
        ratio = named(PropensityError().compute(evaluate(dataset, release)), "pmse/ratio")
        assert ratio.value < 2
    # Some 600 training rows: the lower ends vary by 0.02 between splits.
    assert np.mean(lows) > 0.65


def test_a_balanced_release_is_not_distinguished_by_its_class_shares(table):
    """As many rows of each class, of classes of some 180 and 120: weights undo the difference."""
    rows = table.train.rows
    chosen = np.concatenate([np.flatnonzero(rows.labels == k)[:100] for k in (0, 1)])
    fresh = table.test.rows
    half = np.concatenate([np.flatnonzero(fresh.labels == k)[:40] for k in (0, 1)])
    _, low, high = area(table, Release(Rows(fresh.values[half], fresh.labels[half])))
    assert low < 0.5 < high
    assert abs(area(table, Release(Rows(rows.values[chosen], rows.labels[chosen])))[0] - 0.5) < 0.06


def test_large_tables_are_drawn_from(exact_table, monkeypatch):
    table = exact_table
    monkeypatch.setattr(discriminator_and_pmse, "MOST_ROWS", 60)
    evaluation = evaluate(table, table.control)
    kept = discriminator_and_pmse._drawn(pooled(evaluation), 5, np.random.default_rng(0))
    assert (int((kept < 300).sum()), int((kept >= 300).sum())) == (60, 50)
    weights = discriminator_and_pmse._balanced(pooled(evaluation), kept)
    assert weights[:60].sum() == pytest.approx(50)
    assert weights[60:].sum() == pytest.approx(50)
    assert 0.2 < area(table, table.control)[0] < 0.8


def test_products_with_few_entries_are_those_of_the_whole_matrix(table):
    evaluation = evaluate(table, table.validation)
    rows = pooled(evaluation)
    columns = [*feature_columns(evaluation), table.schema.label]
    design = discriminator_and_pmse._design(rows, columns)
    few = discriminator_and_pmse.Design.of(rows, columns)
    assert few.places.shape[1] == len(columns)
    rng = np.random.default_rng(0)
    weights, factors = rng.random(len(design)), rng.normal(size=(len(design), 3))
    assert few.times(np.eye(few.width)) == pytest.approx(design)
    assert few.transposed_times(factors) == pytest.approx(design.T @ factors)
    assert few.gram(weights) == pytest.approx((design * weights[:, None]).T @ design)
    dense = discriminator_and_pmse.Design.dense(design)
    assert dense.gram(weights) == pytest.approx(few.gram(weights))


def test_the_propensity_model_is_that_of_sklearn(table):
    evaluation = evaluate(table, table.control)
    rows = pooled(evaluation)
    columns = [block.column for block in table.encoder.blocks] + [table.schema.label]
    design = discriminator_and_pmse._design(rows, columns)
    assert design.shape[1] == 2 + 1 + 2 + 1
    both = len(table.train) + len(table.control)
    weights = np.abs(rows.signed(np.ones((both, 1))))[:, 0] / 2
    released = np.arange(both) >= len(table.train)
    model = discriminator_and_pmse.fit_propensity(design, released, weights)
    plain = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    plain.fit(design, released, sample_weight=weights * both)
    expected = plain.predict_proba(design)[:, 1]
    assert model.probabilities == pytest.approx(expected, abs=1e-4)
    value = named(PropensityError().compute(evaluation), "pmse").value
    assert value == pytest.approx(weights @ np.square(expected - 0.5), abs=1e-6)


def test_columns_that_say_the_same_are_counted_once():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    doubled = np.column_stack([x, x[:, 0] + x[:, 1], np.ones(200)])
    assert discriminator_and_pmse.independent(doubled, np.full(200, 1 / 200)).shape[1] == 3
    free, within = discriminator_and_pmse.null_parameters(doubled, np.zeros(200, dtype=int), 1)
    assert free == 3
    assert within == pytest.approx([3.0])


def test_expectation_in_closed_form_is_that_of_snoke():
    """One class, equal weights, as many released rows as real ones: (k - 1)(1 - c)^2 c / N."""
    frame = pd.DataFrame({"x": np.zeros(1000)})
    rows = PooledRows(frame, np.repeat([0, 1], 500), np.ones(500), np.ones(500))
    expected = 7 * 0.5**2 * 0.5 / 1000
    assert discriminator_and_pmse.null_expectation(rows, np.array([7.0])) == pytest.approx(expected)


@pytest.mark.parametrize("balanced", [False, True])
def test_expectation_is_that_of_rows_drawn_from_the_training_rows(table, balanced):
    """By resampling: released rows drawn class by class, with the classes' weights."""
    rng = np.random.default_rng(5)
    labels = table.train.rows.labels
    real = len(labels)
    sizes = (150, 150) if balanced else table.training_class_counts
    ratios = []
    for _ in range(60):
        chosen = np.concatenate([rng.choice(np.flatnonzero(labels == k), sizes[k]) for k in (0, 1)])
        release = Release(Rows(table.train.rows.values[chosen], labels[chosen]))
        evaluation = evaluate(table, release)
        rows = pooled(evaluation)
        columns = [block.column for block in table.encoder.blocks] + [table.schema.label]
        design = discriminator_and_pmse._design(rows, columns)
        weights = np.abs(rows.signed(np.ones((len(design), 1))))[:, 0] / 2
        model = discriminator_and_pmse.fit_propensity(
            design, np.arange(len(design)) >= real, weights
        )
        within = discriminator_and_pmse.null_parameters(design[:real], labels, 2)[1]
        ratios.append(model.pmse / discriminator_and_pmse.null_expectation(rows, within))
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.25)


def test_by_permutation_the_expectation_is_larger_as_both_tables_vary():
    """Fresh rows: (k - 1) c (1 - c) / N, that is Snoke's over 1 - c."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(600, 4))
    weights = np.full(600, 1 / 600)
    values = []
    for _ in range(200):
        released = rng.permutation(600) >= 300
        values.append(discriminator_and_pmse.fit_propensity(x, released, weights).pmse)
    assert np.mean(values) == pytest.approx(4 * 0.25 / 600, rel=0.15)


def test_training_rows_have_no_error_and_shifted_ones_much(table):
    scores = PropensityError().compute(evaluate(table, table.train))
    assert named(scores, "pmse").value == pytest.approx(0.0, abs=1e-9)
    assert named(scores, "pmse/ratio").value == pytest.approx(0.0, abs=1e-5)
    rows = table.train.rows
    values = rows.values.copy()
    values[:, 0] += 0.3
    scores = PropensityError().compute(evaluate(table, Release(Rows(values, rows.labels))))
    value, ratio = named(scores, "pmse"), named(scores, "pmse/ratio")
    assert 0.05 < value.low < value.value < value.high <= 0.25
    assert ratio.low > 50


def test_separable_tables_have_the_largest_error(table):
    rows = table.train.rows
    values = rows.values.copy()
    values[:, 0] = 1.0
    scores = PropensityError().compute(evaluate(table, Release(Rows(values, rows.labels))))
    value = named(scores, "pmse")
    assert value.value == pytest.approx(0.25, abs=1e-3)
    assert np.isfinite([value.low, value.high]).all()
    assert area(table, Release(Rows(values, rows.labels)))[0] > 0.99


def test_the_one_step_bootstrap_spreads_as_refits_do(table):
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.normal(size=(400, 3)), rng.normal(0.3, 1.2, size=(300, 3))])
    released = np.arange(700) >= 400
    weights = np.where(released, 1 / 600, 1 / 800)
    model = discriminator_and_pmse.fit_propensity(x, released, weights)
    counts = np.concatenate(
        [
            rng.multinomial(400, np.full(400, 1 / 400), 60).T,
            rng.multinomial(300, np.full(300, 1 / 300), 60).T,
        ]
    )
    resampled = weights[:, None] * counts
    quick = model.resampled(resampled)
    slow = [
        discriminator_and_pmse.fit_propensity(x, released, resampled[:, k]).pmse for k in range(60)
    ]
    assert quick == pytest.approx(slow, rel=0.2)
    assert np.std(quick) == pytest.approx(np.std(slow), rel=0.15)


def test_absent_with_the_reason(exact_table, images, monkeypatch):
    table = exact_table
    few = release_of(table.control)
    evaluation = evaluate(table, few)
    scores = PropensityError().compute(evaluation)
    assert "50 effective released rows for 6 parameters" in named(scores, "pmse/ratio").reason
    assert named(scores, "pmse").value > 0
    monkeypatch.setattr(discriminator_and_pmse, "MOST_PARAMETERS", 60)
    with pytest.raises(NotComputable, match="67 parameters, over 60"):
        PropensityError().compute(evaluate(images, images.control))
    for metric in (Discriminator(), PropensityError()):
        with pytest.raises(NotComputable, match="a model, not rows"):
            metric.compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))
    rows = table.train.rows
    same = np.zeros(40, dtype=int)
    with pytest.raises(NotComputable, match="1 distinct released"):
        Discriminator().compute(
            evaluate(table, Release(Rows(rows.values[same], rows.labels[same])))
        )
