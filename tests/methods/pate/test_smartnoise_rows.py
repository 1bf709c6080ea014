"""Rows for the networks of smartnoise-synth, and from them, with known answers."""

from __future__ import annotations

import numpy as np

from bench.data.encoder import Floats, Integers
from bench.methods.pate._smartnoise import (
    any_condition,
    class_condition,
    encoded_table,
    from_network,
    network_table,
    stratified,
    uniform_rows,
)
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from tests.support.tables import ToyTable

TABLE = build_dataset(ToyTable())


def test_a_table_for_a_network_comes_back_the_same() -> None:
    rows, encoder = TABLE.train.rows, TABLE.encoder
    table = network_table(rows, encoder)
    assert table.columns.tolist() == ["age", "marker", "smoker", "stage", "outcome"]
    assert np.array_equal(encoded_table(table, encoder), rows.values)
    one_hot = np.concatenate(
        [
            rows.values[:, :2],
            np.eye(2)[table["smoker"]],
            np.eye(3)[table["stage"]],
            np.eye(2)[table["outcome"]],
        ],
        axis=1,
    )
    values, labels = from_network(one_hot, encoder)
    assert np.array_equal(values, rows.values) and np.array_equal(labels, rows.labels)


def test_conditions_name_one_category() -> None:
    # Categorical columns: smoker (2), stage (3) and, for a class, the label (2).
    assert class_condition(TABLE.encoder, 1, 2).tolist() == [[0, 0, 0, 0, 0, 0, 1]] * 2
    condition = any_condition(TABLE.encoder, 6000, np.random.default_rng(0))
    assert (condition.sum(axis=1) == 1).all()
    assert np.allclose(condition.mean(axis=0), [1 / 4] * 2 + [1 / 6] * 3, atol=0.03)


def test_classes_are_filled_with_rows_that_have_their_label() -> None:
    rng = np.random.default_rng(0)

    def draw(label: int, count: int) -> tuple[Floats, Integers]:
        values = uniform_rows(TABLE.encoder, count, rng)
        labels = (rng.random(count) < 0.1).astype(np.int64)
        values[:, 0] = np.where(labels == 1, 0.5, -0.5)  # the age tells the label
        return values, labels

    drawn = stratified(TABLE.encoder, draw, (30, 50), rng)
    assert drawn.rows.labels.tolist() == [0] * 30 + [1] * 50
    assert drawn.rows.values[:, 0].tolist() == [-0.5] * 30 + [0.5] * 50
    assert drawn.from_schema == 0 and drawn.tried >= 500


def test_a_class_that_is_never_drawn_comes_from_the_schema_and_is_counted() -> None:
    rng = np.random.default_rng(0)

    def draw(label: int, count: int) -> tuple[Floats, Integers]:
        return np.zeros((count, TABLE.encoder.width), np.float32), np.zeros(count, np.int64)

    drawn = stratified(TABLE.encoder, draw, (5, 7), rng)
    assert drawn.from_schema == 7
    assert not drawn.rows.values[:5].any() and drawn.rows.values[5:].any(axis=1).all()
    assert drawn.tried <= 5 * 100 + 7 * 50 + 2000


def test_the_release_counts_what_was_tried_and_carries_the_claim() -> None:
    rng = np.random.default_rng(0)

    def draw(label: int, count: int) -> tuple[Floats, Integers]:
        return uniform_rows(TABLE.encoder, count, rng), np.full(count, label)

    drawn = stratified(TABLE.encoder, draw, (3, 4), rng)
    release = drawn.release(Budget(2.0, 1e-5), "a library", vote_noise=7.0)
    assert release.claim is not None
    assert (release.claim.epsilon, release.claim.source) == (2.0, "a library")
    assert release.notes == {"rows_tried": 200, "rows_from_schema": 0, "vote_noise": 7.0}
