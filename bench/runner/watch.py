"""One watcher a machine: kills the worker of a cell that takes too long or too much.

A process of its own, so that a cell that hangs inside a library, or holds the interpreter's lock,
is stopped as well. Memory and child processes are read from /proc: where there is none (macOS),
only time and disk are limited. It also keeps what each cell printed: when a worker is gone, that
tells a crash of the method from a machine that was lost.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

from bench import cell_log
from bench.limits import Limits

_TURN_SECONDS = 0.2
_DISK_TURNS = 5
"""Disk use is looked at every so many turns."""
_WAIT_SECONDS = 60.0

Cause = Literal["timeout", "memory", "disk", "crash", "exit", "lost"]


@final
@dataclass(frozen=True)
class Ticket:
    """One attempt at one step of a cell."""

    name: str
    """Unique in the run; the name of a folder."""
    limits: Limits
    threads: int


@final
@dataclass(frozen=True)
class Death:
    """Why a worker is gone."""

    cause: Cause
    reason: str
    log: str


@final
@dataclass
class _Watched:
    pid: int
    limits: Limits
    folder: Path
    since: float = field(default_factory=time.monotonic)
    death: Death | None = None


@final
class Watcher:
    """An actor: watches the cells of its own machine."""

    def __init__(self) -> None:
        base = Path(tempfile.gettempdir())
        _remove_left_over(base)
        self._folder = base / f"bench-cells-{os.getuid()}-{os.getpid()}"
        self._folder.mkdir(mode=0o700)
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def started(self, name: str, pid: int, limits: Limits) -> str:
        """From now on the process counts as this cell; gives the folder for what it writes."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        with self._lock:
            self._watched[name] = _Watched(pid, limits, folder)
        return str(folder)

    def ended(self, name: str) -> None:
        """The cell is over: its process belongs to another from now on."""
        with self._lock:
            watched = self._watched.pop(name, None)
        if watched is not None:
            shutil.rmtree(watched.folder, ignore_errors=True)

    def why(self, name: str) -> Death | None:
        """Why the process of this cell is gone; None where it was not on this machine."""
        with self._lock:
            watched = self._watched.get(name)
        if watched is None:
            return None
        death = watched.death or _last_words(cell_log.tail(watched.folder))
        self.ended(name)
        return death

    def close(self) -> None:
        """Remove all that was kept."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self) -> None:
        turn = 0
        while True:
            time.sleep(_TURN_SECONDS)
            turn += 1
            with self._lock:
                for watched in self._watched.values():
                    if watched.death is None:
                        self._judge(watched, look_at_disk=turn % _DISK_TURNS == 0)

    def _judge(self, watched: _Watched, look_at_disk: bool) -> None:
        """Kill one that is over a limit. The lock is held: the cell cannot end meanwhile."""
        limits, processes = watched.limits, _with_children(watched.pid)
        seconds = time.monotonic() - watched.since
        memory = sum(_memory_mb(process) for process in processes)
        disk = _size_mb(watched.folder) if look_at_disk else 0.0
        if seconds > limits.seconds:
            death: tuple[Cause, str] = ("timeout", f"still running after {_time(limits.seconds)}")
        elif memory > limits.memory_mb:
            used = f"used {memory:,.0f} MB of memory"
            death = ("memory", f"{used}; the limit is {limits.memory_mb:,.0f} MB")
        elif disk > limits.disk_mb:
            used = f"wrote {disk:,.0f} MB of temporary files"
            death = ("disk", f"{used}; the limit is {limits.disk_mb:,.0f} MB")
        else:
            return
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        watched.death = Death(*death, cell_log.tail(watched.folder))


def watcher_of(node: str) -> str:
    """Name of the watcher on a machine."""
    return f"watcher-{node}"


def watcher_here() -> Any:
    """The watcher of the machine that this worker is on; the driver starts one for each."""
    import ray

    name = watcher_of(ray.get_runtime_context().get_node_id())
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            return ray.get_actor(name)
        except ValueError:
            # A machine that has just joined: the driver will have seen it in a moment.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _last_words(log: str) -> Death:
    if cell_log.EXIT_MARK in log:
        status = re.findall(re.escape(cell_log.EXIT_MARK) + r"\((-?\d+)\)", log)[-1:]
        return Death("exit", f"the cell ended its process: os._exit({''.join(status)})", log)
    if cell_log.CRASH_MARK in log:
        line = log[log.rindex(cell_log.CRASH_MARK) :].splitlines()[0]
        return Death("crash", f"the cell crashed its process: {line}", log)
    return Death("lost", "the worker process was killed from outside", log)


def _with_children(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        process = waiting.pop()
        found.append(process)
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                waiting += [int(child) for child in task.read_text(encoding="ascii").split()]
    return found


def _memory_mb(pid: int) -> float:
    """Memory of a process that nobody shares: rows in the object store are not the cell's."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        for line in status.splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _size_mb(folder: Path) -> float:
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_size
    return total / 2**20


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 60 else f"{seconds:g} seconds"


def _remove_left_over(base: Path) -> None:
    """Folders of watchers that were killed themselves."""
    for folder in base.glob(f"bench-cells-{os.getuid()}-*"):
        try:
            os.kill(int(folder.name.rsplit("-", 1)[1]), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (ValueError, PermissionError):
            continue
