"""Methods over smartnoise-synth, where it is installed: contracts, ledgers, and what they learn.

In their own environment: `<environment>/bin/python -P -m pytest -m isolated` and this file.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event

from bench import Budget, PrivateData
from bench.data.dataset import Counts, Dataset
from bench.errors import NotApplicable
from bench.plugins import registry
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.returned import check_release
from bench.plugins.source import DatasetSource, build_dataset
from bench.privacy.kernel import Vault
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.results.verdicts import Verdict, judge
from tests.support.tables import ToySurvival, ToyTable

pytestmark = [
    pytest.mark.isolated,
    pytest.mark.skipif(
        importlib.util.find_spec("snsynth") is None,
        reason="smartnoise-synth is not installed in this environment",
    ),
]

SOUND = ("mst", "aim", "mwem")
UNPROVEN = ("pate-ctgan", "quail", "pate-gan", "dp-ctgan")
SOURCES: dict[str, DatasetSource] = {
    "table": ToyTable(negatives=1500, positives=1000),
    "survival": ToySurvival(rows=2000),
    "tiny classes": ToyTable(negatives=20, positives=5),
}


@functools.cache
def dataset(name: str) -> Dataset:
    return build_dataset(SOURCES[name])


def released(
    method: str,
    data: Dataset,
    epsilon: float = 1.0,
    ipc: int | None = 12,
    **parameters: Any,
) -> tuple[Release, Ledger, Budget]:
    budget = Budget(epsilon, 1e-5)
    private, ledger = open_private(
        data, budget, SeededNoise(np.random.default_rng(0)), check_rows=True
    )
    built = registry.build_method(method, parameters or registry.method_class(method).quick)
    try:
        release = built.synthesize(private, Spec(data.task, ipc, budget), np.random.default_rng(1))
    except NotApplicable as reason:
        pytest.skip(f"{method} is not applicable: {reason}")
    check_release(release, data.encoder)
    return release, ledger, budget


def test_fewer_rows_than_declared_are_enough_for_a_batch_of_nearly_all() -> None:
    """Its default batch is larger than this table; the library refuses a rate above 1."""
    data = build_dataset(ToyTable())
    assert len(data.train) < data.counts.total
    release, _, _ = released("dp-ctgan", data, steps=2)
    assert release.rows is not None and len(release.rows) == 24


def test_fewer_rows_than_a_teacher_needs_are_refused_in_our_words() -> None:
    data = build_dataset(ToyTable(negatives=1000, positives=667))
    assert len(data.train) < 1000 <= data.counts.total
    budget = Budget(1.0, 1e-5)
    private, _ = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    method = registry.build_method("pate-gan", {"steps": 2})
    with pytest.raises(NotApplicable, match="one teacher for every 1000 rows"):
        method.synthesize(private, Spec(data.task, 12, budget), np.random.default_rng(1))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("method", SOUND + UNPROVEN)
def test_the_release_has_the_asked_rows_of_each_class(method: str, name: str) -> None:
    release, ledger, _ = released(method, dataset(name), ipc=30)
    assert release.rows is not None
    assert np.bincount(release.rows.labels).tolist() == [30, 30]
    assert Ledger.from_json(ledger.to_json()).proof() == ledger.proof()


@pytest.mark.parametrize("method", SOUND)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 10.0])
def test_sound_ones_spend_what_they_are_given(method: str, epsilon: float) -> None:
    release, ledger, budget = released(method, dataset("table"), epsilon)
    proof = ledger.proof()
    assert 0.99 * epsilon < proof.epsilon <= epsilon
    judged = judge(budget, release.claim, proof)
    assert judged.verdict is Verdict.SOUND_TRUSTING
    assert proof.trust == ("smartnoise-synth 1.0.8",)


@pytest.mark.parametrize("method", ["mst", "aim"])
def test_one_event_of_the_rho_that_was_used_is_charged(method: str) -> None:
    release, ledger, _ = released(method, dataset("table"))
    ((entry, count),) = ledger.entries.items()
    assert count == 1 and entry.event == dp_event.ZCDpEvent(release.notes["rho"])


@pytest.mark.parametrize("method", UNPROVEN)
def test_the_others_are_unproven_with_the_reason_and_reproducible(method: str) -> None:
    first, ledger, budget = released(method, dataset("table"))
    proof = ledger.proof()
    assert math.isinf(proof.epsilon) and "smartnoise-synth 1.0.8" in proof.reasons[0]
    assert judge(budget, first.claim, proof).verdict is Verdict.UNPROVEN
    again, _, _ = released(method, dataset("table"))
    assert first.rows is not None and again.rows is not None
    assert first.rows.values.tobytes() == again.rows.values.tobytes()


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("mst", {"bins": 16}),
        ("mst", {"bins": 16, "by_class": False}),
        ("aim", {"bins": 16}),
        ("mwem", {"bins": 16, "iterations": 10}),
    ],
)
def test_with_much_budget_the_marginals_of_each_class_are_learned(
    method: str, parameters: dict[str, Any]
) -> None:
    data = dataset("table")
    release, _, _ = released(method, data, 50.0, None, **parameters)
    assert release.rows is not None
    real, made = data.train.rows, release.rows
    assert np.bincount(made.labels).tolist() == list(data.counts.by_class)
    for label in (0, 1):
        theirs = made.values[made.labels == label].mean(axis=0)
        ours = real.values[real.labels == label].mean(axis=0)
        # Bins of the marker are 0.125 wide in encoded units; sampling adds 0.05 or so.
        assert np.abs(theirs - ours).max() < 0.12


def test_the_library_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    released("aim", dataset("table"))  # it prints its noise, whether asked to or not
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("method", SOUND)
def test_a_class_without_rows_is_answered_with_noise(method: str) -> None:
    data = dataset("tiny classes")
    budget = Budget(1.0, 1e-5)
    rows = data.train.rows
    vault = Vault(Ledger(budget), SeededNoise(np.random.default_rng(0)))
    private = PrivateData(rows.take(rows.labels == 0), data.encoder, Counts(15, (12, 3)), vault, ())
    built = registry.build_method(method, registry.method_class(method).quick)
    release = built.synthesize(private, Spec(data.task, 9, budget), np.random.default_rng(0))
    assert release.rows is not None
    assert np.bincount(release.rows.labels).tolist() == [9, 9]
