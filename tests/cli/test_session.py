"""What `bench run` shows on a terminal, at the widths that people have."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console, Group

from bench.cli.session import ProgressDisplay, next_command
from bench.results.run_directory import RunningCell
from tests.support.tracked_runs import CELL


def shown(display: ProgressDisplay, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(Group(*display._bar.get_renderables()))
    return cast(io.StringIO, console.file).getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100])
def test_the_phase_of_every_running_cell_is_below_the_bar(width: int) -> None:
    display = ProgressDisplay(Console(file=io.StringIO(), width=width, force_terminal=True))
    assert len(shown(display, width)) == 1, "nothing runs yet"
    phases = ["fit", "score mia", "", "score " + "long-name-" * 20, "prove", "fit"]
    display.running([RunningCell(str(n), CELL, phase) for n, phase in enumerate(phases)])
    lines = shown(display, width)
    assert max(map(len, lines)) <= width and len(lines) == 6, "one line each"
    where = "ldpdc(clip=1.0) on gbsg2 ipc=50 eps=1 seed=3"
    assert [line.strip() for line in lines[1:4]] == [
        f"fit: {where}", f"score mia: {where}", f"starting: {where}",
    ]  # fmt: skip
    assert lines[-1].strip() == "2 more running"
    display.stop()
    assert len(shown(display, width)) == 1, "the last state has no running cells"


@pytest.mark.parametrize(
    "failed, line",
    [(0, "next: bench leaderboard 'my runs' -o site"), (2, "next: bench status 'my runs'")],
)
def test_a_run_ends_with_the_next_command(failed: int, line: str) -> None:
    summary: Any = SimpleNamespace(failed=failed, keys=("a", "b"))
    options: Any = SimpleNamespace(out=Path("my runs"))
    assert next_command(summary, options) == line
