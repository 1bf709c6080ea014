"""One cell, in this process: whatever happens becomes a row."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import pytest

from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine import plan as planning
from bench.engine.cell import run_cell
from bench.engine.failures import whole_text
from bench.errors import BenchError, InputError
from bench.plugins import registry
from bench.plugins.metric import (
    Direction,
    Evaluation,
    Family,
    Output,
    Refit,
    RefitMetric,
    Score,
    Scores,
)
from bench.plugins.source import build_dataset
from bench.results.records import Cell, Outcome, Variant
from bench.results.run_directory import RunStore
from tests.support.plugins import throw
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())
METRICS = ("ks",)
KIND = (Direction.LOWER, Family.FIDELITY)


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' own methods, as if installed."""
    points = {
        name: EntryPoint(name, f"tests.support.plugins:{name.capitalize()}", "bench.methods")
        for name in ("boaster", "faulty")
    }
    registry._load.cache_clear()
    monkeypatch.setattr(
        registry, "_entry_points", lambda folder: points if folder == "methods" else {}
    )
    yield
    registry._load.cache_clear()


def cell(method: str, epsilon: float | None = 1.0, **parameters: object) -> Cell:
    return Cell(
        method=Variant(method, method, tuple(sorted(parameters.items()))),
        dataset=Variant("toy-table", "toy-table"),
        ipc=20,
        full_size=False,
        epsilon=epsilon,
        delta=1e-5,
        seed=0,
        split="default",
        split_seed=0,
    )


def run(asked: Cell, dataset: Dataset = DATASET) -> Outcome:
    return run_cell(asked, keys.cell_key(asked, dataset.fingerprint), dataset, METRICS)


def test_a_good_cell_has_release_ledger_scores_and_costs() -> None:
    outcome = run(cell("ldpdc"))
    row = outcome.row
    assert (row.status, row.verdict) == ("ok", "sound")
    assert row.eps_proven is not None and 0.9 < row.eps_proven <= 1.0
    assert (row.eps_target, row.eps_claimed, row.eps_audited) == (1.0, 1.0, None)
    assert row.rows_released == 40 and row.study_only
    assert row.fit_seconds and row.score_seconds and row.finished_at
    assert outcome.release is not None and outcome.release.ledger is not None
    assert {score.metric for score in outcome.scores} == {"ks"}
    assert json.loads(row.versions)["dp-accounting"]


def test_a_raw_look_with_a_claim_is_listed_as_unproven() -> None:
    row = run(cell("boaster")).row
    assert (row.verdict, row.eps_claimed, row.eps_proven) == ("unproven", 1.0, math.inf)
    assert "fitted on the rows themselves" in row.verdict_reason


def test_real_rows_are_non_private_with_the_reason() -> None:
    row = run(cell("real", epsilon=None)).row
    assert (row.verdict, row.eps_proven) == ("non-private", math.inf)
    assert "real training rows" in row.verdict_reason


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("raise", "error", "ValueError at plugins.py:"),
        ("memory", "out-of-memory", "MemoryError at plugins.py:"),
        ("nan", "error", "NaN"),
        ("skip", "skipped", "not for this task"),
    ],
)
def test_faults_become_statuses_with_reasons(how: str, status: str, reason: str) -> None:
    outcome = run(cell("faulty", how=how))
    assert outcome.row.status == status and reason in outcome.row.reason
    assert outcome.release is None and not outcome.scores
    if status != "skipped":
        assert "synthesize" in outcome.row.log_tail or "check_release" in outcome.row.log_tail
        assert "Traceback" in outcome.log and "Traceback" not in outcome.row.log_tail


def test_the_same_cell_gives_the_same_bytes() -> None:
    asked = cell("ldpdc")
    first, again = run(asked).release, run(asked).release
    assert first is not None and again is not None and first.rows is not None
    assert again.rows is not None and np.array_equal(first.rows.values, again.rows.values)
    seed = keys.seed_of(asked)
    assert keys.generator(seed, "noise").random() != keys.generator(seed, "public").random()


def test_secure_noise_differs_every_time_and_is_not_study_only() -> None:
    asked = replace(cell("ldpdc"), secure_noise=True)
    first, again = run(asked), run(asked)
    assert not first.row.study_only and first.row.verdict == "sound"
    assert first.release and again.release and first.release.rows and again.release.rows
    assert not np.array_equal(first.release.rows.values, again.release.rows.values)


def test_private_counts_are_paid_for() -> None:
    row = run(replace(cell("ldpdc"), private_counts=True)).row
    assert row.status == "ok" and row.private_counts and row.verdict == "sound"
    assert "adaptive" in row.accountant and row.eps_proven is not None and row.eps_proven <= 1


def test_a_large_delta_is_warned_about() -> None:
    row = run(replace(cell("ldpdc"), delta=0.01)).row
    assert "above 1/(10 n)" in row.warnings
    assert run(cell("ldpdc")).row.warnings == ""


def test_the_key_follows_what_the_result_depends_on() -> None:
    base = cell("ldpdc")
    key = keys.cell_key(base, "a")
    assert key == keys.cell_key(replace(base, method=Variant("ldpdc", "another label")), "a")
    for changed in (
        replace(base, seed=1),
        replace(base, ipc=21),
        replace(base, epsilon=2.0),
        replace(base, secure_noise=True),
        replace(base, private_counts=True),
        cell("ldpdc", group_size=9.0),
        cell("marginals"),
    ):
        assert keys.cell_key(changed, "a") != key
    assert keys.cell_key(base, "b") != key


def test_a_failing_metric_keeps_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(registry.metric("ks"))

    def broken(self: object, evaluation: object) -> None:
        raise RuntimeError("metric bug")

    monkeypatch.setattr(kind, "compute", broken)
    outcome = run(cell("ldpdc"))
    assert outcome.row.status == "error" and "metric ks: RuntimeError" in outcome.row.reason
    assert outcome.release is not None and outcome.scores[0].value is None


@final
class RefitProbe(RefitMetric):
    """Refits on the training table, twice on the same, and without one row."""

    name = "refit-probe"
    family = Family.PRIVACY
    direction = Direction.NEUTRAL
    definition = "Differences between refits on neighbouring tables."
    outputs = tuple(
        Output(name, Direction.NEUTRAL) for name in ("same", "repeated", "neighbour", "released")
    )

    def compute(self, evaluation: Evaluation, refit: Refit) -> Scores:
        train = evaluation.dataset.train.frame

        def values(table: pd.DataFrame, repetition: int) -> np.ndarray:
            rows = refit(table, repetition).rows
            assert rows is not None
            return rows.values

        same = np.abs(values(train, 0) - values(train, 0)).max()
        repeated = np.abs(values(train, 0) - values(train, 1)).max()
        neighbour = np.abs(values(train, 0) - values(train.drop(index=3), 0)).max()
        released = np.abs(values(train, 0) - evaluation.rows.values).max()
        return Scores(
            tuple(
                Score(name, float(value), None, None, self.direction, self.family)
                for name, value in zip(
                    ("same", "repeated", "neighbour", "released"),
                    (same, repeated, neighbour, released),
                    strict=True,
                )
            )
        )


def test_refits_have_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With shared noise two neighbours would differ by exactly one row, and audits would lie."""
    monkeypatch.setattr(registry, "_metrics", lambda: {"refit-probe": RefitProbe})
    asked = cell("ldpdc")
    key = keys.cell_key(asked, DATASET.fingerprint)
    outcome = run_cell(asked, key, DATASET, ("refit-probe",))
    assert outcome.row.status == "ok", outcome.row.log_tail
    found = {score.metric: score.value or 0.0 for score in outcome.scores}
    assert found["same"] == 0.0
    assert min(found["repeated"], found["neighbour"], found["released"]) > 0.5, found


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda: None, "it returned a NoneType; expected Scores"),
        (lambda: Scores((Score("ks", "good", None, None, *KIND),)), "ks: its value is a str"),  # type: ignore[arg-type]
        (lambda: Scores((Score("tvd", 1.0, None, None, *KIND),)), "which it does not declare"),
        (lambda: Scores((), {"../escape": pd.DataFrame()}), "a table of details is called"),
        (lambda: throw(GeneratorExit("row 7")), "GeneratorExit at plugins.py:"),
        (lambda: throw(ValueError("row 7")), "ValueError at plugins.py:"),
    ],
)
def test_a_metric_that_returns_nonsense_costs_its_own_scores(
    answer: Callable[[], Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(registry.metric("ks"))
    monkeypatch.setattr(kind, "compute", lambda self, evaluation: answer())
    asked = cell("ldpdc")
    outcome = run_cell(asked, keys.cell_key(asked, DATASET.fingerprint), DATASET, ("ks", "tvd"))
    assert outcome.row.status == "error" and outcome.row.reason.startswith("metric ks: ")
    assert told in outcome.row.reason and "row 7" not in str(outcome.row) + str(outcome.scores)
    assert outcome.release is not None
    values = {score.metric: score.value for score in outcome.scores}
    assert values["ks"] is None and len(values) > 1
    assert all(value is not None for name, value in values.items() if name != "ks")
    with RunStore(tmp_path / "run") as store:
        store.record(outcome, DATASET.encoder)
        store.compact()
    assert json.loads(outcome.row.metrics).keys() == {"tvd"}, "it is tried again next time"


def test_what_a_grid_asks_for_must_fit_into_the_tables() -> None:
    """Found out after a cell was computed, it would be too late."""
    base = cell("ldpdc")
    with pytest.raises(InputError, match="seed: a number of more than 64 bits"):
        replace(base, seed=2**70)
    with pytest.raises(InputError, match="split_seed: a number of more than 64 bits"):
        replace(base, split_seed=-(2**64))
    for value, kind in (
        (datetime.date(2026, 1, 1), "a date cannot be stored"),
        ([datetime.time(1)], "a time cannot be stored"),
        (2**64, "more than 64 bits"),
        ("\ud800", "no text in UTF-8"),
    ):
        with pytest.raises(InputError, match=f"ldpdc: parameter clip: .*{kind}"):
            cell("ldpdc", clip=value)
    with pytest.raises(InputError, match="no text in UTF-8"):
        replace(base, method=Variant("ldpdc", "\udfff"))
    cell("ldpdc", clip=[1, 2.0, "x", True, None], other={"a": 1})


def test_a_dataset_plugin_that_raises_fails_its_own_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        throw(KeyError("patient Smith"))

    monkeypatch.setattr(planning, "build_dataset", broken)
    lost = planning.load_dataset(Variant("gbsg2", "gbsg2"), "default", 0)
    assert isinstance(lost, BenchError)
    assert str(lost).startswith("dataset gbsg2: KeyError at plugins.py:")
    assert "Smith" not in str(lost) and "Smith" in whole_text(lost.__cause__ or lost)


def test_errors_about_files_hold_no_values_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = ToyTable().load()
    table["smoker"] = "patient Smith"
    monkeypatch.setattr(ToyTable, "load", lambda self: table)
    monkeypatch.setattr(registry, "build_source", lambda name, parameters: ToyTable())
    lost = planning.load_dataset(Variant("toy-table", "toy-table"), "default", 0)
    assert str(lost).startswith("dataset toy-table: column 'smoker': ")
    assert str(lost).endswith("are not among the declared categories ['no', 'yes']")
    assert isinstance(lost, BenchError) and "Smith" not in whole_text(lost.__cause__ or lost)
