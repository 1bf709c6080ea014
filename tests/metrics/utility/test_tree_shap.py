"""SHAP values against XGBoost's own."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost

from bench.errors import BenchError
from bench.metrics.utility._tree_shap import grouped_shap


def _booster(features, labels, **parameters):
    matrix = xgboost.DMatrix(features, label=labels)
    return xgboost.train({"max_depth": 5, "seed": 1, **parameters}, matrix, 12)


def _table(missing):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(700, 6)).astype(np.float32)
    features[:, 3] = np.round(features[:, 3])
    labels = (features[:, 0] * features[:, 1] + features[:, 3] + rng.normal(size=700) > 0).astype(
        int
    )
    if missing:
        features[rng.random(features.shape) < 0.1] = np.nan
    return features, labels


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_values_are_those_of_xgboost(missing, objective):
    features, labels = _table(missing)
    booster = _booster(features, labels, objective=objective)
    expected = booster.predict(xgboost.DMatrix(features), pred_contribs=True)[:, :-1]
    values = grouped_shap(booster, features, np.arange(6))[:, 0]
    assert values == pytest.approx(expected, abs=2e-5)


def test_groups_are_sums_of_columns():
    features, labels = _table(False)
    booster = _booster(features, labels, objective="binary:logistic")
    by_column = grouped_shap(booster, features, np.arange(6))[:, 0]
    groups = np.array([0, 0, 1, 2, 2, 2])
    expected = np.add.reduceat(by_column, [0, 2, 3], axis=1)
    assert grouped_shap(booster, features, groups)[:, 0] == pytest.approx(expected, abs=1e-12)


def test_every_class_has_its_values():
    features, labels = _table(False)
    labels = labels + (features[:, 2] > 0)
    booster = _booster(features, labels, objective="multi:softprob", num_class=3)
    expected = booster.predict(xgboost.DMatrix(features), pred_contribs=True)[:, :, :-1]
    assert grouped_shap(booster, features, np.arange(6)) == pytest.approx(expected, abs=2e-5)


def test_trees_without_a_split_add_nothing():
    features, _ = _table(False)
    booster = _booster(features, np.zeros(700), objective="binary:logistic")
    assert not grouped_shap(booster, features, np.arange(6)).any()


def test_long_paths_and_categories_are_refused():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(3000, 12)).astype(np.float32)
    labels = np.prod(np.sign(features), axis=1) + features.sum(axis=1)
    deep = _booster(features, labels, max_depth=12, min_child_weight=0)
    with pytest.raises(BenchError, match="expected at most 8"):
        grouped_shap(deep, features, np.arange(12))
    codes = rng.integers(0, 4, (200, 1)).astype(np.float32)
    matrix = xgboost.DMatrix(
        codes, label=codes[:, 0] % 2, feature_types=["c"], enable_categorical=True
    )
    booster = xgboost.train({"max_depth": 2, "max_cat_to_onehot": 1}, matrix, 2)
    with pytest.raises(BenchError, match="splits on categories"):
        grouped_shap(booster, codes, np.arange(1))
