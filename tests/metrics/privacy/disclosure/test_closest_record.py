"""Distance to the closest record of a release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from bench.data.dataset import Declaration
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import NotComputable
from bench.metrics._shared import record_distance
from bench.metrics._shared.intervals import Interval, difference_of_shares, weighted_share
from bench.metrics.privacy.disclosure import closest_record
from bench.metrics.privacy.disclosure.closest_record import (
    BinnedDistance,
    ClosestRecord,
    DistanceDistribution,
)
from bench.plugins.metric import Direction, Evaluation
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from tests.metrics.helpers import Answers, evaluate, named, without_control
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
        train = record_distance.real_records(evaluation, "train")
        control = record_distance.real_records(evaluation, "control")
        of_train, of_control = record_distance.identities(train, control)
        fresh = ~np.isin(of_control, of_train)
        to_train, to_control = closest_record.closest(evaluation)
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
    assert copies.value == 15 / (15 + len(fresh))
    exact = binomtest(15, 15 + len(fresh)).proportion_ci(0.95, "exact")
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
    real = record_distance.real_records(evaluation, "train")
    released = record_distance.released_records(evaluation)
    plain = [
        record_distance.distances(real.take(np.full(len(released), row)), released).min()
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


def test_the_gap_is_absent_without_control_rows(table):
    dataset = without_control(table)
    scores = ClosestRecord().compute(evaluate(dataset, dataset.train))
    gap = named(scores, "dcr/gap")
    assert gap.value is gap.low is gap.high is None
    assert "0 control rows" in gap.reason
    assert named(scores, "dcr/median").value == 0.0


def test_a_model_has_no_rows_to_compare(table):
    with pytest.raises(NotComputable, match="a model, not rows"):
        ClosestRecord().compute(evaluate(table, Release(model=Answers(lambda v: v[:, 0]))))


CLOSER = {"dcr": ClosestRecord(), "dcr-hamming": BinnedDistance()}


@pytest.mark.parametrize("name", CLOSER)
@pytest.mark.parametrize("source", [ToyTable(), FewRecords()])
def test_fresh_rows_are_as_close_to_control_as_to_training_rows(name, source):
    """Over 20 splits: one half within the noise, and the intervals hold it."""
    values, covered = [], 0
    for split_seed in range(20):
        dataset = build_dataset(source, split_seed=split_seed)
        score = named(
            CLOSER[name].compute(evaluate(dataset, dataset.test)), f"{name}/closer-to-train"
        )
        values.append(score.value)
        covered += score.low <= 0.5 <= score.high
    assert abs(np.mean(values) - 0.5) < 2.5 * np.std(values, ddof=1) / np.sqrt(20)
    assert abs(np.mean(values) - 0.5) < 0.05
    assert covered >= 17


@pytest.mark.parametrize("name", CLOSER)
def test_training_rows_are_closer_to_train(table, name):
    metric, output = CLOSER[name], f"{name}/closer-to-train"
    whole = named(metric.compute(evaluate(table, table.train)), output)
    rows = table.train.rows.take(np.arange(0, len(table.train), 3))
    part = named(metric.compute(evaluate(table, Release(Rows(rows.values, rows.labels)))), output)
    for score in (whole, part):
        assert score.value > (0.99 if name == "dcr" else 0.75)
        assert score.low > (0.6 if name == "dcr" else 0.5)
    assert part.high - part.low > whole.high - whole.low


def test_common_records_do_not_hide_that_all_rows_are_copies():
    """Most rows of this table are not the only ones of their kind."""
    dataset = build_dataset(FewRecords())
    evaluation = evaluate(dataset, dataset.train)
    score = named(ClosestRecord().compute(evaluation), "dcr/closer-to-train")
    assert np.mean(record_distance.copies(evaluation).common) > 0.5
    assert score.value == 1.0
    index = np.flatnonzero(record_distance.copies(evaluation).common)
    rows = dataset.train.rows.take(index)
    common = ClosestRecord().compute(evaluate(dataset, Release(Rows(rows.values, rows.labels))))
    score = named(common, "dcr/closer-to-train")
    assert score.value is None
    assert "occurs more than once" in score.reason


def test_closer_to_train_by_hand():
    """Training rows 0, 10, 20 and control rows 3, 13 of one number.

    Released 0.5 and 9 point at the training rows 0 and 10, 14 and 2 at the control rows 13 and 3:
    2 pointers at 3 training rows and 2 at 2 control rows, (2/3) / (2/3 + 1) = 0.4.
    """

    def records(*numbers):
        return record_distance.Records(
            np.array(numbers)[:, None] * 1.0, np.empty((len(numbers), 0), np.int32)
        )

    train, control = records(0, 10, 20), records(3, 13)
    released = records(0.5, 9, 14, 2)
    rows = record_distance.ComparedRows(np.arange(3), np.arange(2))
    tables = record_distance.RecordTables(released, train, control)
    with pytest.raises(NotComputable, match="3 training and 2 control rows occur only once"):
        closest_record.closer_to_train(np.array([0]), rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closest_record, "LEAST_ROWS", 2)
        distances = closest_record.find_distances(tables, rows, 1, np.random.default_rng(0))
        score = closest_record.closer_to_train(distances.pointed, rows)
    np.testing.assert_array_equal(distances.pointed, [0, 1, 4, 3])
    np.testing.assert_allclose(distances.train[0], [1 / 3, 1 - 1.5 / 11])
    # The sample is the first two training rows.
    np.testing.assert_allclose(distances.matched_train[2], 4 / 15)
    np.testing.assert_allclose(distances.matched_control, [1 - 1.5 / 4, 4 / 14, 1 / 15, 1 / 4])
    np.testing.assert_allclose(distances.control[:, 0], distances.matched_control)
    for real, found in ((train, distances.from_train), (control, distances.from_control)):
        np.testing.assert_array_equal(found, record_distance.nearest(real, released))
    assert score.value == pytest.approx(0.4)
    plain = binomtest(2, 4).proportion_ci(0.95, "exact")
    for end, of_share in ((score.low, plain.low), (score.high, plain.high)):
        a, b = of_share / 3, (1 - of_share) / 2
        assert end == pytest.approx(a / (a + b))


def test_rows_that_point_at_the_same_row_are_one_trial():
    once = weighted_share([True, False, True], [1, 1, 1])
    exact = binomtest(2, 3).proportion_ci(0.95, "exact")
    assert (once.low, once.high) == pytest.approx((exact.low, exact.high))
    # A hundred copies of the same three pointers know nothing more.
    assert weighted_share([True, False, True], [100, 100, 100]) == once
    assert weighted_share([True], [50.0]).low == pytest.approx(0.025)


def test_copies_beyond_chance_are_none_for_fresh_rows():
    """Common records are copied by chance: 20 splits, of which some 95% hold 0."""
    values, plain, covered = [], [], 0
    for split_seed in range(20):
        dataset = build_dataset(FewRecords(), split_seed=split_seed)
        scores = ClosestRecord().compute(evaluate(dataset, dataset.test))
        excess = named(scores, "dcr/copies-excess")
        plain.append(named(scores, "dcr/copies").value)
        values.append(excess.value)
        covered += excess.low <= 0 <= excess.high
    assert np.mean(plain) > 0.5
    assert abs(np.mean(values)) < 2.5 * np.std(values, ddof=1) / np.sqrt(20)
    assert covered >= 17


def test_copies_beyond_chance_are_seen(table):
    rows = table.train.rows.take(np.arange(0, len(table.train), 3))
    scores = ClosestRecord().compute(evaluate(table, Release(Rows(rows.values, rows.labels))))
    assert named(scores, "dcr/copies").value == 1.0
    excess = named(scores, "dcr/copies-excess")
    assert excess.value == 1.0
    assert excess.low > 0.85


def test_control_rows_take_the_class_mix_of_the_release():
    """Half of class 1 released; control rows of class 0 copy, those of class 1 do not."""
    weights = closest_record.in_the_mix_of(np.array([0, 1]), np.array([0, 1, 1, 1]))
    assert weighted_share([1, 0, 0, 0], weights).value == pytest.approx(0.5)
    with pytest.raises(NotComputable, match="no control row"):
        closest_record.in_the_mix_of(np.array([0, 1]), np.array([0, 0]))


def test_difference_of_shares_is_that_of_newcombe():
    """Method 10 of his comparison (1998), from score intervals: 56/70 - 48/80."""
    shares = []
    for hits, rows in ((56, 70), (48, 80)):
        ends = binomtest(hits, rows).proportion_ci(0.95, "wilson")
        shares.append(Interval(hits / rows, ends.low, ends.high))
    gap = difference_of_shares(*shares)
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_quantiles_agree_with_numpy_and_with_resampled_rows():
    rng = np.random.default_rng(0)
    values = rng.exponential(size=301)
    for level in (0.05, 0.5, 0.33):
        estimate = closest_record.bootstrap_quantile(values, level, np.random.default_rng(1), 4000)
        assert estimate.value == np.quantile(values, level)
        drawn = np.quantile(values[rng.integers(0, 301, (4000, 301))], level, axis=1)
        np.testing.assert_allclose(estimate.interval, np.quantile(drawn, [0.025, 0.975]), rtol=0.06)


def test_distribution_of_the_training_rows_and_of_fresh_ones(table):
    copied = DistanceDistribution().compute(evaluate(table, table.train))
    fresh = DistanceDistribution().compute(evaluate(table, table.test))
    assert named(copied, "dcr/released-median").value == 0.0
    assert named(fresh, "dcr/released-5th").value > 0.0
    # Fresh rows are as far from the training rows as these from each other.
    real, released = named(fresh, "dcr/real-median"), named(fresh, "dcr/released-median")
    assert released.low < real.high
    assert real.low < released.high
    matched, control = named(fresh, "dcr/matched-median"), named(fresh, "dcr/control-median")
    assert matched.low < control.high
    assert control.low < matched.high
    # Fewer rows to be close to.
    assert matched.value > released.value
    counts = fresh.details["dcr-distribution"].groupby("rows")["count"].sum()
    released = len(table.test)
    assert counts.to_dict() == {
        "released": released,
        "real": len(table.train),
        "matched": released,
        "control": released,
    }


def test_distribution_is_that_of_all_pairs(table):
    evaluation = evaluate(table, table.validation)
    scores = DistanceDistribution().compute(evaluation)
    tables = record_distance.RecordTables.of(evaluation)

    def pairs(left, right):
        return np.array(
            [
                record_distance.distances(left.take(np.full(len(right), row)), right)
                for row in range(len(left))
            ]
        )

    released = pairs(tables.released, tables.train).min(axis=1)
    among = pairs(tables.train, tables.train)
    np.fill_diagonal(among, np.inf)
    for name, values in (("released", released), ("real", among.min(axis=1))):
        assert named(scores, f"dcr/{name}-median").value == np.median(values)
        assert named(scores, f"dcr/{name}-5th").value == np.quantile(values, 0.05)


def test_hamming_distance_of_the_paper(table):
    from scipy.spatial.distance import cdist

    evaluation = evaluate(table, table.test)
    scores = BinnedDistance().compute(evaluation)
    tables = record_distance.RecordTables.of(evaluation).binned()
    to_released = cdist(tables.train.codes, tables.released.codes, "hamming").min(axis=1)
    among = cdist(tables.train.codes, tables.train.codes, "hamming")
    np.fill_diagonal(among, np.inf)
    assert named(scores, "dcr-hamming/median").value == np.median(to_released)
    assert named(scores, "dcr-hamming/real-median").value == np.median(among.min(axis=1))
    copied = BinnedDistance().compute(evaluate(table, table.train))
    assert named(copied, "dcr-hamming/median").value == 0.0


@pytest.mark.parametrize("metric", [ClosestRecord(), DistanceDistribution(), BinnedDistance()])
def test_every_output_is_there_for_small_releases_cohorts_and_images(metric, patients, images):
    for dataset in (patients, images):
        rows = dataset.train.rows.take(np.arange(0, 8))
        scores = metric.compute(evaluate(dataset, Release(Rows(rows.values, rows.labels)))).scores
        assert [score.metric for score in scores] == [output.name for output in metric.declared()]
        for score in scores:
            assert (score.value is None) == bool(score.reason)
            if score.value is not None:
                assert score.low <= score.value <= score.high


@pytest.mark.parametrize("metric", [ClosestRecord(), DistanceDistribution(), BinnedDistance()])
def test_threads_change_no_byte(table, metric):
    results = []
    for threads in (1, 2, 3):
        release = Release(Rows(table.test.rows.values, table.test.rows.labels))
        results.append(metric.compute(Evaluation(table, release, 0, threads)))
    for other in results[1:]:
        assert other.scores == results[0].scores
        for name, frame in results[0].details.items():
            pd.testing.assert_frame_equal(frame, other.details[name], check_exact=True)


def test_few_control_rows_leave_the_comparisons_absent(table):
    few = replace(table.control, frame=table.control.frame[:5])
    few = replace(few, rows=table.control.rows.take(np.arange(5)))
    dataset = replace(table, control=few)
    closest = ClosestRecord().compute(evaluate(dataset, dataset.train))
    for name in ("gap", "closer-to-train", "copies-excess"):
        score = named(closest, f"dcr/{name}")
        assert score.value is None
        assert "5 control rows" in score.reason
    distribution = DistanceDistribution().compute(evaluate(dataset, dataset.train))
    assert named(distribution, "dcr/control-5th").value is None
    assert named(distribution, "dcr/released-5th").value == 0.0


def test_agrees_with_syntheval_on_categories():
    """Released to real and real to real, medians; all columns categorical: the same distance."""
    dcr = pytest.importorskip("syntheval.metrics.privacy.metric_distance_closest_record")
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 4, (rows, 9)).astype(np.int32) for rows in (120, 80)]
    real, released = (record_distance.Records(np.empty((len(c), 0)), c) for c in codes)
    frames = [pd.DataFrame(c.astype(str), columns=[f"c{k}" for k in range(9)]) for c in codes]
    theirs = dcr.MedianDistanceToClosestRecord(
        frames[0], frames[1], cat_cols=list(frames[0]), num_cols=[], nn_dist="gower", verbose=False
    ).evaluate()
    to_real = np.median(record_distance.nearest(released, real))
    among = np.median(record_distance.k_nearest(real, real, 2)[:, 1])
    assert theirs["mDCR"] == pytest.approx(to_real / among)


def test_agrees_with_sdmetrics_on_categories_and_missing_values():
    """Distances of each released row; numbers are compared differently there."""
    utilities = pytest.importorskip("sdmetrics.single_table.privacy.dcr_utils")
    rng = np.random.default_rng(1)
    codes = [rng.integers(-1, 3, (rows, 6)).astype(np.int32) for rows in (70, 110)]
    released, real = (record_distance.Records(np.empty((len(c), 0)), c) for c in codes)
    frames = [
        pd.DataFrame({f"c{k}": pd.Series(c[:, k]).map({0: "x", 1: "y", 2: "z"}) for k in range(6)})
        for c in codes
    ]
    metadata = {"columns": {name: {"sdtype": "categorical"} for name in frames[0]}}
    theirs = utilities.calculate_dcr(frames[0], frames[1], metadata)
    np.testing.assert_allclose(record_distance.nearest(released, real), theirs, atol=1e-14)


def test_distances_that_would_take_hours_are_absent_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bench.errors import NotComputable
    from bench.metrics.privacy.disclosure import closest_record
    from bench.plugins.metric import Evaluation
    from bench.plugins.release import Release, Rows
    from bench.plugins.source import build_dataset
    from tests.support.tables import ToyTable

    dataset = build_dataset(ToyTable())
    rows = dataset.train.rows
    evaluation = Evaluation(dataset, Release(Rows(rows.values, rows.labels)), seed=0)
    monkeypatch.setattr(closest_record, "COMPARISONS_AT_MOST", 1000)
    with pytest.raises(NotComputable, match="never of a sample"):
        closest_record.ClosestRecord().compute(evaluation)
