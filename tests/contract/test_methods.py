"""Every registered method keeps the contract, on every kind of task. New plugins are found here."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from bench import Budget
from bench.conformance import coupling, privacy
from bench.conformance.kit import Check
from bench.conformance.subject import CheckStatus, Subject
from bench.data.dataset import Dataset
from bench.environments import overlays
from bench.errors import NotApplicable
from bench.plugins import registry
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.returned import check_release
from bench.plugins.source import DatasetSource, build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.results.verdicts import Verdict, judge
from tests.support.tables import ToyGaps, ToyImages, ToySurvival, ToyTable

SOURCES: dict[str, DatasetSource] = {
    "table": ToyTable(),
    "survival": ToySurvival(),
    "images": ToyImages(),
    "tiny classes": ToyTable(negatives=20, positives=5),
    "missing entries": ToyGaps(),
}
EPSILONS = (0.5, 1.0, 10.0)


@functools.cache
def dataset(name: str) -> Dataset:
    return build_dataset(SOURCES[name])


def synthesize(
    method: str, data: Dataset, epsilon: float, ipc: int | None = 12, seed: int = 0
) -> tuple[Release, Ledger, Budget | None]:
    environment = registry.method_class(method).environment
    if environment is not None and not overlays.inside(environment):
        pytest.skip(f"{method} needs the environment {environment.name}: make isolated")
    built = registry.build_method(method, registry.method_class(method).quick)
    budget = Budget(epsilon, 1e-5) if built.uses_budget else None
    private, ledger = open_private(
        data, budget, SeededNoise(np.random.default_rng(seed)), check_rows=True
    )
    try:
        release = built.synthesize(
            private, Spec(data.task, ipc, budget), np.random.default_rng(seed + 1)
        )
    except NotApplicable as reason:
        pytest.skip(f"{method} is not applicable: {reason}")
    return release, ledger, budget


@functools.cache
def asked(method: str, name: str, epsilon: float) -> tuple[Release, Ledger, Budget | None]:
    """A fit that several tests look at and none changes."""
    return synthesize(method, dataset(name), epsilon)


def _parameter(method: str) -> object:
    own = registry.method_class(method).environment is not None
    return pytest.param(method, marks=[pytest.mark.isolated] if own else [])


pytestmark = pytest.mark.parametrize("method", [*map(_parameter, registry.method_names())])


@pytest.mark.parametrize("name", SOURCES)
def test_the_release_fits_the_schema_and_the_asked_size(method: str, name: str) -> None:
    release, _, _ = asked(method, name, 1.0)
    check_release(release, dataset(name).encoder)
    if release.rows is not None and registry.method_class(method).uses_ipc:
        classes = len(dataset(name).schema.classes)
        assert np.bincount(release.rows.labels, minlength=classes).tolist() == [12] * classes


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", ["table", "survival", "images"])
def test_proven_epsilon_is_within_the_target_or_infinite_with_a_reason(
    method: str, name: str, epsilon: float
) -> None:
    release, ledger, budget = asked(method, name, epsilon)
    proof = ledger.proof()
    judged = judge(budget, release.claim, proof)
    if math.isfinite(proof.epsilon):
        assert budget is not None and proof.epsilon <= epsilon
        assert judged.verdict in (Verdict.SOUND, Verdict.SOUND_TRUSTING)
    else:
        assert proof.reasons and all(proof.reasons)
        assert judged.verdict in (Verdict.UNPROVEN, Verdict.NON_PRIVATE)
    assert Ledger.from_json(ledger.to_json()).proof() == proof


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(method: str) -> None:
    if not registry.method_class(method).seeded:
        pytest.skip(f"{method} cannot be seeded: its cells say so")
    first, again, other = (
        synthesize(method, dataset("table"), 1.0, seed=seed)[0].rows for seed in (0, 0, 5)
    )
    if first is None or again is None or other is None:
        pytest.skip("a model release")
    assert first.values.tobytes() == again.values.tobytes()
    assert first.labels.tobytes() == again.labels.tobytes()
    if method != "real":
        assert first.values.tobytes() != other.values.tobytes()


def test_an_ipc_larger_than_the_class_is_served(method: str) -> None:
    release, _, _ = synthesize(method, dataset("tiny classes"), 1.0, ipc=40)
    check_release(release, dataset("tiny classes").encoder)


def test_full_size_follows_the_declared_counts(method: str) -> None:
    data = dataset("table")
    release, _, _ = synthesize(method, data, 1.0, ipc=None)
    if release.rows is not None:
        # A release of one size only is that of the rows, which vary around the declared counts.
        sized = registry.method_class(method).uses_ipc
        expected = data.counts.by_class if sized else data.training_class_counts
        assert np.bincount(release.rows.labels).tolist() == list(expected)


@pytest.mark.parametrize(
    "check",
    [privacy.rows_come_through_the_kernel, coupling.coupled_neighbours],
    ids=lambda check: check.__name__,
)
def test_rows_act_through_noisy_answers_only(method: str, check: Check) -> None:
    """The two checks of the conformance kit pass wherever an epsilon is proven without trust."""
    kind = registry.method_class(method)
    if kind.environment is not None and not overlays.inside(kind.environment):
        pytest.skip(f"{method} needs the environment {kind.environment.name}: make isolated")
    subject = _subject(method)
    (result,) = check(subject)
    assert result.status is not CheckStatus.FAILED, result.detail
    ledgers = [subject.run(name).ledger for name in subject.fitting]
    if not any(ledger.proof().reasons or ledger.proof().trust for ledger in ledgers):
        assert result.status is CheckStatus.PASSED, result.detail


@functools.cache
def _subject(method: str) -> Subject:
    return Subject(registry.method_class(method))
