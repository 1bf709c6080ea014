"""What ends or is removed while it is looked at costs no cell and no run.

A busy machine takes a process off its CPU between two system calls: what the first one has seen may
be gone for the second.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.cluster import private_folders
from bench.cluster.processes import Process, descendants, end_descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def ending_before(
    monkeypatch: pytest.MonkeyPatch, folder: str, end: Callable[[], None]
) -> list[str]:
    """Call `end` when a folder is about to be listed; return the calls."""
    seen: list[str] = []
    for name in ("listdir", "scandir"):
        real: Any = getattr(os, name)

        def listing(path: Any = ".", real: Any = real) -> Any:
            if os.fspath(path) == folder:
                seen.append(folder)
                end()
            return real(path)

        monkeypatch.setattr(os, name, listing)
    return seen


def test_a_process_that_ends_while_it_is_looked_at_is_no_error(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended cells: "its result could not leave the worker (FileNotFoundError)"."""
    before = descendants(os.getpid())
    assert child.pid in {process.pid for process in before}

    def end() -> None:
        child.kill()
        child.wait()

    seen = ending_before(monkeypatch, f"/proc/{child.pid}/task", end)
    found = descendants(os.getpid())
    assert seen and Process.find(child.pid) is None
    # It was there when its number was read.
    assert {process.pid for process in before} >= {process.pid for process in found}


def test_what_ends_by_itself_at_the_end_of_a_cell_is_no_error(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {one for one in descendants(os.getpid()) if one.pid != child.pid}

    def end() -> None:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()

    seen = ending_before(monkeypatch, f"/proc/{child.pid}/task", end)
    end_descendants(others)
    assert seen and Process.find(child.pid) is None


def test_a_folder_that_its_run_removes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs on one machine: one starts, and looks for what is left, while the other ends."""
    mine, left = tmp_path / "bench-x-mine", tmp_path / "bench-x-left"
    for folder in (mine, left):
        folder.mkdir(mode=0o700)
    (left / "file").write_text("of a run that was killed")
    os.utime(left, (0, 0))
    real = os.open

    def opening(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(path).parent == mine:
            shutil.rmtree(mine)
        return real(path, *arguments, **options)

    monkeypatch.setattr(private_folders.os, "open", opening)
    private_folders.remove_left_over("bench-x-", 0.0, tmp_path)
    assert not mine.exists()
    assert not left.exists(), "the others are still looked at"
