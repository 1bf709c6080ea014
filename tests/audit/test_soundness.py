"""Whole audits of the exact Gaussian mechanism, again and again: how often is a bound too large?

Every repetition is an audit as `bench audit` runs it: refits behind the kernel, canary, scorer and
threshold chosen on the first half. Only the seed differs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from bench.audit import two_worlds
from bench.audit.audits import AuditProcedure, instance_cell
from bench.audit.self_test import ExactGaussian, TinyTable
from bench.data.dataset import Dataset
from bench.engine.procedure import run_here
from bench.plugins.source import build_dataset
from bench.results.records import AuditRow, AuditSpec, CellRow
from tests.support.tables import ToyTable

pytestmark = pytest.mark.slow

TINY = build_dataset(TinyTable())
METHOD = ExactGaussian()


def audits(
    repetitions: int, spec: AuditSpec, epsilon: float, folder: Path, dataset: Dataset
) -> list[tuple[CellRow, AuditRow]]:
    pairs = []
    for seed in range(repetitions):
        cell = instance_cell(METHOD, dataset, epsilon, spec, seed=seed)
        outcome = run_here(AuditProcedure(cell, dataset, folder, METHOD))
        assert outcome.audit is not None, outcome.row.reason
        pairs.append((outcome.row, outcome.audit))
    return pairs


def check_sound(exceeded: int, repetitions: int) -> None:
    assert exceeded <= binom.isf(0.01, repetitions, 0.05), f"{exceeded} of {repetitions}"


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_two_worlds(epsilon: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_worlds, "_REPETITIONS", 1)
    pairs = audits(200, AuditSpec("two-world", 200), epsilon, tmp_path, TINY)
    direct = [row.eps_audited for row, _ in pairs]
    gaussian = [audit.eps_gaussian for _, audit in pairs]
    check_sound(sum(bound > epsilon for bound in direct if bound is not None), 200)
    check_sound(sum(bound > epsilon for bound in gaussian if bound is not None), 200)
    # Of the p-values, which are tighter than the bounds, one of each kind.
    check_sound(sum(audit.p_claim < 0.05 for _, audit in pairs), 200)
    check_sound(sum(audit.p_proof < 0.05 for _, audit in pairs), 200)
    if epsilon == 4.0:
        assert np.median([bound or 0.0 for bound in gaussian]) > 0.0, "always 0 is sound too"


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_many_canaries_in_one_run(epsilon: float, tmp_path: Path) -> None:
    spec = AuditSpec("one-run", 40)
    pairs = audits(200, spec, epsilon, tmp_path, build_dataset(ToyTable()))
    check_sound(sum((row.eps_audited or 0.0) > epsilon for row, _ in pairs), 200)
    check_sound(sum(audit.p_claim < 0.05 for _, audit in pairs), 200)


def test_epsilon_8_is_found_within_30_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 trials through the Gaussian curve; median of 20 audits."""
    monkeypatch.setattr(two_worlds, "_REPETITIONS", 1)
    pairs = audits(20, AuditSpec("two-world", 2000), 8.0, tmp_path, TINY)
    bounds = [audit.eps_gaussian for _, audit in pairs if audit.eps_gaussian is not None]
    assert len(bounds) == 20 and 0.7 * 8.0 <= np.median(bounds) <= 8.0
    assert not any(audit.replicated_p_claim < 0.05 for _, audit in pairs)
