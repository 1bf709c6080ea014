"""Boosted trees of depth 3, against XGBoost and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost

from bench.metrics._shared import shallow_trees
from bench.metrics._shared.shallow_trees import BinnedRows

PLAIN = {
    "max_depth": 3,
    "learning_rate": 0.1,
    "reg_lambda": 0.0,
    "min_child_weight": 0.0,
    "nthread": 1,
    "verbosity": 0,
}


def sums(trees, values):
    return trees.sums(np.ascontiguousarray(np.asarray(values, dtype=np.float32).T))


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_trees_are_those_of_xgboost(logistic, weighted):
    """Every split is tried by both: the same predictions for rows that were not learned from."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(900, 5)).astype(np.float32)
    values[:, 3] = rng.integers(0, 4, 900)
    signal = values[:, 0] * (1 + (values[:, 3] > 1)) + 0.5 * rng.normal(size=900)
    target = (signal > 0).astype(float) if logistic else signal
    weights = rng.uniform(0.2, 2.0, 900) if weighted else np.ones(900)
    learned, asked = slice(0, 500), slice(500, None)
    objective = {"objective": "binary:logistic" if logistic else "reg:squarederror"}
    start = {"base_score": 0.5 if logistic else 0.0}
    matrix = xgboost.DMatrix(values[learned], label=target[learned], weight=weights[learned])
    booster = xgboost.train({**PLAIN, **objective, **start, "tree_method": "exact"}, matrix, 100)
    expected = booster.predict(xgboost.DMatrix(values[asked]), output_margin=True)

    rows = BinnedRows.of(values[learned], exact=True)
    grown = shallow_trees.grow(rows, target[learned], weights[learned], logistic=logistic)
    difference = np.abs(sums(grown.trees, values[asked]) - expected)
    # Between two splits of the same gain rounding decides; all others are the same.
    assert np.mean(difference > 1e-5) < 0.1
    assert difference.max() < 0.2
    assert sums(grown.trees, values[learned]) == pytest.approx(grown.predictions, abs=1e-5)


def test_categories_are_split_one_from_the_rest():
    """As one group of bins or as columns of zeros and ones: the same trees."""
    rng = np.random.default_rng(1)
    category = rng.integers(0, 6, 700)
    values = np.column_stack([np.eye(6)[category], rng.normal(size=700)])
    target = (
        np.array([0.0, 3.0, 1.0, -2.0, 0.0, 5.0])[category] + values[:, 6] + rng.normal(size=700)
    )
    together = BinnedRows.of(values, True, [slice(0, 6)])
    assert together.bins.shape == (700, 2)
    grown = [
        shallow_trees.grow(rows, target).trees for rows in (together, BinnedRows.of(values, True))
    ]
    assert sums(grown[0], values) == pytest.approx(sums(grown[1], values), abs=1e-5)


def test_the_first_split_by_hand():
    """Two values of x, means 1 and 5: one split at 1/2, a tenth of the way in the first tree."""
    rows = BinnedRows.of(np.array([[0.0], [0.0], [1.0], [1.0]]), True)
    grown = shallow_trees.grow(rows, np.array([0.0, 2.0, 4.0, 6.0]), rounds=1)
    assert grown.trees.features[0, 0] == 0
    assert grown.trees.thresholds[0].tolist() == [0.5, *[np.inf] * 6]
    assert grown.predictions == pytest.approx([0.1, 0.1, 0.5, 0.5])
    assert grown.trees.leaves[0] == pytest.approx([0.1] * 4 + [0.5] * 4)


def test_a_threshold_lies_between_the_values_of_the_node():
    """The left node holds 0 and 3 only; its threshold is not moved by the 2 of the right one."""
    values = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 9.0], [2.0, 9.0]])
    grown = shallow_trees.grow(
        BinnedRows.of(values, True), np.array([0.0, 1.0, 10.0, 13.0]), rounds=1
    )
    assert grown.trees.thresholds[0, :3].tolist() == [4.5, 1.5, 1.0]


def test_groups_that_do_not_take_part_are_not_split():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(200, 3))
    rows = BinnedRows.of(values, True)
    beside = rows.groups_beside(slice(1, 2))
    assert beside.tolist() == [0, 2]
    grown = shallow_trees.grow(rows, values[:, 1], groups=beside)
    assert 1 not in grown.trees.features[np.isfinite(grown.trees.thresholds)]


def test_many_values_share_bins_of_as_many_rows():
    values = np.sort(np.random.default_rng(3).normal(size=(10_000, 1)), axis=0)
    values[:100] = values[0]
    rows = BinnedRows.of(values, exact=False, most=50)
    assert len(rows.lowest) <= 50
    counts = np.bincount(rows.bins[:, 0])
    assert counts.min() > 0
    assert counts.max() <= 400
    assert (np.diff(rows.bins[:, 0].astype(int)) >= 0).all()
    assert (rows.lowest <= rows.highest).all()
    assert (rows.highest[:-1] < rows.lowest[1:]).all()
    assert len(BinnedRows.of(values, exact=True).lowest) == 9901


def test_nothing_to_learn_is_one_leaf():
    rows = BinnedRows.of(np.zeros((5, 2)), True)
    grown = shallow_trees.grow(rows, np.ones(5), rounds=2)
    assert grown.predictions == pytest.approx([0.19] * 5)
    with pytest.raises(ValueError, match="finite"):
        BinnedRows.of(np.array([[np.nan]]), True)
