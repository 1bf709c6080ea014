"""Copies of rare records, and nearest-neighbour distance ratios."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from bench.data.dataset import Dataset, Declaration
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import NotComputable
from bench.metrics._shared import record_distance
from bench.metrics._shared.intervals import difference_of_means
from bench.metrics.privacy.disclosure import copies
from bench.metrics.privacy.disclosure.copies import HighRiskRows, NeighbourRatio
from bench.plugins.metric import Evaluation
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from tests.metrics.helpers import Answers, evaluate, named
from tests.support.tables import ToyTable


@final
@dataclass(frozen=True)
class Wards(DatasetSource):
    """Wards of 60, 20, 4 and 2 people with a marker that is the same for all, or for nobody."""

    name: ClassVar[str] = "wards"
    quasi_identifiers: tuple[str, ...] = ("ward",)
    unique: bool = False

    def declare(self) -> Declaration:
        columns = (
            Categorical(name="ward", categories=("a", "b", "c", "d")),
            Numeric(name="marker", low=0, high=1000, integer=True),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION, quasi_identifiers=self.quasi_identifiers)
        return Declaration("Wards", schema, (86, 86), {}, "CC0", "", "", simulated=True)

    def load(self) -> pd.DataFrame:
        ward = np.repeat(["a", "b", "c", "d"], [60, 20, 4, 2])
        return pd.DataFrame(
            {
                "ward": np.tile(ward, 2),
                "marker": np.arange(172) if self.unique else np.full(172, 7),
                "outcome": np.repeat([0, 1], 86),
            }
        )


def _everybody(source: DatasetSource) -> Dataset:
    """All rows are training rows, and all rows are released."""
    dataset = build_dataset(source)
    frame = source.load()
    rows, _ = dataset.encoder.encode(frame)
    return replace(dataset, train=replace(dataset.train, frame=frame, rows=rows))


def test_classes_by_hand():
    """Wards c (2 x 4 people) and d (2 x 2): by ward 8 and 4 rows, by all columns 4 and 2.

    By ward only d is rare: 4 of 172 rows. By all columns c and d are: 12 of 172.
    """
    dataset = _everybody(Wards())
    scores = HighRiskRows().compute(evaluate(dataset, dataset.train))
    for name, count in (("train", 4), ("released", 4), ("rare-train", 12), ("rare-released", 12)):
        score = named(scores, f"high-risk/{name}")
        assert score.value == pytest.approx(count / 172)
        exact = binomtest(count, 172).proportion_ci(0.95, "exact")
        assert (score.low, score.high) == pytest.approx((exact.low, exact.high))
    limits = {score.metric: score.limit for score in scores.scores}
    assert limits["high-risk/train"] == limits["high-risk/rare-train"] == 0.01
    assert limits["high-risk/released"] is None


def test_without_quasi_identifiers_classes_are_by_all_columns():
    dataset = _everybody(Wards(quasi_identifiers=()))
    scores = HighRiskRows().compute(evaluate(dataset, dataset.train))
    assert named(scores, "high-risk/train").value == pytest.approx(12 / 172)
    assert named(scores, "high-risk/released").value == pytest.approx(12 / 172)


def test_a_few_copies_are_a_small_share_of_train_and_a_large_one_of_the_release():
    dataset = _everybody(Wards(unique=True))
    rows = dataset.train.rows.take(np.array([84, 85]))  # both of ward d
    scores = HighRiskRows().compute(evaluate(dataset, Release(Rows(rows.values, rows.labels))))
    assert named(scores, "high-risk/train").value == pytest.approx(2 / 172)
    assert named(scores, "high-risk/released").value == 1.0
    assert named(scores, "high-risk/rare-released").value == 1.0


def test_fresh_rows_beyond_bounds_and_other_labels_are_no_copies(table):
    rows = table.train.rows
    scores = HighRiskRows().compute(evaluate(table, Release(Rows(rows.values, 1 - rows.labels))))
    assert all(score.value == 0.0 for score in scores.scores)


def test_a_hundred_training_rows_are_flagged(table):
    rows = table.train.rows.take(np.arange(0, len(table.train), 3))
    scores = HighRiskRows().compute(evaluate(table, Release(Rows(rows.values, rows.labels))))
    assert named(scores, "high-risk/rare-released").value == 1.0
    assert named(scores, "high-risk/rare-excess").low > 0.85
    rare = named(scores, "high-risk/rare-train")
    assert rare.value == pytest.approx(len(rows) / len(table.train))
    assert rare.value > rare.limit
    # Rare ages alone: what a reader who knows the age only could find.
    assert 0 < named(scores, "high-risk/released").value < 1


def test_rare_copies_beyond_chance_are_none_for_fresh_rows():
    values = []
    for split_seed in range(20):
        dataset = build_dataset(Wards(), split_seed=split_seed)
        scores = HighRiskRows().compute(evaluate(dataset, dataset.test))
        values.append(named(scores, "high-risk/rare-excess").value)
    assert np.mean(values) < 2.5 * np.std(values, ddof=1) / np.sqrt(20) + 0.01
    assert np.mean(values) > -2.5 * np.std(values, ddof=1) / np.sqrt(20) - 0.01


def test_ratio_by_hand():
    """0/0 is 1, 0 over something 0, and a half is a half."""
    pair = np.array([[0.0, 0.0], [0.0, 0.4], [0.2, 0.4], [0.3, 0.3]])
    np.testing.assert_array_equal(copies._ratio(pair), [1.0, 0.0, 0.5, 1.0])


def test_training_rows_are_seen_by_the_ratio(table):
    scores = NeighbourRatio().compute(evaluate(table, table.train))
    assert named(scores, "nndr/median").value == 0.0
    assert named(scores, "nndr/5th").value == 0.0
    assert named(scores, "nndr/control-median").value > 0.3
    gap = named(scores, "nndr/gap")
    assert gap.low > 0.0
    assert gap.low <= gap.value <= gap.high


def test_ratio_is_that_of_all_pairs(table):
    evaluation = evaluate(table, table.test)
    scores = NeighbourRatio().compute(evaluation)
    tables = record_distance.RecordTables.of(evaluation)
    for name, real in (("", tables.train), ("control-", tables.control)):
        ratios = []
        for row in range(len(tables.released)):
            query = tables.released.take(np.full(len(real), row))
            first, second = np.sort(record_distance.distances(query, real))[:2]
            ratios.append(first / second if second > 0 else 1.0)
        assert named(scores, f"nndr/{name}median").value == np.median(ratios)
        assert named(scores, f"nndr/{name}5th").value == np.quantile(ratios, 0.05)
    counts = scores.details["nndr"].groupby("rows")["count"].sum()
    assert counts["released to train"] == len(table.test)
    assert counts["control to train"] == len(table.control)


def test_fresh_rows_leave_no_gap_of_ratios():
    gaps, covered = [], 0
    for split_seed in range(20):
        dataset = build_dataset(ToyTable(), split_seed=split_seed)
        gap = named(NeighbourRatio().compute(evaluate(dataset, dataset.test)), "nndr/gap")
        gaps.append(gap.value)
        covered += gap.low <= 0 <= gap.high
    assert abs(np.mean(gaps)) < 2.5 * np.std(gaps, ddof=1) / np.sqrt(20)
    assert covered >= 17


def test_difference_of_means_is_that_of_scipy():
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(0)
    first, second = rng.random(30), rng.random(80) ** 2
    gap = difference_of_means(first, second)
    theirs = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert gap.value == pytest.approx(first.mean() - second.mean())
    assert (gap.low, gap.high) == pytest.approx((theirs.low, theirs.high))
    same = difference_of_means(np.ones(5), np.ones(7))
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)


def test_too_few_rows_are_absent_with_the_reason(table):
    def cut(split, rows):
        index = np.arange(rows)
        return replace(split, frame=split.frame[:rows], rows=split.rows.take(index))

    alone = replace(table, train=cut(table.train, 1))
    with pytest.raises(NotComputable, match="1 training rows: no two closest"):
        NeighbourRatio().compute(evaluate(alone, table.test))
    few = replace(table, control=cut(table.control, 1))
    scores = NeighbourRatio().compute(evaluate(few, table.test))
    for name in ("control-median", "control-5th", "gap"):
        score = named(scores, f"nndr/{name}")
        assert score.value is None
        assert "1 control rows" in score.reason
    assert named(scores, "nndr/median").value is not None
    rows = table.test.rows.take(np.arange(2))
    with pytest.raises(NotComputable, match="2 released rows"):
        NeighbourRatio().compute(evaluate(table, Release(Rows(rows.values, rows.labels))))
    excess = named(HighRiskRows().compute(evaluate(few, table.test)), "high-risk/rare-excess")
    assert "1 control rows" in excess.reason


@pytest.mark.parametrize("metric", [HighRiskRows(), NeighbourRatio()])
def test_models_have_no_rows_and_threads_change_no_byte(table, patients, images, metric):
    with pytest.raises(NotComputable, match="a model, not rows"):
        metric.compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))
    for dataset in (patients, images):
        release = Release(Rows(dataset.test.rows.values, dataset.test.rows.labels))
        first, second = (
            metric.compute(Evaluation(dataset, release, 0, threads)).scores for threads in (1, 3)
        )
        assert first == second
        assert [score.metric for score in first] == [output.name for output in metric.declared()]
