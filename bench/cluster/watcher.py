"""One watcher per machine: kills the worker of a cell that takes too long or too much.

It is a separate process, so that a cell that hangs inside a library, or holds the interpreter's
lock, is stopped as well. Memory and child processes are read from /proc: where there is none
(macOS), only time and disk are limited. It also keeps what each cell printed: when a worker is
gone, that distinguishes a crash of the method from a machine that was lost. The driver asks every
watcher whether it still watches, and replaces one that does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

from bench.cluster.private_folders import (
    CELLS,
    base_folder,
    close,
    hold,
    make_private,
    remove_left_over,
    still_in_use,
)
from bench.cluster.processes import (
    FileId,
    Process,
    SharedMemory,
    adopt_orphans,
    descendants,
    end_all,
    end_descendants,
    end_family,
    entries,
    memory_mb,
    stop_family,
)
from bench.cluster.ray_cluster import first_line, nodes, only_on
from bench.engine import phases
from bench.engine.limits import CRASH_MARK, EXIT_MARK, Limits, tail
from bench.environments.overlays import Say
from bench.errors import LimitsLostError

_TURN_SECONDS = 0.2
_SLOW_TURNS = 5
"""Disk use and mappings are looked at every so many turns."""
_RENEW_TURNS = 300
_SHOWN = "cell.json"
_BEFORE = "shared-memory-before.json"
_LEFT_OVER_SECONDS = 3600.0
"""A watcher that is being replaced must not be taken for one whose run is over."""
_ANSWER_SECONDS = 10.0
_SILENT_SECONDS = 60.0
"""A watcher that has not watched, or not answered, for so long is replaced."""
_START_SECONDS = 300.0
"""For the first answer: a busy machine takes long to start a process, and longer to start two."""
_REPLACEMENTS = 5
"""Watchers that may die on one machine before the run is stopped."""

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
    references: str = ""
    """Folder of the references of the run, on the machine that holds the run directory."""

    @contextlib.contextmanager
    def shown(self, kept: Sequence[int] = ()) -> Iterator[Path]:
        """Show the watcher, by a folder, which process is this cell while the step runs.

        `kept` are processes below this one that serve many cells, and were started before: they are
        neither counted as the cell's nor ended with it. What they fork is.

        A file and no call to the watcher: a task that waits for an answer gives its CPU back, and
        Ray would start another one in its place.
        """
        # Whoever is first, the cell or the watcher: both for the owner only.
        folder = make_private(base_folder(self.run)) / self.name
        folder.mkdir(mode=0o700, exist_ok=True)
        limits = self.limits
        _write_private(folder / _BEFORE, json.dumps(sorted(entries())))
        # The monotonic clock is the same for all processes of a machine, and cannot be set.
        servers = [process for process in map(Process.find, kept) if process is not None]
        line = [
            *(os.getpid(), time.monotonic(), limits.seconds, limits.memory_mb, limits.disk_mb),
            [[process.pid, process.started] for process in servers],
        ]
        part = folder / f".{_SHOWN}"
        _write_private(part, json.dumps(line))
        part.replace(folder / _SHOWN)
        adopt_orphans()
        before = descendants(os.getpid())
        try:
            yield folder
        finally:
            # Still as this cell: what cannot be ended would be stopped by the limits.
            end_descendants(before)
            # From here on the process must not be taken for this cell.
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
    """Its start on the monotonic clock."""
    limits: Limits
    kept: frozenset[Process]
    """Processes below it that serve many cells."""

    @classmethod
    def read(cls, folder: Path) -> _Watched | None:
        """None for a folder whose cell has just ended, or not quite begun."""
        try:
            shown = json.loads((folder / _SHOWN).read_text(encoding="ascii"))
            pid, since, seconds, memory, disk, listed = shown
            limits = Limits(float(seconds), float(memory), float(disk))
            kept = frozenset(Process(int(number), int(started)) for number, started in listed)
            return cls(folder, int(pid), float(since), limits, kept)
        except (OSError, ValueError, TypeError):
            return None

    @property
    def shown(self) -> bool:
        """False once the cell has ended: its process may run another one by now."""
        return _Watched.read(self.folder) == self


@final
class _Guard:
    """What the watcher knows about one cell."""

    def __init__(self, watched: _Watched) -> None:
        self.watched = watched
        self._root = Process.find(watched.pid)
        self._members: set[Process] = set()
        """All processes that were ever seen below the worker, as far as they are alive."""
        self._shared = SharedMemory(_before(watched.folder))
        self.ended = False

    def look(self, slow: bool) -> tuple[Cause, str] | None:
        """Return which limit the cell exceeds, and by how much."""
        limits, root = self.watched.limits, self._root
        if root is not None and not root.alive:
            self.end()
            return None
        if time.monotonic() - self.watched.since > limits.seconds:
            return "timeout", f"still running after {_time(limits.seconds)}"
        if root is not None:
            found = {process for process in self._members if process.alive}
            for process in (root, *found):
                found |= descendants(process.pid)
            if not self.watched.shown:
                return None
            found -= self.watched.kept
            self._members = found
            processes = (root, *found)
            shared = self._shared.sizes(processes, look_at_mappings=slow)
            memory = memory_mb(processes, shared, limits.memory_mb)
            if memory > limits.memory_mb:
                used = f"used {memory:,.0f} MB of memory"
                return "memory", f"{used}; the limit is {limits.memory_mb:,.0f} MB"
        disk = _size_mb(self.watched.folder) if slow else 0.0
        if disk > limits.disk_mb:
            used = f"wrote {disk:,.0f} MB of temporary files"
            return "disk", f"{used}; the limit is {limits.disk_mb:,.0f} MB"
        return None

    def kill(self) -> None:
        """End the worker with all that the cell has started."""
        if self._root is not None:
            # A last look while nothing moves: what is held now is removed, too.
            family = stop_family(self._root, self._members)
            self._shared.sizes(family, look_at_mappings=True)
            end_family(self._root, family)
        else:  # no /proc here
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.watched.pid, signal.SIGKILL)
        self.end()

    def end(self) -> None:
        """Remove what a cell that has ended left behind: processes, shared memory."""
        if self.ended:
            return
        self.ended = True
        end_all(self._members)
        if self._root is not None:
            self._shared.remove(self._root)


@final
@dataclass(frozen=True)
class Report:
    """Answer of a watcher to the driver."""

    silent_seconds: float
    """How long ago it looked at all cells of its machine."""
    phases: Mapping[str, str]
    """What each of them does, by the names of their tickets."""


@final
class Watcher:
    """An actor that watches the cells of its machine."""

    def __init__(self, run: str) -> None:
        remove_left_over(f"{CELLS}{os.getuid()}-", _LEFT_OVER_SECONDS)
        self._folder = make_private(base_folder(run))
        self._lock = hold(self._folder)
        self._deaths: dict[str, Death] = {}
        self._guards: dict[str, _Guard] = {}
        self._looked = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def report(self) -> Report:
        """Return how long ago all cells were looked at, and what they do."""
        shown = {folder.name: phases.read(folder) for folder in _folders(self._folder)}
        return Report(time.monotonic() - self._looked, shown)

    def why(self, name: str) -> Death | None:
        """Return why the process of this cell is gone; None if it was not on this machine."""
        folder = self._folder / name
        death = self._deaths.pop(name, None)
        if death is None and folder.exists():
            death = _last_words(tail(folder))
        shutil.rmtree(folder, ignore_errors=True)
        return death

    def close(self) -> None:
        """Remove all that was kept, and what cells have left behind."""
        self._closing.set()
        self._thread.join(_ANSWER_SECONDS)
        for guard in self._guards.values():
            guard.end()
        close(self._folder)

    def _watch(self) -> None:
        turn = 0
        try:
            while not self._closing.wait(_TURN_SECONDS):
                turn += 1
                self._turn(slow=turn % _SLOW_TURNS == 0)
                if turn % _RENEW_TURNS == 0:
                    still_in_use(self._lock)
        except BaseException:
            # A watcher that does not watch must be missed: the driver replaces a dead one.
            traceback.print_exc()
            os._exit(1)

    def _turn(self, slow: bool) -> None:
        shown = set()
        for folder in _folders(self._folder):
            watched = _Watched.read(folder)
            if watched is None or folder.name in self._deaths:
                continue
            shown.add(folder.name)
            guard = self._guards.get(folder.name)
            if guard is None:
                guard = self._guards[folder.name] = _Guard(watched)
            excess = None if guard.ended else guard.look(slow)
            # Read again: the cell may have ended meanwhile, and its process run another.
            if excess and watched.shown:
                self._deaths[folder.name] = Death(*excess, tail(folder))
                guard.kill()
        for name in [*self._guards]:
            if name not in shown:
                self._guards.pop(name).end()
        self._looked = time.monotonic()


@final
@dataclass(frozen=True)
class _Asked:
    """A question to a watcher that has not been answered yet."""

    answer: Any
    since: float
    patience: float


@final
class Watchers:
    """A watcher on every machine that can run cells, also on those that join later."""

    def __init__(self, say: Say) -> None:
        import ray

        self._say = say
        self._kind: Any = ray.remote(num_cpus=0, max_restarts=0)(Watcher)
        self._by_node: dict[str, Any] = {}
        self._asked: dict[str, _Asked] = {}
        self._replaced: dict[str, int] = {}
        self._phases: dict[str, Mapping[str, str]] = {}
        self.run = str(ray.get_runtime_context().namespace)
        self.refresh()

    def refresh(self) -> None:
        """Start watchers where there are none, replace those that do not watch."""
        alive = set(nodes())
        for node in [*self._by_node]:
            if node not in alive:
                self._forget(node)
            elif problem := self._problem(node):
                self._replace(node, problem)
        for node in alive - set(self._by_node):
            placed = self._kind.options(scheduling_strategy=only_on(node))
            self._by_node[node] = placed.remote(self.run)
            self._ask(node, _START_SECONDS)

    def phase(self, *names: str) -> str:
        """Return what an attempt did some seconds ago; nothing if that is not known."""
        known = (shown.get(name, "") for shown in self._phases.values() for name in names)
        return next(filter(None, known), "")

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

    def _ask(self, node: str, patience: float = _SILENT_SECONDS) -> None:
        answer = self._by_node[node].report.remote()
        self._asked[node] = _Asked(answer, time.monotonic(), patience)

    def _problem(self, node: str) -> str:
        """Return why a watcher does not watch; nothing if it does, as far as we know."""
        import ray

        asked = self._asked[node]
        ready, _ = ray.wait([asked.answer], timeout=0)
        if not ready:
            waited = time.monotonic() - asked.since
            return f"no answer for {waited:.0f} s" if waited > asked.patience else ""
        try:
            report = ray.get(asked.answer)
        except ray.exceptions.ActorDiedError as problem:
            # If it could not start, the reason is in the last line.
            return str(problem).strip().splitlines()[-1].strip() or first_line(problem)
        except ray.exceptions.RayError as problem:
            return first_line(problem)
        self._phases[node] = report.phases
        silent = report.silent_seconds
        self._ask(node)
        return f"it has not looked for {silent:.0f} s" if silent > _SILENT_SECONDS else ""

    def _replace(self, node: str, problem: str) -> None:
        import ray

        self._replaced[node] = self._replaced.get(node, 0) + 1
        if self._replaced[node] > _REPLACEMENTS:
            raise LimitsLostError(f"lost {self._replaced[node]} times on one machine: {problem}")
        self._say(
            f"warning: the process that enforces the limits of cells was lost ({problem}); another "
            "one is started, which enforces them for running cells as well"
        )
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self._by_node[node])
        self._forget(node)

    def _forget(self, node: str) -> None:
        del self._by_node[node]
        del self._asked[node]
        self._phases.pop(node, None)


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


def _write_private(path: Path, content: str) -> None:
    """Write a file that its owner alone can read."""
    path.touch(mode=0o600)
    path.write_text(content, encoding="ascii")


def _before(folder: Path) -> frozenset[FileId]:
    """What was in shared memory when the cell began; all that is there now if that is unknown."""
    try:
        listed = json.loads((folder / _BEFORE).read_text(encoding="ascii"))
        return frozenset((int(device), int(number)) for device, number in listed)
    except (OSError, ValueError, TypeError):
        return entries()


def _folders(base: Path) -> list[Path]:
    """Folders of cells; the base is gone once the run is over."""
    try:
        return [
            Path(entry.path) for entry in os.scandir(base) if entry.is_dir(follow_symlinks=False)
        ]
    except FileNotFoundError:
        return []


def _size_mb(folder: Path) -> float:
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_size
    return total / 2**20


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 60 else f"{seconds:g} seconds"
