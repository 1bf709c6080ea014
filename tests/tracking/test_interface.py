"""`bench ui`: its server ends with it, and it with the process that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and process groups")

# A server with one worker, as MLflow's; both report themselves and never end.
SERVER = """
import os, signal, sys, time
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
name = "server" if os.fork() else "worker"
with open(os.path.join(sys.argv[1], f".{name}"), "w") as file:
    file.write(str(os.getpid()))
os.rename(os.path.join(sys.argv[1], f".{name}"), os.path.join(sys.argv[1], name))
while True:
    time.sleep(1)
"""

# The real command with that server in place of MLflow's, which takes many seconds to start.
COMMAND = """
import os, sys
from bench.tracking import tracker
folder, kind, server = sys.argv[1:]
tracker.ui_command = lambda *_: ([sys.executable, "-c", server, folder, kind], dict(os.environ))
tracker.ui_address = lambda *_: "an address"
from bench.cli.main import main
sys.argv = ["bench", "ui", folder]
main()
"""

LAUNCHER = """
import signal, subprocess, sys
# A test run in the background of a script ignores Ctrl-C, one under nohup hang-ups, and
# so would what it starts.
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
process = subprocess.Popen([sys.executable, "-c", *sys.argv[2:]])
print(process.pid, flush=True)
process.wait()
"""


@dataclass
class Started:
    """A launcher, the command that it has started, its server and the server's worker."""

    launcher: subprocess.Popen[str]
    command: int
    server: int
    worker: int

    @property
    def alive(self) -> dict[str, bool]:
        return {
            name: is_alive(pid)
            for name, pid in (
                ("command", self.command), ("server", self.server), ("worker", self.worker),
            )
        }  # fmt: skip

    def until_gone(self) -> None:
        deadline = time.monotonic() + 300
        while any(self.alive.values()):
            assert time.monotonic() < deadline, self.alive
            time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan that nobody waits for has ended, too.
    status = Path(f"/proc/{pid}/stat")
    with contextlib.suppress(OSError):
        return ") Z " not in status.read_text()
    return True


def read(path: Path) -> int:
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path.name} was started"
        time.sleep(0.05)
    return int(path.read_text())


@contextlib.contextmanager
def started(folder: Path, how: str = "", kind: str = "") -> Iterator[Started]:
    (folder / "mlflow.db").touch()
    arguments = [how, COMMAND, str(folder), kind, SERVER]
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *arguments], stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        command = int(launcher.stdout.readline())
        found = Started(launcher, command, read(folder / "server"), read(folder / "worker"))
        try:
            yield found
        finally:
            for pid in (found.command, found.server, found.worker, launcher.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["", "stubborn"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_ends_with_a_killed_command(tmp_path: Path, number: int, kind: str) -> None:
    with started(tmp_path, kind=kind) as found:
        os.kill(found.command, number)
        found.until_gone()


def test_the_command_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    with started(tmp_path) as found:
        found.launcher.kill()
        found.until_gone()


def test_under_nohup_the_command_stays(tmp_path: Path) -> None:
    with started(tmp_path, how="nohup") as found:
        found.launcher.kill()
        found.launcher.wait()
        deadline = time.monotonic() + 3  # it looks twice a second
        while time.monotonic() < deadline:
            assert all(found.alive.values())
            time.sleep(0.1)
        os.kill(found.command, signal.SIGTERM)
        found.until_gone()


def test_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    with started(tmp_path) as found:
        os.kill(found.command, signal.SIGINT)
        found.until_gone()


def test_when_the_server_ends_its_worker_and_the_command_do(tmp_path: Path) -> None:
    with started(tmp_path) as found:
        os.kill(found.server, signal.SIGKILL)
        found.until_gone()
