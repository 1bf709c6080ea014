"""Nearest neighbours in encoded space, and by the Hamming distance on binned records."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from bench.metrics._shared import encoded_distance
from bench.metrics._shared.record_distance import Records, binned, percentile_edges
from bench.metrics._shared.rows import points
from bench.metrics.privacy.membership import attacks

SCIPY = {"euclidean": "euclidean", "manhattan": "cityblock", "cosine": "cosine"}


def mixed(rows: int, rng: np.random.Generator) -> np.ndarray:
    """Three numbers, a binary column, two one-hot blocks, a constant column."""
    return np.column_stack(
        [
            rng.uniform(-1, 1, (rows, 3)),
            rng.choice([-1.0, 1.0], rows, p=[0.2, 0.8]),
            np.eye(5)[rng.integers(0, 5, rows)],
            np.eye(3)[rng.integers(0, 3, rows)],
            np.ones(rows),
        ]
    )


def brute(queries: np.ndarray, references: np.ndarray, k: int, distance: str) -> np.ndarray:
    return np.sort(cdist(queries, references, SCIPY[distance]), axis=1)[:, :k]


@pytest.mark.parametrize("kind", ["hard", "soft", "beyond the bounds", "numbers", "flags"])
def test_distances_are_those_of_scipy(kind):
    rng = np.random.default_rng(1)
    queries, references = mixed(300, rng), mixed(1300, rng)  # more than two blocks of references
    if kind == "soft":
        references += rng.normal(0, 0.2, references.shape)
    elif kind == "beyond the bounds":
        references *= rng.normal(0, 4, references.shape)
    elif kind == "numbers":
        queries, references = queries[:, :3], references[:, :3]
    elif kind == "flags":
        queries, references = queries[:, 3:], references[:, 3:]
    nearest = encoded_distance.neighbours(queries, references, 5)
    for name, distances in nearest.by_name().items():
        expected = brute(queries, references, 5, name)
        assert distances == pytest.approx(expected, abs=2e-8), name
        assert np.abs(distances**2 - expected**2).max() < 1e-12
    assert np.array_equal(encoded_distance.euclidean(queries, references, 5), nearest.euclidean)


def test_a_copy_is_at_distance_zero_by_every_distance():
    rows = mixed(700, np.random.default_rng(2))
    nearest = encoded_distance.neighbours(rows, rows[::-1].copy(), 2)
    for distances in nearest.by_name().values():
        assert (distances[:, 0] == 0.0).all()
        assert (distances[:, 1] > 0.0).all()


def test_duplicated_references_count_as_often_as_they_stand_there():
    nearest = encoded_distance.euclidean(np.array([[0.0]]), np.array([[3.0], [1.0], [1.0]]), 3)
    assert nearest.tolist() == [[1.0, 1.0, 3.0]]


def test_any_number_of_threads_gives_the_same_bytes():
    rng = np.random.default_rng(3)
    queries, references = mixed(1000, rng), mixed(900, rng)
    one, three = (encoded_distance.neighbours(queries, references, 5, n) for n in (1, 3))
    for left, right in zip(one.by_name().values(), three.by_name().values(), strict=True):
        assert left.tobytes() == right.tobytes()


def test_the_angle_to_a_row_of_zeros_is_a_right_one():
    nearest = encoded_distance.neighbours(np.array([[1.0, 2.0]]), np.zeros((1, 2)), 1)
    assert nearest.cosine.item() == 1.0


def test_more_neighbours_than_rows_are_refused():
    with pytest.raises(ValueError, match="6 nearest of 5"):
        encoded_distance.euclidean(np.ones((2, 1)), np.ones((5, 1)), 6)


def test_a_record_holds_features_time_and_label(table, patients, images):
    for dataset, last in ((table, [-1.0, 1.0]), (patients, [-1.0, 1.0])):
        rows = dataset.train.rows
        records = points(dataset.encoder, rows.values, rows.labels)
        assert records.shape[1] == dataset.encoder.width + 1
        assert np.array_equal(records[:, -1], np.array(last)[rows.labels])
        assert np.array_equal(records[:, :-1], rows.values)
    rows = images.train.rows
    records = points(images.encoder, rows.values, rows.labels)
    assert np.array_equal(records[:, -3:].argmax(axis=1), rows.labels)


def categories(codes: np.ndarray) -> Records:
    return Records(np.empty((len(codes), 0)), codes.astype(np.int32))


def test_hamming_distance_counts_differing_columns():
    queries = categories(np.array([[1, 2, 3], [9, 9, 9]]))
    references = categories(np.array([[1, 2, 4], [1, 0, 0], [9, 9, 9]]))
    assert attacks.nearest_hamming(queries, references).tolist() == [1, 0]


@pytest.mark.parametrize("columns, rows", [(7, 50), (300, 50), (3, 20_000)])
def test_hamming_distance_is_that_of_scipy(columns, rows):
    rng = np.random.default_rng(4)
    queries, references = rng.integers(0, 90, (90, columns)), rng.integers(0, 90, (rows, columns))
    expected = np.rint(cdist(queries, references, "hamming").min(axis=1) * columns)
    for threads in (1, 2):
        distances = attacks.nearest_hamming(categories(queries), categories(references), threads)
        assert np.array_equal(distances, expected)


def test_bins_hold_one_percent_each_and_repeated_values_share_one():
    spread, mostly_zero = np.arange(1000.0), np.r_[np.zeros(900), np.arange(1, 101)]
    records = Records(np.column_stack([spread, mostly_zero]), np.zeros((1000, 1), dtype=np.int32))
    edges = percentile_edges(records, attacks.BINS)
    codes = binned(records, edges).codes[:, 1:]
    assert (np.bincount(codes[:, 0]) == 10).all()
    assert (codes[:900, 1] == 0).all()  # zero, and nothing but zero
    assert (codes[900:, 1] > 0).all()
    outside = binned(Records(np.array([[-5.0, 1e6]]), np.zeros((1, 1), np.int32)), edges)
    assert outside.codes[0].tolist() == [0, 0, len(edges[1])]
