"""Agreement of SHAP importances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score

from bench.errors import NotComputable
from bench.metrics._shared import downstream_models
from bench.metrics.utility import explanations
from bench.metrics.utility.explanations import Explanations
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import Answers, evaluate, named

REAL = np.array([[0.5], [0.3], [0.15], [0.05]])


def test_a_table_of_four_columns():
    """Order of the release: b, a, d, c."""
    released = np.array([[0.3], [0.4], [0.1], [0.2]])
    discount = 1 / np.log2([2, 3, 4, 5])
    best = float(discount @ REAL[:, 0])
    gained = float(discount @ [0.3, 0.5, 0.05, 0.15])
    assert explanations.ndcg(REAL, released)[0] == pytest.approx(gained / best)
    assert explanations.overlap(REAL, released, 1)[0] == 0.0
    assert explanations.overlap(REAL, released, 2)[0] == 1.0
    assert explanations.overlap(REAL, released, 3)[0] == pytest.approx(2 / 3)
    assert explanations.rank_correlation(REAL, released)[0] == pytest.approx(0.6)


def test_agreements_are_those_of_scikit_learn_and_scipy():
    rng = np.random.default_rng(0)
    real, released = rng.integers(0, 6, (2, 12, 50)) / 10.0
    ndcg = explanations.ndcg(real, released)
    correlation = explanations.rank_correlation(real, released)
    for column in range(50):
        expected = ndcg_score(real[:, column][None], released[:, column][None])
        assert ndcg[column] == pytest.approx(expected)
        expected = spearmanr(real[:, column], released[:, column]).statistic
        assert correlation[column] == pytest.approx(expected)


def test_columns_that_are_never_used_are_not_among_the_first():
    released = np.array([[0.0], [0.0], [0.0], [0.2]])
    assert explanations.overlap(REAL, released, 2)[0] == 0.0
    assert np.isnan(explanations.rank_correlation(REAL, np.zeros((4, 1)))[0])


def test_contributions_are_those_of_the_shap_package(table):
    shap = pytest.importorskip("shap")
    evaluation = evaluate(table, table.train)
    model = downstream_models.tree_classifier(evaluation)
    assert isinstance(model, downstream_models.TreeClassifier)
    values = table.test.rows.values
    signed = shap.TreeExplainer(model.booster).shap_values(values)
    # age, marker, smoker, then three encoded columns of the stage
    by_column = np.column_stack([signed[:, :3], signed[:, 3:6].sum(axis=1)])
    absolute = explanations.contributions(model, table.encoder, values)
    np.testing.assert_allclose(absolute, np.abs(by_column), atol=2e-4)


def test_classes_are_averaged():
    """Three classes: contributions of each class from xgboost itself, one column at a time."""
    import xgboost

    from bench.data.encoder import Encoder
    from bench.data.schema import Categorical, Numeric, Role, Schema, Task

    columns = (
        Numeric(name="a", low=-1, high=1),
        Categorical(name="b", categories=("x", "y", "z")),
        Categorical(name="label", categories=("0", "1", "2"), role=Role.TARGET),
    )
    encoder = Encoder(Schema(columns, Task.CLASSIFICATION))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    values = np.column_stack([(labels - 1) * rng.random(300), np.eye(3)[rng.integers(0, 3, 300)]])
    examples = downstream_models.Examples.of(encoder, values, labels)
    model = downstream_models.fit_tree_classifier(examples, 3, np.random.default_rng(0))
    raw = model.booster.predict(xgboost.DMatrix(values), pred_contribs=True)
    assert raw.shape == (300, 3, 5)
    absolute = explanations.contributions(model, encoder, values)
    np.testing.assert_allclose(absolute[:, 0], np.abs(raw[:, :, 0]).mean(axis=1), rtol=1e-5)
    summed = np.abs(raw[:, :, 1:4].sum(axis=2)).mean(axis=1)
    np.testing.assert_allclose(absolute[:, 1], summed, rtol=1e-4, atol=1e-6)


def test_training_rows_agree_with_themselves(table):
    """But for columns that are about as important: trees of another seed swap them."""
    scores = Explanations().compute(evaluate(table, table.train))
    assert named(scores, "shap/overlap").value >= 0.5
    assert named(scores, "shap/overlap").high == 1.0
    assert named(scores, "shap/ndcg").value > 0.99
    assert named(scores, "shap/rank-correlation").value > 0.7
    for score in scores.scores:
        assert score.low <= score.value <= score.high
    importance = scores.details["shap"]
    assert importance["column"].tolist()[0] == "marker"
    assert (importance["real-low"] <= importance["real"]).all()
    agreement = scores.details["shap-agreement"].set_index("output")
    assert agreement.loc["shap/overlap", "chance"] == 0.5
    assert 0.5 < agreement.loc["shap/ndcg", "chance"] < 0.95


def test_a_release_that_swaps_two_columns_is_seen(table):
    rows = table.train.rows
    values = rows.values.copy()
    values[:, [1, 2]] = values[:, [2, 1]]
    scores = Explanations().compute(evaluate(table, Release(Rows(values, rows.labels))))
    honest = Explanations().compute(evaluate(table, table.train))
    assert named(scores, "shap/ndcg").value < named(honest, "shap/ndcg").value - 0.1
    chance = scores.details["shap-agreement"].set_index("output")["chance"]
    assert named(scores, "shap/ndcg").value < chance["shap/ndcg"] + 0.2


def test_chance_is_what_random_orders_get():
    rng = np.random.default_rng(0)
    random = rng.random((4, 20_000))
    expected = explanations.ndcg(np.repeat(REAL, 20_000, axis=1), random).mean()
    tied = explanations.ndcg(REAL, np.zeros((4, 1)))[0]
    assert tied == pytest.approx(expected, abs=0.003)


def test_survival_is_explained_by_the_aft_trees(patients):
    scores = Explanations().compute(evaluate(patients, patients.train))
    assert scores.details["shap"]["column"].tolist() == ["risk", "arm"]
    assert named(scores, "shap/overlap").value == 1.0


def test_a_release_without_signal_has_no_rank_correlation(table):
    rows = table.train.rows
    alike = Rows(np.zeros_like(rows.values), rows.labels)
    scores = Explanations().compute(evaluate(table, Release(alike)))
    assert named(scores, "shap/overlap").value == 0.0
    assert "uses no column" in named(scores, "shap/rank-correlation").reason
    chance = scores.details["shap-agreement"].set_index("output")["chance"]
    assert named(scores, "shap/ndcg").value == pytest.approx(chance["shap/ndcg"])


def test_absent_for_models_and_without_test_rows(table):
    with pytest.raises(NotComputable, match="trees only"):
        Explanations().compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))
    none = replace(table, test=replace(table.test, rows=table.test.rows.take(np.arange(0))))
    with pytest.raises(NotComputable, match="no test rows"):
        Explanations().compute(evaluate(none, table.train))
