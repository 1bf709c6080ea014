"""Linking two parts of a row through the release."""

from __future__ import annotations

import numpy as np
import pytest

from bench.errors import NotComputable
from bench.metrics._shared import record_distance
from bench.metrics._shared.record_distance import Records, real_records, released_records
from bench.metrics.privacy.disclosure import linkability
from bench.metrics.privacy.disclosure.linkability import Linkability
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named, without_control
from tests.support.tables import ToySurvival, ToyTable


def records(numbers, codes) -> Records:
    return Records(np.array(numbers, dtype=np.float64), np.array(codes, dtype=np.int32))


HALVES = (np.array([True, False]), np.array([False, True]))


def test_a_link_is_a_released_record_close_to_both_parts():
    """One number, one category: known neighbours."""
    released = records([[0.0], [10.0], [20.0], [30.0]], [[0], [1], [2], [3]])
    targets = records([[1.0], [1.0]], [[0], [1]])
    linked = linkability.linked_targets(targets, released, HALVES, (1,), np.random.default_rng(0))
    # The first leads to record 0 by both parts; the second to records 0 and 1.
    assert linked.tolist() == [[True], [False]]


def test_more_neighbours_link_more():
    released = records([[0.0], [10.0], [20.0]], [[0], [1], [2]])
    targets = records([[1.0]], [[1]])
    linked = linkability.linked_targets(targets, released, HALVES, (1, 2), np.random.default_rng(0))
    assert linked.tolist() == [[False, True]]


def test_ties_are_drawn_for_each_part_anew():
    """Four records that no part distinguishes: a link by chance, one in four."""
    released = records(np.zeros((4, 1)), np.zeros((4, 1)))
    targets = records(np.zeros((4000, 1)), np.zeros((4000, 1)))
    linked = linkability.linked_targets(targets, released, HALVES, (1,), np.random.default_rng(0))
    assert linked.mean() == pytest.approx(0.25, abs=0.03)


def test_distances_are_those_of_the_record_distance(table, patients):
    """Negative numbers too, pair by pair."""
    for dataset in (table, patients):
        evaluation = evaluate(dataset, dataset.test)
        released = released_records(evaluation)
        control = real_records(evaluation, "control")
        sums = linkability.distance_sums(control, released)
        for row in range(0, len(control), 7):
            beside = control.take(np.full(len(released), row))
            plain = record_distance.distances(beside, released) * released.width
            assert sums[row] == pytest.approx(plain, abs=1e-12)


def test_nearest_records_are_the_closest_of_all(table):
    evaluation = evaluate(table, table.test)
    released = released_records(evaluation)
    control = real_records(evaluation, "control")
    nearest = linkability.nearest_records(control, released, 5, np.random.default_rng(0))
    sums = linkability.distance_sums(control, released)
    chosen = np.take_along_axis(sums, nearest, axis=1)
    assert chosen == pytest.approx(np.sort(sums, axis=1)[:, :5])
    assert all(len(set(row)) == 5 for row in nearest.tolist())


def test_quasi_identifiers_are_one_part(table):
    evaluation = evaluate(table, table.test)
    names = np.array(linkability.column_names(evaluation))
    first, second = linkability.column_parts(evaluation)
    assert names[first].tolist() == ["age"]
    assert set(names[second]) == {"marker", "smoker", "stage", "outcome"}


def test_without_quasi_identifiers_the_columns_are_halved_alike_for_all_releases(patients):
    halves = [
        linkability.column_parts(evaluate(patients, release, seed))[0].tolist()
        for release, seed in ((patients.test, 0), (patients.train, 5))
    ]
    assert halves[0] == halves[1]
    assert sum(halves[0]) == 2


def test_released_training_rows_are_linked(table, patients):
    for dataset, least in ((table, 0.01), (patients, 0.9)):
        scores = Linkability().compute(evaluate(dataset, dataset.train))
        assert named(scores, "linkability/k1").low > least
        assert named(scores, "linkability/k5").low > least


def test_fresh_rows_link_nobody():
    """Over 20 splits: means near 0, and hardly an interval is sure of a risk."""
    by_output = {"linkability/k1": [], "linkability/k5": []}
    for split_seed in range(20):
        dataset = build_dataset(ToyTable(), split_seed=split_seed)
        scores = Linkability().compute(evaluate(dataset, dataset.test))
        for name, scored in by_output.items():
            scored.append(named(scores, name))
    for scored in by_output.values():
        values = [score.value for score in scored]
        assert abs(np.mean(values)) < 3 * np.std(values, ddof=1) / np.sqrt(20)
        assert sum(score.low > 0 for score in scored) <= 2


def test_a_hundred_raw_rows_are_seen(patients):
    pick = np.random.default_rng(0).permutation(len(patients.train))[:100]
    rows = patients.train.rows.take(pick)
    scores = Linkability().compute(evaluate(patients, Release(Rows(rows.values, rows.labels))))
    assert named(scores, "linkability/k1").low > 0.0


def test_repeating_released_rows_hides_nothing():
    dataset = build_dataset(ToySurvival())
    rows = dataset.train.rows
    twice = Rows(np.repeat(rows.values, 3, axis=0), np.repeat(rows.labels, 3))
    scores = Linkability().compute(evaluate(dataset, Release(twice)))
    assert named(scores, "linkability/k1").low > 0.8


def test_targets_are_as_many_control_rows(table):
    details = Linkability().compute(evaluate(table, table.train)).details["linkability"]
    assert details["attacks"].nunique() == 1
    assert details["attacks"].iloc[0] <= len(table.control)
    assert details["first-columns"].unique().tolist() == ["age"]


def test_few_released_records_are_shared_anyway(table):
    rows = table.train.rows
    few = Release(Rows(rows.values[:3], rows.labels[:3]))
    scores = Linkability().compute(evaluate(table, few))
    absent = named(scores, "linkability/k5")
    assert absent.value is None
    assert "3 distinct released records" in absent.reason
    assert named(scores, "linkability/k1").value is not None


def test_without_control_rows_there_is_no_risk(table):
    with pytest.raises(NotComputable, match="0 control rows"):
        Linkability().compute(evaluate(without_control(table), table.train))


def test_a_model_has_no_rows_to_link_through(table):
    with pytest.raises(NotComputable, match="a model, not rows"):
        Linkability().compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))
