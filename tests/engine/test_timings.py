"""What the steps of a cell take is recorded, also where it fails or is scored again."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.engine import keys
from bench.engine.cell import run_cell
from bench.engine.merge import merge_runs
from bench.engine.plan import Job, stored_outcome
from bench.plugins import registry
from bench.plugins.metric import Evaluation
from bench.plugins.source import build_dataset
from bench.results.reading import load_results
from bench.results.records import Cell, Outcome, TimingRow, Variant
from bench.results.run_directory import RunStore
from bench.results.timings import Stopwatch, added_to, kept
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())
CELL = Cell(
    Variant("marginals", "marginals"), Variant("toy-table", "toy-table"), 10, False, 1.0, 1e-5, 0,
    "default", 0,
)  # fmt: skip
KEY = keys.cell_key(CELL, DATASET.fingerprint)


def ran(*metrics: str, stored: Outcome | None = None) -> Outcome:
    return run_cell(CELL, KEY, DATASET, metrics, stored)


def steps(outcome: Outcome) -> dict[tuple[str, str], TimingRow]:
    return {(one.phase, one.metric): one for one in outcome.timings}


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_every_phase_and_metric_is_measured() -> None:
    found = steps(ran("ks", "tvd"))
    assert set(found) == {
        ("fit", ""), ("prove", ""), ("score", ""), ("score", "ks"), ("score", "tvd"),
    }  # fmt: skip
    metrics = found["score", "ks"].wall_seconds + found["score", "tvd"].wall_seconds
    assert 0 < metrics <= found["score", ""].wall_seconds


def test_processor_time_is_that_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A known amount of work: neither waiting nor another metric's work counts."""
    kind, compute = type(registry.metric("ks")), type(registry.metric("ks")).compute

    def slow(self: object, evaluation: Evaluation) -> object:
        spin(0.2)
        time.sleep(0.1)

        def build(_: object) -> int:
            spin(0.1)
            return 1

        evaluation.reference(f"slow/{time.perf_counter()}", build)
        return compute(self, evaluation)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "compute", slow)
    found = steps(ran("ks", "tvd"))
    ks, whole = found["score", "ks"], found["score", ""]
    assert ks.processor_seconds >= 0.3 and ks.wall_seconds >= ks.processor_seconds
    assert 0.1 <= ks.reference_seconds <= ks.processor_seconds - 0.2 + 1e-3
    assert whole.reference_seconds >= ks.reference_seconds
    assert found["score", "tvd"].processor_seconds < found["score", "ks"].processor_seconds


def test_a_reference_that_needs_another_counts_once() -> None:
    release = ran("ks").release
    assert release is not None
    evaluation = Evaluation(DATASET, release, 0)

    def inner(_: object) -> int:
        spin(0.1)
        return 1

    def outer(_: object) -> int:
        spin(0.1)
        return evaluation.reference(f"inner/{time.perf_counter()}", inner)

    before = time.process_time()
    evaluation.reference(f"outer/{time.perf_counter()}", outer)
    assert 0.2 <= evaluation.reference_seconds <= time.process_time() - before + 1e-3


def test_children_that_have_ended_count() -> None:
    watch = Stopwatch()
    code = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert watch.lap("a", "fit").processor_seconds >= 0.2


def test_a_fit_that_fails_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        spin(0.05)
        raise ValueError

    monkeypatch.setattr(registry.method_class("marginals"), "synthesize", broken)
    outcome = ran("ks")
    assert outcome.row.status == "error" and set(steps(outcome)) == {("fit", "")}
    assert steps(outcome)["fit", ""].processor_seconds >= 0.05


def test_scoring_again_keeps_what_is_not_computed_again(tmp_path: Path) -> None:
    first = ran("ks", "tvd")
    with RunStore(tmp_path / "run") as store:
        store.record(first, DATASET.encoder)
        stored = stored_outcome(Job(CELL, KEY, True, ("tvd",)), store, DATASET)
        assert stored is not None
        again = ran("tvd", stored=stored)
        store.record(again, DATASET.encoder)
        store.compact()
    before, after = steps(first), steps(again)
    assert ("load", "") in after and ("write", "") in steps(stored)
    for step in (("fit", ""), ("prove", ""), ("score", "ks")):
        assert after[step].wall_seconds == pytest.approx(before[step].wall_seconds, abs=1e-6)
    assert after["score", "tvd"].wall_seconds != before["score", "tvd"].wall_seconds
    assert after["score", ""].wall_seconds >= (
        after["score", "ks"].wall_seconds + after["score", "tvd"].wall_seconds
    )
    timings = load_results(tmp_path / "run").timings
    assert len(timings) == len(again.timings) and not timings.duplicated(["phase", "metric"]).any()


def test_a_merge_keeps_timings_and_adds_those_of_other_metrics(tmp_path: Path) -> None:
    for name, metric in (("a", "ks"), ("b", "tvd")):
        with RunStore(tmp_path / name) as store:
            store.record(ran(metric), DATASET.encoder)
            store.compact()
    merge_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    a, b, c = (
        load_results(tmp_path / name).timings.set_index(["phase", "metric"]) for name in "abc"
    )
    assert set(c.index) == set(a.index) | {("score", "tvd")}
    assert c.loc[("fit", ""), "wall_seconds"] == a.loc[("fit", ""), "wall_seconds"]
    assert c.loc[("score", "tvd"), "wall_seconds"] == b.loc[("score", "tvd"), "wall_seconds"]
    assert c.loc[("score", ""), "wall_seconds"] == pytest.approx(
        a.loc[("score", ""), "wall_seconds"] + b.loc[("score", "tvd"), "wall_seconds"]
    )


def test_sums_of_steps() -> None:
    fit = TimingRow("a", "fit", "", 1.0, 0.5)
    ks = TimingRow("a", "score", "ks", 2.0, 2.0, 1.0)
    both = TimingRow("a", "score", "", 5.0, 5.0, 1.0)
    assert added_to((fit,), fit) == (replace(fit, wall_seconds=2.0, processor_seconds=1.0),)
    assert kept((fit, ks, both), ["tvd"]) == (fit, ks, replace(ks, metric=""))
    assert kept((fit, ks, both), ["ks"]) == (fit,)
