"""Starts the tasks of a run, each in the environment and on the machine where it can run."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, final

from bench.cluster.ray_cluster import first_line, nodes, only_on
from bench.cluster.watcher import Ticket
from bench.data.dataset import Dataset
from bench.engine import phases
from bench.engine.cell import Remake, finish_cell, run_cell
from bench.engine.fit import FitResult, Fits, MethodFacts, for_fitting
from bench.engine.isolation import wire
from bench.engine.isolation.processes import (
    IsolatedFits,
    fit_server,
    isolated,
    running_server,
)
from bench.engine.isolation.server import Setting
from bench.engine.limits import Limits, cap_threads, captured, let_children_end, tail
from bench.engine.options import RunOptions
from bench.engine.plan import Datasets, Job
from bench.engine.procedure import Batch, Work
from bench.engine.references import shared_references
from bench.environments.overlays import PreparedEnvironment, Say, given_path, prepare
from bench.errors import BenchError, EnvironmentUnavailable
from bench.plugins import registry
from bench.plugins.method import Environment, Resources
from bench.results.records import Cell, Outcome, Status, Variant

T = TypeVar("T")

_LOG_LINES = 40


@final
@dataclass(frozen=True)
class ReadyMachine:
    """A machine on which an environment is ready."""

    node: str
    python: str


@final
@dataclass(frozen=True)
class Started:
    """One attempt at a job."""

    job: Job
    attempt: int
    tickets: tuple[str, ...]
    place: ReadyMachine | None = None
    items: tuple[Any, ...] = ()
    """Items of a procedure that this task does."""


@final
class Tasks:
    """Shares the datasets once, and turns jobs into Ray tasks."""

    def __init__(self, datasets: Datasets, options: RunOptions, run: str, say: Say) -> None:
        import ray

        self._say = say
        self._run = run
        self._options = options
        self._datasets = datasets
        # No retries by Ray: it retries out-of-memory for ever, and a method's own error is a
        # result. Lost workers are started again by the loop, which counts.
        self._task: dict[Any, Any] = {
            step: ray.remote(max_retries=0)(step)
            for step in (run_step, fit_step, finish_step, batch_step, prepare_step)
        }
        self._shared: dict[Variant, Any] = {}
        self._for_fitting: dict[Variant, Any] = {}
        self._procedures: dict[str, Any] = {}
        self._own_node = ray.get_runtime_context().get_node_id()
        self._fits: Counter[ReadyMachine] = Counter()
        self._gpus = ray.cluster_resources().get("GPU", 0.0) > 0
        self._most_cpus = max(
            (int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]),
            default=1,
        )
        self.preparing: dict[Any, Environment] = {}
        self.places: dict[Environment, list[ReadyMachine]] = {}
        self.problems: dict[Environment, str] = {}

    # Environments ---------------------------------------------------------------------------------

    def prepare(self, environment: Environment) -> None:
        """Make an environment ready on every machine; asked a second time, do nothing."""
        if environment in self.places:
            return
        self.places[environment] = []
        self._say(f"environment {environment.name}: making it ready (minutes, the first time)")
        given = given_path(environment)
        # A cluster that grows on demand may have no machine yet: any that comes will do.
        for strategy in [only_on(node) for node in nodes()] or ["DEFAULT"]:
            task = self._task[prepare_step].options(num_cpus=1, scheduling_strategy=strategy)
            self.preparing[task.remote(environment, given)] = environment

    def settle(self, reference: Any) -> Environment:
        """Take note of how a preparation ended."""
        import ray

        environment = self.preparing.pop(reference)
        name = environment.name
        try:
            node, prepared = ray.get(reference)
        except ray.exceptions.RayError as problem:
            lost = EnvironmentUnavailable(name, f"built: a worker was lost: {first_line(problem)}")
            node, prepared = "", PreparedEnvironment("a lost machine", "", str(lost))
        where = f" on {prepared.machine}" if len(nodes()) > 1 else ""
        if prepared.problem:
            self.problems[environment] = prepared.problem
            self._say(f"{prepared.problem}{where}")
        else:
            self.places[environment].append(ReadyMachine(node, prepared.python))
            built = f", {prepared.built}" if prepared.built else ""
            self._say(f"environment {name}: ready{where}{built}")
        return environment

    def settled(self, environment: Environment) -> bool:
        """Return True when an environment is ready, or has failed, on every machine."""
        return environment not in self.preparing.values()

    def lost_environment(self, job: Job) -> str:
        """Return why a job cannot be started: Ray waits for a missing interpreter for ever."""
        environment = job.environment
        if environment is None:
            return ""
        alive = set(nodes())
        self.places[environment] = [p for p in self.places[environment] if p.node in alive]
        if not self.places[environment]:
            return str(
                EnvironmentUnavailable(environment.name, "used: the machines that had it are gone")
            )
        place = self._place(environment)
        if place.node != self._own_node or Path(place.python).exists():
            return ""
        return str(EnvironmentUnavailable(environment.name, "used: it was removed during the run"))

    def _place(self, environment: Environment) -> ReadyMachine:
        return min(self.places[environment], key=lambda place: self._fits[place])

    # Cells ----------------------------------------------------------------------------------------

    def start(self, job: Job, attempt: int, stored: Outcome | Remake | None) -> tuple[Any, Started]:
        """Start a job; the reference is that of its outcome."""
        entry, environment = job.cell.dataset, job.environment
        needs = self._needs(job)
        step = f"{job.key}.{attempt}"
        if environment is None:
            ticket = self._ticket(job, f"{step}.run", needs)
            reference = (
                self._task[run_step]
                .options(**self._asked(needs))
                .remote(ticket, self._told(job), self._data(entry), job.metrics, stored)
            )
            return reference, Started(job, attempt, (ticket.name,))
        place = self._place(environment)
        ticket = self._ticket(job, f"{step}.fit", needs)
        fitted = (
            self._task[fit_step]
            .options(**self._only_at(place), **self._asked(needs))
            .remote(ticket, self._told(job), self._fitting_data(entry))
        )
        remake = stored if isinstance(stored, Remake) else None
        # Ray starts it when the fit has ended; nobody waits here.
        scoring = self._ticket(job, f"{step}.finish", Resources())
        reference = (
            self._task[finish_step]
            .options(num_cpus=1)
            .remote(scoring, self._told(job), self._data(entry), job.metrics, fitted, remake)
        )
        self._fits[place] += 1
        return reference, Started(job, attempt, (ticket.name, scoring.name), place)

    def start_batch(
        self, job: Job, attempt: int, items: tuple[Any, ...], number: int
    ) -> tuple[Any, Started]:
        """Start some items of a procedure; the reference is that of their results."""
        import ray

        procedure, environment, needs = job.procedure, job.environment, self._needs(job)
        assert procedure is not None
        if job.key not in self._procedures:
            # As bytes: to read it is to import the method, which no worker does itself.
            self._procedures[job.key] = ray.put(wire.packed(procedure.shared))
        ticket = self._ticket(job, f"{job.key}.{number}.{attempt}.batch", needs)
        # The limit is that of one fit.
        limits = replace(ticket.limits, seconds=ticket.limits.seconds * len(items))
        ticket = replace(ticket, limits=limits)
        place = None if environment is None else self._place(environment)
        where = {} if place is None else self._only_at(place)
        reference = (
            self._task[batch_step]
            .options(**where, **self._asked(needs))
            .remote(ticket, procedure.work, self._procedures[job.key], items)
        )
        if place is not None:
            self._fits[place] += 1
        return reference, Started(job, attempt, (ticket.name,), place, items)

    def forget(self, job: Job) -> None:
        """Let go of what the tasks of a procedure shared."""
        self._procedures.pop(job.key, None)

    def _only_at(self, place: ReadyMachine) -> Mapping[str, Any]:
        """Only where the environment is: machines that joined later do not have it."""
        return {
            "runtime_env": {"py_executable": place.python},
            "scheduling_strategy": only_on(place.node),
        }

    def ended(self, started: Started) -> None:
        """Free the place of a job that has ended."""
        if started.place is not None:
            self._fits[started.place] -= 1

    def _needs(self, job: Job) -> Resources:
        return job.kind.resources if job.fits else Resources()

    def _asked(self, needs: Resources) -> Mapping[str, Any]:
        """What Ray is asked for. More CPUs than any machine has would wait for ever."""
        asked: dict[str, Any] = {"num_cpus": min(needs.cpus, self._most_cpus)}
        if needs.gpus and self._gpus:
            asked["num_gpus"] = needs.gpus
        if needs.memory_mb is not None and self._options.ray_address:
            asked["memory"] = needs.memory_mb * 2**20
        return asked

    def _ticket(self, job: Job, name: str, needs: Resources) -> Ticket:
        dataset = self._datasets[job.cell.dataset]
        assert isinstance(dataset, Dataset)
        limits = Limits.of(needs, dataset, self._options.limits)
        threads = min(needs.cpus, self._most_cpus)
        return Ticket(name, self._run, limits, threads, self._options.references)

    def _told(self, job: Job) -> Told:
        number = [*self._datasets].index(job.cell.dataset)
        return Told(job.cell, job.key, MethodFacts.of(job.kind), f"{self._run}/{number}")

    def _data(self, entry: Variant) -> Any:
        import ray

        if entry not in self._shared:
            self._shared[entry] = ray.put(self._datasets[entry])
        return self._shared[entry]

    def _fitting_data(self, entry: Variant) -> Any:
        import ray

        if entry not in self._for_fitting:
            dataset = self._datasets[entry]
            assert isinstance(dataset, Dataset)
            self._for_fitting[entry] = ray.put(for_fitting(dataset))
        return self._for_fitting[entry]


# What runs inside a worker: a step of a cell, watched and with its output kept -------------------


@final
@dataclass(frozen=True)
class Told:
    """What a worker is told about a cell; it does not import the method to find it out."""

    cell: Cell
    key: str
    facts: MethodFacts
    data: str
    """A name of its data, the same for all cells of the dataset in this run."""


def run_step(
    ticket: Ticket,
    told: Told,
    dataset: Dataset,
    metrics: Sequence[str],
    stored: Outcome | Remake | None,
) -> Outcome:
    """Fit and score a cell; the fit in a process of its own."""
    remake = stored if isinstance(stored, Remake) else None

    def broken(fitted: FitResult) -> Outcome:
        return finish_cell(
            told.cell,
            told.key,
            dataset,
            metrics,
            fitted,
            ticket.threads,
            facts=told.facts,
            remake=remake,
        )

    def work(fits: Fits | None) -> Outcome:
        return run_cell(
            told.cell, told.key, dataset, metrics, stored, ticket.threads, fits, told.facts
        )

    # The scores of a stored release need no fit, unless a metric fits again.
    fitting = not isinstance(stored, Outcome) or any(map(registry.refits, metrics))
    return _without_model(_watched(ticket, work, broken, told.data if fitting else None))


def fit_step(ticket: Ticket, told: Told, dataset: Dataset) -> FitResult:
    """Fit a cell in the method's own environment, in a process of its own."""

    def work(fits: Fits | None) -> FitResult:
        assert fits is not None
        phases.enter("fit")
        return fits.fit(told.cell, dataset)

    return _watched(ticket, work, lambda fitted: fitted, told.data, own_environment=True)


def finish_step(
    ticket: Ticket,
    told: Told,
    dataset: Dataset,
    metrics: Sequence[str],
    fitted: FitResult,
    remake: Remake | None = None,
) -> Outcome:
    """Prove, judge and score a cell that was fitted elsewhere."""

    def finish(what: FitResult) -> Outcome:
        return finish_cell(
            told.cell,
            told.key,
            dataset,
            metrics,
            what,
            ticket.threads,
            facts=told.facts,
            remake=remake,
        )

    return _without_model(_watched(ticket, lambda fits: finish(fitted), finish, None))


def batch_step(
    ticket: Ticket, work: Work, shared: bytes, items: Sequence[Any]
) -> Batch | FitResult:
    """Do some items of a procedure, all of them in one process of its own."""

    def run(fits: IsolatedFits | None) -> Batch | FitResult:
        assert fits is not None
        phases.enter("trials", f"{len(items)} at once")
        return fits.procedure(work, shared)(items)

    return _watched(ticket, run, lambda fitted: fitted, "")


def prepare_step(environment: Environment, given: str) -> tuple[str, PreparedEnvironment]:
    """Prepare an environment; return the machine that runs this, and what came of it."""
    import ray

    return ray.get_runtime_context().get_node_id(), prepare(environment, given)


def _watched(
    ticket: Ticket,
    work: Callable[[IsolatedFits | None], T],
    broken: Callable[[FitResult], T],
    data: str | None,
    *,
    own_environment: bool = False,
) -> T:
    """Do the work of a step under its limits; with `data` (a name, or empty) it can fit."""
    let_children_end()
    try:
        # Before the cell is shown: what is there then does not end with it. A cell that fits
        # nothing has a server, too, if one before it in this worker had.
        server = running_server() if data is None else fit_server()
        servers = [] if server is None else [server.process.pid]
    except BenchError as problem:
        return broken(FitResult.failed(problem))
    with ticket.shown(servers) as folder:
        limits = ticket.limits
        with contextlib.ExitStack() as stack:
            stack.enter_context(phases.showing(folder))
            stack.enter_context(captured(folder, limits.disk_mb))
            cap_threads(ticket.threads)
            stack.enter_context(shared_references(ticket.references))
            fits = None
            if data is not None:
                setting = Setting(str(folder), limits.disk_mb, ticket.threads)
                fits = stack.enter_context(isolated(setting, data, own_environment=own_environment))
            try:
                result = work(fits)
            except KeyboardInterrupt as problem:
                # The user's Ctrl-C reaches the driver. Here a plugin has raised it, and Ray would
                # take it for a task that was cancelled.
                result = broken(FitResult.failed(problem))
        return _with_output(result, tail(folder))


def _with_output(result: T, output: str) -> T:
    """A failed cell keeps the last lines of what it printed, before its traceback."""
    lines: list[str] = output.strip().splitlines()[-_LOG_LINES:]
    if not lines:
        return result
    good = (Status.OK, Status.SKIPPED)
    if isinstance(result, FitResult) and result.status not in good:
        return replace(result, log="\n".join([*lines, result.log]))
    if isinstance(result, Outcome) and result.row.status not in good:
        return replace(result, log="\n".join([*lines, result.log]))
    return result


def _without_model(outcome: Outcome) -> Outcome:
    """A model is scored where it was made: it is not stored, and need not survive being sent."""
    if outcome.release is None or outcome.release.model is None:
        return outcome
    return replace(outcome, release=replace(outcome.release, model=None))
