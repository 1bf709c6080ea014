"""One watcher per machine: kills the worker of a cell that takes too long or too much.

It is a separate process, so that a cell that hangs inside a library, or holds the interpreter's
lock, is stopped as well. Memory and child processes are read from /proc: where there is none
(macOS), only time and disk are limited. It also keeps what each cell printed: when a worker is
gone, that distinguishes a crash of the method from a machine that was lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

from bench.cluster.ray_cluster import nodes, only_on
from bench.engine.limits import CRASH_MARK, EXIT_MARK, Limits, tail

_TURN_SECONDS = 0.2
_DISK_TURNS = 5
"""Disk use is looked at every so many turns."""
_BASE = "bench-cells-"
_SHOWN = "cell.json"
_WATCHER = "watcher-"
_ANSWER_SECONDS = 10.0

Cause = Literal["timeout", "memory", "disk", "crash", "exit", "lost"]


@final
@dataclass(frozen=True)
class Ticket:
    """One attempt at one step of a cell."""

    name: str
    """Unique in the run; the name of a folder."""
    run: str
    limits: Limits
    threads: int

    @contextlib.contextmanager
    def shown(self) -> Iterator[Path]:
        """Show the watcher, by a folder, which process is this cell while the step runs.

        A file and no call to the watcher: a task that waits for an answer gives its CPU back, and
        Ray would start another one in its place.
        """
        folder = base_folder(self.run) / self.name
        # Whoever is first, the cell or the watcher: both for the owner only.
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        limits = self.limits
        line = [os.getpid(), time.time(), limits.seconds, limits.memory_mb, limits.disk_mb]
        part = folder / f".{_SHOWN}"
        part.touch(mode=0o600)
        part.write_text(json.dumps(line), encoding="ascii")
        part.replace(folder / _SHOWN)
        try:
            yield folder
        finally:
            # First of all: from here on the process must not be taken for this cell.
            (folder / _SHOWN).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


@final
@dataclass(frozen=True)
class Death:
    """Why a worker is gone."""

    cause: Cause
    reason: str
    log: str


@final
@dataclass(frozen=True)
class _Watched:
    """A cell that is watched, from what it has shown."""

    folder: Path
    pid: int
    since: float
    limits: Limits

    @classmethod
    def read(cls, folder: Path) -> _Watched | None:
        """None for a folder whose cell has just ended, or not quite begun."""
        try:
            pid, since, *limits = json.loads((folder / _SHOWN).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return cls(folder, pid, since, Limits(*limits))

    def over(self, look_at_disk: bool) -> tuple[Cause, str] | None:
        """Return which limit it exceeds, and by how much."""
        limits = self.limits
        memory = sum(_memory_mb(process) for process in _with_children(self.pid))
        if time.time() - self.since > limits.seconds:
            return "timeout", f"still running after {_time(limits.seconds)}"
        if memory > limits.memory_mb:
            used = f"used {memory:,.0f} MB of memory"
            return "memory", f"{used}; the limit is {limits.memory_mb:,.0f} MB"
        disk = _size_mb(self.folder) if look_at_disk else 0.0
        if disk > limits.disk_mb:
            used = f"wrote {disk:,.0f} MB of temporary files"
            return "disk", f"{used}; the limit is {limits.disk_mb:,.0f} MB"
        return None


@final
class Watcher:
    """An actor that watches the cells of its machine."""

    def __init__(self, run: str) -> None:
        _remove_left_over()
        self._folder = base_folder(run)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        (self._folder / f"{_WATCHER}{os.getpid()}").touch(mode=0o600)
        self._deaths: dict[str, Death] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def why(self, name: str) -> Death | None:
        """Return why the process of this cell is gone; None if it was not on this machine."""
        folder = self._folder / name
        death = self._deaths.pop(name, None)
        if death is None and folder.exists():
            death = _last_words(tail(folder))
        shutil.rmtree(folder, ignore_errors=True)
        return death

    def close(self) -> None:
        """Remove all that was kept."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self) -> None:
        turn = 0
        while True:
            time.sleep(_TURN_SECONDS)
            turn += 1
            for folder in self._folder.glob("*/"):
                if folder.name in self._deaths:
                    continue
                watched = _Watched.read(folder)
                excess = watched and watched.over(look_at_disk=turn % _DISK_TURNS == 0)
                # Read again: the cell may have ended meanwhile, and its process run another.
                if watched and excess and _Watched.read(folder) == watched:
                    self._deaths[folder.name] = Death(*excess, tail(folder))
                    for process in _with_children(watched.pid):
                        with contextlib.suppress(ProcessLookupError, PermissionError):
                            os.kill(process, signal.SIGKILL)


@final
class Watchers:
    """A watcher on every machine that can run cells, also on those that join later."""

    def __init__(self) -> None:
        import ray

        self._kind: Any = ray.remote(num_cpus=0, max_restarts=0)(Watcher)
        self._by_node: dict[str, Any] = {}
        self.run = str(ray.get_runtime_context().namespace)
        self.refresh()

    def refresh(self) -> None:
        """Start watchers on machines that have none, forget those of machines that are gone."""
        alive = set(nodes())
        for node in [*self._by_node]:
            if node not in alive:
                del self._by_node[node]
        for node in alive - set(self._by_node):
            placed = self._kind.options(
                name=watcher_of(node), scheduling_strategy=only_on(node), get_if_exists=True
            )
            self._by_node[node] = placed.remote(self.run)

    def why(self, *names: str) -> Death | None:
        """Return why the worker of an attempt is gone, if its machine still knows."""
        import ray

        asked = [w.why.remote(name) for w in self._by_node.values() for name in names]
        deaths: list[Death] = []
        for reference in asked:
            # A machine that is gone has nothing to say.
            with contextlib.suppress(ray.exceptions.RayError):
                death = ray.get(reference, timeout=_ANSWER_SECONDS)
                if death is not None:
                    deaths.append(death)
        # Of two steps of a cell, the one that failed knows more than "lost".
        return min(deaths, key=lambda death: death.cause == "lost", default=None)

    def close(self) -> None:
        """Remove what they kept; they end with the run."""
        import ray

        closing = [watcher.close.remote() for watcher in self._by_node.values()]
        with contextlib.suppress(ray.exceptions.RayError):
            ray.wait(closing, num_returns=len(closing), timeout=_ANSWER_SECONDS)


def base_folder(run: str) -> Path:
    """Return the folder in which the cells of a run are shown on a machine."""
    return Path(tempfile.gettempdir()) / f"{_BASE}{os.getuid()}-{run}"


def watcher_of(node: str) -> str:
    """Return the name of the watcher on a machine."""
    return f"watcher-{node}"


def _last_words(log: str) -> Death:
    if EXIT_MARK in log:
        status = re.findall(re.escape(EXIT_MARK) + r"\((-?\d+)\)", log)[-1:]
        return Death("exit", f"the cell ended its process: os._exit({''.join(status)})", log)
    if CRASH_MARK in log:
        # Behind the mark only words of the interpreter: a cell could have printed anything.
        words = re.match(r"[A-Za-z ]{0,60}", log[log.rindex(CRASH_MARK) + len(CRASH_MARK) :])
        line = f"{CRASH_MARK}{words.group().rstrip() if words else ''}"
        return Death("crash", f"the cell crashed its process: {line}", log)
    return Death("lost", "the worker process was killed from outside", log)


def _with_children(pid: int) -> list[int]:
    processes, waiting = [], [pid]
    while waiting:
        process = waiting.pop()
        processes.append(process)
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                waiting += [int(child) for child in task.read_text(encoding="ascii").split()]
    return processes


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


def _remove_left_over() -> None:
    """Folders of runs whose watchers were killed themselves."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_BASE}{os.getuid()}-*"):
        watchers = [int(mark.name.removeprefix(_WATCHER)) for mark in folder.glob(f"{_WATCHER}*")]
        if watchers and not any(map(_alive, watchers)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
