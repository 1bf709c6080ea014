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
from bench.core.dataset import Dataset, build_dataset
from bench.core.errors import BenchError, InputError
from bench.core.result import CellRow, ScoreRow, Status
from bench.grid import Cell, Entry, Grid
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


@final
@dataclass(frozen=True)
class _Job:
    cell: Cell
    key: str
    stored: Outcome | None


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
        datasets = {entry: _load(entry, grid) for entry in grid.datasets}
        jobs, wanted, cached = _plan(cells, datasets, store, metrics)
        watchers = list(observers(store))
        notices = [
            f"{entry.label}: {dataset.differs}"
            for entry, dataset in datasets.items()
            if isinstance(dataset, Dataset) and dataset.differs
        ]
        for watcher in watchers:
            watcher.planned(len(wanted), cached, notices)
        interrupted = False

        def keep(outcome: Outcome, dataset: Dataset | BenchError) -> None:
            store.record(outcome, dataset.encoder if isinstance(dataset, Dataset) else None)
            for watcher in watchers:
                watcher.finished(outcome, store)

        try:
            for cell, key in wanted:
                problem = datasets[cell.dataset]
                if isinstance(problem, BenchError) and key not in store.finished:
                    lost = failed_row(cell, key, None, Status.ERROR, str(problem))
                    keep(Outcome(lost), problem)
            if jobs:
                with _ray(options):
                    for job, outcome in _execute(jobs, datasets, metrics, store):
                        keep(outcome, datasets[job.cell.dataset])
        except KeyboardInterrupt:
            interrupted = True
        finally:
            store.compact()
        results = tuple(store.finished[key] for _, key in wanted if key in store.finished)
    return RunSummary(results, cached, time.perf_counter() - started, interrupted)


def _load(entry: Entry, grid: Grid) -> Dataset | BenchError:
    """A dataset, or why it cannot be had: that fails its own cells and no others."""
    source = registry.build_source(entry.name, dict(entry.parameters))
    try:
        return build_dataset(source, grid.split, grid.split_seed)
    except InputError as problem:
        return BenchError(f"dataset {entry.label}: {problem}")


def _plan(
    cells: Sequence[Cell],
    datasets: dict[Entry, Dataset | BenchError],
    store: RunStore,
    metrics: Sequence[str],
) -> tuple[list[_Job], list[tuple[Cell, str]], int]:
    """What must be fitted, what only scored, and what is done already."""
    jobs: list[_Job] = []
    wanted: list[tuple[Cell, str]] = []
    cached = 0
    charged = store.charged()
    wanted_metrics = keys.metrics_hash(tuple(metrics))
    for cell in cells:
        dataset = datasets[cell.dataset]
        fingerprint = dataset.fingerprint if isinstance(dataset, Dataset) else str(dataset)
        key = keys.cell_key(cell, fingerprint)
        wanted.append((cell, key))
        if not isinstance(dataset, Dataset):
            store.finished.pop(key, None)
            continue
        row, scores = store.finished.get(key, (None, ()))
        if row is not None and row.status == Status.SKIPPED.value:
            cached += 1
            continue
        fitted = row is not None and row.verdict != "" and store.release_intact(key)
        if row is not None and fitted:
            if row.status == Status.OK.value and row.metrics_hash == wanted_metrics:
                cached += 1
                continue
            release = store.read_release(key, dataset.encoder)
            if release is not None:
                jobs.append(_Job(cell, key, Outcome(row, scores, release)))
                continue
            if row.rows_released is None and row.status == Status.OK.value:
                cached += 1  # a model release is not stored and so cannot be scored again
                continue
        if cell.secure_noise and cell.epsilon is not None and key in charged:
            reason = (
                "an earlier attempt with secure noise was charged and did not finish; its budget "
                "is spent. To spend it again knowingly, use a new --out"
            )
            store.record(Outcome(failed_row(cell, key, dataset, Status.ERROR, reason)), None)
            continue
        jobs.append(_Job(cell, key, None))
    return jobs, wanted, cached


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
    jobs: Sequence[_Job],
    datasets: dict[Entry, Dataset | BenchError],
    metrics: Sequence[str],
    store: RunStore,
) -> Iterator[tuple[_Job, Outcome]]:
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
    running: dict[Any, _Job] = {}
    while True:
        while len(running) < room and (job := next(waiting, None)) is not None:
            if job.cell.secure_noise and job.cell.epsilon is not None and job.stored is None:
                store.charge(job.key)
            reference = task.remote(
                job.cell, job.key, shared[job.cell.dataset], metrics, job.stored, _THREADS
            )
            running[reference] = job
        if not running:
            return
        done, _ = ray.wait(list(running), num_returns=1, timeout=_WAIT_SECONDS)
        for reference in done:
            job = running.pop(reference)
            yield job, _collected(reference, job, datasets[job.cell.dataset])


def _collected(reference: Any, job: _Job, dataset: Dataset | BenchError) -> Outcome:
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
