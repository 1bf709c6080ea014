"""Noise from the operating system: what it must not leave to a hash, and what is spent for good."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.engine import keys
from bench.engine.cell import run_cell
from bench.engine.fit import synthesize
from bench.engine.plan import plan_cells
from bench.errors import NotApplicable
from bench.plugins.source import build_dataset
from bench.results.records import Cell, Variant
from bench.results.run_directory import RunStore
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())
TABLE = Variant("toy-table", "toy-table")


def cell(method: str, *, secure: bool, counts: bool = False, **parameters: object) -> Cell:
    entry = Variant(method, method, tuple(sorted(parameters.items())))
    return Cell(entry, TABLE, 5, False, 1.0, 1e-5, 0, "default", 0, counts, secure)


def test_public_randomness_is_seeded_by_the_cell_or_by_the_operating_system() -> None:
    """Weights that start from public numbers are released."""
    asked = {"start": "none", "tuning": "private", "clients": 3, "private_rounds": 2}
    for secure in (False, True):
        own = cell("fdd-fedavg", secure=secure, **asked)
        model = synthesize(own, DATASET).model
        rng = keys.generator(keys.seed_of(own), "public")
        seeded = model.network.initial(rng)  # type: ignore[union-attr]
        same = np.array_equal(model.states[0], seeded)  # type: ignore[union-attr]
        assert same is not secure


def test_what_was_charged_stays_charged_when_the_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = cell("ldpdc", secure=True)
    with RunStore(tmp_path / "run") as store:
        key = keys.cell_key(own, DATASET.fingerprint)
        store.charge(key, keys.charge_identity(own, DATASET.fingerprint))
        monkeypatch.setattr(keys, "method_hash", lambda kind: "other code")
        assert keys.cell_key(own, DATASET.fingerprint) != key
        plan = plan_cells([own], {TABLE: DATASET}, store, ("ks",))
        (refused,) = plan.refused
        assert plan.jobs == () and "by another version of the method" in refused.reason
        other = replace(own, seed=1)
        assert len(plan_cells([other], {TABLE: DATASET}, store, ("ks",)).jobs) == 1


def test_the_epsilon_of_a_released_model_is_not_forgotten(tmp_path: Path) -> None:
    own = cell("fedavg-dp", secure=True, clients=3, rounds=2)
    key = keys.cell_key(own, DATASET.fingerprint)
    done = run_cell(own, key, DATASET, ())
    failed = replace(done, row=replace(done.row, status="error", reason="metric auroc: failed"))
    with RunStore(tmp_path / "run") as store:
        store.charge(key, keys.charge_identity(own, DATASET.fingerprint))
        store.record(failed, DATASET.encoder)
        plan = plan_cells([own], {TABLE: DATASET}, store, ("auroc",))
        assert plan.jobs == () and "its budget is spent" in plan.notices[0]
        row, _ = store.finished[key]
        assert row.eps_proven == done.row.eps_proven and row.verdict == "sound"


def test_counts_are_not_bought_row_by_row_for_clients() -> None:
    own = cell("fedavg-client-dp", secure=False, counts=True, clients=3)
    with pytest.raises(NotApplicable, match="unit of privacy is the client"):
        synthesize(own, DATASET)
