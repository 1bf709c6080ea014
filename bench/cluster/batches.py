"""Many small items of work in batches: Ray tasks, or this process where one CPU is asked for.

A refit of a fast method takes milliseconds, a task costs more: a task gets as many items as take
some seconds, judged by earlier items.
"""

from __future__ import annotations

import contextlib
import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

from bench.cluster.ray_cluster import first_line, joined
from bench.engine.fit import in_words
from bench.engine.options import RunOptions
from bench.environments.overlays import Say, given_path, prepare
from bench.errors import BenchError, ClusterLostError, NotApplicable
from bench.plugins.method import Environment

Item = TypeVar("Item")
Result = TypeVar("Result")

_BATCH_SECONDS = 4.0
_BATCH_AT_MOST = 500
_ATTEMPTS = 3
_WAIT_SECONDS = 2.0
_LOG_LINES = 15


@final
@dataclass(frozen=True)
class Done(Generic[Result]):
    """Results of a batch, or the reason why there are none."""

    results: list[Result]
    seconds: float
    problem: str = ""
    skipped: bool = False
    """True where the method does not fit the task, which is no failure."""
    log: str = ""


def _batch(
    work: Callable[[Any, Sequence[Any]], list[Any]], shared: Any, items: Sequence[Any]
) -> Done[Any]:
    started = time.perf_counter()
    try:
        results = work(shared, items)
    except NotApplicable as reason:
        return Done([], 0.0, str(reason), skipped=True)
    except Exception as problem:
        log = "\n".join(traceback.format_exc().splitlines()[-_LOG_LINES:])
        return Done([], 0.0, in_words(problem), log=log)
    return Done(results, time.perf_counter() - started)


@final
class BatchError(BenchError):
    """The method failed in a batch."""

    def __init__(self, done: Done[Any]) -> None:
        super().__init__(done.problem)
        self.skipped = done.skipped
        self.log = done.log


@final
class Crew:
    """Runs batches, for the time that it is open; Ray starts with the first one."""

    def __init__(self, options: RunOptions, say: Say = lambda text: None) -> None:
        self._options = options
        self._say = say
        self._stack = contextlib.ExitStack()
        self._joined = False
        self._pace: tuple[Any, float] | None = None
        """What was worked on last, and seconds per item."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self,
        work: Callable[[Any, Sequence[Item]], list[Result]],
        shared: Any,
        items: Sequence[Item],
        *,
        cpus: int = 1,
        environment: Environment | None = None,
    ) -> Generator[list[Result], None, None]:
        """Yield results of the items, batch by batch as they end.

        Raises `BatchError` where the work itself fails; lost workers are started again.
        """
        if self._options.cpus == 1 and not self._options.ray_address and environment is None:
            batches = self._here(work, shared, items)
        else:
            batches = self._in_tasks(work, shared, items, cpus, environment)
        for done in batches:
            if done.problem:
                raise BatchError(done)
            yield done.results

    def _size(self, shared: Any, left: int, workers: int) -> int:
        if self._pace is None or self._pace[0] is not shared:
            return 1
        fitting = _BATCH_SECONDS / max(self._pace[1], 1e-6)
        return max(1, min(int(fitting), _BATCH_AT_MOST, math.ceil(left / workers)))

    def _learn(self, shared: Any, done: Done[Any]) -> None:
        if done.results:
            # The first item of a process imports and calibrates: the fastest is typical.
            seconds = done.seconds / len(done.results)
            if self._pace is not None and self._pace[0] is shared:
                seconds = min(seconds, self._pace[1])
            self._pace = (shared, seconds)

    def _here(
        self, work: Callable[[Any, Sequence[Any]], list[Any]], shared: Any, items: Sequence[Any]
    ) -> Iterator[Done[Any]]:
        at = 0
        while at < len(items):
            size = self._size(shared, len(items) - at, 1)
            done = _batch(work, shared, items[at : at + size])
            self._learn(shared, done)
            at += size
            yield done

    def _in_tasks(
        self,
        work: Callable[[Any, Sequence[Any]], list[Any]],
        shared: Any,
        items: Sequence[Any],
        cpus: int,
        environment: Environment | None,
    ) -> Generator[Done[Any], None, None]:
        if not items:
            return
        if not self._joined:
            self._stack.enter_context(joined(self._options))
            self._joined = True
        import ray

        try:
            all_cpus = int(ray.cluster_resources().get("CPU", 1))
            cpus = min(cpus, all_cpus)
            workers = max(1, all_cpus // cpus)
            task = ray.remote(max_retries=0)(_batch).options(
                num_cpus=cpus, **self._place(environment)
            )
            placed = ray.put(shared)
            waiting: deque[tuple[Sequence[Any], int]] = deque()
            running: dict[Any, tuple[Sequence[Any], int]] = {}
            at = 0
            while at < len(items) or waiting or running:
                while len(running) < workers + 1 and (waiting or at < len(items)):
                    if waiting:
                        chunk, attempt = waiting.popleft()
                    else:
                        size = self._size(shared, len(items) - at, workers)
                        chunk, attempt = items[at : at + size], 1
                        at += size
                    running[task.remote(work, placed, chunk)] = (chunk, attempt)
                ready, _ = ray.wait([*running], timeout=_WAIT_SECONDS)
                for reference in ready:
                    chunk, attempt = running.pop(reference)
                    try:
                        done: Done[Any] = ray.get(reference)
                    except ray.exceptions.RayError as problem:
                        if attempt >= _ATTEMPTS:
                            why = f"its worker was lost {attempt} times: {first_line(problem)}"
                            done = Done([], 0.0, why)
                        else:
                            self._say(f"a worker was lost ({first_line(problem)}), started again")
                            # Smaller: it may have been too much for the memory.
                            half = max(1, len(chunk) // 2)
                            pieces = (chunk[:half], chunk[half:])
                            waiting.extend((piece, attempt + 1) for piece in pieces if piece)
                            continue
                    self._learn(shared, done)
                    yield done
        except ray.exceptions.RaySystemError as problem:
            raise ClusterLostError(first_line(problem)) from None

    def _place(self, environment: Environment | None) -> dict[str, Any]:
        """Prepare the interpreter of a method's own environment."""
        if environment is None:
            return {}
        self._say(f"environment {environment.name}: making it ready (minutes, the first time)")
        ready = prepare(environment, given_path(environment))
        if ready.problem:
            raise BatchError(Done([], 0.0, ready.problem, skipped=True))
        return {"runtime_env": {"py_executable": ready.python}}
