"""DP-Sinkhorn: what it learns without noise, and what it claims with it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench import Budget
from bench.data.dataset import Dataset
from bench.errors import InputError
from bench.methods.generative.dp_sinkhorn import REASON, DpSinkhorn
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.accounting import compose_events, worst_epsilon
from bench.privacy.events import sampled_gaussian
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.results.verdicts import Verdict, judge
from tests.support.tables import ToySurvival, ToyTable

TABLE = build_dataset(ToyTable())


def made(
    method: DpSinkhorn, epsilon: float | None, ipc: int = 200, data: Dataset = TABLE
) -> tuple[Release, Ledger]:
    budget = None if epsilon is None else Budget(epsilon, 1e-5)
    private, ledger = open_private(data, budget, SeededNoise(np.random.default_rng(0)))
    release = method.synthesize(private, Spec(data.task, ipc, budget), np.random.default_rng(1))
    return release, ledger


def test_without_noise_to_speak_of_the_classes_are_learned() -> None:
    """The marker is where the toy's classes differ: 0.2 in encoded units.

    Steps small enough that where the last of them ends does not depend on a processor's rounding:
    over seeds the means lie within 0.04 of the rows'.
    """
    method = DpSinkhorn(steps=300, learning_rate=1e-3, noise_multiplier=1e-4)
    rows = made(method, None)[0].rows
    real = TABLE.train.rows
    assert rows is not None
    for label in (0, 1):
        wanted = real.values[real.labels == label].mean(axis=0)
        ours = rows.values[rows.labels == label].mean(axis=0)
        assert ours[1] == pytest.approx(wanted[1], abs=0.07)


def test_the_target_is_claimed_for_calibrated_noise_and_nothing_is_proven() -> None:
    release, ledger = made(DpSinkhorn(steps=4), 1.0, ipc=5)
    proof = ledger.proof()
    assert math.isinf(proof.epsilon) and proof.reasons == (REASON,)
    judged = judge(Budget(1.0, 1e-5), release.claim, proof)
    assert judged.verdict is Verdict.UNPROVEN
    assert release.claim is not None and release.claim.epsilon == 1.0
    rate = 50 / TABLE.counts.total
    event = sampled_gaussian(rate, release.notes["noise_multiplier"])
    spent, _ = worst_epsilon([compose_events([(event, 4)])], 1e-5)
    assert 0.99 < spent <= 1.0


def test_noise_of_ones_own_claims_nothing() -> None:
    release, _ = made(DpSinkhorn(steps=2, noise_multiplier=3.0), 1.0, ipc=5)
    assert release.claim is None and release.notes["noise_multiplier"] == 3.0


def test_survival_times_lie_within_their_bounds() -> None:
    cohort = build_dataset(ToySurvival())
    rows = made(DpSinkhorn(steps=3, noise_multiplier=1.0), None, ipc=20, data=cohort)[0].rows
    assert rows is not None and np.bincount(rows.labels).tolist() == [20, 20]
    assert (np.abs(rows.values[:, -1]) <= 1).all()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [({"steps": 0}, "1 or more"), ({"again_share": 0.0}, "in"), ({"blur": 0.0}, "a positive")],
)
def test_settings_without_a_meaning_are_refused(setting: dict[str, float], expected: str) -> None:
    name = next(iter(setting))
    with pytest.raises(InputError, match=f"dp-sinkhorn: {name}=.* is not {expected}"):
        DpSinkhorn(**setting)  # type: ignore[arg-type]
