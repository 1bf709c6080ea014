"""Cells of many small items of work, some of which depend on the results of others: audits.

A refit of a fast method takes milliseconds, a task costs more: a task gets as many items as take
some seconds, judged by earlier items.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

from bench.engine.fit import FitResult, guarded
from bench.plugins.method import Method
from bench.results.records import Outcome

Work = Callable[[Any, Sequence[Any]], list[Any]]
"""Computes results of some items; a function of a module, since workers find it by its name.

Results are plain values (`bench.engine.isolation.wire`): they come from a process in which a method
has run.
"""

RunBatch = Callable[[Work, Any, Sequence[Any]], "Batch | FitResult"]
"""Does some items, in this process or in another one."""

_BATCH_SECONDS = 4.0
_BATCH_AT_MOST = 500


class Procedure(Protocol):
    """How a cell of many items is computed. It is driven by one process, which alone stores."""

    @property
    def kind(self) -> type[Method]:
        """Class of the method: its environment and its resources."""

    @property
    def work(self) -> Work:
        """What is done with the items."""

    @property
    def shared(self) -> Any:
        """First argument of the work, the same for all items: it is sent to workers once."""

    @property
    def waiting(self) -> int:
        """Number of items that can be done now and were not taken."""

    def take(self, count: int) -> Sequence[Any]:
        """Return the next items; whoever takes them does them, again where they were lost."""

    def add(self, results: Sequence[Any]) -> None:
        """Check and store results of items; more items may be waiting then."""

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the cell, once it has ended."""

    def failed(self, fitted: FitResult) -> Outcome:
        """Return the outcome of a cell that could not be finished."""


@final
@dataclass(frozen=True)
class Batch:
    """Results of some items."""

    results: list[Any]
    seconds: float


@final
class Pace:
    """How many items of a procedure make a task of some seconds."""

    def __init__(self) -> None:
        self._seconds: float | None = None

    def size(self, left: int, workers: int) -> int:
        """Return how many of the items that are left one task gets."""
        if self._seconds is None:
            return 1
        fitting = int(_BATCH_SECONDS / max(self._seconds, 1e-6))
        return max(1, min(fitting, _BATCH_AT_MOST, math.ceil(left / workers)))

    def learn(self, batch: Batch) -> None:
        """Take note of a batch: the fastest is typical, the first one imports and calibrates."""
        seconds = batch.seconds / max(1, len(batch.results))
        self._seconds = seconds if self._seconds is None else min(seconds, self._seconds)


def run_batch(work: Work, shared: Any, items: Sequence[Any]) -> Batch | FitResult:
    """Do some items; an exception becomes a status."""
    started = time.perf_counter()
    results = guarded(lambda: work(shared, items))
    if isinstance(results, FitResult):
        return results
    return Batch(results, time.perf_counter() - started)


def run_here(procedure: Procedure, run: RunBatch = run_batch) -> Outcome:
    """Run a procedure to its end, one batch after the other; by default in this process."""
    pace = Pace()
    while (outcome := procedure.outcome) is None:
        items = procedure.take(pace.size(procedure.waiting, 1))
        batch = run(procedure.work, procedure.shared, items)
        problem = added(procedure, batch) if isinstance(batch, Batch) else batch
        if problem is not None:
            return procedure.failed(problem)
        if isinstance(batch, Batch):
            pace.learn(batch)
    return outcome


def added(procedure: Procedure, batch: Batch) -> FitResult | None:
    """Give a procedure its results; return why they cannot be taken, if so."""
    return guarded(lambda: procedure.add(batch.results))
