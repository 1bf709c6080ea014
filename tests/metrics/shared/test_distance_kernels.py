"""The compiled search against every pair compared in numpy, on awkward tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bench.metrics._shared import distance as _distance
from bench.metrics._shared.distance import Part, Records

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
            _distance.distances(queries.take(np.full(len(references), row)), references)
            for row in range(len(queries))
        ]
    )


@given(_pairs())
@settings(max_examples=150, deadline=None)
def test_distances_are_those_of_all_pairs_to_the_last_digit(tables):
    queries, references, k = tables
    every = _all_pairs(queries, references)
    expected = np.sort(every, axis=1)[:, :k]
    np.testing.assert_array_equal(_distance.k_nearest(queries, references, k), expected)
    found = _distance.neighbours(queries, references, k)
    np.testing.assert_array_equal(found.distances, expected)
    # Of equally close rows the first ones.
    first = np.argsort(every, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(found.index, first)


@given(_pairs(), st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_a_generator_changes_the_choice_among_equals_only(tables, seed):
    queries, references, k = tables
    every = _all_pairs(queries, references)
    rng = np.random.default_rng(seed)
    found = _distance.neighbours(queries, references, k, rng=rng)
    np.testing.assert_array_equal(found.distances, np.sort(every, axis=1)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(every, found.index, 1), found.distances)
    assert all(len(set(row)) == k for row in found.index.tolist())


def test_parts_are_searched_as_if_they_were_tables_of_their_own():
    rng = np.random.default_rng(5)
    queries, references = (
        Records(rng.normal(0, 3, (rows, 2)).round(), rng.integers(0, 2, (rows, 2)).astype(np.int32))
        for rows in (90, 2500)
    )
    parts = [Part(0, 2500, 3), Part(100, 170, 2), Part(1000, 2300), Part(2499, 2500)]
    whole = _distance.neighbours_within(queries, references, parts, threads=2)
    for part, found in zip(parts, whole, strict=True):
        rows = references.take(np.arange(part.start, part.stop))
        alone = _distance.neighbours(queries, rows, part.k)
        np.testing.assert_array_equal(found.distances, alone.distances)
        np.testing.assert_array_equal(found.index, alone.index + part.start)
    with pytest.raises(ValueError, match="1 of 2"):
        _distance.neighbours_within(queries, references, [Part(3, 4, 2)])


@pytest.mark.parametrize("numbers", [0, 1])
def test_ties_are_spread_over_the_equally_close(numbers):
    """2000 queries, 100 equal references: each is chosen about 20 times."""
    references = Records(np.ones((100, numbers)), np.zeros((100, 2), np.int32))
    queries = Records(np.full((2000, numbers), 3.0), np.ones((2000, 2), np.int32))
    found = _distance.neighbours(queries, references, rng=np.random.default_rng(0))
    chosen = np.bincount(found.index[:, 0], minlength=100)
    assert chosen.min() > 2
    assert chosen.max() < 60


def test_more_columns_than_a_byte_counts_and_more_categories_than_it_holds():
    rng = np.random.default_rng(0)
    for width, categories in ((600, 3), (5, 1000)):
        codes = [rng.integers(0, categories, (rows, width)).astype(np.int32) for rows in (20, 150)]
        queries, references = (Records(np.empty((len(c), 0)), c) for c in codes)
        expected = np.sort(_all_pairs(queries, references), axis=1)[:, :2]
        np.testing.assert_array_equal(_distance.k_nearest(queries, references, 2), expected)


def test_memory_grows_with_the_rows_not_with_their_pairs():
    """8,000 x 8,000 distances would be 512 MB in double precision."""
    import tracemalloc

    rng = np.random.default_rng(0)
    tables = [
        Records(rng.exponential(9, (8000, 4)), rng.integers(0, 3, (8000, 2)).astype(np.int32))
        for _ in range(2)
    ]
    _distance.nearest(tables[0].take(np.arange(5)), tables[1])
    tracemalloc.start()
    _distance.nearest(*tables, threads=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
