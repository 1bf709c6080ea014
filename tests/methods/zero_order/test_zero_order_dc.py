"""Zero-order condensation: set-up by hand, descent on toy data, claim and ledger."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from bench import Budget
from bench.data.dataset import Dataset
from bench.data.encoder import EncodedRows
from bench.errors import InputError, NotApplicable
from bench.methods.zero_order import _teachers
from bench.methods.zero_order._setup import RealRows, half_range, initial_times, middle
from bench.methods.zero_order._teachers import LabelledRows, TeacherKind, time_scale
from bench.methods.zero_order.zero_order_dc import (
    REASONS,
    TEACHER_REASON,
    VALIDATION_REASON,
    ZeroOrderDc,
)
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.results.verdicts import Verdict, judge
from tests.support.real_data import real_folder
from tests.support.tables import ToyImages, ToySurvival, ToyTable


@functools.cache
def toy(name: str) -> Dataset:
    sources = {"table": ToyTable, "survival": ToySurvival, "images": ToyImages}
    return build_dataset(sources[name]())


def condensed(
    data: Dataset, epsilon: float | None = None, ipc: int = 20, seed: int = 0, **settings: Any
) -> tuple[Release, Ledger]:
    budget = None if epsilon is None else Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(seed)))
    method = ZeroOrderDc(**{"steps": 300, **settings})
    spec = Spec(data.task, ipc, budget)
    return method.synthesize(private, spec, np.random.default_rng(seed + 1)), ledger


def downstream(data: Dataset, release: Release, kind: TeacherKind) -> float:
    """AUROC or C-index on the test rows of a model of this kind fitted on the release."""
    assert release.rows is not None
    blank = np.zeros(len(release.rows))
    rows = EncodedRows(release.rows.values, release.rows.labels, blank.astype(int), blank)
    real = RealRows.of(data.encoder, data.train.rows)
    made = RealRows.of(data.encoder, rows, real.scale)
    model = _teachers.fit(kind, made.examples, np.random.default_rng(0))
    return _teachers.quality(
        kind, model, RealRows.of(data.encoder, data.test.rows, real.scale).examples
    )


# Set-up ------------------------------------------------------------------------------------------


def test_initial_event_times_lie_one_in_each_bin() -> None:
    times = initial_times(5, 10.0, 20.0, bins=5, rng=np.random.default_rng(0))
    assert np.floor((times - 10.0) / 2.0).tolist() == [0, 1, 2, 3, 4]


def test_initial_event_times_are_spread_evenly_over_the_bins() -> None:
    times = initial_times(10, 0.0, 4.0, bins=4, rng=np.random.default_rng(0))
    assert np.bincount(np.floor(times).astype(int)).tolist() == [3, 2, 3, 2]
    assert len(initial_times(2, 0.0, 4.0, bins=20, rng=np.random.default_rng(0))) == 2


def test_half_the_survival_rows_are_censored_at_the_last_censoring_time() -> None:
    data = toy("survival")
    release, _ = condensed(data, noise=False, steps=1)
    assert release.rows is not None
    months = data.encoder.decode(release.rows.values, release.rows.labels)["months"].to_numpy()
    real = data.train.frame
    happened = real["death"].astype(int).to_numpy() == 1
    observed = real["months"].to_numpy()
    last = observed[~happened].max()
    assert np.bincount(release.rows.labels).tolist() == [20, 20]
    assert months[release.rows.labels == 0] == pytest.approx(last, rel=1e-4)
    events = months[release.rows.labels == 1]
    assert observed[happened].min() - 1e-3 <= events.min() and events.max() <= last + 1e-3
    assert len(np.unique(np.floor((events - observed[happened].min()) / last * 10))) >= 9


def test_the_time_scale_is_the_interquartile_range_or_else_the_median_of_event_times() -> None:
    times, events = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 99.0]), np.array([1, 1, 1, 1, 1, 0])
    assert time_scale(times, events) == 2.0
    assert time_scale(np.array([3.0, 3.0, 3.0]), np.ones(3, int)) == 3.0


def test_public_units_follow_the_schema() -> None:
    encoder = toy("table").encoder
    assert half_range(encoder).tolist() == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]
    assert middle(encoder).tolist() == [0.0, 0.0, 0.0, 0.5, 0.5, 0.5]


def test_a_given_share_of_positives_keeps_the_size() -> None:
    release, _ = condensed(toy("table"), noise=False, steps=2, positive_share=0.25)
    assert release.rows is not None
    assert np.bincount(release.rows.labels).tolist() == [30, 10]


# Teachers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["xgboost", "logistic", "forest", "svm"])
@pytest.mark.parametrize("name", ["table", "images"])
def test_classifiers_give_probabilities_that_rank_the_test_rows(
    kind: TeacherKind, name: str
) -> None:
    data = toy(name)
    train, test = (
        RealRows.of(data.encoder, split.rows).examples for split in (data.train, data.test)
    )
    teacher = _teachers.fit(kind, train, np.random.default_rng(0))
    predictions = teacher.predict(test.features)
    assert predictions.shape == (len(test.labels), 1 if train.classes == 2 else 3)
    assert predictions.min() >= 0.0 and predictions.max() <= 1.0
    assert _teachers.quality(kind, teacher, test) > 0.75


def test_the_quality_of_survival_models_is_the_c_index_of_short_times() -> None:
    data = toy("survival")
    real = RealRows.of(data.encoder, data.train.rows)
    for kind in _teachers.SURVIVAL:
        teacher = _teachers.fit(kind, real.examples, np.random.default_rng(0))
        assert _teachers.quality(kind, teacher, real.examples) > 0.65


def test_no_teacher_without_rows_of_a_class() -> None:
    with pytest.raises(NotApplicable, match="class"):
        LabelledRows(np.zeros((2, 1)), np.zeros(2, int), None, 2).refuse_unfit()
    with pytest.raises(NotApplicable, match="event"):
        LabelledRows(np.zeros((2, 1)), np.zeros(2, int), np.ones(2), 2).refuse_unfit()


# Descent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name,kind", [("table", "xgboost"), ("survival", "cox")])
def test_condensation_without_noise_lowers_the_loss_and_raises_downstream_quality(
    name: str, kind: TeacherKind
) -> None:
    settings: dict[str, Any] = {
        "noise": False,
        "validate_every": 0,
        "learning_rate": 0.02,
        "seed": 1,
    }
    before, _ = condensed(toy(name), steps=1, **settings)
    after, _ = condensed(toy(name), steps=400, **settings)
    assert float(after.notes["loss_last"]) < 0.9 * float(after.notes["loss_first"])
    assert downstream(toy(name), after, kind) > downstream(toy(name), before, kind) + 0.1


@pytest.mark.parametrize("kind", ["aft", "cox"])
def test_each_survival_teacher_condenses(kind: TeacherKind) -> None:
    found = []
    for split_seed in range(3):
        data = build_dataset(ToySurvival(rows=1500), split_seed=split_seed)
        release, _ = condensed(data, noise=False, teacher=kind, ipc=40)
        found.append(downstream(data, release, kind))
    assert np.mean(found) > 0.6


@pytest.mark.parametrize("kind", ["logistic", "forest", "svm"])
def test_other_classifiers_are_teachers_too(kind: TeacherKind) -> None:
    release, _ = condensed(toy("table"), noise=False, teacher=kind, steps=40, learning_rate=0.05)
    assert release.notes["teacher"] == kind
    assert float(release.notes["loss_last"]) < float(release.notes["loss_first"])


def test_several_classes_and_pixels_are_condensed_with_a_named_teacher() -> None:
    release, _ = condensed(toy("images"), noise=False, teacher="logistic", learning_rate=0.02)
    assert downstream(toy("images"), release, "logistic") > 0.95
    with pytest.raises(NotApplicable, match="tables"):
        condensed(toy("images"), noise=False)


def test_a_teacher_of_another_task_is_refused() -> None:
    with pytest.raises(NotApplicable, match="cox"):
        condensed(toy("table"), noise=False, teacher="cox")
    with pytest.raises(InputError, match="teacher"):
        ZeroOrderDc(teacher="oracle")  # type: ignore[arg-type]


def test_the_demos_start_from_the_moments_of_each_class_is_better_than_random_rows() -> None:
    settings: dict[str, Any] = {"noise": False, "steps": 1, "validate_every": 0, "ipc": 50}
    random, _ = condensed(toy("table"), **settings)
    informed, _ = condensed(toy("table"), start="classes", **settings)
    gain = downstream(toy("table"), informed, "logistic")
    assert gain > downstream(toy("table"), random, "logistic") + 0.1


@pytest.mark.parametrize("name", ["table", "survival"])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(name: str) -> None:
    first, again, other = (
        condensed(toy(name), 1.0, steps=50, seed=seed)[0].rows for seed in (0, 0, 1)
    )
    assert first is not None and again is not None and other is not None
    assert first.values.tobytes() == again.values.tobytes()
    assert first.values.tobytes() != other.values.tobytes()


# Claim and ledger --------------------------------------------------------------------------------


@pytest.mark.parametrize("accounting", ["all-steps", "published"])
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_the_claim_is_within_the_target_and_nothing_is_proven(
    accounting: str, epsilon: float
) -> None:
    release, ledger = condensed(toy("table"), epsilon, accounting=accounting, steps=100)
    assert release.claim is not None
    assert 0.0 < release.claim.epsilon <= epsilon
    proof = ledger.proof()
    assert math.isinf(proof.epsilon)
    assert proof.reasons == (TEACHER_REASON, *REASONS, VALIDATION_REASON)
    assert judge(Budget(epsilon, 1e-5), release.claim, proof).verdict is Verdict.UNPROVEN


def test_the_published_count_leaves_out_all_steps_but_the_first() -> None:
    release, _ = condensed(toy("table"), 1.0, accounting="published", steps=100)
    assert release.claim is not None
    notes = release.notes
    assert release.claim.epsilon == notes["epsilon_first_step"] <= 1.0
    assert float(notes["epsilon_all_steps"]) > 3.0
    assert notes["epsilon_all_steps"] >= notes["epsilon_best_step"]


def test_without_noise_nothing_is_claimed_whatever_the_budget() -> None:
    release, ledger = condensed(toy("table"), 1.0, noise=False, steps=5)
    assert release.claim is None and "noise_base" not in release.notes
    assert judge(None, None, ledger.proof()).verdict is Verdict.NON_PRIVATE


def test_without_a_look_at_validation_rows_the_last_step_is_released() -> None:
    release, ledger = condensed(toy("table"), 1.0, steps=30, validate_every=0)
    assert release.notes["best_step"] == 30.0
    assert VALIDATION_REASON not in ledger.proof().reasons


# Real data ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_seer_condensed_for_cox_is_within_a_hundredth_of_the_full_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bench.plugins import registry

    real_folder("seer_breast", monkeypatch)
    source = registry.build_source("seer-breast")
    gaps = []
    for split in range(5):
        data = build_dataset(source, "paper", split)
        release, _ = condensed(data, noise=False, ipc=100, steps=2000)
        train, test = (
            RealRows.of(data.encoder, part.rows).examples for part in (data.train, data.test)
        )
        full = _teachers.fit("cox", train, np.random.default_rng(0))
        gaps.append(_teachers.quality("cox", full, test) - downstream(data, release, "cox"))
    assert abs(float(np.mean(gaps))) < 0.01
