"""The record distance against the printed formula, row by row in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from bench.metrics._shared import distance as _distance
from bench.metrics._shared import records as _records
from bench.metrics._shared.distance import Records


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


@pytest.mark.parametrize("numbers, signed", [(4, True), (0, False)])
def test_blocks_and_threads_change_nothing(monkeypatch, numbers, signed):
    rng = np.random.default_rng(2)
    queries, references = (
        _random(rng, rows, signed=signed, numbers=numbers) for rows in (100, 300)
    )

    def found(threads):
        both = _distance.neighbours(queries, references, 3, threads, np.random.default_rng(0))
        more = _distance.k_nearest(queries, references, 3, threads)
        return [array.tobytes() for array in (both.distances, both.index, more)]

    whole = found(1)
    monkeypatch.setattr(_distance, "_QUERIES", 7)
    monkeypatch.setattr(_distance, "_REFERENCES", 11)
    assert found(1) == whole
    assert found(2) == whole
    assert found(5) == whole


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


def test_values_beyond_single_precision_are_compared_exactly():
    nothing = np.empty((3, 0), np.int32)
    rows = Records(np.array([[1e300], [-1e300], [5.0]]), nothing)
    other = Records(np.array([[2e300], [-1e300], [4.0]]), nothing)
    np.testing.assert_allclose(_distance.nearest(rows, other), [0.5, 0.0, 1 / 6])


def test_equal_rows_count_one_by_one():
    """References 1, 1, 3: the three closest of 1 and of 3, worked out by hand."""
    references = Records(np.array([[1.0], [1.0], [3.0]]), np.empty((3, 0), np.int32))
    queries = references.take(np.array([0, 2]))
    np.testing.assert_allclose(
        _distance.k_nearest(queries, references, 3), [[0.0, 0.0, 0.5], [0.0, 0.5, 0.5]]
    )
    # Each row without itself: 1 has a twin, 3 has none.
    alone = _distance.k_nearest(references, references, 2)[:, 1]
    np.testing.assert_allclose(alone, [0.0, 0.0, 0.5])


def test_more_neighbours_than_rows_is_an_error():
    rows = _random(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match="3 of 4"):
        _distance.k_nearest(rows, rows, 4)
    with pytest.raises(ValueError, match="3 of 4"):
        _distance.neighbours(rows, rows, 4)


def test_percentile_bins_by_hand():
    """Halves of 0, 0, 0, 1, 5, 9: the cut is at 0, and 0 lies below it."""
    column = np.array([[0.0], [0.0], [0.0], [1.0], [5.0], [9.0]])
    codes = np.zeros((6, 1), np.int32)
    edges = _records.percentile_edges(Records(column, codes), bins=2)
    np.testing.assert_array_equal(edges[0], [0.0])
    thirds = _records.percentile_edges(Records(column, codes), bins=3)
    np.testing.assert_array_equal(thirds[0], [0.0, 1.0])
    rows = Records(np.array([[-3.0], [0.0], [0.5], [1.0], [7.0], [np.nan]]), codes)
    binned = _records.binned(rows, thirds)
    assert binned.numbers.shape == (6, 0)
    np.testing.assert_array_equal(binned.codes[:, 1], [0, 0, 1, 1, 2, -1])


def test_a_column_without_any_value_is_one_bin():
    rows = Records(np.full((4, 1), np.nan), np.empty((4, 0), np.int32))
    binned = _records.binned(rows, _records.percentile_edges(rows))
    np.testing.assert_array_equal(binned.codes, np.full((4, 1), -1))


def test_binned_distance_is_the_hamming_distance_of_scipy():
    from scipy.spatial.distance import cdist

    rng = np.random.default_rng(4)
    real, other = (_random(rng, rows, signed=True, missing=True) for rows in (200, 90))
    edges = _records.percentile_edges(real)
    real, other = _records.binned(real, edges), _records.binned(other, edges)
    expected = np.sort(cdist(other.codes, real.codes, "hamming"), axis=1)[:, :4]
    np.testing.assert_allclose(_distance.k_nearest(other, real, 4), expected, atol=1e-15)


def test_images_have_nearest_rows_too(images):
    encoder, rows = images.encoder, images.train.rows
    records = Records.of(encoder, encoder.decode(rows.values, rows.labels))
    few = records.take(np.arange(10))
    np.testing.assert_allclose(
        _distance.nearest(few, records.take(np.arange(10, 60))),
        _closest(few, records.take(np.arange(10, 60))),
        atol=1e-13,
    )


def test_identities_are_equal_for_equal_rows_only():
    first = Records(np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 2.0]]), np.zeros((3, 1), np.int32))
    second = Records(np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0], [1]], np.int32))
    a, b = _distance.identities(first, second)
    assert a[0] == a[1] == b[0]
    assert len({a[0], a[2], b[1]}) == 3


def test_identities_of_long_rows_and_of_missing_values():
    rng = np.random.default_rng(0)
    numbers = rng.random((1500, 200))
    numbers[:, 7] = np.nan
    rows = Records(numbers, np.zeros((1500, 1), np.int32))
    first, again = _distance.identities(rows, rows.take(np.arange(1500)[::-1]))
    np.testing.assert_array_equal(first, np.arange(1500))
    np.testing.assert_array_equal(again, np.arange(1500)[::-1])


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
