"""What runs inside a Ray worker: a step of a cell, watched and with its output kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from bench.cluster.watcher import Ticket
from bench.data.dataset import Dataset
from bench.engine import cell_log
from bench.engine.cell import finish_cell, run_cell
from bench.engine.fit import Fitted, fit_isolated
from bench.environments.environments import Prepared, prepare
from bench.plugins.method import Environment
from bench.results.records import Cell, Outcome, Status

T = TypeVar("T", Outcome, Fitted)

_LOG_LINES = 40


def run_step(
    ticket: Ticket,
    cell: Cell,
    key: str,
    dataset: Dataset,
    metrics: Sequence[str],
    stored: Outcome | None,
) -> Outcome:
    """The whole cell: fit and score."""
    return _watched(ticket, lambda: run_cell(cell, key, dataset, metrics, stored, ticket.threads))


def fit_step(ticket: Ticket, cell: Cell, key: str, dataset: Dataset) -> Fitted:
    """The fit of a cell, in the method's own environment."""
    return _watched(ticket, lambda: fit_isolated(cell, key, dataset))


def finish_step(
    ticket: Ticket,
    cell: Cell,
    key: str,
    dataset: Dataset,
    metrics: Sequence[str],
    fitted: Fitted,
) -> Outcome:
    """The rest of a cell that was fitted elsewhere."""
    return _watched(
        ticket, lambda: finish_cell(cell, key, dataset, metrics, fitted, ticket.threads)
    )


def prepare_step(environment: Environment, given: str) -> tuple[str, Prepared]:
    """An environment on the machine that runs this, and which machine that is."""
    import ray

    return ray.get_runtime_context().get_node_id(), prepare(environment, given)


def _watched(ticket: Ticket, work: Callable[[], T]) -> T:
    limits = ticket.limits
    with ticket.shown() as folder:
        with cell_log.captured(folder, limits.disk_mb), cell_log.threads_capped(ticket.threads):
            result = work()
        return _with_output(result, cell_log.tail(folder))


def _with_output(result: T, output: str) -> T:
    """A failed cell keeps the last lines of what it printed, before its traceback."""
    lines: list[str] = output.strip().splitlines()[-_LOG_LINES:]
    if not lines:
        return result
    if isinstance(result, Fitted):
        if result.status in (Status.OK, Status.SKIPPED):
            return result
        return replace(result, log="\n".join([*lines, result.log]))
    if result.row.status in (Status.OK.value, Status.SKIPPED.value):
        return result
    log = "\n".join([*lines, result.row.log_tail])
    return replace(result, row=replace(result.row, log_tail=log))
