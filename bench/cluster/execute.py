"""The loop of a run: a bounded number of cells in flight; lost ones are started again."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from types import FrameType
from typing import Any, final

from bench.cluster.ray_cluster import first_line
from bench.cluster.tasks import Started, Tasks
from bench.cluster.watcher import Death, Watchers
from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.cell import blank_row, failed_outcome, not_remade
from bench.engine.fit import FitResult
from bench.engine.options import RunOptions
from bench.engine.plan import Datasets, Job, stored_outcome
from bench.engine.procedure import Batch, Pace, added
from bench.environments.overlays import Say
from bench.errors import BenchError, ClusterLostError
from bench.plugins.method import Environment
from bench.results.records import Outcome, Status
from bench.results.run_directory import RunningCell, RunStore

_WAIT_SECONDS = 2.0
_ATTEMPTS = 4
"""Starts of a cell whose worker or machine was lost; errors of a method are not tried again."""

_STATUS = {"timeout": Status.TIMEOUT, "memory": Status.OUT_OF_MEMORY}


@final
class Stop:
    """Ctrl-C once: no new cells, those that run are finished. Twice: now.

    The end of the time that a run was given is like Ctrl-C once.
    """

    def __init__(self, say: Say, end: float | None = None) -> None:
        """`end` is when the time is over, by `time.perf_counter`."""
        self._say = say
        self._end = end
        self._interrupted = False
        self.out_of_time = False

    @property
    def asked(self) -> bool:
        """True once no new cells are to be started."""
        if self._interrupted or self.out_of_time:
            return True
        if self._end is not None and perf_counter() >= self._end:
            self.out_of_time = True
            self._say("the time is over: cells that run are finished, no other is started")
        return self.out_of_time

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals of this process for the time of a run."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self._heard) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heard(self, number: int, _: FrameType | None) -> None:
        if self._interrupted or self.out_of_time or number == signal.SIGTERM:
            raise KeyboardInterrupt
        self._interrupted = True
        self._say("stopping: cells that run are finished first; Ctrl-C again stops them now")


def execute(
    jobs: Sequence[Job],
    datasets: Datasets,
    store: RunStore,
    options: RunOptions,
    stop: Stop,
    say: Say,
    running_now: Callable[[Sequence[RunningCell]], None] = lambda cells: None,
) -> Generator[tuple[Job, Outcome], None, None]:
    """Run the jobs; yield each with its outcome as it ends."""
    loop = _Loop(datasets, store, options, stop, say, running_now)
    try:
        yield from loop.run(jobs)
    finally:
        loop.close()


@final
class _Loop:
    def __init__(
        self,
        datasets: Datasets,
        store: RunStore,
        options: RunOptions,
        stop: Stop,
        say: Say,
        running_now: Callable[[Sequence[RunningCell]], None],
    ) -> None:
        self._datasets = datasets
        self._store = store
        self._stop = stop
        self._say = say
        self._running_now = running_now
        self._watchers = Watchers(say)
        self._tasks = Tasks(datasets, options, self._watchers.run, say)
        self._room = _room()
        self._looked = time.monotonic()
        self._waiting: deque[tuple[Job, int]] = deque()
        self._procedures: dict[str, tuple[Job, Pace]] = {}
        """Procedures that have begun and not ended, by the keys of their cells."""
        self._lost: deque[Started] = deque()
        """Parts of batches whose workers were lost."""
        self._batches = 0
        self._held: dict[Environment, list[Job]] = {}
        self._running: dict[Any, Started] = {}

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome]]:
        import ray

        for job in jobs:
            if job.environment is None:
                self._waiting.append((job, 1))
            else:
                self._held.setdefault(job.environment, []).append(job)
                self._tasks.prepare(job.environment)
        while self._waiting or self._procedures or self._running or self._held:
            if self._stop.asked:
                for left in (self._waiting, self._procedures, self._held, self._lost):
                    left.clear()
                if not self._running:
                    return
            yield from self._fill()
            self._running_now(self._now())
            pending = [*self._running, *self._tasks.preparing]
            try:
                done, _ = ray.wait(pending, timeout=_WAIT_SECONDS) if pending else ([], [])
                self._look_around()
            except ray.exceptions.RaySystemError as problem:
                raise ClusterLostError(first_line(problem)) from None
            for reference in done:
                if reference in self._running:
                    yield from self._collect(reference)
                else:
                    yield from self._settle(reference)

    def _now(self) -> Sequence[RunningCell]:
        """Return the cells that are computed; a procedure with several tasks is one of them."""
        cells: dict[str, RunningCell] = {}
        for one in self._begun():
            if one.job.key not in cells or not cells[one.job.key].phase:
                phase = self._watchers.phase(*one.tickets)
                cells[one.job.key] = RunningCell(one.job.key, one.job.cell, phase)
        return [*cells.values()]

    def _begun(self) -> Iterator[Started]:
        """Return tasks that have a CPU: Ray starts them in their order, the others wait for one."""
        free = self._room // 2
        for one in self._running.values():
            free -= one.job.kind.resources.cpus
            yield one
            if free <= 0:
                return

    def _look_around(self) -> None:
        """Notice machines that have joined or left."""
        if time.monotonic() - self._looked >= _WAIT_SECONDS:
            self._watchers.refresh()
            self._room = _room()
            self._looked = time.monotonic()

    def _fill(self) -> Iterator[tuple[Job, Outcome]]:
        while self._waiting and len(self._running) < self._room:
            job, attempt = self._waiting.popleft()
            if job.procedure is not None:
                self._procedures[job.key] = (job, Pace())
                yield from self._advanced(job)
                continue
            if lost := self._tasks.lost_environment(job):
                yield job, self._without(job, FitResult(Status.SKIPPED, reason=lost))
                continue
            dataset = self._datasets[job.cell.dataset]
            stored = None
            if job.scoring and isinstance(dataset, Dataset):
                stored = stored_outcome(job, self._store, dataset)
                if stored is None:
                    why = "its stored release was damaged or removed during the run; run again"
                    yield job, self._without(job, FitResult(Status.ERROR, reason=why))
                    continue
            if job.charges and isinstance(dataset, Dataset):
                self._store.charge(job.key, keys.charge_identity(job.cell, dataset.fingerprint))
            reference, started = self._tasks.start(job, attempt, stored)
            self._running[reference] = started
        while len(self._running) < self._room and (piece := self._next_batch()) is not None:
            job, attempt, items = piece
            if lost := self._tasks.lost_environment(job):
                skipped = FitResult(Status.SKIPPED, reason=lost)
                yield from self._end(job, self._without(job, skipped))
                continue
            self._batches += 1
            reference, started = self._tasks.start_batch(job, attempt, items, self._batches)
            self._running[reference] = started

    def _next_batch(self) -> tuple[Job, int, tuple[Any, ...]] | None:
        """Return items of a procedure, those of the first one that has some."""
        while self._lost:
            lost = self._lost.popleft()
            if lost.job.key in self._procedures:
                return lost.job, lost.attempt, lost.items
        for job, pace in self._procedures.values():
            assert job.procedure is not None
            if job.procedure.waiting:
                workers = max(1, self._room // (2 * job.kind.resources.cpus))
                items = job.procedure.take(pace.size(job.procedure.waiting, workers))
                return job, 1, tuple(items)
        return None

    def _advanced(self, job: Job) -> Iterator[tuple[Job, Outcome]]:
        """End a procedure that has its outcome."""
        assert job.procedure is not None
        outcome = job.procedure.outcome
        if outcome is not None:
            yield from self._end(job, outcome)

    def _end(self, job: Job, outcome: Outcome) -> Iterator[tuple[Job, Outcome]]:
        """End a job, a procedure once: other batches of one that has failed are ignored."""
        if job.procedure is None or self._procedures.pop(job.key, None) is not None:
            self._tasks.forget(job)
            yield job, outcome

    def _take(self, job: Job, batch: Batch | FitResult) -> Iterator[tuple[Job, Outcome]]:
        assert job.procedure is not None
        if job.key not in self._procedures and not self._stop.asked:
            return
        if isinstance(batch, FitResult):
            yield from self._end(job, self._without(job, batch))
            return
        if (problem := added(job.procedure, batch)) is not None:
            yield from self._end(job, self._without(job, problem))
            return
        if job.key in self._procedures:
            self._procedures[job.key][1].learn(batch)
            yield from self._advanced(job)

    def _collect(self, reference: Any) -> Iterator[tuple[Job, Outcome]]:
        import ray

        started = self._running.pop(reference)
        job = started.job
        self._tasks.ended(started)
        try:
            result = ray.get(reference)
        except ray.exceptions.RayError as problem:
            lost = problem
        except Exception as problem:
            # It came back, but cannot be read here.
            yield from self._end(job, self._without(job, FitResult.failed(problem)))
            return
        else:
            if isinstance(result, Outcome):
                yield job, result
            else:
                yield from self._take(job, result)
            return
        death = self._watchers.why(*started.tickets)
        if isinstance(lost, ray.exceptions.OutOfMemoryError):
            reason = f"the machine ran out of memory: {first_line(lost)}"
            failed = FitResult(Status.OUT_OF_MEMORY, reason=reason, log=_log(death))
            yield from self._end(job, self._without(job, failed))
        elif death is not None and death.cause != "lost":
            status = _STATUS.get(death.cause, Status.ERROR)
            failed = FitResult(status, reason=death.reason, log=death.log)
            yield from self._end(job, self._without(job, failed))
        elif raised(lost):
            # The worker lives: its task raised, or gave what cannot be sent. So it would again.
            kind = type(getattr(lost, "cause", None) or lost).__name__
            reason = f"its result could not leave the worker ({kind})"
            failed = FitResult(Status.ERROR, reason=reason, log=str(lost))
            yield from self._end(job, self._without(job, failed))
        elif job.charges:
            reason = "its worker was lost; the budget of its secure noise is spent"
            failed = FitResult(Status.ERROR, reason=f"{reason}: {_short(lost)}", log=str(lost))
            yield job, self._without(job, failed)
        elif started.attempt < _ATTEMPTS and not self._stop.asked:
            self._say(f"{job.cell.describe()}: its worker was lost ({_short(lost)}), started again")
            self._again(started)
        elif not self._stop.asked:
            reason = f"its worker was lost {started.attempt} times: {first_line(lost)}"
            failed = FitResult(Status.ERROR, reason=reason, log=_log(death))
            yield from self._end(job, self._without(job, failed))

    def _again(self, started: Started) -> None:
        again = replace(started, attempt=started.attempt + 1)
        if not started.items:
            self._waiting.appendleft((again.job, again.attempt))
            return
        # Smaller: it may have been too much for the memory.
        half = (len(started.items) + 1) // 2
        parts = (started.items[:half], started.items[half:])
        self._lost.extend(replace(again, items=part) for part in parts if part)

    def _settle(self, reference: Any) -> Iterator[tuple[Job, Outcome]]:
        environment = self._tasks.settle(reference)
        if not self._tasks.settled(environment):
            return
        jobs = self._held.pop(environment, [])
        if self._tasks.places[environment]:
            self._waiting.extend((job, 1) for job in jobs)
            return
        why = self._tasks.problems[environment]
        for job in jobs:
            yield job, self._without(job, FitResult(Status.SKIPPED, reason=why))

    def _without(self, job: Job, fitted: FitResult) -> Outcome:
        if job.procedure is not None:
            return job.procedure.failed(fitted)
        if job.remake:
            return not_remade(self._store.journal.outcome(job.key), fitted)
        dataset = self._datasets[job.cell.dataset]
        known = None if isinstance(dataset, BenchError) else dataset
        return failed_outcome(blank_row(job.cell, job.key, known), fitted)

    def close(self) -> None:
        """Let go. What still runs ends with our connection to Ray.

        Nothing is cancelled by `ray.cancel`: in Ray 2.60 a cancelled task that ends at the same
        moment ends the driver (task_manager.cc, "tried to complete task that was not pending").
        """
        try:
            self._running_now([])
        finally:
            self._watchers.close()


def _room() -> int:
    """Twice as many cells in flight as there are CPUs: no worker waits for the driver."""
    import ray

    return max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))


def _short(problem: BaseException) -> str:
    return type(problem).__name__


def raised(problem: BaseException) -> bool:
    """Return True for an exception of the task itself; False where its process was lost.

    The loss of a fit reaches us as the exception of the task that waited for it.
    """
    import ray

    if not isinstance(problem, ray.exceptions.RayTaskError):
        return False
    cause = getattr(problem, "cause", None)
    # What cannot be sent is replaced by a plain RayError; a loss has a type of its own.
    return not isinstance(cause, ray.exceptions.RayError) or type(cause) is ray.exceptions.RayError


def _log(death: Death | None) -> str:
    return "" if death is None else death.log
