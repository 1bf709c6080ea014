"""AUROC of a release."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bench.core.errors import NotComputable
from bench.core.release import Release, Rows
from bench.metrics.utility import Auroc
from tests.metrics.helpers import Answers, evaluate, only, release_of


def test_auroc_of_the_training_rows_is_high_and_its_table_reproduces_it(table):
    scores = Auroc().compute(evaluate(table, table.train))
    value, low, high = only(scores)
    assert 0.8 < low < value < high <= 1.0
    assert value > 0.9
    predictions = scores.details["predictions"]
    assert list(predictions["label"]) == list(table.test.rows.labels)
    assert value == pytest.approx(roc_auc_score(predictions["label"], predictions["score"]))


def test_auroc_of_shuffled_labels_is_chance(table):
    rows = table.train.rows
    labels = np.random.default_rng(0).permutation(rows.labels)
    value, low, high = only(Auroc().compute(evaluate(table, Release(Rows(rows.values, labels)))))
    assert low < 0.5 < high
    assert value < 0.7


def test_a_released_model_is_asked_directly(table):
    seen = []

    def marker(values):
        seen.append(values.shape)
        return np.column_stack([-values[:, 1], values[:, 1]])

    value, _, _ = only(Auroc().compute(evaluate(table, Release(model=Answers(marker)))))
    test = table.test
    assert value == pytest.approx(roc_auc_score(test.rows.labels, test.frame["marker"]))
    assert seen == [(len(test), table.encoder.feature_width)]


def test_same_seed_same_score_and_the_same_resamples_for_every_release(table):
    first, again, other = (
        only(Auroc().compute(evaluate(table, table.train, seed))) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_weights_of_the_release_are_used(table):
    rows = table.train.rows
    flipped = np.concatenate([rows.labels, 1 - rows.labels])
    values = np.concatenate([rows.values, rows.values])
    trusted = np.repeat([1.0, 1e-3], len(rows))
    value, _, _ = only(Auroc().compute(evaluate(table, Release(Rows(values, flipped, trusted)))))
    assert value > 0.85


def test_one_class_has_no_auroc(table):
    rows = table.train.rows
    release = Release(Rows(rows.values, np.ones_like(rows.labels)))
    with pytest.raises(NotComputable, match="one class only"):
        Auroc().compute(evaluate(table, release))


def test_a_class_without_weight_is_absent(table):
    labels = table.train.rows.labels
    release = release_of(table.train, weights=(labels == 1).astype(float))
    with pytest.raises(NotComputable, match="one class only"):
        Auroc().compute(evaluate(table, release))


def test_three_classes_have_no_auroc(images):
    with pytest.raises(NotComputable, match="two classes"):
        Auroc().compute(evaluate(images, images.train))
