"""Zero-order condensation: set-up by hand, descent on toy data, claim and ledger."""

from __future__ import annotations

import dataclasses
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
    MOMENTS_REASON,
    REASONS,
    SCALE_REASON,
    TEACHER_REASON,
    TIMES_REASON,
    TREES_REASON,
    UNITS_REASON,
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


def released_months(follow_up: str, rows: EncodedRows, data: Dataset) -> np.ndarray:
    """Times of a release from these rows in place of the training rows of `data`."""
    made = dataclasses.replace(data, train=dataclasses.replace(data.train, rows=rows))
    release, _ = condensed(made, noise=False, steps=1, validate_every=0, follow_up=follow_up)
    assert release.rows is not None
    return data.encoder.decode(release.rows.values, release.rows.labels)["months"].to_numpy()


def test_a_public_end_of_follow_up_releases_no_patients_time() -> None:
    data = toy("survival")
    column = data.schema.time
    assert column is not None
    rows = data.train.rows
    later = rows.values.copy()
    censored = np.flatnonzero(rows.labels == 0)
    later[censored[later[censored, -1].argmax()], -1] = 1.0  # one patient is followed to the end
    other = dataclasses.replace(rows, values=later)
    published = [released_months("observed", table, data) for table in (rows, other)]
    public = [released_months("public", table, data) for table in (rows, other)]
    assert published[0].max() < published[1].max() == pytest.approx(column.high)
    assert public[0].tobytes() == public[1].tobytes()
    assert public[0].max() == pytest.approx(column.high)


def test_public_units_do_not_follow_the_rows() -> None:
    data = toy("table")
    wide = dataclasses.replace(data.train.rows, values=data.train.rows.values * 0.5)
    moved = dataclasses.replace(data, train=dataclasses.replace(data.train, rows=wide))
    starts = {
        reading: [
            condensed(
                table,
                noise=False,
                steps=1,
                validate_every=0,
                learning_rate=1e-9,
                standardise=reading,
            )[0].rows
            for table in (data, moved)
        ]
        for reading in ("public", "rows")
    }
    for reading, (first, second) in starts.items():
        assert first is not None and second is not None
        alike = np.allclose(first.values, second.values, atol=1e-6)
        assert alike == (reading == "public")
    assert ZeroOrderDc().standardise == "public" and ZeroOrderDc().follow_up == "observed"


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
    data, gains = toy(name), []
    for seed in range(6):
        settings: dict[str, Any] = {"noise": False, "validate_every": 0, "seed": seed, "ipc": 40}
        before, _ = condensed(data, steps=1, **settings)
        after, _ = condensed(data, steps=400, learning_rate=0.02, **settings)
        assert float(after.notes["loss_last"]) < 0.9 * float(after.notes["loss_first"])
        gains.append(downstream(data, after, kind) - downstream(data, before, kind))
    assert np.mean(gains) > 0.08


@pytest.mark.parametrize("kind", ["aft", "cox"])
def test_each_survival_teacher_condenses(kind: TeacherKind) -> None:
    settings: dict[str, Any] = {"noise": False, "teacher": kind, "ipc": 40, "learning_rate": 0.02}
    scores = []
    for split_seed in range(3):
        data = build_dataset(ToySurvival(rows=1500), split_seed=split_seed)
        release, _ = condensed(data, **settings)
        scores.append(downstream(data, release, kind))
    assert np.mean(scores) > 0.6


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
    with pytest.raises(InputError, match="follow_up"):
        ZeroOrderDc(follow_up="never")  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("table", {"standardise": "rows"}, {UNITS_REASON}),
        ("table", {"start": "classes"}, {MOMENTS_REASON}),
        ("survival", {}, {SCALE_REASON, TIMES_REASON}),
        ("survival", {"follow_up": "public"}, {SCALE_REASON}),
    ],
)
def test_the_ledger_says_which_settings_read_the_rows(
    name: str, settings: dict[str, Any], expected: set[str]
) -> None:
    _, ledger = condensed(toy(name), 1.0, steps=2, validate_every=0, **settings)
    assert set(ledger.proof().reasons) == {TEACHER_REASON, *REASONS} | expected


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
@pytest.mark.parametrize(("reading", "apart"), [("rows", 0.01), ("public", 0.02)])
def test_seer_condensed_for_cox_is_close_to_the_full_data(
    reading: str, apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.plugins import registry

    real_folder("seer_breast", monkeypatch)
    source = registry.build_source("seer-breast")
    gaps = []
    for split in range(5):
        data = build_dataset(source, "paper", split)
        release, _ = condensed(data, noise=False, ipc=100, steps=2000, standardise=reading)
        train, test = (
            RealRows.of(data.encoder, part.rows).examples for part in (data.train, data.test)
        )
        full = _teachers.fit("cox", train, np.random.default_rng(0))
        gaps.append(_teachers.quality("cox", full, test) - downstream(data, release, "cox"))
    assert abs(float(np.mean(gaps))) < apart


# Trees of the authors' demos ----------------------------------------------------------------------


@pytest.mark.parametrize("kind, name", [("xgboost", "table"), ("aft", "survival")])
def test_the_demos_trees_are_shallow_and_stop_on_the_validation_rows(kind, name) -> None:
    """XGBoost's own evaluation agrees: one tree more or fewer has no lower loss there."""
    data = toy(name)
    real = RealRows.of(data.encoder, data.train.rows)
    held_out = RealRows.of(data.encoder, data.validation.rows, real.scale).examples
    text = _teachers.fit(kind, real.examples, np.random.default_rng(0))
    demo = _teachers.fit(kind, real.examples, np.random.default_rng(0), held_out)
    assert max(text.forest.depth) == 5 and len(text.forest.depth) == 100
    assert max(demo.forest.depth) <= 3
    if kind == "xgboost":
        losses = [
            cross_entropy(_first(demo, trees), held_out)
            for trees in range(1, len(demo.forest.root))
        ]
        assert cross_entropy(demo, held_out) < min(losses) + 1e-9


def _first(model, trees: int):
    forest = model.forest
    kept = forest._replace(
        root=forest.root[:trees], depth=forest.depth[:trees], group=forest.group[:trees]
    )
    return dataclasses.replace(model, forest=kept)


def cross_entropy(model, rows: LabelledRows) -> float:
    """Mean over classes of the mean loss in each: both classes weigh the same."""
    positive = model.predict(rows.features)[:, 0]
    own = np.where(rows.labels == 1, positive, 1.0 - positive)
    return float(np.mean([-np.log(own[rows.labels == label]).mean() for label in (0, 1)]))


def test_stopping_the_trees_on_validation_rows_is_recorded() -> None:
    data = toy("survival")
    for trees, expected in (("text", 0), ("demo", 1)):
        _, ledger = condensed(data, teacher="aft", trees=trees, steps=5, validate_every=0)
        assert [entry.reason for entry in ledger.entries].count(TREES_REASON) == expected


def test_the_descent_ends_when_patience_is_exhausted() -> None:
    release, _ = condensed(toy("table"), steps=300, validate_every=10, patience=20)
    steps, best = release.notes["steps"], release.notes["best_step"]
    assert steps == best + 20 < 300
    with pytest.raises(InputError, match="patience=5 is not 0, or `validate_every`"):
        ZeroOrderDc(patience=5, validate_every=10)
