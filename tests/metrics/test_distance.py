"""The record distance against the printed formula, row by row in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from bench.metrics import _distance
from bench.metrics._distance import Records


def _printed(first, second, numeric):
    """Equation 1 of section 3.1 with one minus the printed numeric similarity."""
    total = 0.0
    for a, b, is_number in zip(first, second, numeric, strict=True):
        if not is_number:
            total += a != b
        elif math.isnan(a) or math.isnan(b):
            total += math.isnan(a) != math.isnan(b)
        elif min(a, b) >= 0:
            total += 1 - (1 + min(a, b)) / (1 + max(a, b))
        else:
            total += 1 - 1 / (1 + max(a, b) + abs(min(a, b)))
    return total / len(numeric)


def _closest(queries, references):
    numeric = [True] * queries.numbers.shape[1] + [False] * queries.codes.shape[1]
    left, right = (
        [[*numbers, *codes] for numbers, codes in zip(r.numbers, r.codes, strict=True)]
        for r in (queries, references)
    )
    return [min(_printed(a, b, numeric) for b in right) for a in left]


def _random(rng, rows, signed=False, missing=False, numbers=4, codes=3):
    values = rng.exponential(20, (rows, numbers))
    if signed:
        values[:, 0] = rng.normal(0, 3, rows)
        values[:, 1] = -values[:, 1]
    categories = rng.integers(0, 3, (rows, codes)).astype(np.int32)
    if missing:
        values[rng.random(values.shape) < 0.2] = np.nan
        categories[rng.random(categories.shape) < 0.2] = -1
    return Records(values, categories)


def test_hand_table():
    """Columns: platelets, base excess, sex.

    a = (250, -2, 0), b = (200, 1, 0), c = (250, -2, 1).
    a to b: 1 - 201/251, 1 - 1/(1 + 1 + 2) = 3/4, 0. a to c: 0, 0, 1. b to c: 1 - 201/251, 3/4, 1.
    """
    rows = Records(
        np.array([[250.0, -2.0], [200.0, 1.0], [250.0, -2.0]]), np.array([[0], [0], [1]], np.int32)
    )
    a, b, c = (np.array([k]) for k in range(3))
    platelets = 50 / 251
    pairs = {(0, 1): platelets + 0.75, (0, 2): 1.0, (1, 2): platelets + 1.75}
    for (left, right), total in pairs.items():
        for one, two in ((left, right), (right, left)):
            value = _distance.distances(rows.take(np.array([one])), rows.take(np.array([two])))
            assert value[0] == pytest.approx(total / 3, abs=1e-15)
    others = Records(np.concatenate([rows.numbers[b], rows.numbers[c]]), rows.codes[[1, 2]])
    assert _distance.nearest(rows.take(a), others)[0] == pytest.approx((platelets + 0.75) / 3)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_nearest_is_the_plain_double_loop(signed, missing):
    rng = np.random.default_rng([signed, missing])
    queries, references = (_random(rng, rows, signed, missing) for rows in (37, 61))
    expected = _closest(queries, references)
    np.testing.assert_allclose(_distance.nearest(queries, references), expected, atol=1e-14)


@pytest.mark.parametrize("numbers, codes", [(0, 5), (5, 0), (1, 1)])
def test_nearest_of_one_kind_of_column(numbers, codes):
    rng = np.random.default_rng(1)
    queries, references = (_random(rng, 40, numbers=numbers, codes=codes) for _ in range(2))
    expected = _closest(queries, references)
    np.testing.assert_allclose(_distance.nearest(queries, references), expected, atol=1e-14)


def test_blocks_and_threads_change_nothing(monkeypatch):
    rng = np.random.default_rng(2)
    queries, references = _random(rng, 100, signed=True), _random(rng, 150, signed=True)
    whole = _distance.nearest(queries, references)
    monkeypatch.setattr(_distance, "_QUERIES", 7)
    monkeypatch.setattr(_distance, "_REFERENCES", 11)
    monkeypatch.setattr(_distance, "_PAIRS", 3)
    assert _distance.nearest(queries, references).tobytes() == whole.tobytes()
    assert _distance.nearest(queries, references, threads=2).tobytes() == whole.tobytes()


def test_differences_below_single_precision_are_seen():
    """Both references look alike in float32; one equals the query, the other does not."""
    query = Records(np.array([[1e7 + 0.25], [-1e7 - 0.25]]), np.empty((2, 0), np.int32))
    near = Records(np.array([[1e7 + 0.5], [-1e7 - 0.5]]), np.empty((2, 0), np.int32))
    both = Records(np.concatenate([near.numbers, query.numbers]), np.empty((4, 0), np.int32))
    np.testing.assert_array_equal(_distance.nearest(query, both), [0.0, 0.0])
    expected = [0.25 / (1e7 + 1.5), 0.25 / 1.25]
    np.testing.assert_allclose(_distance.nearest(query, near), expected, rtol=1e-9)


def test_many_ties_and_many_categories():
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 200, (50, 2)).astype(np.int32)
    numbers = np.ones((50, 1))
    queries, references = Records(numbers, codes), Records(numbers, codes[::-1].copy())
    np.testing.assert_array_equal(_distance.nearest(queries, references), np.zeros(50))
    far = Records(numbers, codes + 1000)
    np.testing.assert_allclose(_distance.nearest(queries, far), np.full(50, 2 / 3))


def test_identities_are_equal_for_equal_rows_only():
    first = Records(np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 2.0]]), np.zeros((3, 1), np.int32))
    second = Records(np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0], [1]], np.int32))
    a, b = _distance.identities(first, second)
    assert a[0] == a[1] == b[0]
    assert len({a[0], a[2], b[1]}) == 3


def test_records_hold_features_time_and_label(cohort):
    encoder, rows = cohort.encoder, cohort.train.rows
    decoded = encoder.decode(rows.values, rows.labels)
    records = Records.of(encoder, decoded)
    assert records.width == 4
    np.testing.assert_allclose(records.numbers, cohort.train.frame[["risk", "months"]], atol=1e-4)
    np.testing.assert_array_equal(records.codes[:, 1], cohort.train.frame["death"])
    decoded = pd.concat([decoded, decoded.iloc[:1]], ignore_index=True)
    decoded.loc[len(decoded) - 1, ["risk", "arm"]] = [np.nan, np.nan]
    last = Records.of(encoder, decoded).take(np.array([len(decoded) - 1]))
    assert np.isnan(last.numbers[0, 0])
    assert last.codes[0, 0] == -1


def test_no_reference_is_an_error():
    rows = _random(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match="no reference"):
        _distance.nearest(rows, rows.take(np.zeros(3, dtype=bool)))
