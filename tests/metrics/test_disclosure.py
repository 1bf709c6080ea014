"""Distance to the closest record of a release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from bench.core.dataset import DatasetSource, Declaration, build_dataset
from bench.core.errors import NotComputable
from bench.core.metric import Direction
from bench.core.release import Release, Rows
from bench.core.schema import Categorical, Numeric, Role, Schema, Task
from bench.metrics import _distance, _records, disclosure
from bench.metrics.disclosure import ClosestRecord
from tests.metrics.helpers import Answers, evaluate, named
from tests.support.tables import ToyTable


@final
@dataclass(frozen=True)
class FewRecords(DatasetSource):
    """Counts and categories: common records stand in the table many times, rare ones once."""

    name: ClassVar[str] = "few-records"

    def declare(self) -> Declaration:
        columns = (
            Numeric(name="visits", low=0, high=400, integer=True),
            Categorical(name="ward", categories=("a", "b", "c")),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION)
        return Declaration("Few records", schema, (500, 500), {}, "CC0", "", "", simulated=True)

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(5)
        return pd.DataFrame(
            {
                "visits": np.minimum(rng.exponential(60, 1000).astype(int), 400),
                "ward": rng.choice(["a", "b", "c"], 1000, p=[0.9, 0.07, 0.03]),
                "outcome": np.repeat([0, 1], 500),
            }
        )


def test_releasing_the_training_rows_is_seen(table):
    scores = ClosestRecord().compute(evaluate(table, table.train))
    median, gap, copies = (named(scores, f"dcr/{name}") for name in ("median", "gap", "copies"))
    assert (median.value, median.low, median.high) == (0.0, 0.0, 0.0)
    assert copies.value == copies.high == 1.0
    assert copies.low > 0.98
    assert gap.low > 0.01
    assert gap.low <= gap.value <= gap.high
    assert (median.direction, gap.direction, copies.direction) == (
        Direction.HIGHER,
        Direction.LOWER,
        Direction.LOWER,
    )


def test_fresh_rows_leave_no_gap():
    """Over 20 splits the mean gap is within its standard error, and no row is a copy."""
    gaps = []
    for split_seed in range(20):
        dataset = build_dataset(ToyTable(), split_seed=split_seed)
        scores = ClosestRecord().compute(evaluate(dataset, dataset.test))
        assert named(scores, "dcr/copies").value == 0.0
        gaps.append(named(scores, "dcr/gap").value)
    assert abs(np.mean(gaps)) < 2.5 * np.std(gaps, ddof=1) / np.sqrt(20)
    assert np.mean(gaps) < 0.005


def test_records_that_occur_often_leave_no_gap_either():
    """Control rows that also stand in train are removed, without making the others rare ones."""
    fair, naive = [], []
    for split_seed in range(20):
        dataset = build_dataset(FewRecords(), split_seed=split_seed)
        evaluation = evaluate(dataset, dataset.test)
        fair.append(named(ClosestRecord().compute(evaluation), "dcr/gap").value)
        train = _records.real_records(evaluation, "train", dataset.train)
        control = _records.real_records(evaluation, "control", dataset.control)
        of_train, of_control = _distance.identities(train, control)
        fresh = ~np.isin(of_control, of_train)
        to_train = disclosure.closest(evaluation, "train", train)
        to_control = disclosure.closest(evaluation, "control", control)
        naive.append(np.median(to_control[fresh]) - np.median(to_train))
    assert None not in fair
    # What the removal alone would have called leakage.
    assert np.mean(naive) > 5 * np.std(naive, ddof=1) / np.sqrt(20)
    assert abs(np.mean(fair)) < 2.5 * np.std(fair, ddof=1) / np.sqrt(20)


def test_copies_are_a_share_of_the_released_rows(table):
    train, fresh = table.train.rows, table.validation.rows
    values = np.concatenate([train.values[:15], fresh.values])
    labels = np.concatenate([train.labels[:15], fresh.labels])
    scores = ClosestRecord().compute(evaluate(table, Release(Rows(values, labels))))
    copies = named(scores, "dcr/copies")
    assert copies.value == 15 / 65
    exact = binomtest(15, 65).proportion_ci(0.95, "exact")
    assert (copies.low, copies.high) == pytest.approx((exact.low, exact.high))


def test_a_copy_with_another_label_is_no_copy(table):
    rows = table.train.rows
    scores = ClosestRecord().compute(evaluate(table, Release(Rows(rows.values, 1 - rows.labels))))
    assert named(scores, "dcr/copies").value == 0.0
    assert named(scores, "dcr/median").value > 0.0


def test_copies_survive_double_precision_and_values_beyond_the_bounds(table):
    """What is compared is what a reader sees: clipped, rounded, largest category."""
    rows = table.train.rows
    values = rows.values.astype(np.float64)
    values[:, 3:] *= 5.0  # the one-hot stage
    values[:, 2] *= 0.3  # the binary smoker
    scores = ClosestRecord().compute(evaluate(table, Release(Rows(values, rows.labels))))
    assert named(scores, "dcr/copies").value == 1.0


def test_median_is_that_of_the_nearest_distances(table):
    evaluation = evaluate(table, table.validation)
    scores = ClosestRecord().compute(evaluation)
    real = _records.real_records(evaluation, "train", table.train)
    released = _records.released_records(evaluation)
    plain = [
        _distance.distances(real.take(np.full(len(released), row)), released).min()
        for row in range(len(real))
    ]
    assert named(scores, "dcr/median").value == pytest.approx(np.median(plain), abs=1e-14)


def test_histograms_count_every_row_and_keep_copies_apart(table):
    scores = ClosestRecord().compute(evaluate(table, table.train))
    histogram = scores.details["dcr"]
    counts = histogram.groupby("rows")["count"].sum()
    assert counts["train"] == len(table.train)
    zero = histogram[(histogram["rows"] == "train") & (histogram["high"] == 0.0)]
    assert zero["count"].item() == len(table.train)
    assert counts["control, once"] <= len(table.control)
    edges = histogram.groupby("rows")["high"].apply(tuple)
    assert edges.nunique() == 1


def test_same_seed_same_scores(table):
    first, again = (
        ClosestRecord().compute(evaluate(table, table.validation, 4)).scores for _ in range(2)
    )
    assert first == again


def test_the_gap_is_absent_without_control_rows(table):
    nobody = replace(table.control, frame=table.control.frame[:0])
    nobody = replace(nobody, rows=table.control.rows.take(np.arange(0)))
    dataset = replace(table, control=nobody)
    scores = ClosestRecord().compute(evaluate(dataset, dataset.train))
    gap = named(scores, "dcr/gap")
    assert gap.value is gap.low is gap.high is None
    assert "0 control rows" in gap.reason
    assert named(scores, "dcr/median").value == 0.0


def test_a_model_has_no_rows_to_compare(table):
    with pytest.raises(NotComputable, match="a model, not rows"):
        ClosestRecord().compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))


def test_distances_that_would_take_hours_are_absent_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bench.core.dataset import build_dataset
    from bench.core.errors import NotComputable
    from bench.core.metric import Evaluation
    from bench.core.release import Release, Rows
    from bench.metrics import disclosure
    from tests.support.tables import ToyTable

    dataset = build_dataset(ToyTable())
    rows = dataset.train.rows
    evaluation = Evaluation(dataset, Release(Rows(rows.values, rows.labels)), seed=0)
    monkeypatch.setattr(disclosure, "COMPARISONS_AT_MOST", 1000)
    with pytest.raises(NotComputable, match="never of a sample"):
        disclosure.ClosestRecord().compute(evaluation)
