"""The loop of a run, with tasks that end as the test wants: which lost cells are started again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from bench.cluster import execute as loop
from bench.cluster.execute import Stop, execute
from bench.cluster.tasks import Started
from bench.engine.options import RunOptions
from bench.engine.plan import Job
from bench.plugins.source import build_dataset
from bench.results.records import Cell, Outcome, Variant
from bench.results.run_directory import RunningCell, RunStore
from tests.support.tables import ToyTable
from tests.support.tracked_runs import outcome

CELL = Cell(
    Variant("marginals", "marginals"), Variant("toy-table", "toy-table"), 10, False, 1.0, 1e-5, 0,
    "default", 0,
)  # fmt: skip


class LosingTasks:
    """Loses the workers of the first starts; the next ones end well."""

    preparing: tuple[Any, ...] = ()

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.started: list[int] = []

    def lost_environment(self, job: Job) -> str:
        return ""

    def start(self, job: Job, attempt: int, stored: Outcome | None) -> tuple[Any, Started]:
        self.started.append(attempt)
        return f"task {attempt}", Started(job, attempt, ("ticket",))

    def ended(self, started: Started) -> None:
        pass

    def forget(self, job: Job) -> None:
        pass

    def result(self, reference: str) -> Outcome:
        if len(self.started) <= self.losses:
            raise ray.exceptions.WorkerCrashedError
        return outcome("key")


class NobodyWatches:
    """Knows nothing about the end of a worker, as after the loss of a machine."""

    run = "run"

    def why(self, *tickets: str) -> None:
        return None

    def phase(self, *tickets: str) -> str:
        return f"phase of {', '.join(tickets)}"

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore(tmp_path / "run") as opened:
        yield opened


def carried_out(
    job: Job, losses: int, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Outcome], LosingTasks, list[str]]:
    tasks, said = LosingTasks(losses), list[str]()
    monkeypatch.setattr(loop, "Tasks", lambda *_: tasks)
    monkeypatch.setattr(loop, "Watchers", lambda say: NobodyWatches())
    monkeypatch.setattr(loop, "_room", lambda: 2)
    monkeypatch.setattr(ray, "wait", lambda pending, timeout: (pending, []))
    monkeypatch.setattr(ray, "get", tasks.result)
    datasets = {job.cell.dataset: build_dataset(ToyTable())}
    options = RunOptions(store.directory)
    work = execute([job], datasets, store, options, Stop(said.append), said.append)
    return [ended for _, ended in work], tasks, said


def test_cells_that_wait_for_a_cpu_are_not_shown_as_running(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many tasks as CPUs are given to Ray, which starts them in their order."""
    jobs = [Job(replace(CELL, seed=seed), f"key {seed}", False, ("ks",)) for seed in range(5)]

    class Endless(LosingTasks):
        def start(self, job: Job, attempt: int, stored: Outcome | None) -> tuple[Any, Started]:
            return job.key, Started(job, attempt, (f"{job.key}.run",))

    monkeypatch.setattr(loop, "Tasks", lambda *_: Endless(0))
    monkeypatch.setattr(loop, "Watchers", lambda say: NobodyWatches())
    monkeypatch.setattr(loop, "_room", lambda: 4)
    monkeypatch.setattr(ray, "wait", lambda pending, timeout: (pending[:1], []))
    monkeypatch.setattr(ray, "get", lambda reference: outcome(reference))
    datasets = {CELL.dataset: build_dataset(ToyTable())}
    seen: list[list[RunningCell]] = []
    stop = Stop(lambda text: None)
    work = execute(
        jobs, datasets, store, RunOptions(store.directory), stop, print,
        lambda cells: seen.append([*cells]),
    )  # fmt: skip
    ended = [job.key for job, _ in work]
    assert len(ended) == 5
    assert [[cell.key for cell in cells] for cells in seen] == [
        ["key 0", "key 1"], ["key 1", "key 2"], ["key 2", "key 3"], ["key 3", "key 4"], ["key 4"],
        [],
    ]  # fmt: skip
    assert seen[0][1].phase == "phase of key 1.run"


def test_when_the_time_is_over_running_cells_are_finished_and_no_other_is_started(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Job(replace(CELL, seed=seed), f"key {seed}", False, ("ks",)) for seed in range(9)]
    started: list[str] = []

    class Noted(LosingTasks):
        def start(self, job: Job, attempt: int, stored: Outcome | None) -> tuple[Any, Started]:
            started.append(job.key)
            return job.key, Started(job, attempt, (f"{job.key}.run",))

    now = [0.0]

    def got(reference: str) -> Outcome:
        now[0] += 1.0
        return outcome(reference)

    monkeypatch.setattr(loop, "Tasks", lambda *_: Noted(0))
    monkeypatch.setattr(loop, "Watchers", lambda say: NobodyWatches())
    monkeypatch.setattr(loop, "_room", lambda: 3)
    monkeypatch.setattr(ray, "wait", lambda pending, timeout: (pending[:1], []))
    monkeypatch.setattr(ray, "get", got)
    monkeypatch.setattr(loop, "perf_counter", lambda: now[0])
    said: list[str] = []
    stop = Stop(said.append, end=2.0)
    datasets = {CELL.dataset: build_dataset(ToyTable())}
    options = RunOptions(store.directory)
    ended = [job.key for job, _ in execute(jobs, datasets, store, options, stop, said.append)]
    assert 2 < len(ended) < 9
    assert sorted(ended) == sorted(started)
    assert stop.out_of_time and len([text for text in said if "the time is over" in text]) == 1


def test_without_an_end_the_time_is_never_over() -> None:
    assert not Stop(print).asked and not Stop(print, end=float("inf")).asked


def test_a_lost_cell_with_seeded_noise_is_started_again(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(CELL, "key", False, ("ks",))
    (ended,), tasks, said = carried_out(job, 2, store, monkeypatch)
    assert ended.row.status == "ok" and tasks.started == [1, 2, 3]
    assert len(said) == 2 and all("its worker was lost" in text for text in said)
    assert store.charged() == set()


def test_a_cell_is_not_started_again_for_ever(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(CELL, "key", False, ("ks",))
    (ended,), tasks, _ = carried_out(job, 100, store, monkeypatch)
    assert tasks.started == [1, 2, 3, 4]
    assert ended.row.status == "error" and "its worker was lost 4 times" in ended.row.reason


def test_a_lost_cell_with_secure_noise_is_charged_and_not_started_again(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows may have been seen with noise that nobody can draw again: the budget is spent."""
    job = Job(replace(CELL, secure_noise=True), "key", False, ("ks",))
    (ended,), tasks, said = carried_out(job, 1, store, monkeypatch)
    assert tasks.started == [1] and said == []
    assert ended.row.status == "error"
    assert "its worker was lost; the budget of its secure noise is spent" in ended.row.reason
    assert "key" in store.charged()


def test_a_lost_cell_that_only_scores_is_started_again_with_secure_noise_as_well(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scoring reads a release that is stored: it spends nothing."""
    cell = replace(CELL, secure_noise=True)
    monkeypatch.setattr(loop, "stored_outcome", lambda *_: outcome("key"))
    job = Job(cell, "key", True, ("ks",))
    (ended,), tasks, _ = carried_out(job, 1, store, monkeypatch)
    assert ended.row.status == "ok" and tasks.started == [1, 2] and store.charged() == set()


def test_the_charge_is_stored_before_the_cell_is_started(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(replace(CELL, secure_noise=True), "key", False, ("ks",))
    seen: list[set[str]] = []
    start = LosingTasks.start

    def looking(tasks: LosingTasks, *given: Any) -> tuple[Any, Started]:
        seen.append(store.charged())
        return start(tasks, *given)

    monkeypatch.setattr(LosingTasks, "start", looking)
    carried_out(job, 0, store, monkeypatch)
    assert len(seen) == 1 and "key" in seen[0]
