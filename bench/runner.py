"""Runs a grid as Ray tasks. The only module that knows Ray.

The driver loads every dataset once and shares it through the object store, keeps a bounded number
of cells in flight, and is the only one that writes: results are kept as each cell ends. A cell
asks for one CPU, which caps the threads of its libraries, so parallel cells do not fight.

A cell whose method has an environment of its own is two tasks: one fits, started by that
environment's interpreter, and its result goes straight to the other, which scores in ours. The
environment is made ready by a task on every machine at the start; other cells do not wait for it.
"""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

from bench import keys
from bench.cell import Outcome, failed_row, finish_cell, run_cell
from bench.config import RunOptions
from bench.core import registry
from bench.core.dataset import Dataset
from bench.core.environment import Environment
from bench.core.errors import BenchError, EnvironmentUnavailable
from bench.core.result import CellRow, ScoreRow, Status
from bench.environments import Prepared, Say, given_path, prepare
from bench.fit import fit_isolated, for_fitting
from bench.grid import Entry, Grid
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
        store.write_manifest(_manifest(grid, metrics))
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
                for job, outcome in _execute(plan.jobs, datasets, store, say):
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
        cpus = options.cpus or os.cpu_count() or 1
        ray.init(
            address="local",  # not a cluster that somebody else started on this machine
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            # Workers of two environments take turns. Ray would end those that idle for a second
            # while the others use the CPUs, with all that they have imported and computed.
            _system_config={"num_workers_soft_limit": 2 * cpus},
        )
    try:
        yield
    finally:
        ray.shutdown()


def _execute(
    jobs: Sequence[Job], datasets: Datasets, store: RunStore, say: Say
) -> Iterator[tuple[Job, Outcome]]:
    import ray

    tasks = _Tasks(datasets, say)
    waiting: deque[Job] = deque()
    held: dict[Environment, list[Job]] = {}
    for job in jobs:
        environment = job.environment
        if environment is None:
            waiting.append(job)
        else:
            held.setdefault(environment, []).append(job)
            tasks.prepare(environment)
    room = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
    running: dict[Any, Job] = {}
    while waiting or running or held:
        while waiting and len(running) < room:
            job = waiting.popleft()
            if lost := tasks.lost_environment(job):
                yield job, _without(job, datasets[job.cell.dataset], Status.SKIPPED, lost)
                continue
            if job.cell.secure_noise and job.cell.epsilon is not None and job.stored is None:
                store.charge(job.key)
            running[tasks.start(job)] = job
        pending = [*running, *tasks.preparing]
        done, _ = ray.wait(pending, timeout=_WAIT_SECONDS) if pending else ([], [])
        for reference in done:
            if reference in running:
                job = running.pop(reference)
                tasks.ended(reference)
                yield job, _collected(reference, job, datasets[job.cell.dataset])
                continue
            environment = tasks.settle(reference)
            if not tasks.settled(environment):
                continue
            own = held.pop(environment)
            if tasks.places[environment]:
                waiting.extend(own)
                continue
            why = tasks.problems[environment]
            for job in own:
                yield job, _without(job, datasets[job.cell.dataset], Status.SKIPPED, why)


@final
@dataclass(frozen=True)
class _Place:
    """A machine on which an environment is ready."""

    node: str
    python: str


@final
class _Tasks:
    """Starts the tasks of a run, each in the environment and on the machine where it can run."""

    def __init__(self, datasets: Datasets, say: Say) -> None:
        import ray

        self._say = say
        self._datasets = datasets
        # No retries here: Ray retries out-of-memory for ever, and a method's own error is a result.
        once = ray.remote(num_cpus=1, max_retries=0)
        self._run: Any = once(run_cell)
        self._fit: Any = once(fit_isolated)
        self._finish: Any = once(finish_cell)
        self._prepare: Any = once(_prepare_here)
        self._shared = {
            entry: ray.put(dataset)
            for entry, dataset in datasets.items()
            if isinstance(dataset, Dataset)
        }
        self._for_fitting: dict[Entry, Any] = {}
        self._nodes = [
            str(node["NodeID"])
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        ]
        self._own_node = ray.get_runtime_context().get_node_id()
        self._fits: dict[Any, _Place] = {}
        self.preparing: dict[Any, Environment] = {}
        self.places: dict[Environment, list[_Place]] = {}
        self.problems: dict[Environment, str] = {}

    def prepare(self, environment: Environment) -> None:
        """Make an environment ready on every machine; asked a second time, do nothing."""
        if environment in self.places:
            return
        self.places[environment] = []
        self._say(f"environment {environment.name}: making it ready (minutes, the first time)")
        given = given_path(environment)
        # A cluster that grows on demand may have no machine yet: any that comes will do.
        for strategy in [_only_on(node) for node in self._nodes] or ["DEFAULT"]:
            task = self._prepare.options(scheduling_strategy=strategy)
            self.preparing[task.remote(environment, given)] = environment

    def settle(self, reference: Any) -> Environment:
        """Take note of how a preparation ended."""
        import ray

        environment = self.preparing.pop(reference)
        name = environment.name
        try:
            node, prepared = ray.get(reference)
        except ray.exceptions.RayError as problem:
            lost = EnvironmentUnavailable(name, f"built: a worker was lost: {_first_line(problem)}")
            node, prepared = "", Prepared("a lost machine", "", str(lost))
        where = f" on {prepared.machine}" if len(self._nodes) > 1 else ""
        if prepared.problem:
            self.problems[environment] = prepared.problem
            self._say(f"{prepared.problem}{where}")
        else:
            self.places[environment].append(_Place(node, prepared.python))
            built = f", {prepared.built}" if prepared.built else ""
            self._say(f"environment {name}: ready{where}{built}")
        return environment

    def settled(self, environment: Environment) -> bool:
        """True when an environment is ready, or has failed, on every machine."""
        return environment not in self.preparing.values()

    def lost_environment(self, job: Job) -> str:
        """Why a job cannot be started: Ray waits for ever for an interpreter that is not there."""
        environment = job.environment
        if environment is None:
            return ""
        place = self._place(environment)
        if place.node != self._own_node or Path(place.python).exists():
            return ""
        return str(EnvironmentUnavailable(environment.name, "used: it was removed during the run"))

    def start(self, job: Job) -> Any:
        """Start a job; the reference is that of its outcome."""
        entry, environment = job.cell.dataset, job.environment
        if environment is None:
            return self._run.remote(
                job.cell, job.key, self._shared[entry], job.metrics, job.stored, _THREADS
            )
        place = self._place(environment)
        # Only where the environment is: machines that joined later do not have it.
        task = self._fit.options(
            runtime_env={"py_executable": place.python}, scheduling_strategy=_only_on(place.node)
        )
        fitted = task.remote(job.cell, job.key, self._fitting_data(entry))
        # Ray starts it when the fit has ended; nobody waits here.
        reference = self._finish.remote(
            job.cell, job.key, self._shared[entry], job.metrics, fitted, _THREADS
        )
        self._fits[reference] = place
        return reference

    def ended(self, reference: Any) -> None:
        """Free the place of a job that has ended."""
        self._fits.pop(reference, None)

    def _place(self, environment: Environment) -> _Place:
        busy = Counter(self._fits.values())
        return min(self.places[environment], key=lambda place: busy[place])

    def _fitting_data(self, entry: Entry) -> Any:
        import ray

        if entry not in self._for_fitting:
            dataset = self._datasets[entry]
            assert isinstance(dataset, Dataset)
            self._for_fitting[entry] = ray.put(for_fitting(dataset))
        return self._for_fitting[entry]


def _prepare_here(environment: Environment, given: str) -> tuple[str, Prepared]:
    """A task: the environment on the machine that runs it, and which machine that is."""
    import ray

    return ray.get_runtime_context().get_node_id(), prepare(environment, given)


def _only_on(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _without(job: Job, dataset: Dataset | BenchError, status: Status, reason: str) -> Outcome:
    known = dataset if isinstance(dataset, Dataset) else None
    return Outcome(failed_row(job.cell, job.key, known, status, reason))


def _collected(reference: Any, job: Job, dataset: Dataset | BenchError) -> Outcome:
    import ray

    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.OutOfMemoryError as problem:
        status, reason = Status.OUT_OF_MEMORY, _first_line(problem)
    except ray.exceptions.RayError as problem:
        status, reason = Status.ERROR, f"the worker was lost: {_first_line(problem)}"
    else:
        return outcome
    return _without(job, dataset, status, reason)


def _first_line(problem: BaseException) -> str:
    # The loss of a fit reaches us through the task that waited for it.
    problem = getattr(problem, "cause", None) or problem
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
