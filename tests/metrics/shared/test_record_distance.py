"""The record distance against the printed formula, row by row in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bench.metrics._shared import record_distance
from bench.metrics._shared.record_distance import Records, ReferenceRange


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
            value = record_distance.distances(
                rows.take(np.array([one])), rows.take(np.array([two]))
            )
            assert value[0] == pytest.approx(total / 3, abs=1e-15)
    others = Records(np.concatenate([rows.numbers[b], rows.numbers[c]]), rows.codes[[1, 2]])
    assert record_distance.nearest(rows.take(a), others)[0] == pytest.approx((platelets + 0.75) / 3)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_nearest_is_the_plain_double_loop(signed, missing):
    rng = np.random.default_rng([signed, missing])
    queries, references = (_random(rng, rows, signed, missing) for rows in (37, 61))
    expected = _closest(queries, references)
    np.testing.assert_allclose(record_distance.nearest(queries, references), expected, atol=1e-14)


@pytest.mark.parametrize("numbers, codes", [(0, 5), (5, 0), (1, 1)])
def test_nearest_of_one_kind_of_column(numbers, codes):
    rng = np.random.default_rng(1)
    queries, references = (_random(rng, 40, numbers=numbers, codes=codes) for _ in range(2))
    expected = _closest(queries, references)
    np.testing.assert_allclose(record_distance.nearest(queries, references), expected, atol=1e-14)


@pytest.mark.parametrize("numbers, signed", [(4, True), (0, False)])
def test_blocks_and_threads_change_nothing(monkeypatch, numbers, signed):
    rng = np.random.default_rng(2)
    queries, references = (
        _random(rng, rows, signed=signed, numbers=numbers) for rows in (100, 300)
    )

    def nearest(threads):
        both = record_distance.neighbours(queries, references, 3, threads, np.random.default_rng(0))
        more = record_distance.k_nearest(queries, references, 3, threads)
        return [array.tobytes() for array in (both.distances, both.index, more)]

    whole = nearest(1)
    monkeypatch.setattr(record_distance, "_QUERIES", 7)
    monkeypatch.setattr(record_distance, "_REFERENCES", 11)
    assert nearest(1) == whole
    assert nearest(2) == whole
    assert nearest(5) == whole


def test_differences_below_single_precision_are_seen():
    """Both references look alike in float32; one equals the query, the other does not."""
    query = Records(np.array([[1e7 + 0.25], [-1e7 - 0.25]]), np.empty((2, 0), np.int32))
    near = Records(np.array([[1e7 + 0.5], [-1e7 - 0.5]]), np.empty((2, 0), np.int32))
    both = Records(np.concatenate([near.numbers, query.numbers]), np.empty((4, 0), np.int32))
    np.testing.assert_array_equal(record_distance.nearest(query, both), [0.0, 0.0])
    expected = [0.25 / (1e7 + 1.5), 0.25 / 1.25]
    np.testing.assert_allclose(record_distance.nearest(query, near), expected, rtol=1e-9)


def test_many_ties_and_many_categories():
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 200, (50, 2)).astype(np.int32)
    numbers = np.ones((50, 1))
    queries, references = Records(numbers, codes), Records(numbers, codes[::-1].copy())
    np.testing.assert_array_equal(record_distance.nearest(queries, references), np.zeros(50))
    far = Records(numbers, codes + 1000)
    np.testing.assert_allclose(record_distance.nearest(queries, far), np.full(50, 2 / 3))


def test_values_beyond_single_precision_are_compared_exactly():
    nothing = np.empty((3, 0), np.int32)
    rows = Records(np.array([[1e300], [-1e300], [5.0]]), nothing)
    other = Records(np.array([[2e300], [-1e300], [4.0]]), nothing)
    np.testing.assert_allclose(record_distance.nearest(rows, other), [0.5, 0.0, 1 / 6])


def test_equal_rows_count_one_by_one():
    """References 1, 1, 3: the three closest of 1 and of 3, worked out by hand."""
    references = Records(np.array([[1.0], [1.0], [3.0]]), np.empty((3, 0), np.int32))
    queries = references.take(np.array([0, 2]))
    np.testing.assert_allclose(
        record_distance.k_nearest(queries, references, 3), [[0.0, 0.0, 0.5], [0.0, 0.5, 0.5]]
    )
    # Each row without itself: 1 has a twin, 3 has none.
    alone = record_distance.k_nearest(references, references, 2)[:, 1]
    np.testing.assert_allclose(alone, [0.0, 0.0, 0.5])


def test_more_neighbours_than_rows_is_an_error():
    rows = _random(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match="3 of 4"):
        record_distance.k_nearest(rows, rows, 4)
    with pytest.raises(ValueError, match="3 of 4"):
        record_distance.neighbours(rows, rows, 4)


def test_percentile_bins_by_hand():
    """Halves of 0, 0, 0, 1, 5, 9: the cut is at 0, and 0 lies below it."""
    column = np.array([[0.0], [0.0], [0.0], [1.0], [5.0], [9.0]])
    codes = np.zeros((6, 1), np.int32)
    edges = record_distance.percentile_edges(Records(column, codes), bins=2)
    np.testing.assert_array_equal(edges[0], [0.0])
    thirds = record_distance.percentile_edges(Records(column, codes), bins=3)
    np.testing.assert_array_equal(thirds[0], [0.0, 1.0])
    rows = Records(np.array([[-3.0], [0.0], [0.5], [1.0], [7.0], [np.nan]]), codes)
    binned = record_distance.binned(rows, thirds)
    assert binned.numbers.shape == (6, 0)
    np.testing.assert_array_equal(binned.codes[:, 1], [0, 0, 1, 1, 2, -1])


def test_a_column_without_any_value_is_one_bin():
    rows = Records(np.full((4, 1), np.nan), np.empty((4, 0), np.int32))
    binned = record_distance.binned(rows, record_distance.percentile_edges(rows))
    np.testing.assert_array_equal(binned.codes, np.full((4, 1), -1))


def test_binned_distance_is_the_hamming_distance_of_scipy():
    from scipy.spatial.distance import cdist

    rng = np.random.default_rng(4)
    real, other = (_random(rng, rows, signed=True, missing=True) for rows in (200, 90))
    edges = record_distance.percentile_edges(real)
    real, other = record_distance.binned(real, edges), record_distance.binned(other, edges)
    expected = np.sort(cdist(other.codes, real.codes, "hamming"), axis=1)[:, :4]
    np.testing.assert_allclose(record_distance.k_nearest(other, real, 4), expected, atol=1e-15)


def test_images_have_nearest_rows_too(images):
    encoder, rows = images.encoder, images.train.rows
    records = Records.of(encoder, encoder.decode(rows.values, rows.labels))
    few = records.take(np.arange(10))
    np.testing.assert_allclose(
        record_distance.nearest(few, records.take(np.arange(10, 60))),
        _closest(few, records.take(np.arange(10, 60))),
        atol=1e-13,
    )


def test_identities_are_equal_for_equal_rows_only():
    first = Records(np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 2.0]]), np.zeros((3, 1), np.int32))
    second = Records(np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0], [1]], np.int32))
    a, b = record_distance.identities(first, second)
    assert a[0] == a[1] == b[0]
    assert len({a[0], a[2], b[1]}) == 3


def test_identities_of_long_rows_and_of_missing_values():
    rng = np.random.default_rng(0)
    numbers = rng.random((1500, 200))
    numbers[:, 7] = np.nan
    rows = Records(numbers, np.zeros((1500, 1), np.int32))
    first, again = record_distance.identities(rows, rows.take(np.arange(1500)[::-1]))
    np.testing.assert_array_equal(first, np.arange(1500))
    np.testing.assert_array_equal(again, np.arange(1500)[::-1])


def test_records_hold_features_time_and_label(patients):
    encoder, rows = patients.encoder, patients.train.rows
    decoded = encoder.decode(rows.values, rows.labels)
    records = Records.of(encoder, decoded)
    assert records.width == 4
    np.testing.assert_allclose(records.numbers, patients.train.frame[["risk", "months"]], atol=1e-4)
    np.testing.assert_array_equal(records.codes[:, 1], patients.train.frame["death"])
    decoded = pd.concat([decoded, decoded.iloc[:1]], ignore_index=True)
    decoded.loc[len(decoded) - 1, ["risk", "arm"]] = [np.nan, np.nan]
    last = Records.of(encoder, decoded).take(np.array([len(decoded) - 1]))
    assert np.isnan(last.numbers[0, 0])
    assert last.codes[0, 0] == -1


def test_no_reference_is_an_error():
    rows = _random(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match="no reference"):
        record_distance.nearest(rows, rows.take(np.zeros(3, dtype=bool)))


# The compiled search ------------------------------------------------------------------------------


_VALUES = st.one_of(
    # Few values: ties within and between columns.
    st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, -2.0, np.nan]),
    st.floats(-1e6, 1e6, width=64),
    st.floats(1e6, 1e6 + 1e-3),
)


@st.composite
def _pairs(draw):
    numeric, categorical = draw(st.integers(0, 4)), draw(st.integers(0, 3))
    if not numeric + categorical:
        numeric = 1
    tables = [
        Records(
            draw(arrays(np.float64, (rows, numeric), elements=_VALUES)),
            draw(arrays(np.int32, (rows, categorical), elements=st.integers(-1, 2))),
        )
        for rows in (draw(st.integers(1, 6)), draw(st.integers(1, 150)))
    ]
    return tables[0], tables[1], draw(st.integers(1, min(4, len(tables[1]))))


def _all_pairs(queries: Records, references: Records) -> np.ndarray:
    return np.array(
        [
            record_distance.distances(queries.take(np.full(len(references), row)), references)
            for row in range(len(queries))
        ]
    )


@given(_pairs())
@settings(max_examples=150, deadline=None)
def test_distances_are_those_of_all_pairs_to_the_last_digit(tables):
    queries, references, k = tables
    every = _all_pairs(queries, references)
    expected = np.sort(every, axis=1)[:, :k]
    np.testing.assert_array_equal(record_distance.k_nearest(queries, references, k), expected)
    nearest = record_distance.neighbours(queries, references, k)
    np.testing.assert_array_equal(nearest.distances, expected)
    # Of equally close rows the first ones.
    first = np.argsort(every, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(nearest.index, first)


@given(_pairs(), st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_a_generator_changes_the_choice_among_equals_only(tables, seed):
    queries, references, k = tables
    every = _all_pairs(queries, references)
    rng = np.random.default_rng(seed)
    nearest = record_distance.neighbours(queries, references, k, rng=rng)
    np.testing.assert_array_equal(nearest.distances, np.sort(every, axis=1)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(every, nearest.index, 1), nearest.distances)
    assert all(len(set(row)) == k for row in nearest.index.tolist())


@given(_pairs())
@settings(max_examples=100, deadline=None)
def test_the_way_back_is_that_of_all_pairs_to_the_last_digit(tables):
    queries, references, k = tables
    parts = [ReferenceRange(0, len(references), k)]
    expected = _all_pairs(queries, references).min(axis=0)
    for threads in (1, 2):
        found, back = record_distance.both_ways(queries, references, parts, threads)
        np.testing.assert_array_equal(back, expected)
        forth = record_distance.neighbours(queries, references, k)
        np.testing.assert_array_equal(found[0].index, forth.index)


@pytest.mark.parametrize("numbers", [0, 2])
@pytest.mark.parametrize("missing", [False, True])
def test_the_way_back_over_many_blocks(numbers, missing):
    """With copies among the queries, more of them than one block, and no part to search."""
    rng = np.random.default_rng(4)
    queries, references = (
        _random(rng, rows, signed=numbers > 0, missing=missing, numbers=numbers)
        for rows in (150, 2300)
    )
    queries = queries.take(rng.integers(0, 150, 400))
    for threads in (1, 3):
        found, back = record_distance.both_ways(queries, references, [], threads)
        assert found == []
        np.testing.assert_array_equal(back, record_distance.nearest(references, queries))
    with pytest.raises(ValueError, match="no rows"):
        record_distance.both_ways(queries.take(np.arange(0)), references, [])


def test_parts_are_searched_as_if_they_were_tables_of_their_own():
    rng = np.random.default_rng(5)
    queries, references = (
        Records(rng.normal(0, 3, (rows, 2)).round(), rng.integers(0, 2, (rows, 2)).astype(np.int32))
        for rows in (90, 2500)
    )
    parts = [
        ReferenceRange(0, 2500, 3),
        ReferenceRange(100, 170, 2),
        ReferenceRange(1000, 2300),
        ReferenceRange(2499, 2500),
    ]
    whole = record_distance.neighbours_within(queries, references, parts, threads=2)
    for part, within in zip(parts, whole, strict=True):
        rows = references.take(np.arange(part.start, part.stop))
        alone = record_distance.neighbours(queries, rows, part.k)
        np.testing.assert_array_equal(within.distances, alone.distances)
        np.testing.assert_array_equal(within.index, alone.index + part.start)
    with pytest.raises(ValueError, match="1 of 2"):
        record_distance.neighbours_within(queries, references, [ReferenceRange(3, 4, 2)])


@pytest.mark.parametrize("numbers", [0, 1])
def test_ties_are_spread_over_the_equally_close(numbers):
    """2000 queries, 100 equal references: each is chosen about 20 times."""
    references = Records(np.ones((100, numbers)), np.zeros((100, 2), np.int32))
    queries = Records(np.full((2000, numbers), 3.0), np.ones((2000, 2), np.int32))
    nearest = record_distance.neighbours(queries, references, rng=np.random.default_rng(0))
    chosen = np.bincount(nearest.index[:, 0], minlength=100)
    assert chosen.min() > 2
    assert chosen.max() < 60


def test_more_columns_than_a_byte_counts_and_more_categories_than_it_holds():
    rng = np.random.default_rng(0)
    for width, categories in ((600, 3), (5, 1000)):
        codes = [rng.integers(0, categories, (rows, width)).astype(np.int32) for rows in (20, 150)]
        queries, references = (Records(np.empty((len(c), 0)), c) for c in codes)
        expected = np.sort(_all_pairs(queries, references), axis=1)[:, :2]
        np.testing.assert_array_equal(record_distance.k_nearest(queries, references, 2), expected)


def test_memory_grows_with_the_rows_not_with_their_pairs():
    """8,000 x 8,000 distances would be 512 MB in double precision."""
    import tracemalloc

    rng = np.random.default_rng(0)
    tables = [
        Records(rng.exponential(9, (8000, 4)), rng.integers(0, 3, (8000, 2)).astype(np.int32))
        for _ in range(2)
    ]
    record_distance.nearest(tables[0].take(np.arange(5)), tables[1])
    tracemalloc.start()
    record_distance.nearest(*tables, threads=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
