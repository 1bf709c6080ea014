"""Rows as codes by the schema alone, with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from bench.data.encoder import EncodedRows
from bench.methods._shared.codes import EqualBins, category_codes, put_categories
from bench.methods.marginal._bins import Binning
from bench.methods.marginal.marginals import Marginals
from bench.plugins.method import Spec
from bench.plugins.source import build_dataset
from bench.privacy.accounting import Budget
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyGaps, ToyTable

ENCODER = build_dataset(ToyTable()).encoder


def test_numbers_have_equal_bins_and_categories_their_codes() -> None:
    """Age, marker, smoker (sign), stage (largest of three)."""
    values = np.array(
        [[-1.0, -0.51, -1.0, 1.0, 0.0, 0.0], [1.0, 0.01, 1.0, 0.0, 0.2, 0.8]], dtype=np.float32
    )
    rows = EncodedRows(values, np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2))
    bins = EqualBins(ENCODER, 4)
    assert bins.sizes == (4, 4, 2, 3)
    assert bins.codes(rows).tolist() == [[0, 0, 0, 0], [3, 2, 1, 2]]


def test_categories_come_back_from_what_was_put() -> None:
    for block, codes in ((ENCODER.blocks[2], [0, 1, 1]), (ENCODER.blocks[3], [2, 0, 1])):
        values = np.zeros((3, ENCODER.width), dtype=np.float32)
        put_categories(values, block, np.array(codes))
        assert category_codes(values[:, block.slice]).tolist() == codes
        assert np.abs(values).sum() == 3.0


def test_a_missing_number_is_a_bin_of_that_number_and_no_column() -> None:
    data = build_dataset(ToyGaps())
    bins = EqualBins(data.encoder, 8)
    assert [block.column.name for block in bins.blocks] == ["age", "bmi", "smoker", "visits"]
    assert bins.sizes == (8, 9, 3, 9)
    codes = bins.codes(data.train.rows)
    absent = data.train.frame["bmi"].isna().to_numpy()
    assert ((codes[:, 1] == 8) == absent).all()


def test_released_numbers_are_missing_as_often_as_the_real_ones_and_avoid_the_stand_in() -> None:
    data, budget = build_dataset(ToyGaps()), Budget(100.0, 1e-5)
    private, _ = open_private(data, budget, SeededNoise(np.random.default_rng(1)))
    spec = Spec(data.task, 2000, budget)
    rows = Marginals().synthesize(private, spec, np.random.default_rng(2)).rows
    assert rows is not None
    frame = data.encoder.decode(rows.values, rows.labels)
    train = data.train
    for label in (0, 1):
        real = train.frame[train.rows.labels == label]["bmi"]
        made = frame[rows.labels == label]["bmi"]
        assert made.isna().mean() == pytest.approx(real.isna().mean(), abs=0.04)
        # The middle of the bounds, 35, was half of the released numbers once.
        assert made.mean() == pytest.approx(real.mean(), abs=1.5)


def test_binning_has_the_missing_bin_last_and_turns_it_into_a_missing_number() -> None:
    data = build_dataset(ToyGaps())
    binning = Binning(data.encoder, 8)
    assert binning.sizes == (9, 10, 3, 10, 2)
    codes = binning.codes(data.train.rows)
    rows = binning.rows(codes, np.random.default_rng(3))
    back = data.encoder.decode(rows.values, rows.labels)
    for name in ("bmi", "visits"):
        assert back[name].isna().tolist() == data.train.frame[name].isna().tolist()
