"""File membership: which half of the rows was a release made from?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from bench.errors import NotComputable
from bench.metrics.privacy.membership import file_membership
from bench.metrics.privacy.membership.file_membership import FileMembership
from bench.plugins.metric import Direction
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named, toy_cell
from tests.support.membership import RepeatedRecords, some_rows
from tests.support.tables import ToyTable


@pytest.fixture(scope="module")
def larger():
    return build_dataset(ToyTable(negatives=900, positives=600))


def test_a_method_that_releases_its_rows_is_recognised(table):
    calls: list[tuple[int, pd.DataFrame]] = []

    def refit(train: pd.DataFrame, repetition: int) -> Release:
        calls.append((repetition, train))
        rows = table.encoder.encode(train)[0]
        return Release(Rows(rows.values, rows.labels))

    scores = FileMembership().compute(evaluate(table, table.train), refit)
    accuracy, p = (named(scores, f"file-membership/{name}") for name in ("accuracy", "p"))
    assert accuracy.value > 0.99
    assert accuracy.low > 0.95
    assert p.value > 0.95
    assert p.limit == 0.05
    assert (accuracy.direction, p.direction) == (Direction.LOWER, Direction.LOWER)
    assert [repetition for repetition, _ in calls] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    for (_, first), (_, second) in zip(calls[::2], calls[1::2], strict=True):
        assert sorted([*first.index, *second.index]) == list(range(len(table.train)))
        assert abs(len(first) - len(second)) <= 1
    halves = {tuple(train.index) for _, train in calls}
    assert len(halves) == 10
    assert len(scores.details["file-membership"]) == 5


def test_a_method_that_reads_nothing_is_shown_to_be_a_coin_toss(larger):
    fresh = iter(range(100))

    def refit(train: pd.DataFrame, repetition: int) -> Release:
        return some_rows(larger.test, 150, seed=next(fresh))

    scores = FileMembership().compute(evaluate(larger, larger.test), refit)
    accuracy = named(scores, "file-membership/accuracy")
    assert accuracy.low < 0.5 < accuracy.high
    assert named(scores, "file-membership/p").value < 0.05


def test_few_rows_show_nothing():
    """No leakage, but no proof of it either: the interval is wider than the margin."""
    shares = np.array([0.45, 0.56, 0.5, 0.43, 0.58])
    assert file_membership.equivalence(shares, 60, 0.05).p > 0.05


def test_the_equivalence_test_is_two_one_sided_t_tests():
    shares = np.array([0.51, 0.49, 0.50, 0.53, 0.505])
    result = file_membership.equivalence(shares, 10**9, 0.05)
    above = ttest_1samp(shares, 0.45, alternative="greater").pvalue
    below = ttest_1samp(shares, 0.55, alternative="less").pvalue
    assert result.p == pytest.approx(max(above, below))
    interval = ttest_1samp(shares, 0.5).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high))


def test_repeats_that_agree_by_chance_are_no_more_certain_than_their_rows():
    result = file_membership.equivalence(np.full(5, 0.5), 60, 0.05)
    assert result.high - result.low > 0.1
    assert result.p > 0.05
    certain = file_membership.equivalence(np.full(5, 1.0), 100, 0.05)
    assert (certain.value, certain.p) == (1.0, 1.0)


def test_a_row_between_the_releases_counts_one_half():
    first = np.array([True, True, False, False])
    near, far = np.array([0.0, 1.0, 0.0, 2.0]), np.array([1.0, 1.0, 1.0, 1.0])
    right = file_membership.assigned_right(near, far, first)
    assert right.tolist() == [1.0, 0.5, 0.0, 1.0]


def test_halves_hold_half_of_each_class():
    labels = np.repeat([0, 1, 2], [7, 5, 4])
    half = file_membership.random_half(labels, np.random.default_rng(0))
    taken = np.bincount(labels[half])
    assert sorted([taken[0] - 3, taken[1] - 2]) == [0, 1]  # one odd class gives, one takes
    assert taken[2] == 2


def test_records_that_stand_in_the_table_twice_are_not_judged():
    dataset = build_dataset(RepeatedRecords())

    def refit(train: pd.DataFrame, repetition: int) -> Release:
        rows = dataset.encoder.encode(train)[0]
        return Release(Rows(rows.values, rows.labels))

    scores = FileMembership().compute(evaluate(dataset, dataset.test), refit)
    details = scores.details["file-membership"]
    assert (details["rows"] < len(dataset.train)).all()
    # A record that is judged is a copy in one of the halves only.
    assert (details["right"] == details["rows"]).all()


def test_a_model_has_no_rows_to_assign(table):
    with pytest.raises(NotComputable, match="a model, not rows"):
        FileMembership().compute(
            evaluate(table, table.train),
            lambda train, repetition: Release(model=Answers(lambda v: v[:, 0])),
        )


def test_a_cell_refits_its_method_on_the_halves():
    accuracy, p = toy_cell("file-membership").scores
    assert accuracy.value is not None
    assert accuracy.value > 0.99
    assert p.value is not None
    assert p.value > 0.95
