"""GATS on tables that are small enough for known answers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bench import PrivateData
from bench.data.schema import Task
from bench.errors import InputError
from bench.methods.gats.gats import Gats
from bench.plugins.registry import build_method, build_source
from bench.plugins.release import Rows
from bench.plugins.source import DatasetSource
from bench.results.verdicts import Verdict, judge
from tests.support.gats import (
    AGE,
    MARKER,
    SMOKER,
    STAGE,
    behind_kernel,
    built,
    made,
    make,
    opened,
    private_rows,
)
from tests.support.tables import ToyImages, ToySurvival, ToyTable

# Equations 1 to 4 ------------------------------------------------------------------------------


def test_a_row_of_two_lies_on_the_line_between_them() -> None:
    private = private_rows(
        [-0.5, 0.5, 0.0, 0.9], [0.2, 0.8, -1.0, 1.0], [1] * 4, [0] * 4, [0, 0, 1, 1]
    )
    rows = made(private, constituents=2, mixed_share=0.0, filter="off")
    for label, (age, age_to), (marker, marker_to) in (
        (0, (-0.5, 0.5), (0.2, 0.8)),
        (1, (0.0, 0.9), (-1.0, 1.0)),
    ):
        made_rows = rows.values[rows.labels == label]
        along = (made_rows[:, AGE] - age) / (age_to - age)
        across = (made_rows[:, MARKER] - marker) / (marker_to - marker)
        assert np.allclose(along, across, atol=1e-5)
        assert along.min() >= -1e-6
        assert along.max() <= 1 + 1e-6
        assert along.min() < 0.05 < 0.95 < along.max()


@pytest.mark.parametrize("constituents", [1, 3, 7])
def test_numbers_stay_within_the_constituents(constituents: int) -> None:
    rng = np.random.default_rng(1)
    count = 2 * constituents
    private = private_rows(
        rng.uniform(-1, 1, count),
        rng.uniform(-1, 1, count),
        rng.choice([-1, 1], count),
        rng.choice(3, count),
        np.repeat([0, 1], constituents),
    )
    real = private.raw("test")
    rows = made(private, constituents=constituents, mixed_share=0.0, filter="off")
    for label in (0, 1):
        # Each class has N rows, so that every one of them is a constituent.
        numbers = rows.values[rows.labels == label][:, :2]
        among = real.values[real.labels == label][:, :2]
        assert (numbers >= among.min(axis=0) - 1e-6).all()
        assert (numbers <= among.max(axis=0) + 1e-6).all()


def test_discrete_columns_go_by_heads_not_by_weight() -> None:
    private = private_rows(
        [0] * 6,
        [-1, -1, 1, -1, -1, 1],
        [1, 1, -1, -1, -1, 1],
        [1, 1, 2, 0, 2, 2],
        [0] * 3 + [1] * 3,
    )
    rows = made(private, constituents=3, mixed_share=0.0, filter="off")
    # The third row alone has a marker of 1; it often weighs more than half, and is still outvoted.
    assert (rows.values[:, MARKER] > 0.2).sum() > 20
    assert (rows.values[rows.labels == 0, SMOKER] == 1).all()
    assert (rows.values[rows.labels == 1, SMOKER] == -1).all()
    assert (rows.values[rows.labels == 0, STAGE] == [0, 1, 0]).all()
    assert (rows.values[rows.labels == 1, STAGE] == [0, 0, 1]).all()


def test_ties_of_discrete_columns_go_to_the_heavier_side() -> None:
    private = private_rows([0] * 4, [-1, 1, -1, 1], [-1, 1, -1, 1], [0, 2, 0, 2], [0, 0, 1, 1])
    rows = made(private, constituents=2, mixed_share=0.0, filter="off")
    heavier = rows.values[:, MARKER] > 0
    assert 0.4 < heavier.mean() < 0.6
    assert ((rows.values[:, SMOKER] == 1) == heavier).all()
    assert ((rows.values[:, 5] == 1) == heavier).all()


@pytest.mark.parametrize("filtering", ["off", "constituents"])
def test_discrete_columns_stay_valid(filtering: str) -> None:
    private, _ = opened(ToyTable())
    values = made(private, filter=filtering).values
    assert set(np.unique(values[:, SMOKER])) == {-1.0, 1.0}
    assert set(np.unique(values[:, STAGE])) == {0.0, 1.0}
    assert (values[:, STAGE].sum(axis=1) == 1).all()
    assert np.abs(values).max() <= 1.0


@pytest.mark.parametrize("ipc", [1, 7, 100])
@pytest.mark.parametrize("parameters", [{}, {"mixed_share": 1.0, "mixed_ratio": 0.5}])
@pytest.mark.parametrize("source", [ToyTable(), ToySurvival(), ToyImages()])
def test_every_class_has_the_asked_for_rows(
    source: DatasetSource, parameters: dict[str, float], ipc: int
) -> None:
    private, _ = opened(source)
    rows = made(private, ipc, max_retries=2, **parameters)
    assert (np.bincount(rows.labels) == ipc).all()
    assert len(np.unique(rows.labels)) == len(private.schema.classes)


def test_full_size_follows_the_declared_counts() -> None:
    private, _ = opened(ToyTable())
    assert tuple(np.bincount(made(private, None).labels)) == private.counts.by_class == (180, 120)


# Mixed labels ----------------------------------------------------------------------------------


def separated(per_class: int = 40) -> PrivateData:
    """Markers are 0 in class 0 and 1 in class 1, so that they show a row's foreign weight."""
    count = 2 * per_class
    labels = np.repeat([0, 1], per_class)
    return private_rows([0] * count, labels, [1] * count, [0] * count, labels)


def foreign_weight(rows: Rows) -> npt.NDArray[np.float64]:
    return np.abs(rows.values[:, MARKER].astype(np.float64) - rows.labels)


def test_without_a_mixed_share_rows_are_class_wise() -> None:
    rows = made(separated(), mixed_share=0.0, mixed_ratio=0.5, filter="off")
    assert foreign_weight(rows).max() < 1e-6


@pytest.mark.parametrize("share", [0.1, 0.25, 1.0])
def test_the_mixed_share_is_exact_in_each_class(share: float) -> None:
    rows = made(separated(), constituents=10, mixed_share=share, filter="off")
    for label in (0, 1):
        mixed = foreign_weight(rows)[rows.labels == label] > 1e-6
        assert mixed.sum() == round(200 * share)


@pytest.mark.parametrize(
    "constituents, ratio", [(100, 0.25), (10, 0.3), (5, 0.3), (5, 0.4), (4, 0.5), (3, 0.1)]
)
def test_the_mixed_ratio_holds_on_average(constituents: int, ratio: float) -> None:
    rows = made(
        separated(200),
        2000,
        constituents=constituents,
        mixed_share=1.0,
        mixed_ratio=ratio,
        filter="off",
    )
    for label in (0, 1):
        weight = foreign_weight(rows)[rows.labels == label]
        # All constituents weigh 1/N on average; five standard errors.
        assert weight.mean() == pytest.approx(ratio, abs=5 * weight.std() / math.sqrt(len(weight)))


def test_a_tie_of_labels_goes_to_the_class_being_made() -> None:
    rows = made(separated(), constituents=2, mixed_share=1.0, mixed_ratio=0.5, filter="off")
    assert (foreign_weight(rows) > 0).all()
    assert tuple(np.bincount(rows.labels)) == (200, 200)


def test_an_odd_number_never_outvotes_the_class_being_made() -> None:
    rows = made(separated(), 2000, constituents=3, mixed_share=1.0, mixed_ratio=0.5, filter="off")
    # One of three is foreign, never two: the mean weight is 1/3 and not 1/2.
    assert foreign_weight(rows).mean() == pytest.approx(1 / 3, abs=0.03)


def test_a_larger_ratio_pulls_the_classes_together() -> None:
    private, _ = opened(ToyTable())

    def distance(ratio: float) -> float:
        rows = made(private, 1000, mixed_share=1.0, mixed_ratio=ratio, filter="off")
        marker = rows.values[:, MARKER]
        return float(marker[rows.labels == 1].mean() - marker[rows.labels == 0].mean())

    distances = [distance(ratio) for ratio in (0.0, 0.2, 0.4)]
    assert all(far > near > 0 for far, near in pairwise(distances))
    # A ratio q leaves 1 - 2q of the distance between two classes.
    assert distances[2] / distances[0] == pytest.approx(0.2, abs=0.05)


def test_foreign_rows_come_from_all_other_classes() -> None:
    labels = np.repeat([0, 1, 2], 30)
    values = np.zeros((90, 64), dtype=np.float32)
    values[np.arange(90), labels] = 1.0  # pixel c is 1 in class c
    private = behind_kernel(values, labels, ToyImages())
    rows = made(private, 500, constituents=10, mixed_share=1.0, filter="off")
    weights = rows.values[rows.labels == 0][:, :3].mean(axis=0)
    assert weights == pytest.approx([0.7, 0.15, 0.15], abs=0.02)


# The release as a whole ------------------------------------------------------------------------


@pytest.mark.parametrize("source", [ToyTable(), ToySurvival(), ToyImages()])
def test_same_seed_same_bytes(source: DatasetSource) -> None:
    def released(seed: int) -> bytes:
        private, _ = opened(source)
        rows = made(private, 50, seed, batch=60, max_retries=5)
        return rows.values.tobytes() + rows.labels.tobytes()

    assert released(1) == released(1)
    assert released(1) != released(2)


def test_the_ledger_says_that_nothing_is_proven() -> None:
    private, ledger = opened(ToyTable())
    release = make(private)
    proof = ledger.proof()
    assert proof.epsilon == math.inf
    judgement = judge(None, release.claim, proof)
    assert judgement.verdict is Verdict.NON_PRIVATE
    assert "without noise" in judgement.reason
    assert release.claim is None
    assert not Gats.uses_budget
    assert Gats.uses_ipc


def test_survival_times_are_combined_and_events_kept() -> None:
    private, _ = opened(ToySurvival())
    real = private.raw("test")
    rows = made(private, 300, mixed_share=0.0, filter="off")
    for event in (0, 1):
        times = rows.values[rows.labels == event, -1]
        among = real.values[real.labels == event, -1]
        assert among.min() <= times.min() <= times.max() <= among.max()
        # An average of five has the same mean and a smaller spread.
        assert times.mean() == pytest.approx(among.mean(), abs=0.1)
        assert times.std() < among.std()


def test_images_are_averages_of_their_class() -> None:
    private, _ = opened(ToyImages())
    assert private.task is Task.IMAGE
    real = private.raw("test")
    rows = made(private, 100, mixed_share=0.0, filter="off")
    for label in range(3):
        difference = rows.values[rows.labels == label].mean(0) - real.values[
            real.labels == label
        ].mean(0)
        assert np.abs(difference).max() < 0.2


def test_a_model_learns_from_the_release() -> None:
    from sklearn.metrics import roc_auc_score
    from xgboost import XGBClassifier

    source = build_source("breast-cancer")
    private, _ = opened(source)
    rows, test = made(private, 100), built(source).test.rows
    model = XGBClassifier(n_estimators=100, max_depth=4, n_jobs=1, random_state=0)
    model.fit(rows.values, rows.labels)
    assert roc_auc_score(test.labels, model.predict_proba(test.values)[:, 1]) > 0.95


@pytest.mark.parametrize(
    "wrong",
    [
        {"constituents": 0},
        {"mixed_share": 1.5},
        {"mixed_ratio": 0.6},
        {"mixed_ratio": -0.1},
        {"batch": 4},
        {"filter": "some"},
        {"threshold": 75},
        {"coefficients": "normal"},
        {"concentration": 0.0},
        {"concentration": math.inf},
        {"votes": "hands"},
        {"max_retries": -1},
    ],
)
def test_invalid_hyperparameters_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=f"gats: {name}=.* is not"):
        build_method("gats", wrong)


def test_a_concentration_belongs_to_dirichlet() -> None:
    with pytest.raises(InputError, match=r"gats: concentration=.* is not 1"):
        build_method("gats", {"coefficients": "uniform", "concentration": 0.5})
