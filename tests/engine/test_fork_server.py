"""Every call has a process of its own, which takes along whatever it changed."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.engine.fork_server import AVAILABLE, ForkServer, ProcessLost
from bench.errors import BenchError, InputError

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="forks a process on Linux only")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(["numpy", "no_such_module"])
    yield server
    server.close()


def patch_and_report() -> float:
    before = math.pi
    math.pi = 3.0  # type: ignore[misc]
    return before


def test_a_call_leaves_nothing_behind(server: ForkServer) -> None:
    assert [server.call(patch_and_report) for _ in range(3)] == [math.pi] * 3
    pids = {server.call(os.getpid) for _ in range(3)}
    assert len(pids) == 3 and os.getpid() not in pids


def test_large_arguments_and_results_cross(server: ForkServer) -> None:
    array = np.arange(3_000_000, dtype=np.float64)
    assert np.array_equal(server.call(np.multiply, array, 2.0), 2.0 * array)


def refuse() -> None:
    raise InputError("not like this")


class Stubborn(Exception):
    """An exception that cannot be made again from its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one}{two}")


def be_stubborn() -> None:
    raise Stubborn(1, 2)


def test_exceptions_cross_or_are_named(server: ForkServer) -> None:
    with pytest.raises(InputError, match="not like this"):
        server.call(refuse)
    with pytest.raises(BenchError, match="Stubborn, which cannot leave its process"):
        server.call(be_stubborn)
    with pytest.raises(TypeError, match="cannot pickle"):
        server.call(threading.Lock)


def end_by(how: Callable[[], None]) -> None:
    how()


@pytest.mark.parametrize(
    "ending",
    [
        lambda: os._exit(0),
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: os.abort(),
        lambda: (_ for _ in ()).throw(GeneratorExit()),
    ],
)
def test_a_process_that_ends_without_an_answer_is_lost_and_the_next_call_works(
    server: ForkServer, ending: Callable[[], None]
) -> None:
    with pytest.raises(ProcessLost):
        server.call(end_by, ending)
    assert server.call(math.sqrt, 4.0) == 2.0


def run_a_program() -> int:
    return subprocess.run([sys.executable, "-c", "raise SystemExit(7)"], check=False).returncode


def test_children_of_a_call_can_be_waited_for(server: ForkServer) -> None:
    assert server.call(run_a_program) == 7


def test_a_server_that_was_killed_is_started_again() -> None:
    server = ForkServer()
    assert server.call(math.sqrt, 4.0) == 2.0
    assert server._process is not None
    server._process.kill()
    server._process.wait()
    assert server.call(math.sqrt, 9.0) == 3.0
    server.close()


_PARENT = """
import os, sys, time
from bench.engine.fork_server import ForkServer
server = ForkServer()
server.call(os.getpid)
print(server._process.pid, flush=True)
def sleep():
    print(os.getpid(), flush=True)
    time.sleep(600)
server.call(sleep)
"""


def test_server_and_child_end_with_their_worker(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and any(map(_runs, pids)):
        time.sleep(0.02)
    assert not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
