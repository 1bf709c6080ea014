"""Cutting columns into bins by the schema, with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from bench.data.schema import Numeric
from bench.methods.marginal._bins import Binning, Cut
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
