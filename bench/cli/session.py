"""Display of a run: live progress, then a summary table."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import final

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from bench.cli.options import counted
from bench.cli.pages import run_figures
from bench.cluster.driver import Observer, RunSummary, run_grid, score_run
from bench.engine.grid import Grid
from bench.engine.options import RunOptions
from bench.environments.overlays import Say
from bench.plugins.metric import HEADLINES, Family
from bench.results.records import CellRow, Outcome, ScoreRow, Status
from bench.results.run_directory import RunningCell, RunStore
from bench.tracking.tracker import Tracker

_SHOWN = 300
"""Largest number of cells that the summary table lists."""


_RUNNING_SHOWN = 4
"""Largest number of running cells below the bar."""


@final
class _Bar(Progress):
    """The bar, and below it what the running cells do, cut to the width of the terminal."""

    cells: Sequence[RunningCell] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the lines of the display, each of which has one line on the screen."""
        yield from super().get_renderables()
        for one in self.cells[:_RUNNING_SHOWN]:
            yield _line_of(f"  {one.phase or 'starting'}: {one.cell.describe()}")
        if len(self.cells) > _RUNNING_SHOWN:
            yield _line_of(f"  {len(self.cells) - _RUNNING_SHOWN} more running")


def _line_of(text: str) -> Text:
    return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


@final
class ProgressDisplay:
    """A bar with counts and the running cells on a terminal; one line per cell elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._counts: Counter[str] = Counter()
        self._bar = _Bar(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("cells", counts="", start=False)

    def planned(self, total: int, cached: int, notices: Sequence[str]) -> None:
        for notice in notices:
            self._console.print(f"warning: {notice}", markup=False, highlight=False)
        done = f", {cached} already done" if cached else ""
        self._console.print(f"{counted(total, 'cell')}{done}")
        # Cached cells take no time: in the bar, they would spoil the expected end.
        self._bar.update(self._task, total=total - cached)
        self._bar.start_task(self._task)
        self._bar.start()

    def finished(self, outcome: Outcome, store: RunStore) -> None:
        row = outcome.row
        self._counts[row.status] += 1
        counts = " ".join(f"{status} {count}" for status, count in sorted(self._counts.items()))
        self._bar.update(self._task, advance=1, counts=counts)
        if not self._console.is_terminal or row.status not in ("ok", "skipped"):
            self._console.print(_line(row), markup=False, highlight=False)

    def running(self, cells: Sequence[RunningCell]) -> None:
        self._bar.cells = cells

    def stop(self) -> None:
        """Leave the last state of the bar on the screen."""
        self._bar.cells = ()
        self._bar.stop()


def run_with_progress(grid: Grid, options: RunOptions) -> RunSummary:
    """Run a grid with live progress, MLflow and a summary at the end."""
    return _with_progress(lambda observers, say: run_grid(grid, options, observers, say), options)


def score_with_progress(metrics: Sequence[str], options: RunOptions) -> RunSummary:
    """Score the stored releases of a run directory with the same display."""
    return _with_progress(
        lambda observers, say: score_run(metrics, options, observers, say), options
    )


def _with_progress(
    work: Callable[[Callable[[RunStore], Sequence[Observer]], Say], RunSummary],
    options: RunOptions,
) -> RunSummary:
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        # Rich takes a pipe for 80 columns wide and would cut the table to that.
        console = Console(soft_wrap=True, width=200)
    display = ProgressDisplay(console)
    trackers: list[Tracker] = []
    figures = run_figures(options.out)

    def observers(store: RunStore) -> Sequence[Observer]:
        if options.tracking:
            trackers.append(
                Tracker(
                    store,
                    options.mlflow_uri,
                    lambda text: console.print(text, markup=False),
                    figures=figures,
                )
            )
        return [*trackers, display]

    failed = 1  # unless the run comes to its end
    try:
        summary = work(observers, lambda text: console.print(text, markup=False, highlight=False))
        failed = summary.failed
    finally:
        display.stop()
        for tracker in trackers:
            tracker.close(failed)
    _show(console, summary, options)
    return summary


def _show(console: Console, summary: RunSummary, options: RunOptions) -> None:
    heads = ("method", "dataset", "ipc", "eps", "proven", "verdict", "utility", "status")
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    reasons: list[str] = []
    for row, scores in summary.results() if len(summary.keys) <= _SHOWN else ():
        ipc, target, proven = _numbers(row)
        utility = _utility(row.task, scores)
        cells = (row.label, row.dataset, ipc, target, proven, row.verdict, utility)
        table.add_row(*(escape(text) for text in (*cells, row.status)))
        if row.reason:
            reasons.append(_line(row))
    if len(summary.keys) <= _SHOWN:
        console.print(table)
    else:
        console.print(f"(too many cells to list: see `bench status {options.out}`)", markup=False)
    for line in reasons:
        console.print(line, markup=False, highlight=False)
    counts = ", ".join(
        f"{summary.counts[status.value]} {status.value}"
        for status in Status
        if summary.counts[status.value]
    )
    console.print(
        f"{counted(len(summary.keys), 'cell')}: {counts or 'none finished'}; "
        f"{summary.cached} already done; {summary.seconds:.0f} s. Results in {options.out}",
        markup=False,
        highlight=False,
    )
    if summary.interrupted:
        console.print("interrupted: run the same command again to resume", markup=False)
    elif summary.out_of_time:
        console.print("the time is over: the same command computes what is left", markup=False)
    elif summary.keys:
        console.print(next_command(summary, options), markup=False, highlight=False)


def next_command(summary: RunSummary, options: RunOptions) -> str:
    """Return what to type after a run."""
    place = shlex.join([str(options.out)])
    if summary.failed == len(summary.keys):
        return f"next: bench status {place}"
    return f"next: bench leaderboard {place} -o site"


def _numbers(row: CellRow) -> tuple[str, str, str]:
    """IPC, target and proven epsilon as text."""
    ipc = row.ipc_text
    target = "-" if row.eps_target is None else f"{row.eps_target:g}"
    proven = "-" if row.eps_proven is None else f"{row.eps_proven:.3g}"
    return ipc, target, proven


def _utility(task: str, scores: Sequence[ScoreRow]) -> str:
    """Headline score of the task, or else the first utility score with a value, as text."""
    present = [s for s in scores if s.family == Family.UTILITY.value and s.value is not None]
    headline = [score for score in present if score.metric == HEADLINES.get(task)]
    for score in (*headline, *present):
        interval = "" if score.low is None else f" [{score.low:.3f}, {score.high:.3f}]"
        return f"{score.metric} {score.value:.3f}{interval}"
    return "-"


def _line(row: CellRow) -> str:
    _, _, proven = _numbers(row)
    seconds = (row.fit_seconds or 0.0) + (row.score_seconds or 0.0)
    why = f" ({row.reason})" if row.reason else ""
    return (
        f"{row.status}{why}: {row.cell.describe()}: proven {proven}, "
        f"{row.verdict or 'no verdict'}, {seconds:.1f} s"
    )
