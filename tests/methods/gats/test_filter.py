"""GATS: how constituents are drawn, and the correlation filter."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from bench.errors import NotApplicable
from bench.methods.gats._rows import Pools, subsets
from bench.plugins.registry import build_source
from tests.support.gats import behind_kernel, built, make, opened, private_rows

# Drawing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size, count", [(4, 3), (8, 2)])
def test_subsets_are_uniform_and_ordered_at_random(size: int, count: int) -> None:
    # Tight and roomy sizes are drawn in different ways.
    drawn = subsets(np.full(12_000, size), count, np.random.default_rng(0))
    orders = list(permutations(range(size), count))
    counts = dict.fromkeys(orders, 0)
    for row in drawn:
        counts[tuple(int(number) for number in row)] += 1  # a repeated number is a KeyError
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


def test_subsets_of_too_few_repeat() -> None:
    drawn = subsets(np.array([2, 50, 5]), 5, np.random.default_rng(0))
    assert set(drawn[0]) <= {0, 1}
    assert len(set(drawn[1])) == 5
    assert set(drawn[2]) == {0, 1, 2, 3, 4}


def test_batches_hold_all_rows_once_and_draws_stay_within_them() -> None:
    rng = np.random.default_rng(3)
    labels = rng.choice(3, 230, p=[0.6, 0.3, 0.1])
    pools = Pools.cut(labels, 3, 50, rng)
    totals = pools.sizes.sum(axis=1)
    assert len(totals) == 5
    assert totals.max() <= 50
    assert sorted(pools.order) == list(range(230))
    batch_of = np.empty(230, dtype=int)
    batch_of[pools.order] = np.repeat(np.arange(5), totals)

    wanted = rng.choice(3, 500)
    batches = pools.batches(wanted, rng)
    assert (pools.sizes[batches, wanted] > 0).all()
    assert set(batches) == set(range(5))
    same_class = pools.same_class(batches, wanted, 4, rng)
    foreign = pools.foreign(batches, wanted, 4, rng)
    assert (labels[same_class] == wanted[:, None]).all()
    assert (labels[foreign] != wanted[:, None]).all()
    for index in (same_class, foreign):
        assert (batch_of[index] == batches[:, None]).all()
    # Every row of another class can be drawn.
    assert set(np.unique(foreign[wanted == 0])) == set(np.flatnonzero(labels != 0))


def test_classes_that_are_small_within_a_batch_are_named() -> None:
    labels = np.repeat([0, 1], 4)
    private = private_rows([0] * 8, np.linspace(-1, 1, 8), [1] * 8, [0] * 8, labels)
    release = make(private, constituents=4, batch=4, mixed_share=0.0, filter="off")
    # Some batch holds fewer than four rows of a class.
    assert release.notes["with_replacement"] == "0, 1"


def test_small_classes_are_drawn_with_replacement_and_named() -> None:
    labels = [0] * 30 + [1] * 3
    private = private_rows([0] * 33, np.linspace(-1, 1, 33), [1] * 33, [0] * 33, labels)
    release = make(private, constituents=5, filter="off")
    assert release.notes["with_replacement"] == "1"
    assert release.rows is not None
    assert tuple(np.bincount(release.rows.labels)) == (200, 200)
    assert "with_replacement" not in make(private, constituents=3, filter="off").notes


def test_a_single_class_is_class_wise_only() -> None:
    private = private_rows([0] * 10, np.linspace(-1, 0, 10), [1] * 10, [0] * 10, [0] * 10)
    release = make(private, 50, mixed_share=1.0, filter="off")
    assert release.rows is not None
    assert tuple(np.bincount(release.rows.labels)) == (50,)
    assert release.notes["classes_without_rows"] == "1"


def test_no_rows_at_all_is_a_reason_to_skip() -> None:
    nothing = behind_kernel(np.zeros((0, 6), dtype=np.float32), np.zeros(0, dtype=np.int64))
    with pytest.raises(NotApplicable, match="there are none"):
        make(nothing)


# The filter ------------------------------------------------------------------------------------


def largest_correlations(
    rows: npt.NDArray[np.floating],
    real: npt.NDArray[np.floating],
    scale_by: npt.NDArray[np.floating],
) -> npt.NDArray[np.float64]:
    """Largest correlations by numpy, over columns standardised on `scale_by`."""
    mean, spread = scale_by.mean(axis=0), scale_by.std(axis=0)
    both = np.corrcoef(np.concatenate([(rows - mean) / spread, (real - mean) / spread]))
    return both[: len(rows), len(rows) :].max(axis=1)


@pytest.mark.parametrize("max_retries", [0, 3, 200])
def test_no_row_resembles_its_constituents_unless_counted(max_retries: int) -> None:
    source = build_source("breast-cancer")
    real = built(source).train.rows
    # As many rows of each class as constituents: every one of them is compared with.
    few = np.concatenate([np.flatnonzero(real.labels == label)[:6] for label in (0, 1)])
    private = behind_kernel(real.values[few], real.labels[few], source)
    release = make(
        private,
        100,
        constituents=6,
        mixed_share=0.0,
        max_retries=max_retries,
        filter="constituents",
    )
    assert release.rows is not None
    over = 0
    for label in (0, 1):
        combined = release.rows.values[release.rows.labels == label].astype(np.float64)
        among = real.values[few][real.labels[few] == label].astype(np.float64)
        correlations = largest_correlations(combined, among, real.values[few].astype(np.float64))
        over += int((correlations > 0.75).sum())
    assert over == release.notes["rows_over_threshold"]
    if max_retries == 0:
        assert over > 0
        assert release.notes["acceptance_rate"] == pytest.approx(1 - over / 200)


@pytest.mark.parametrize("threshold", [0.75, 0.9])
def test_no_row_resembles_any_real_row_unless_counted(threshold: float) -> None:
    private, _ = opened(build_source("curial-sim", {"rows": 1_000}))
    real = private.raw("test").values.astype(np.float64)
    release = make(private, 50, constituents=10, filter="all", threshold=threshold, max_retries=10)
    assert release.rows is not None
    correlations = largest_correlations(release.rows.values.astype(np.float64), real, real)
    assert int((correlations > threshold).sum()) == release.notes["rows_over_threshold"]
    assert (correlations <= threshold).any()


def test_all_rows_reject_more_than_the_constituents() -> None:
    private, _ = opened(build_source("breast-cancer"))
    rates = [
        make(private, 50, filter=kind).notes["acceptance_rate"]
        for kind in ("off", "constituents", "all")
    ]
    assert rates[0] == 1.0
    assert all(isinstance(rate, float) for rate in rates)
    assert all(more > less > 0 for more, less in pairwise(rates))  # type: ignore[operator]


def test_copies_of_real_rows_are_all_counted() -> None:
    private, _ = opened(build_source("breast-cancer"))
    release = make(private, 20, constituents=1, max_retries=2)
    assert release.notes == {"acceptance_rate": 0.0, "rows_over_threshold": 40.0}
    real = {row.tobytes() for row in private.raw("test").values}
    assert release.rows is not None
    assert all(row.tobytes() in real for row in release.rows.values)


def test_the_least_correlated_attempt_is_kept() -> None:
    private, _ = opened(build_source("breast-cancer"))
    real = private.raw("test").values.astype(np.float64)

    def correlations(max_retries: int) -> npt.NDArray[np.float64]:
        release = make(private, 50, filter="all", threshold=-1.0, max_retries=max_retries)
        assert release.rows is not None
        assert release.notes == {"acceptance_rate": 0.0, "rows_over_threshold": 100.0}
        return largest_correlations(release.rows.values.astype(np.float64), real, real)

    assert correlations(20).mean() < correlations(0).mean() - 0.05
