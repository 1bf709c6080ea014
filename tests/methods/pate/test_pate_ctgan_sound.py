"""PATE-CTGAN accounted by the kernel: frequencies, teachers, student, generator, charges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd
import pytest
import torch

from bench import Budget, PrivateData, gaussian
from bench.data.dataset import Dataset, Declaration, Split
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.errors import InputError
from bench.methods._shared.codes import EqualBins
from bench.methods.pate.pate_ctgan_sound import (
    ConditionalGenerator,
    GeneratorTraining,
    PateCtganSound,
    Student,
    StudentTraining,
    TeacherNetwork,
    TeacherTraining,
    frequencies,
    midpoints,
    on_simplex,
)
from bench.plugins.method import Spec
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

TABLE = build_dataset(ToyTable())
QUICK = PateCtganSound(**PateCtganSound.quick)
EPSILON_ONE = 3.7307
"""Noise of one Gaussian mechanism at epsilon 1, delta 1e-5 (Balle and Wang 2018)."""


@final
@dataclass(frozen=True)
class Crossed(DatasetSource):
    """Two numbers whose product tells the class: neither of them does alone."""

    name: ClassVar[str] = "crossed"
    rows: int = 2000

    def declare(self) -> Declaration:
        columns = (
            Numeric(name="first", low=-2, high=2),
            Numeric(name="second", low=-2, high=2),
            Categorical(name="agree", categories=("0", "1"), role=Role.TARGET),
        )
        schema = Schema(columns, Task.CLASSIFICATION)
        half = self.rows // 2
        return replace(ToyTable().declare(), schema=schema, by_class=(half, half))

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(5)
        label = np.repeat([0, 1], self.rows // 2)
        first = rng.choice([-1.0, 1.0], self.rows)
        second = first * (2 * label - 1)
        return pd.DataFrame(
            {
                "first": np.clip(first + rng.normal(0, 0.3, self.rows), -2, 2),
                "second": np.clip(second + rng.normal(0, 0.3, self.rows), -2, 2),
                "agree": label,
            }
        )


def released(
    method: PateCtganSound, epsilon: float, ipc: int = 20, data: Dataset = TABLE, seed: int = 0
) -> tuple[Release, Ledger]:
    budget = Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(seed)))
    spec = Spec(data.task, ipc, budget)
    return method.synthesize(private, spec, np.random.default_rng(1)), ledger


class TestFrequencies:
    def test_projection_onto_the_simplex_by_hand(self) -> None:
        """0.9 + 0.5 is 0.4 too much: 0.2 off each of two; the third would fall below 0."""
        assert on_simplex(np.array([0.9, 0.5, -0.1])) == pytest.approx([0.7, 0.3, 0.0])
        assert on_simplex(np.array([-5.0, -5.0])) == pytest.approx([0.5, 0.5])

    def test_cells_of_rows_and_their_midpoints(self) -> None:
        cells = EqualBins(TABLE.encoder, 4)
        assert cells.sizes == (4, 4, 2, 3)
        rows = TABLE.train.rows
        codes = cells.codes(rows)
        rebuilt = midpoints(cells)[np.arange(4), codes].sum(axis=1)
        assert np.abs(rebuilt[:, :2] - rows.values[:, :2]).max() <= 0.25 + 1e-6
        assert np.array_equal(rebuilt[:, 2:], rows.values[:, 2:])

    def test_exact_counts_give_shares(self) -> None:
        table = frequencies([np.array([30.0, 10.0]), np.array([0.0, 20.0, 20.0])], 40, 3)
        assert table == pytest.approx(np.array([[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]]), abs=1e-5)


class TestTeacher:
    def test_gradients_are_those_of_torch(self) -> None:
        rng = np.random.default_rng(0)
        teacher = TeacherNetwork(3, 2, 5, rng)
        rows = rng.normal(size=(7, 5)).astype(np.float32)
        real = np.array([1, 0, 1, 1, 0, 0, 1], dtype=np.float32)
        weights = [torch.tensor(weight, requires_grad=True) for weight in teacher.weights]
        logits = torch.relu(torch.tensor(rows) @ weights[0] + weights[1]) @ weights[2] + weights[3]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(real))
        penalty = weights[0].square().sum() + weights[2].square().sum()
        (loss + 0.15 * penalty).backward()
        for ours, theirs in zip(teacher.gradients(rows, real, 0.3), weights, strict=True):
            assert theirs.grad is not None
            assert ours == pytest.approx(theirs.grad.numpy(), abs=1e-6)

    def test_learns_its_part_and_votes_with_the_declared_norm(self) -> None:
        rng = np.random.default_rng(0)
        real = TABLE.train.rows
        fakes = Rows(
            rng.uniform(-1, 1, (len(real), TABLE.encoder.width)).astype(np.float32),
            np.asarray(real.labels, dtype=np.int64),
        )
        teacher = TeacherNetwork(TABLE.encoder.width, 2, 16, rng)
        teacher.train(real, fakes, TeacherTraining(100, 64, 0.01, 0.001), rng)
        mixed = Rows(
            np.concatenate([real.values, fakes.values]).astype(np.float32),
            np.concatenate([real.labels, fakes.labels]).astype(np.int64),
        )
        votes = teacher.votes(mixed)
        count = len(real)
        assert np.linalg.norm(votes) == pytest.approx(np.sqrt(2 * count))
        assert votes[:count].mean() > 0.8 and votes[count:].mean() < -0.8

    def test_a_part_without_rows_votes_all_the_same(self) -> None:
        teacher = TeacherNetwork(TABLE.encoder.width, 2, 4, np.random.default_rng(0))
        fakes = Rows(np.zeros((6, TABLE.encoder.width), dtype=np.float32), np.zeros(6, int))
        nobody = TABLE.train.rows.take(np.zeros(len(TABLE.train), dtype=bool))
        same = teacher.train(
            nobody, fakes, TeacherTraining(3, 8, 0.1, 0.0), np.random.default_rng(0)
        )
        assert len(same.votes(fakes)) == 6


class TestStudent:
    ROWS = Rows(
        np.random.default_rng(0).uniform(-1, 1, (300, 4)).astype(np.float32),
        np.random.default_rng(1).integers(0, 2, 300),
    )
    TRAINING = StudentTraining(150, 0.02, 0.1)

    def scores(self, variance: float) -> tuple[np.ndarray, np.ndarray]:
        student = Student(4, 4, 2, 64, torch.Generator().manual_seed(0))
        truth = np.sign(self.ROWS.values[:, 0] * self.ROWS.values[:, 1])
        noisy = truth + np.sqrt(variance) * np.random.default_rng(2).normal(size=300)
        student.learn(self.ROWS, noisy, variance, self.TRAINING)
        values, labels = torch.from_numpy(self.ROWS.values), torch.from_numpy(self.ROWS.labels)
        return truth, student.scores(values, labels).detach().numpy()

    def test_learns_votes_without_noise(self) -> None:
        truth, scores = self.scores(1e-6)
        assert np.corrcoef(truth, scores)[0, 1] > 0.8

    def test_stays_near_zero_when_votes_are_noise(self) -> None:
        _, scores = self.scores(1e4)
        assert np.abs(scores).max() < 0.5  # the votes themselves are about 100


class TestGenerator:
    CHANCES = np.stack(
        [
            frequencies([np.arange(1.0, 5.0), np.ones(4), np.array([3.0, 1.0]), np.ones(3)], 4, 4),
            frequencies(
                [np.ones(4), np.ones(4), np.array([1.0, 9.0]), np.array([0, 0, 4.0])], 4, 4
            ),
        ]
    )

    def built(self) -> tuple[EqualBins, ConditionalGenerator]:
        cells = EqualBins(TABLE.encoder, 4)
        random = torch.Generator().manual_seed(0)
        return cells, ConditionalGenerator(cells, self.CHANCES, 5, 20, random)

    def test_starts_at_the_frequencies_of_each_class(self) -> None:
        _, generator = self.built()
        for label in (0, 1):
            values = generator.draw(np.full(20_000, label)).values
            shares = np.histogram(values[:, 0], bins=4, range=(-1, 1))[0] / len(values)
            assert shares == pytest.approx(self.CHANCES[label, 0], abs=0.015)
            assert (values[:, 2] > 0).mean() == pytest.approx(self.CHANCES[label, 2, 1], abs=0.015)
            assert values[:, 3:].mean(axis=0) == pytest.approx(
                self.CHANCES[label, 3, :3], abs=0.015
            )

    def test_a_condition_is_kept_and_rows_lie_within_the_schema(self) -> None:
        cells, generator = self.built()
        labels = torch.randint(2, (500,), generator=torch.Generator().manual_seed(1))
        given = generator.inputs(labels)
        values = generator.rows(given, *generator.logits(given)).detach().numpy()
        asked = given[:, 7:].reshape(500, 4, 4).numpy()
        assert (asked.sum(axis=(1, 2)) == 1).all()
        row, column, cell = np.nonzero(asked)
        encoded = replace(
            TABLE.train.rows, values=values, labels=labels.numpy(), sites=row, positions=row
        )
        assert np.array_equal(cells.codes(encoded)[row, column], cell)
        assert np.abs(values).max() <= 1.0 + 1e-6
        assert set(values[:, 2]) == {-1.0, 1.0} and set(values[:, 3:].ravel()) == {0.0, 1.0}

    @pytest.mark.parametrize("taught", [False, True])
    def test_moves_where_the_student_points_and_nowhere_else(self, taught: bool) -> None:
        """The student likes a high first column, or nothing at all."""
        _, generator = self.built()
        student = Student(6, 4, 2, 32, torch.Generator().manual_seed(0))
        labels = np.repeat([0, 1], 2000)
        before = generator.draw(labels)
        if taught:
            student.learn(before, before.values[:, 0], 1e-6, StudentTraining(100, 0.02, 0.1))
        training = GeneratorTraining(60, 0.005, 2.0, marginal_weight=0.0)
        generator.learn(student, np.repeat([0, 1], 100), training)
        change = generator.draw(labels).values.mean(axis=0) - before.values.mean(axis=0)
        assert change[1:] == pytest.approx(np.zeros(5), abs=0.1)
        assert change[0] > 0.15 if taught else abs(change[0]) < 0.05


class TestPrivacy:
    def test_what_is_charged_is_one_gaussian_mechanism_in_all(self) -> None:
        release, ledger = released(QUICK, 1.0)
        assert 0.99 < ledger.proof().epsilon <= 1.0 and not ledger.proof().reasons
        whole = release.notes["noise_multiplier"]
        noise = QUICK.noise_of(float(whole))
        assert whole == pytest.approx(EPSILON_ONE, abs=0.01)
        assert 1 / noise.frequencies**2 + 2 / noise.votes**2 == pytest.approx(1 / whole**2)
        charged = {(entry.path, entry.event): count for entry, count in ledger.entries.items()}
        rows = ("split", "train")
        assert charged == {
            ((rows, ("class", "0")), gaussian(noise.frequencies)): 1,
            ((rows, ("class", "1")), gaussian(noise.frequencies)): 1,
            ((rows,), gaussian(noise.votes)): 2,
        }

    def test_the_noise_on_votes_is_the_noise_charged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Teachers that say 0 leave the noise alone: 2 sqrt(batch) times the multiplier."""
        method = replace(QUICK, batch=2000, rounds=1)
        monkeypatch.setattr(TeacherNetwork, "votes", lambda teacher, rows: np.zeros(len(rows)))
        answers: list[np.ndarray] = []
        ask = PrivateData.partition_sum

        def spied(private: PrivateData, *arguments: Any) -> np.ndarray:
            answers.append(ask(private, *arguments))
            return answers[-1]

        monkeypatch.setattr(PrivateData, "partition_sum", spied)
        release, ledger = released(method, 1.0)
        (event,) = (entry.event for entry in ledger.entries if len(entry.path) == 1)
        assert event == gaussian(release.notes["vote_noise_multiplier"])
        expected = 2 * np.sqrt(2000) * release.notes["vote_noise_multiplier"]
        assert answers[0].std() == pytest.approx(expected, rel=0.06)

    def test_teachers_are_separate_and_their_parts_disjoint(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: dict[int, set[float]] = {}
        teachers: list[TeacherNetwork] = []
        train = TeacherNetwork.train

        def spied(teacher: TeacherNetwork, real: Any, *rest: Any) -> TeacherNetwork:
            teachers.append(teacher)
            seen.setdefault(id(teacher), set()).update(real.positions.tolist())
            return train(teacher, real, *rest)

        monkeypatch.setattr(TeacherNetwork, "train", spied)
        released(QUICK, 1.0)
        assert len(seen) == 5 and len(teachers) == 10
        together = [position for part in seen.values() for position in part]
        assert sorted(together) == sorted(TABLE.train.rows.positions.tolist())
        arrays = {id(weight) for teacher in teachers for weight in teacher.weights}
        assert len(arrays) == 5 * 4

    def test_rows_reach_the_release_through_noisy_answers_only(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the same answers, other rows give the same bytes."""

        def answers() -> tuple[Callable[..., Any], Callable[..., Any]]:
            rng = np.random.default_rng(3)
            return (
                lambda private, codes, bins, noise: [rng.uniform(0, 100, size) for size in bins],
                lambda private, models, answer, clip, noise: rng.normal(size=QUICK.batch),
            )

        order = np.arange(len(TABLE.train))[::-1]
        others = replace(
            TABLE.train.rows.take(order),
            values=np.random.default_rng(4)
            .uniform(-1, 1, TABLE.train.rows.values.shape)
            .astype(np.float32),
        )
        other = replace(TABLE, train=Split(TABLE.train.frame, others))
        made = []
        for data in (TABLE, other):
            histograms, votes = answers()
            monkeypatch.setattr(PrivateData, "histograms", histograms)
            monkeypatch.setattr(PrivateData, "partition_sum", votes)
            made.append(released(QUICK, 1.0, data=data)[0].rows)
        assert made[0].values.tobytes() == made[1].values.tobytes()

    def test_same_seed_same_bytes(self) -> None:
        first, again, other = (released(QUICK, 1.0, seed=seed)[0].rows for seed in (0, 0, 1))
        assert first.values.tobytes() == again.values.tobytes() != other.values.tobytes()

    def test_small_tables_have_fewer_teachers(self) -> None:
        release, _ = released(replace(QUICK, teachers=100, rows_per_teacher=50), 1.0)
        assert release.notes["teachers"] == TABLE.counts.total // 50

    @pytest.mark.parametrize(
        "wrong", [{"teachers": 1}, {"frequency_share": 1.0}, {"rounds": 0}, {"student_prior": 0.0}]
    )
    def test_senseless_settings_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="pate-ctgan-sound"):
            PateCtganSound(**wrong)


def agreement(release: Release) -> float:
    """Correlation of the product of both columns with the class: 1 in the rows, 0 at first."""
    rows = release.rows
    assert rows is not None
    return float(np.corrcoef(np.sign(rows.values[:, 0] * rows.values[:, 1]), rows.labels)[0, 1])


def test_with_a_budget_too_large_to_matter_votes_teach_what_frequencies_cannot() -> None:
    data = build_dataset(Crossed())
    method = PateCtganSound(
        teachers=10,
        rounds=8,
        batch=300,
        bins=8,
        teacher_steps=40,
        teacher_learning_rate=0.02,
        student_hidden=64,
        student_steps=60,
        generator_hidden=64,
        generator_steps=40,
        generator_learning_rate=0.006,
        strength=4.0,
    )
    release, _ = released(method, 1e4, ipc=1000, data=data)
    untaught, _ = released(replace(method, rounds=1, generator_steps=0), 1e4, ipc=1000, data=data)
    assert abs(agreement(untaught)) < 0.1
    assert agreement(release) > 0.4
    real = data.train.rows.values
    assert release.rows.values.mean(axis=0) == pytest.approx(real.mean(axis=0), abs=0.1)
    assert release.rows.values.std(axis=0) == pytest.approx(real.std(axis=0), abs=0.1)
