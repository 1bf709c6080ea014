"""A driver in another process, whose cells wait for the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.installed import install_plugin

BENCH = [sys.executable, "-m", "bench"]


@dataclass
class Running:
    """A driver with cells that wait for the test."""

    folder: Path
    process: subprocess.Popen[str]
    mark: str

    @property
    def out(self) -> Path:
        return self.folder / "run"

    def announced(self) -> tuple[str, int, str]:
        """The next cell that starts: its mark, its worker, the raylet of its machine."""
        cell, pid, machine = (self.folder / "running").read_text().split()
        return cell, int(pid), machine

    def let_go(self, cell: str) -> None:
        (self.folder / f"go-{cell}").write_text("go")

    def until(self, text: str) -> str:
        """Read what the driver says until it says this."""
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if text in line:
                return said
        raise AssertionError(f"the driver never said {text!r}: {said}")

    def ended(self) -> str:
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        self.process.wait(600)
        return rest

    def left_behind(self) -> list[str]:
        """Processes that inherited the driver's environment and do not end."""
        return left_behind(self.mark)


def left_behind(mark: str, seconds: float = 60.0) -> list[str]:
    """Processes with this in their environment that do not end: a killed one takes a moment."""
    deadline = time.monotonic() + seconds
    while (found := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _marked(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@contextlib.contextmanager
def started(
    folder: Path, cells: Sequence[str], *options: str, cpus: int = 2, **variables: str
) -> Iterator[Running]:
    mark = uuid.uuid4().hex
    os.mkfifo(folder / "running")
    for cell in cells:
        os.mkfifo(folder / f"go-{cell}")
    entries = ", ".join(
        f'{{name = "waits", label = "{cell}", '
        f'parameters = {{mark = "{cell}", folder = "{folder}"}}}}'
        for cell in cells
    )
    (folder / "grid.toml").write_text(
        f'datasets = ["gbsg2"]\nipc = [1]\nmetrics = ["ks"]\nmethods = [{entries}]\n'
    )
    command = [*BENCH, "run", "--grid", str(folder / "grid.toml"), "--out", str(folder / "run")]
    command += ["--no-mlflow", *(options or ("--cpus", str(cpus)))]
    environment = {**install_plugin(folder / "packages"), "BENCH_TEST_MARK": mark, **variables}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        running = Running(folder, process, mark)
        try:
            yield running
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
