"""Runs a grid as Ray tasks. The only package that knows Ray.

The driver loads every dataset once and shares it through the object store, keeps a bounded number
of cells in flight, and is the only one that writes: results are kept as each cell ends. A cell
asks for the CPUs its method declares, which caps the threads of its libraries, so parallel cells
do not fight. A watcher on every machine stops cells that take too long or too much.

A cell whose method has its own environment is two tasks: one fits, started by that environment's
interpreter, and its result goes straight to the other, which scores in ours. The
environment is made ready by a task on every machine at the start; other cells do not wait for it.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, final

from bench.cluster.execute import Stop, execute
from bench.cluster.ray_cluster import joined
from bench.data.dataset import Dataset
from bench.engine.about import write_descriptions
from bench.engine.cell import blank_row, failed_outcome, failed_row, storable
from bench.engine.failures import whole_text
from bench.engine.fit import FitResult
from bench.engine.grid import Grid, load_grid
from bench.engine.isolation import wire
from bench.engine.isolation.processes import isolated
from bench.engine.limits import Asked
from bench.engine.options import RunOptions, manifest
from bench.engine.plan import (
    Datasets,
    Job,
    RunPlan,
    load_dataset,
    load_stored,
    plan_cells,
    plan_stored,
)
from bench.engine.procedure import Procedure, run_here
from bench.engine.references import references_folder
from bench.environments.overlays import Say
from bench.errors import StoreError
from bench.plugins import registry
from bench.results.journal import Finished, Journal
from bench.results.published import rows_of
from bench.results.records import Cell, Outcome, Status, TimingRow, Variant
from bench.results.run_directory import Progress, RunningCell, RunStore
from bench.results.timings import Stopwatch, added_to


class Observer(Protocol):
    """Follows a run: the progress display, the tracker."""

    def planned(self, total: int, cached: int, notices: Sequence[str]) -> None:
        """Take note of the plan: how many cells, how many of them need nothing, warnings."""

    def finished(self, outcome: Outcome, store: RunStore) -> None:
        """Take note of a cell that has ended and is stored."""

    def running(self, cells: Sequence[RunningCell]) -> None:
        """Take note of what is computed now; called every few seconds."""


@final
@dataclass(frozen=True)
class RunSummary:
    """How a run ended."""

    directory: Path
    journal: Journal
    keys: tuple[str, ...]
    """The cells of this grid that have ended, in grid order."""
    cached: int
    seconds: float
    interrupted: bool = False
    out_of_time: bool = False
    """The time that the run was given was over before all cells had ended."""

    def results(self) -> Iterator[Finished]:
        """Return the cells with their scores, read one at a time."""
        return (self.journal[key] for key in self.keys)

    @property
    def counts(self) -> Counter[str]:
        """Number of cells by status."""
        return Counter(self.journal.statuses[key] for key in self.keys)

    @property
    def failed(self) -> int:
        """Cells that ended in error, timeout or for lack of memory."""
        good = (Status.OK.value, Status.SKIPPED.value)
        return sum(count for status, count in self.counts.items() if status not in good)


def run(
    grid: Grid | str | Path,
    out: str | Path,
    *,
    cpus: int | None = None,
    ray_address: str | None = None,
    secure_noise: bool = False,
    private_counts: bool = False,
    keep_private_rows: bool = False,
    limits: Asked | None = None,
    ship_code: bool = False,
    say: Say = lambda text: None,
) -> RunSummary:
    """Run what is missing of a grid, and keep everything in the run directory `out`.

    `grid` is the name of a built-in grid (smoke, quick, full), a TOML file, or a `Grid`. `say` gets
    what a person may want to know meanwhile. As with `bench run`, running again does only what is
    missing; results are read with `bench.load_results(out)`. Rows without a proven epsilon are not
    stored unless `keep_private_rows` is set. MLflow is left out: `bench sync out` logs a finished
    run.
    """
    asked = grid if isinstance(grid, Grid) else load_grid(str(grid))
    options = RunOptions(
        out=Path(out),
        cpus=cpus,
        ray_address=ray_address,
        tracking=False,
        secure_noise=secure_noise,
        private_counts=private_counts,
        keep_private_rows=keep_private_rows,
        limits=limits or Asked(),
        ship_code=ship_code,
    )
    return run_grid(asked, options, lambda store: (), say)


def run_grid(
    grid: Grid,
    options: RunOptions,
    observers: Callable[[RunStore], Sequence[Observer]],
    say: Say = lambda text: None,
) -> RunSummary:
    """Run what is missing of a grid and keep everything in the run directory.

    Splits of the rows are run one after the other: the same dataset has other rows in each.
    """
    started = time.perf_counter()
    grid.check_plugins()
    summaries = []
    for part in grid.splits():
        summaries.append(_run_split(part, grid, options, observers, say, started))
        if summaries[-1].interrupted or summaries[-1].out_of_time:
            break
    return replace(
        summaries[-1],
        keys=tuple(key for summary in summaries for key in summary.keys),
        cached=sum(summary.cached for summary in summaries),
    )


def _run_split(
    grid: Grid,
    whole: Grid,
    options: RunOptions,
    observers: Callable[[RunStore], Sequence[Observer]],
    say: Say,
    started: float,
) -> RunSummary:
    """Run a grid of one split; the manifest tells the whole grid."""
    cells = grid.cells(private_counts=options.private_counts, secure_noise=options.secure_noise)
    metrics = registry.select_metrics(grid.metrics)
    with RunStore(options.out, keep_private_rows=options.keep_private_rows) as store:
        store.write_manifest(manifest(whole, metrics))
        write_descriptions(store.directory, grid.methods, grid.datasets)
        datasets, loaded = {}, {}
        for entry in grid.datasets:
            watch = Stopwatch()
            datasets[entry] = load_dataset(entry, grid.split, grid.split_seeds[0])
            loaded[entry] = watch.lap("", "load")
        published = {} if options.published is None else rows_of(options.published)
        plan = plan_cells(
            cells, datasets, store, metrics, whole.split_seeds, published, options.skip_failed
        )
        return carry_out(plan, datasets, store, options, observers, started, say, loaded)


def score_run(
    metrics: Sequence[str],
    options: RunOptions,
    observers: Callable[[RunStore], Sequence[Observer]],
    say: Say = lambda text: None,
) -> RunSummary:
    """Score what is stored in a run directory, where these metrics are missing or outdated."""
    started = time.perf_counter()
    with RunStore.existing(options.out) as store:
        datasets = load_stored(store)
        plan = plan_stored(store, datasets, metrics)
        return carry_out(plan, datasets, store, options, observers, started, say)


def carry_out(
    plan: RunPlan,
    datasets: Datasets,
    store: RunStore,
    options: RunOptions,
    observers: Callable[[RunStore], Sequence[Observer]],
    started: float,
    say: Say,
    loaded: Mapping[Variant, TimingRow] = MappingProxyType({}),
) -> RunSummary:
    """Run the jobs of a plan; keep everything in the run directory, which is open.

    `loaded` says what loading each dataset took: the first cell of it that ends has it in its
    timings, so that those of all cells add up to what was spent.
    """
    unpaid = dict(loaded)
    watchers = list(observers(store))
    for watcher in watchers:
        watcher.planned(len(plan.wanted), plan.cached, plan.notices)
    for notice in (*store.notices, *registry.skipped_plugins()):
        say(notice)
    if plan.published:
        say(f"published, and not computed again: {plan.published} cells")
    for reason in plan.reasons:
        say(f"to do: {reason}")
    ago = time.perf_counter() - started
    progress = Progress(store, len(plan.wanted), plan.cached, ago)
    stop = Stop(say, None if options.minutes is None else started + 60.0 * options.minutes)
    ended = "interrupted"
    done = 0

    def keep(outcome: Outcome, cell: Cell) -> None:
        dataset = datasets[cell.dataset]
        known = dataset if isinstance(dataset, Dataset) else None
        load = unpaid.pop(cell.dataset, None) if outcome.timings else None
        if load is not None:
            paid = replace(load, key=outcome.row.key)
            outcome = replace(outcome, timings=added_to((paid,), *outcome.timings))
        outcome = storable(outcome, cell, known)
        try:
            outcome = store.record(outcome, None if known is None else known.encoder)
        except StoreError:
            raise
        except Exception as problem:
            # The disk is fine: something about this cell is not, and no other shall suffer.
            row = blank_row(cell, outcome.row.key, known)
            outcome = failed_outcome(row, FitResult.failed(problem))
            outcome = store.record(outcome, None)
        for watcher in watchers:
            watcher.finished(outcome, store)

    def running_now(cells: Sequence[RunningCell]) -> None:
        # Called every few seconds, also while no cell ends.
        progress.running(cells)
        for watcher in watchers:
            watcher.running(cells)
        store.compact_now_and_then()

    def close() -> None:
        progress.end(ended)
        store.write_manifest({"wall_seconds": round(time.perf_counter() - started, 1)})
        store.compact()

    try:
        for refused in plan.refused:
            dataset = datasets[refused.cell.dataset]
            known = dataset if isinstance(dataset, Dataset) else None
            why = None if isinstance(dataset, Dataset) else dataset.__cause__
            log = "" if why is None else whole_text(why)
            row = failed_row(refused.cell, refused.key, known, Status.ERROR, refused.reason)
            keep(Outcome(row, log=log), refused.cell)
        work = run_jobs(plan.jobs, datasets, store, options, stop, say, running_now)
        with contextlib.closing(work):
            for job, outcome in work:
                keep(outcome, job.cell)
                done += 1
        # Whatever was asked for while the last cell ended: nothing is left.
        ended = "finished" if done == len(plan.jobs) else "interrupted"
    except KeyboardInterrupt:
        ended = "interrupted"
    except BaseException:
        # What stopped the run is told; that the same disk is still full would be told twice.
        with contextlib.suppress(StoreError):
            close()
        raise
    close()
    keys = tuple(key for _, key in plan.wanted if key in store.finished)
    seconds = time.perf_counter() - started
    out_of_time = ended == "interrupted" and stop.out_of_time
    interrupted = ended == "interrupted" and not out_of_time
    return RunSummary(
        store.directory, store.journal, keys, plan.cached, seconds, interrupted, out_of_time
    )


def run_jobs(
    jobs: Sequence[Job],
    datasets: Datasets,
    store: RunStore,
    options: RunOptions,
    stop: Stop,
    say: Say,
    running_now: Callable[[Sequence[RunningCell]], None] = lambda cells: None,
) -> Generator[tuple[Job, Outcome], None, None]:
    """Run jobs as Ray tasks; audits in this process where one CPU is asked for."""
    in_tasks = []
    for job in jobs:
        here = options.cpus == 1 and not options.ray_address and job.environment is None
        if job.procedure is not None and here:
            if stop.asked:
                return
            running_now([RunningCell(job.key, job.cell, "trials")])
            yield job, _in_own_process(job.procedure)
        else:
            in_tasks.append(job)
    if in_tasks:
        with (
            references_folder(store.directory) as folder,
            joined(options, _shipped(options)),
            stop.listening(),
        ):
            told = replace(options, references=str(folder.absolute()))
            work = execute(in_tasks, datasets, store, told, stop, say, running_now)
            with contextlib.closing(work):
                yield from work


def _in_own_process(procedure: Procedure) -> Outcome:
    """Run a procedure to its end; the method in one process, which ends with it."""
    with isolated() as fits:
        run = fits.procedure(procedure.work, wire.packed(procedure.shared))
        return run_here(procedure, lambda work, shared, items: run(items))


def _shipped(options: RunOptions) -> Mapping[str, Any]:
    """The code that workers of a cluster import instead of what is installed there."""
    if not options.ship_code:
        return {}
    from bench.cluster.shipping import runtime_env

    return runtime_env()
