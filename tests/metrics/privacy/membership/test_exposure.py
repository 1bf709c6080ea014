"""Exposure of injected canaries."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from bench.data.dataset import Dataset
from bench.errors import NotComputable
from bench.metrics._shared.record_distance import real_records
from bench.metrics.privacy.membership import exposure
from bench.metrics.privacy.membership.exposure import Exposure
from bench.plugins.metric import Refit
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.metrics.helpers import Answers, evaluate, named, toy_cell
from tests.support.tables import ToyImages, ToySurvival


@pytest.fixture(scope="module")
def wide() -> Dataset:
    """64 numbers: a large space of canaries."""
    return build_dataset(ToyImages())


def copying(dataset: Dataset) -> Refit:
    """A method that releases its input."""

    def refit(train: pd.DataFrame, repetition: int) -> Release:
        rows, _ = dataset.encoder.encode(train.reset_index(drop=True))
        return Release(Rows(rows.values, rows.labels))

    return refit


def ignoring(dataset: Dataset) -> Refit:
    """A method that does not look at its input."""

    def refit(train: pd.DataFrame, repetition: int) -> Release:
        rows = dataset.test.rows
        return Release(Rows(rows.values, rows.labels))

    return refit


def test_ranks_and_exposures_of_four_canaries():
    """Three others at 1, 2, 3: |C| = 4."""
    table = exposure.ranked(np.array([0.5, 2.5, 9.0]), np.array([3.0, 1.0, 2.0]))
    assert table["exposure"].tolist() == pytest.approx([2.0, 2 - math.log2(3), 0.0])
    assert table["first"].tolist() == [True, False, False]
    assert (table["space"] == 4).all()


def test_ties_share_the_mean_exposure_of_their_ranks():
    table = exposure.ranked(np.array([1.0]), np.array([1.0, 1.0, 5.0]))
    shared = np.mean([2 - math.log2(rank) for rank in (1, 2, 3)])
    assert table["exposure"].item() == pytest.approx(shared)
    assert not table["first"].item()


def test_uniform_ranks_have_median_one_and_mean_log2_e():
    """The median that the paper states, and the expected value in the details."""
    others = np.arange(1023.0)
    every = exposure.ranked(np.arange(1024) - 0.5, others)
    assert np.median(every["exposure"]) == pytest.approx(1.0, abs=0.01)
    assert every["exposure"].mean() == pytest.approx(every["expected"].iloc[0])
    assert every["exposure"].mean() == pytest.approx(math.log2(math.e), abs=0.01)
    assert every["exposure"].max() == 10.0


def test_p_values_are_uniform_without_memorisation():
    rng = np.random.default_rng(0)
    ranks = rng.integers(1, 1025, (2000, 30))
    values = [exposure.p_value(10 - np.log2(row)) for row in ranks]
    assert kstest(values, "uniform").pvalue > 0.01


def test_a_method_that_copies_reaches_the_maximum(wide):
    scores = Exposure().compute(evaluate(wide, wide.test), copying(wide))
    assert named(scores, "exposure/mean").value == 10.0
    assert named(scores, "exposure/maximum").value == 10.0
    assert named(scores, "exposure/extracted").value == 1.0
    assert named(scores, "exposure/extracted").low > 0.8
    assert named(scores, "exposure/p-value").value < 1e-12


def test_a_method_that_ignores_its_input_exposes_nothing(wide):
    means, smalls = [], 0
    for seed in range(20):
        scores = Exposure().compute(evaluate(wide, wide.test, seed), ignoring(wide))
        means.append(named(scores, "exposure/mean").value)
        smalls += named(scores, "exposure/p-value").value < 0.05
    # The standard deviation of one exposure is 1.44 as well.
    assert np.mean(means) == pytest.approx(math.log2(math.e), abs=3 * 1.44 / math.sqrt(600))
    assert smalls <= 4


def test_one_planted_copy_is_seen_among_the_others(wide):
    """The first canary of each refit is released with fresh rows."""

    def refit(train: pd.DataFrame, repetition: int) -> Release:
        planted, _ = wide.encoder.encode(train.loc[train.index >= len(wide.train)][:1])
        rows = wide.test.rows
        return Release(
            Rows(
                np.concatenate([rows.values, planted.values]),
                np.concatenate([rows.labels, planted.labels]),
            )
        )

    scores = Exposure().compute(evaluate(wide, wide.test), refit)
    details = scores.details["exposure"]
    assert (details.groupby("repetition")["exposure"].first() == 10.0).all()
    assert named(scores, "exposure/extracted").value == pytest.approx(0.1)


def test_canaries_are_added_with_an_index_of_their_own(table):
    seen: list[pd.DataFrame] = []

    def refit(train: pd.DataFrame, repetition: int) -> Release:
        seen.append(train)
        return ignoring(table)(train, repetition)

    Exposure().compute(evaluate(table, table.test), refit)
    assert len(seen) == Exposure.repeats
    for train in seen:
        assert train.index.is_unique
        added = train.loc[train.index >= len(table.train)]
        assert len(added) == Exposure.canaries
        assert set(added["age"]) <= {0.0, 100.0}
        assert set(added["marker"]) <= {-10.0, 10.0}
        pd.testing.assert_frame_equal(
            train.loc[train.index < len(table.train)].astype(str), table.train.frame.astype(str)
        )
    assert not seen[0].iloc[-1].equals(seen[1].iloc[-1]) or not seen[0].iloc[-2].equals(
        seen[1].iloc[-2]
    )


def test_a_small_space_is_ranked_as_a_whole(table):
    """2 x 2 bounds, 2 x 3 categories, 2 labels: 48 records, ten of them injected."""
    scores = Exposure().compute(evaluate(table, table.test), copying(table))
    assert named(scores, "exposure/maximum").value == pytest.approx(math.log2(39))
    assert named(scores, "exposure/mean").value == pytest.approx(math.log2(39))


def test_no_canary_is_a_training_row(table):
    known = real_records(evaluate(table, table.test), "train")
    drawn = exposure.draw(table, known, 10, 1023, np.random.default_rng(0))
    assert len(drawn.records) == 48
    some = drawn.records.take(np.arange(5))
    again = exposure.draw(table, some, 10, 1023, np.random.default_rng(0))
    assert len(again.records) == 43


def test_too_small_a_space_is_absent_with_the_reason():
    patients = build_dataset(ToySurvival())
    with pytest.raises(NotComputable, match="16 records at the public bounds"):
        Exposure().compute(evaluate(patients, patients.test), ignoring(patients))


def test_a_refit_that_gives_a_model_is_absent(table):
    def refit(train: pd.DataFrame, repetition: int) -> Release:
        return Release(model=Answers(lambda v: v[:, 0]))

    with pytest.raises(NotComputable, match="a model, not rows"):
        Exposure().compute(evaluate(table, table.test), refit)


def test_same_seed_same_scores(table):
    first, again = (
        Exposure().compute(evaluate(table, table.test, 3), ignoring(table)).scores for _ in range(2)
    )
    assert first == again


def test_it_runs_in_a_cell():
    values = {score.metric: score.value for score in toy_cell("exposure").scores}
    assert values["exposure/mean"] == pytest.approx(values["exposure/maximum"])
