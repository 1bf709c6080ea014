"""The processes of a cell and the memory that they hold, read from /proc.

All processes below a worker belong to the cell that it runs. On Linux a worker adopts orphans: a
process whose parent has ended becomes a child of the worker instead of leaving its tree, so that
it is counted, and ended with the cell. Where there is no /proc (macOS), a cell has no processes
and no memory that could be seen here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

_ADOPT_ORPHANS = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
_REMOVE_SEGMENT = 0
"""IPC_RMID of shmctl(2)."""
_END_SECONDS = 10.0
_PAUSE_SECONDS = 0.01

SHARED_MEMORY = Path("/dev/shm")
_SEGMENTS = Path("/proc/sysvipc/shm")
_OBJECT_STORE = "/dev/shm/plasma"
"""Rows in Ray's object store are shared by all cells of a machine."""
_SHARED = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "/anon_hugepage")
"""Names of mappings whose pages are in shared memory."""
_DELETED = " (deleted)"
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ (\S+) (\d+)\s+(.+)$")

_NUMBERED = re.compile(r"^(?:torch|joblib_memmapping_folder|(?:sem\.)?loky)[_-](\d+)[_-]")
"""Names in /dev/shm that say which process created them."""

FileId = tuple[int, int]
"""Device and inode."""


@final
@dataclass(frozen=True)
class Process:
    """A process; its start distinguishes it from a later one with the same number."""

    pid: int
    started: int
    """Clock ticks since the start of the machine."""

    @classmethod
    def find(cls, pid: int) -> Process | None:
        """Return the process with this number, unless it has ended."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        state, *fields = text[text.rindex(")") + 2 :].split()
        return None if state in "ZX" and _threads(pid) <= 1 else cls(pid, int(fields[18]))

    @property
    def alive(self) -> bool:
        return Process.find(self.pid) == self

    def send(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


def _threads(pid: int) -> int:
    """Number of threads: while one runs, memory and files are held, though the first has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def adopt_orphans() -> None:
    """Make orphans among the descendants of this process its children, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def descendants(pid: int) -> set[Process]:
    """Return all processes below this one that have not ended."""
    found: set[Process] = set()
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            process = Process.find(child)
            if process is not None and process not in found:
                found.add(process)
                waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    """Return the numbers of the children of a process, which may end at any moment."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                listed = Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii")
                found += map(int, listed.split())
    return found


def end_descendants(before: Collection[Process]) -> None:
    """End all processes below this one, except those that were there `before`."""
    deadline = time.monotonic() + _END_SECONDS
    while True:
        left = descendants(os.getpid()).difference(before)
        for process in left:
            process.send(signal.SIGKILL)
        _reap(before)
        # What cannot be ended (it waits for a disk) stays a descendant, and counts as one.
        if not left or time.monotonic() > deadline:
            return
        time.sleep(_PAUSE_SECONDS)


def stop_family(root: Process, members: Collection[Process]) -> set[Process]:
    """Stop a process with all its descendants and these members of its family; return them all."""
    deadline = time.monotonic() + _END_SECONDS
    family: set[Process] = set()
    # Until nothing new is found: a process may fork while others are being stopped.
    while time.monotonic() < deadline:
        found = {root, *members, *descendants(root.pid)}
        if found <= family:
            break
        for process in found - family:
            process.send(signal.SIGSTOP)
        family |= found
    return family


def end_family(root: Process, members: Collection[Process]) -> None:
    """End a process with all its descendants and these members of its family."""
    family = stop_family(root, members)
    # The root last: what else there is below it stays there until then.
    end_all(family - {root})
    end_all({root})


def end_all(processes: Collection[Process]) -> None:
    """End these processes and what they have started; wait until they are gone."""
    deadline = time.monotonic() + _END_SECONDS
    left = {process for process in processes if process.alive}
    while left and time.monotonic() < deadline:
        for process in [*left]:
            left |= descendants(process.pid)
        for process in left:
            process.send(signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)
        left = {process for process in left if process.alive}


def _reap(before: Collection[Process]) -> None:
    """Take note of the end of our children, so that the system can forget them."""
    kept = {process.pid for process in before}
    for child in _children(os.getpid()):
        if child not in kept:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


# Memory -------------------------------------------------------------------------------------------


def memory_mb(processes: Collection[Process], shared: Mapping[FileId, int], limit: float) -> float:
    """Return the memory of processes and of these shared files, in MiB; exact above the limit.

    Pages that only one process sees, and shared memory once, however many processes map it.
    """
    private = mapped = 0
    for process in processes:
        own, seen = _resident(process.pid)
        private, mapped = private + own, mapped + seen
    held = sum(shared.values())
    if (private + mapped + held) / 2**20 <= limit:
        return (private + held) / 2**20
    by_file: dict[FileId, int] = {}
    for process in processes:
        for file, size in _shared_mappings(process.pid).items():
            by_file[file] = max(by_file.get(file, 0), size)
    rest = sum(size for file, size in by_file.items() if file not in shared)
    return (private + held + rest) / 2**20


def _resident(pid: int) -> tuple[int, int]:
    """Resident bytes of a process: its own pages, and those in shared memory."""
    own = shared = 0
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        for line in status.splitlines():
            if line.startswith("RssAnon:"):
                own = int(line.split()[1]) * 1024
            elif line.startswith("RssShmem:"):
                shared = int(line.split()[1]) * 1024
    return own, shared


def _shared_mappings(pid: int) -> dict[FileId, int]:
    """Resident bytes of a process in shared memory, by file."""
    found: dict[FileId, int] = {}
    file: FileId | None = None
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as lines,
    ):
        for line in lines:
            if match := _MAPPING.match(line):
                file = _mapped_id(match) if _is_shared(match[3]) else None
            elif line.startswith("Rss:") and file is not None:
                found[file] = found.get(file, 0) + int(line.split()[1]) * 1024
            elif "-" in line.split(" ", 1)[0]:
                file = None  # a mapping without a name
    return found


def _is_shared(name: str) -> bool:
    return name.startswith(_SHARED) and not name.startswith(_OBJECT_STORE)


def _mapped_id(mapping: re.Match[str]) -> FileId:
    device, inode, name = mapping.groups()
    if name.startswith("/SYSV"):
        return _segment_id(int(inode))
    major, minor = device.split(":")
    return (os.makedev(int(major, 16), int(minor, 16)), int(inode))


@final
@dataclass(frozen=True)
class _Entry:
    """An entry of /dev/shm, a file or a folder."""

    path: Path
    file: FileId
    mine: bool
    size: int

    @classmethod
    def read(cls, path: Path) -> _Entry | None:
        """Return the entry, unless it is gone."""
        try:
            found = os.lstat(path)
        except OSError:
            return None
        size = found.st_blocks * 512
        for where, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    size += os.lstat(os.path.join(where, name)).st_blocks * 512
        return cls(path, (found.st_dev, found.st_ino), found.st_uid == os.getuid(), size)


def entries() -> frozenset[FileId]:
    """Return what is in shared memory now: entries of /dev/shm, segments of System V."""
    found = {_segment_id(segment.number) for segment in _segments()}
    with contextlib.suppress(OSError), os.scandir(SHARED_MEMORY) as listed:
        for entry in listed:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


@final
class SharedMemory:
    """What the processes of one cell hold in shared memory, and leave there.

    Nothing says who has created a file. A file is the cell's if it appeared while the cell ran,
    belongs to our user, and a process of the cell was seen to hold it open or mapped, or is named
    in its name by its number (as torch and joblib do). Segments of System V name their creator.
    """

    def __init__(self, before: frozenset[FileId]) -> None:
        self._before = before
        self._files: dict[FileId, Path] = {}
        self._segments: set[int] = set()
        self._pids: set[int] = set()
        """Numbers of all processes that the cell had."""

    def sizes(self, processes: Collection[Process], look_at_mappings: bool) -> dict[FileId, int]:
        """Return the bytes of what these processes hold or have left, by file."""
        held: dict[FileId, int] = {}
        for process in processes:
            for name, file, size in _open_files(process.pid):
                held[file] = size
                self._claim(name, file)
            if look_at_mappings:
                for name, file in _mapped_files(process.pid):
                    self._claim(name, file)
        self._pids.update(process.pid for process in processes)
        self._claim_by_number()
        for file, path in [*self._files.items()]:
            entry = _Entry.read(path)
            if entry is None or entry.file != file:
                del self._files[file]
            else:
                held[file] = entry.size
        for segment in _segments():
            if segment.number in self._segments:
                held[_segment_id(segment.number)] = segment.size
        return held

    def remove(self, root: Process) -> None:
        """Remove what is left and held by no process but the worker, whose cell has ended."""
        self._claim_by_number()  # what was created after the last look
        if self._files:
            others = _held_by_others(root)
            for file, path in self._files.items():
                entry = _Entry.read(path)
                if entry is not None and entry.file == file and not _inside(path, others):
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink(missing_ok=True)
        for segment in _segments():
            if segment.number in self._segments and not segment.attached:
                ctypes.CDLL(None).shmctl(segment.number, _REMOVE_SEGMENT, None)

    def _claim(self, name: str, file: FileId) -> None:
        """Take note of the entry of /dev/shm in which a held file is."""
        if not name.startswith(f"{SHARED_MEMORY}/") or name.endswith(_DELETED):
            return
        top = SHARED_MEMORY / Path(name).relative_to(SHARED_MEMORY).parts[0]
        # In a folder that was there before, only the file is the cell's, if it is new.
        for path in dict.fromkeys((top, Path(name))):
            entry = _Entry.read(path)
            if entry is None or not entry.mine or entry.file in self._before:
                continue
            if path == top or entry.file == file:
                self._files[entry.file] = path
                return

    def _claim_by_number(self) -> None:
        for segment in _segments():
            new = _segment_id(segment.number) not in self._before
            if new and segment.creator in self._pids:
                self._segments.add(segment.number)
        with contextlib.suppress(OSError), os.scandir(SHARED_MEMORY) as listed:
            for item in listed:
                match = _NUMBERED.match(item.name)
                if match is not None and int(match[1]) in self._pids:
                    entry = _Entry.read(Path(item.path))
                    if entry is not None and entry.mine and entry.file not in self._before:
                        self._files[entry.file] = entry.path


def _open_files(pid: int) -> Iterator[tuple[str, FileId, int]]:
    """Open files of a process in shared memory: name, file and bytes."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for number in numbers:
        path = f"/proc/{pid}/fd/{number}"
        with contextlib.suppress(OSError):
            name = os.readlink(path)
            if _is_shared(name):
                found = os.stat(path)
                yield name, (found.st_dev, found.st_ino), found.st_blocks * 512


def _mapped_files(pid: int) -> Iterator[tuple[str, FileId]]:
    """Files in shared memory that a process maps."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        match = _MAPPING.match(line)
        if match is not None and _is_shared(match[3]):
            yield match[3], _mapped_id(match)


def _held_by_others(root: Process) -> set[str]:
    """Names of all files in shared memory that any process but this one holds."""
    names: set[str] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid != root.pid:
            names.update(name for name, _, _ in _open_files(pid))
            names.update(name for name, _ in _mapped_files(pid))
    return names


def _inside(path: Path, names: Collection[str]) -> bool:
    return any(name == str(path) or name.startswith(f"{path}/") for name in names)


@final
@dataclass(frozen=True)
class _Segment:
    """A shared memory segment of System V."""

    number: int
    creator: int
    attached: int
    size: int


def _segments() -> Iterator[_Segment]:
    try:
        head, *lines = _SEGMENTS.read_text(encoding="ascii").splitlines()
    except OSError:
        return
    names = head.split()
    for line in lines:
        row = dict(zip(names, line.split(), strict=True))
        yield _Segment(int(row["shmid"]), int(row["cpid"]), int(row["nattch"]), int(row["rss"]))


def _segment_id(number: int) -> FileId:
    """The device of segments is unknown: no other file has a negative one."""
    return (-1, number)
