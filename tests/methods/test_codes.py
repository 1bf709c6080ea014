"""Rows as codes by the schema alone, with known answers."""

from __future__ import annotations

import numpy as np

from bench.data.encoder import EncodedRows
from bench.methods._shared.codes import EqualBins, category_codes, put_categories
from bench.plugins.source import build_dataset
from tests.support.tables import ToyTable

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
