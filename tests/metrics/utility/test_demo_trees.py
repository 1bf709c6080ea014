"""Scores by the trees of the zero-order authors' demos."""

from __future__ import annotations

import numpy as np
import pytest
from lifelines.utils import concordance_index
from sklearn.metrics import roc_auc_score

from bench.metrics._shared import demo_trees
from bench.metrics.utility.demo_trees import DemoAftConcordance, DemoAuroc
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import evaluate


def test_the_c_index_of_the_real_rows_is_that_of_lifelines(patients) -> None:
    evaluation = evaluate(patients, patients.train)
    score, ratio = DemoAftConcordance().compute(evaluation).scores
    model = demo_trees.demo_survival(evaluation)
    test = patients.test
    features = test.rows.values[:, : patients.encoder.feature_width]
    expected = concordance_index(
        test.frame["months"], -model.predict(features), test.frame["death"]
    )
    assert score.value == pytest.approx(expected, abs=1e-9)
    assert 0.6 < score.low < score.value < score.high
    # Two fits of the same rows that draw other rows for their trees.
    assert ratio.value == pytest.approx(1.0, abs=0.05)


def test_the_area_of_the_real_rows_is_that_of_scikit_learn(table) -> None:
    evaluation = evaluate(table, table.train)
    score, ratio = DemoAuroc().compute(evaluation).scores
    model = demo_trees.demo_classifier(evaluation)
    features = table.test.rows.values[:, : table.encoder.feature_width]
    expected = roc_auc_score(table.test.rows.labels, model.predict(features)[:, 1])
    assert score.value == pytest.approx(expected, abs=1e-9)
    assert ratio.value == pytest.approx(1.0, abs=0.05)


def test_trees_stop_at_the_lowest_loss_and_have_depth_three(table) -> None:
    evaluation = evaluate(table, table.train)
    model = demo_trees.demo_classifier(evaluation)
    frame = model.booster.trees_to_dataframe()
    assert frame["ID"].str.split("-").str[1].astype(int).max() <= 14  # 2^4 - 1 nodes
    assert model.booster.num_boosted_rounds() < demo_trees.CLASSIFIER[0]


def test_labels_in_random_order_give_chance(table) -> None:
    rows = table.train.rows
    labels = np.random.default_rng(1).permutation(rows.labels)
    score = DemoAuroc().compute(evaluate(table, Release(Rows(rows.values, labels)))).scores[0]
    assert score.low < 0.6
