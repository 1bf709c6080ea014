"""Runs a grid as Ray tasks. The only module that knows Ray.

The driver loads every dataset once and shares it through the object store, keeps a bounded number
of cells in flight, and is the only one that writes: results are kept as each cell ends. A cell
asks for one CPU, which caps the threads of its libraries, so parallel cells do not fight.
"""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, final

from bench import keys
from bench.cell import Outcome, failed_row, run_cell
from bench.config import RunOptions
from bench.core import registry
from bench.core.dataset import Dataset
from bench.core.errors import BenchError
from bench.core.result import CellRow, ScoreRow, Status
from bench.grid import Grid
from bench.planning import Datasets, Job, Plan, load_dataset, plan_cells, plan_stored
from bench.store import RunStore

_WAIT_SECONDS = 20.0
_THREADS = 1


class Observer(Protocol):
    """Is told how a run goes: the progress display, the tracker."""

    def planned(self, total: int, cached: int, notices: Sequence[str]) -> None:
        """Before the first cell: how many there are, how many need nothing, what to beware of."""

    def finished(self, outcome: Outcome, store: RunStore) -> None:
        """A cell has ended and is stored."""


@final
@dataclass(frozen=True)
class RunSummary:
    """How a run ended."""

    results: tuple[tuple[CellRow, tuple[ScoreRow, ...]], ...]
    """The cells of this grid with their scores, in grid order."""
    cached: int
    seconds: float
    interrupted: bool = False

    def count(self, status: Status) -> int:
        """Cells that ended so."""
        return sum(row.status == status.value for row, _ in self.results)

    @property
    def failed(self) -> int:
        """Cells that ended in error, timeout or for lack of memory."""
        good = (Status.OK.value, Status.SKIPPED.value)
        return sum(row.status not in good for row, _ in self.results)


def run_grid(
    grid: Grid, options: RunOptions, observers: Callable[[RunStore], Sequence[Observer]]
) -> RunSummary:
    """Run what is missing of a grid and keep everything in the run directory."""
    started = time.perf_counter()
    grid.check_plugins()
    cells = grid.cells(private_counts=options.private_counts, secure_noise=options.secure_noise)
    metrics = registry.select_metrics(grid.metrics)
    with RunStore(options.out) as store:
        store.write_manifest(_manifest(grid, metrics))
        datasets = {
            entry: load_dataset(entry, grid.split, grid.split_seed) for entry in grid.datasets
        }
        plan = plan_cells(cells, datasets, store, metrics)
        return _carried_out(plan, datasets, store, options, observers, started)


def score_run(
    metrics: Sequence[str],
    options: RunOptions,
    observers: Callable[[RunStore], Sequence[Observer]],
) -> RunSummary:
    """Score what is stored in a run directory, where these metrics are missing or outdated."""
    started = time.perf_counter()
    with RunStore.existing(options.out) as store:
        plan, datasets = plan_stored(store, metrics)
        return _carried_out(plan, datasets, store, options, observers, started)


def _carried_out(
    plan: Plan,
    datasets: Datasets,
    store: RunStore,
    options: RunOptions,
    observers: Callable[[RunStore], Sequence[Observer]],
    started: float,
) -> RunSummary:
    watchers = list(observers(store))
    for watcher in watchers:
        watcher.planned(len(plan.wanted), plan.cached, plan.notices)
    interrupted = False

    def keep(outcome: Outcome, dataset: Dataset | BenchError) -> None:
        store.record(outcome, dataset.encoder if isinstance(dataset, Dataset) else None)
        for watcher in watchers:
            watcher.finished(outcome, store)

    try:
        for cell, key in plan.wanted:
            problem = datasets.get(cell.dataset)
            if isinstance(problem, BenchError) and key not in store.finished:
                lost = failed_row(cell, key, None, Status.ERROR, str(problem))
                keep(Outcome(lost), problem)
        if plan.jobs:
            with _ray(options):
                for job, outcome in _execute(plan.jobs, datasets, store):
                    keep(outcome, datasets[job.cell.dataset])
    except KeyboardInterrupt:
        interrupted = True
    finally:
        store.compact()
    results = tuple(store.finished[key] for _, key in plan.wanted if key in store.finished)
    return RunSummary(results, plan.cached, time.perf_counter() - started, interrupted)


@contextmanager
def _ray(options: RunOptions) -> Iterator[None]:
    # Usage statistics would leave the machine; the other switch silences a warning about GPUs.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import logging

    import ray

    if options.ray_address:
        ray.init(address=options.ray_address, log_to_driver=False, logging_level=logging.ERROR)
    else:
        ray.init(
            num_cpus=options.cpus or os.cpu_count() or 1,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        yield
    finally:
        ray.shutdown()


def _execute(
    jobs: Sequence[Job], datasets: Datasets, store: RunStore
) -> Iterator[tuple[Job, Outcome]]:
    import ray

    # No retries here: Ray retries out-of-memory for ever, and a method's own error is a result.
    task: Any = ray.remote(num_cpus=1, max_retries=0)(run_cell)
    shared = {
        entry: ray.put(dataset)
        for entry, dataset in datasets.items()
        if isinstance(dataset, Dataset)
    }
    room = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
    waiting = iter(jobs)
    running: dict[Any, Job] = {}
    while True:
        while len(running) < room and (job := next(waiting, None)) is not None:
            if job.cell.secure_noise and job.cell.epsilon is not None and job.stored is None:
                store.charge(job.key)
            reference = task.remote(
                job.cell, job.key, shared[job.cell.dataset], job.metrics, job.stored, _THREADS
            )
            running[reference] = job
        if not running:
            return
        done, _ = ray.wait(list(running), num_returns=1, timeout=_WAIT_SECONDS)
        for reference in done:
            job = running.pop(reference)
            yield job, _collected(reference, job, datasets[job.cell.dataset])


def _collected(reference: Any, job: Job, dataset: Dataset | BenchError) -> Outcome:
    import ray

    known = dataset if isinstance(dataset, Dataset) else None
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.OutOfMemoryError as problem:
        status, reason = Status.OUT_OF_MEMORY, _first_line(problem)
    except ray.exceptions.RayError as problem:
        status, reason = Status.ERROR, f"the worker was lost: {_first_line(problem)}"
    else:
        return outcome
    return Outcome(failed_row(job.cell, job.key, known, status, reason))


def _first_line(problem: BaseException) -> str:
    return next((line.strip() for line in str(problem).splitlines() if line.strip()), repr(problem))


def _manifest(grid: Grid, metrics: Sequence[str]) -> dict[str, Any]:
    return {
        "grid": grid.name,
        "datasets": [entry.label for entry in grid.datasets],
        "methods": [entry.label for entry in grid.methods],
        "ipc": list(grid.ipc),
        "epsilon": list(grid.epsilon),
        "delta": grid.delta,
        "seeds": list(grid.seeds),
        "split": grid.split,
        "split_seed": grid.split_seed,
        "metrics": list(metrics),
        "versions": keys.versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "started_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
