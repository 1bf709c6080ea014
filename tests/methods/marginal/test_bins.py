"""Cutting columns into bins by the schema, and rows for and from networks, with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from bench.data.encoder import Floats, Integers
from bench.data.schema import Numeric
from bench.methods.marginal._bins import Binning, Cut
from bench.methods.pate._ctgan import any_condition, class_condition
from bench.methods.pate._rows import (
    encoded_table,
    from_network,
    network_table,
    stratified,
    uniform_rows,
)
from bench.plugins.source import DatasetSource, build_dataset
from tests.support.tables import ToySurvival, ToyTable

TABLE = build_dataset(ToyTable())


def scaled(column: Numeric, numbers: list[float]) -> np.ndarray:
    span = column.high - column.low
    return np.asarray(2.0 * (np.array(numbers) - column.low) / span - 1.0)


def test_a_number_is_cut_between_its_bounds_with_a_bin_for_the_lower_one() -> None:
    column = Numeric(name="x", low=0, high=8)
    cut = Cut.of(column, 4)
    assert cut.lower.tolist() == [0, 0, 2, 4, 6]
    assert cut.upper.tolist() == [0, 2, 4, 6, 8]
    assert cut.codes(scaled(column, [0, 0.5, 1.9, 2, 5, 8])).tolist() == [0, 1, 1, 2, 3, 4]


def test_whole_numbers_are_cut_between_whole_numbers() -> None:
    column = Numeric(name="x", low=0, high=10, integer=True)
    cut = Cut.of(column, 5)
    assert cut.lower.tolist() == [0, 1, 3, 5, 7, 9]
    assert cut.codes(scaled(column, list(range(11)))).tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    drawn = cut.numbers(np.repeat(np.arange(6), 200), np.random.default_rng(0)).reshape(6, 200)
    assert [sorted(set(numbers)) for numbers in drawn] == [
        [0],
        [1, 2],
        [3, 4],
        [5, 6],
        [7, 8],
        [9, 10],
    ]


def test_few_whole_numbers_have_a_bin_each() -> None:
    cut = Cut.of(Numeric(name="x", low=1, high=4, integer=True), 4)
    assert cut.lower.tolist() == cut.upper.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("source", [ToyTable(), ToySurvival()])
def test_rows_drawn_from_codes_have_these_codes(source: DatasetSource) -> None:
    data = build_dataset(source)
    binning = Binning(data.encoder, 6)
    codes = binning.codes(data.train.rows)
    assert (codes >= 0).all() and (codes < np.array(binning.sizes)).all()
    rows = binning.rows(codes, np.random.default_rng(0))
    assert rows.labels.tolist() == data.train.rows.labels.tolist()
    again = data.encoder.decode(rows.values, rows.labels)
    encoded, clipped = data.encoder.encode(again)
    assert not any(clipped.values())
    # Encoded values are single precision: a number just below an edge may be rounded onto it.
    assert (binning.codes(encoded) == codes).mean() > 0.999


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
