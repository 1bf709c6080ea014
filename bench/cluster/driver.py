"""Runs a grid as Ray tasks. The only package that knows Ray.

The driver loads every dataset once and shares it through the object store, keeps a bounded number
of cells in flight, and is the only one that writes: results are kept as each cell ends. A cell
asks for the CPUs its method declares, which caps the threads of its libraries, so parallel cells
do not fight. A watcher on every machine stops cells that take too long or too much.

A cell whose method has an environment of its own is two tasks: one fits, started by that
environment's interpreter, and its result goes straight to the other, which scores in ours. The
environment is made ready by a task on every machine at the start; other cells do not wait for it.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

from bench.cluster.execute import Stop, execute
from bench.cluster.ray_cluster import joined
from bench.data.dataset import Dataset
from bench.engine.about import write_descriptions
from bench.engine.cell import failed_row
from bench.engine.grid import Grid
from bench.engine.manifest import manifest
from bench.engine.options import RunOptions
from bench.engine.plan import Datasets, Plan, load_dataset, plan_cells, plan_stored
from bench.environments.environments import Say
from bench.errors import BenchError, StoreError
from bench.plugins import registry
from bench.results.journal import Finished, Journal
from bench.results.progress import Progress
from bench.results.records import Outcome, Status
from bench.results.run_directory import RunStore

__all__ = ["Observer", "RunSummary", "run_grid", "score_run"]


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

    journal: Journal
    keys: tuple[str, ...]
    """The cells of this grid that have ended, in grid order."""
    cached: int
    seconds: float
    interrupted: bool = False

    def results(self) -> Iterator[Finished]:
        """The cells with their scores, read one at a time."""
        return (self.journal[key] for key in self.keys)

    @property
    def counts(self) -> Counter[str]:
        """How many cells ended how."""
        return Counter(self.journal.statuses[key] for key in self.keys)

    @property
    def failed(self) -> int:
        """Cells that ended in error, timeout or for lack of memory."""
        good = (Status.OK.value, Status.SKIPPED.value)
        return sum(count for status, count in self.counts.items() if status not in good)


def run_grid(
    grid: Grid,
    options: RunOptions,
    observers: Callable[[RunStore], Sequence[Observer]],
    say: Say = lambda text: None,
) -> RunSummary:
    """Run what is missing of a grid and keep everything in the run directory."""
    started = time.perf_counter()
    grid.check_plugins()
    cells = grid.cells(private_counts=options.private_counts, secure_noise=options.secure_noise)
    metrics = registry.select_metrics(grid.metrics)
    with RunStore(options.out) as store:
        store.write_manifest(manifest(grid, metrics))
        write_descriptions(store.directory, grid)
        datasets = {
            entry: load_dataset(entry, grid.split, grid.split_seed) for entry in grid.datasets
        }
        plan = plan_cells(cells, datasets, store, metrics)
        return _carried_out(plan, datasets, store, options, observers, started, say)


def score_run(
    metrics: Sequence[str],
    options: RunOptions,
    observers: Callable[[RunStore], Sequence[Observer]],
    say: Say = lambda text: None,
) -> RunSummary:
    """Score what is stored in a run directory, where these metrics are missing or outdated."""
    started = time.perf_counter()
    with RunStore.existing(options.out) as store:
        plan, datasets = plan_stored(store, metrics)
        return _carried_out(plan, datasets, store, options, observers, started, say)


def _carried_out(
    plan: Plan,
    datasets: Datasets,
    store: RunStore,
    options: RunOptions,
    observers: Callable[[RunStore], Sequence[Observer]],
    started: float,
    say: Say,
) -> RunSummary:
    watchers = list(observers(store))
    for watcher in watchers:
        watcher.planned(len(plan.wanted), plan.cached, plan.notices)
    for reason in plan.reasons:
        say(f"to do: {reason}")
    ago = time.perf_counter() - started
    progress = Progress(store.directory, len(plan.wanted), plan.cached, ago)
    stop = Stop(say)
    interrupted = False

    def keep(outcome: Outcome, dataset: Dataset | BenchError) -> None:
        try:
            store.record(outcome, dataset.encoder if isinstance(dataset, Dataset) else None)
        except OSError as problem:
            # A full disk, mostly. What was finished is whole; a torn line is cut off next time.
            raise StoreError(
                f"{store.directory}: cannot be written ({problem.strerror or problem}); make room "
                "and run the same command again: what has finished is kept"
            ) from None
        for watcher in watchers:
            watcher.finished(outcome, store)

    try:
        for cell, key in plan.wanted:
            problem = datasets.get(cell.dataset)
            if isinstance(problem, BenchError) and key not in store.finished:
                lost = failed_row(cell, key, None, Status.ERROR, str(problem))
                keep(Outcome(lost), problem)
        if plan.jobs:
            with joined(options, _shipped(options)), stop.listening():
                work = execute(plan.jobs, datasets, store, options, stop, say, progress.running)
                with contextlib.closing(work):
                    for job, outcome in work:
                        keep(outcome, datasets[job.cell.dataset])
    except KeyboardInterrupt:
        interrupted = True
    else:
        interrupted = stop.asked
    finally:
        with contextlib.suppress(OSError):
            progress.end("interrupted" if interrupted else "finished")
            store.write_manifest({"wall_seconds": round(time.perf_counter() - started, 1)})
            store.compact()
    keys = tuple(key for _, key in plan.wanted if key in store.finished)
    seconds = time.perf_counter() - started
    return RunSummary(store.journal, keys, plan.cached, seconds, interrupted)


def _shipped(options: RunOptions) -> Mapping[str, Any]:
    """The code that workers of a cluster import instead of what is installed there."""
    if not options.ship_code:
        return {}
    from bench.cluster.shipping import runtime_env

    return runtime_env()
