"""Cells of methods with their own environment: in this process, then through Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pandas as pd
import pytest

from bench import PrivateData
from bench.data.encoder import Floats
from bench.engine import keys
from bench.engine import plan as planning
from bench.engine.cell import failed_row, finish_cell, run_cell
from bench.engine.fit import fit_cell, fit_isolated, for_fitting
from bench.environments import overlays
from bench.errors import EnvironmentUnavailable
from bench.plugins import registry
from bench.plugins.method import Environment, Method, Spec
from bench.plugins.metric import Direction, Evaluation, Family, Refit, RefitMetric, Scores
from bench.plugins.release import Release, ReleasedModel, Rows
from bench.plugins.source import build_dataset
from bench.results.records import Cell, Status, Variant
from bench.results.run_directory import RunStore
from tests.support.isolated import EMPTY, install_secluded, without_index, write_wheel
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())


@final
class Constant(ReleasedModel):
    def predict(self, values: Floats) -> np.ndarray:
        return np.full((len(values), 2), 0.5)


@final
@dataclass(frozen=True)
class Hermit(Method):
    """Declares an environment that happens to need nothing."""

    name: ClassVar[str] = "hermit"
    title: ClassVar[str] = "Has its own environment"
    environment: ClassVar[Environment | None] = EMPTY
    seeded: ClassVar[bool] = False
    model: bool = False

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if self.model:
            return Release(model=Constant())
        return Release(Rows(np.zeros((2, private.width)), np.array([0, 1])))


@final
class AnyRefit(RefitMetric):
    """Fits again."""

    name = "any-refit"
    family = Family.PRIVACY
    direction = Direction.NEUTRAL
    definition = "Fits again."

    def compute(self, evaluation: Evaluation, refit: Refit) -> Scores:
        refit(evaluation.dataset.train.frame, 0)
        return Scores((self.score(self.name, 1.0),))


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    load = registry.method_class
    monkeypatch.setattr(
        registry, "method_class", lambda name: Hermit if name == "hermit" else load(name)
    )


def cell(method: str = "hermit", **parameters: object) -> Cell:
    return Cell(
        Variant(method, method, tuple(parameters.items())),
        Variant("toy-table", "toy-table"),
        *(20, False, 1.0, 1e-5, 0, "default", 0),
    )


def test_fitting_sees_no_row_that_a_method_may_not_see() -> None:
    bare = for_fitting(DATASET)
    assert len(bare.control) == len(bare.test) == 0
    assert bare.train.frame.empty and bare.validation.frame.empty
    asked = cell("ldpdc")
    here, there = (fit_cell(asked, data).release for data in (DATASET, bare))
    assert here is not None and there is not None and here.rows is not None
    assert there.rows is not None and np.array_equal(here.rows.values, there.rows.values)


def test_two_halves_give_what_one_run_gives() -> None:
    asked = cell("ldpdc")
    key = keys.cell_key(asked, DATASET.fingerprint)
    whole = run_cell(asked, key, DATASET, ("ks",))
    halves = finish_cell(asked, key, DATASET, ("ks",), fit_isolated(asked, for_fitting(DATASET)))
    assert halves.scores == whole.scores
    varying = {"fit_seconds", "score_seconds", "peak_memory_mb", "finished_at"}
    for name in {*whole.row.__dataclass_fields__} - varying:
        assert getattr(halves.row, name) == getattr(whole.row, name), name


def test_a_model_cannot_leave_its_environment() -> None:
    asked = cell(model=True)
    fitted = fit_isolated(asked, DATASET)
    row = finish_cell(asked, "key", DATASET, (), fitted).row
    assert row.status == "error" and "must release rows" in row.reason


def test_what_cannot_be_seeded_says_so() -> None:
    outcome = run_cell(cell(), "key", DATASET, ())
    assert "not reproducible" in outcome.row.warnings
    assert json.loads(outcome.row.notes) == {"reproducible": "no"}
    assert outcome.release is not None and outcome.release.notes == {"reproducible": "no"}


def test_a_metric_that_refits_has_no_value_outside_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_metrics", lambda: {"any-refit": AnyRefit})
    outcome = run_cell(cell(), "key", DATASET, ("any-refit",))
    (score,) = outcome.scores
    assert outcome.row.status == "ok" and score.value is None
    assert "whose environment empty is not the one that scores" in score.reason
    # Given as the environment's interpreter, this process is inside.
    monkeypatch.setenv("BENCH_ENVIRONMENT_EMPTY", sys.executable)
    (score,) = run_cell(cell(), "key", DATASET, ("any-refit",)).scores
    assert score.value == 1.0


def test_a_skip_for_lack_of_an_environment_is_tried_again(tmp_path: Path) -> None:
    asked = cell()
    key = keys.cell_key(asked, DATASET.fingerprint)
    datasets = {asked.dataset: DATASET}
    with RunStore(tmp_path / "run") as store:
        for problem, jobs in (("the disk is full", 1), ("", 0)):
            reason = str(EnvironmentUnavailable("empty", f"built: {problem}"))
            reason = reason if problem else "not for this task"
            row = failed_row(asked, key, DATASET, Status.SKIPPED, reason)
            store.finished[key] = (row, ())
            plan = planning.plan_cells([asked], datasets, store, ())
            assert (len(plan.jobs), plan.cached) == (jobs, 1 - jobs)
        assert planning.Job(asked, key, False, ()).environment == EMPTY


# Through Ray ------------------------------------------------------------------------------------

GRID = """
datasets = ["gbsg2"]
ipc = [10]
epsilon = [1]
metrics = ["ks"]
methods = ["marginals", "secluded",
  {name = "secluded", label = "again", parameters = {how = "equally well"}},
  {name = "secluded", label = "raises", parameters = {how = "raise"}},
  {name = "secluded", label = "memory", parameters = {how = "memory"}},
  {name = "secluded", label = "exits", parameters = {how = "exit"}},
  {name = "secluded", label = "skips", parameters = {how = "skip"}}]
"""


def test_isolated_cells_run_in_their_environment_or_are_skipped_until_it_is_there(
    tmp_path: Path,
) -> None:
    wheels, out = tmp_path / "wheels", tmp_path / "run"
    variables = {
        **os.environ,
        **without_index(tmp_path / "environments", wheels),
        **install_secluded(tmp_path / "packages"),
    }
    (tmp_path / "grid.toml").write_text(GRID)
    command = [sys.executable, "-m", "bench", "run", "--grid", str(tmp_path / "grid.toml")]
    command += ["--out", str(out), "--no-mlflow", "--cpus", "1"]

    def run() -> tuple[pd.DataFrame, subprocess.CompletedProcess[str]]:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
        return pd.read_parquet(out / "cells.parquet").set_index("label"), done

    found, done = run()
    assert done.returncode == 0, done.stderr
    skipped = found.drop(index="marginals")
    assert found.loc["marginals", "status"] == "ok" and len(skipped) == 6
    assert (skipped["status"] == "skipped").all()
    assert set(skipped["reason"]) == {
        "environment tiny cannot be built: No matching distribution found for tinypackage==1.0"
    }

    write_wheel(wheels)
    found, done = run()
    assert done.returncode == 1, done.stderr
    assert "environment tiny: ready, built in" in done.stdout and "1 already done" in done.stdout
    assert found["status"].to_dict() == {
        "marginals": "ok", "secluded": "ok", "again": "ok", "raises": "error",
        "memory": "out-of-memory", "exits": "error", "skips": "skipped",
    }  # fmt: skip
    assert found.loc["raises", "reason"].startswith("ValueError at secluded_plugin.py:")
    assert "synthesize" in found.loc["raises", "log_tail"]
    log = out / "logs" / f"{found.loc['raises', 'key']}.log"
    assert "ValueError: something broke" in log.read_text()
    assert found.loc["skips", "reason"] == "not for this task"
    assert found.loc["exits", "reason"].startswith("the cell ended its process: os._exit(3)")
    good = found.loc["secluded"]
    notes = json.loads(good["notes"])
    assert notes["answer"] == 42 and "environments/tiny-" in notes["prefix"]
    # Proven here, from the events that came across: one Gaussian with sigma 100.
    assert good["verdict"] == "sound" and 0 < good["eps_proven"] < 0.1
    assert json.loads(good["versions"])["tiny/tinypackage"] == "1.0"
    assert "not reproducible" in good["warnings"]
    assert (out / "releases" / good["key"] / "ledger.json").exists()


def test_this_process_is_in_no_environment() -> None:
    assert not overlays.inside(EMPTY)
    assert overlays.required_versions(Environment("a", ("numpy>=1", "./local"), ())) == {
        "numpy": np.__version__
    }
