"""What a cell may use, what it used, and what it printed.

Limits on time, memory and disk; threads; the peak of memory; output and the traceback of a crash.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, final

if TYPE_CHECKING:  # the watcher imports this module, and needs no pandas
    from bench.data.dataset import Dataset
    from bench.plugins.method import Resources

_MINUTES = 30.0
_MEMORY_MB = 4096
_DISK_MB = 4096
_TABLE = 1e7
"""Encoded numbers in a table that doubles the time: some 100,000 rows of 100 columns."""
_COPIES = 40
"""Copies of the encoded rows that methods and metrics may hold at once."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
"""What libraries read when they are loaded."""

LOG = "output.log"
EXIT_MARK = "bench: the process was ended by os._exit"
CRASH_MARK = "Fatal Python error:"
_TAIL = 16_384

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@final
@dataclass(frozen=True)
class Limits:
    """Limits of one cell; a worker that exceeds them is killed."""

    seconds: float
    memory_mb: float
    disk_mb: float = _DISK_MB

    @classmethod
    def of(cls, resources: Resources, dataset: Dataset, asked: Asked) -> Limits:
        """Return what is asked for, or the method declares, or defaults by the dataset's size."""
        numbers = len(dataset.train.rows) * dataset.encoder.width
        minutes = resources.minutes or _MINUTES * (1.0 + numbers / _TABLE)
        memory = resources.memory_mb or _MEMORY_MB + _COPIES * numbers * 4 / 2**20
        return cls(
            60.0 * (asked.minutes or minutes), asked.memory_mb or memory, asked.disk_mb or _DISK_MB
        )


@final
@dataclass(frozen=True)
class Asked:
    """Limits from the command line, for every cell; None leaves the default."""

    minutes: float | None = None
    memory_mb: float | None = None
    disk_mb: float | None = None


def expected_seconds(resources: Resources, dataset: Dataset, before: float | None) -> float:
    """Return what a cell may take: as before, or by what is declared."""
    if before is not None:
        return before
    numbers = len(dataset.train.rows) * dataset.encoder.width
    return 60.0 * (resources.minutes or 1.0) * (0.1 + numbers / _TABLE)


# Memory -------------------------------------------------------------------------------------------


def reset_peak_memory() -> None:
    """Start a new peak: worker processes are reused, so the old one belongs to another cell."""
    if _CLEAR.exists():
        try:
            _CLEAR.write_text("5", encoding="ascii")
        except OSError:
            return  # not permitted here: the peak then covers the whole process


def peak_memory_mb() -> float | None:
    """Return the largest resident memory since the reset, in MiB; None if it cannot be read."""
    if not _STATUS.exists():
        return None
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None


# Output and threads -------------------------------------------------------------------------------


@contextlib.contextmanager
def captured(folder: Path, disk_mb: float) -> Iterator[None]:
    """Send what the cell prints to a file in `folder`, and its temporary files below it.

    A segmentation fault leaves its traceback there, a call of `os._exit` a line: the process is
    gone then, and only the file distinguishes a fault of the cell from a lost machine.
    No file can grow beyond the disk limit.
    """
    scratch = folder / "scratch"
    scratch.mkdir(mode=0o700, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab", buffering=0) as log, contextlib.ExitStack() as stack:
        for stream in (1, 2):
            stack.callback(_restored, os.dup(stream), stream)
            os.dup2(log.fileno(), stream)
        faulthandler.enable(file=log)
        stack.callback(_no_fault_log)
        stack.enter_context(_noting_exit(log.fileno()))
        stack.enter_context(_temporary_files_in(scratch))
        stack.enter_context(_file_size(disk_mb))
        stack.enter_context(_files_for_owner_only())
        yield


def tail(folder: Path) -> str:
    """Return the last lines of what a cell printed."""
    path = folder / LOG
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read().decode(errors="replace")


@functools.cache
def let_children_end() -> None:
    """Give forked children of this process the default reaction to SIGTERM, from now on.

    A worker of Ray has its own handler, which a child of `multiprocessing` would inherit: it tries
    to end the worker in an orderly way, hangs, and the worker waits for its child for ever. The
    signal is blocked while a child is made: one that came before the reaction is reset would be
    lost, for the same wait.
    """
    # Of the thread that forks, and of its copy in the child.
    earlier = threading.local()

    def block() -> None:
        earlier.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier.mask)

    def reset() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=reset)


@contextlib.contextmanager
def threads_capped(threads: int) -> Iterator[None]:
    """Limit the threads of BLAS, OpenMP, torch and numba, as far as they are loaded.

    What is loaded later reads the environment variables, which Ray sets from the CPUs of the task.
    """
    import threadpoolctl

    _cap_others(threads)
    with threadpoolctl.threadpool_limits(threads):
        yield


_capped: tuple[int, int] | None = None
"""Number of threads and of modules at the last call of `cap_threads`."""


def cap_threads(threads: int) -> None:
    """Limit threads as `threads_capped` does, for good: in a worker, whose cells follow each other.

    To look for libraries takes 20 ms: it is not done where none was imported since the last time.
    """
    import threadpoolctl

    global _capped
    _cap_others(threads)
    if _capped != (threads, len(sys.modules)):
        threadpoolctl.threadpool_limits(threads)
        _capped = (threads, len(sys.modules))


def _cap_others(threads: int) -> None:
    for name in THREAD_VARIABLES:
        # Numba refuses to change once its threads run; one that is not loaded reads this.
        if name != "NUMBA_NUM_THREADS" or "numba" not in sys.modules:
            os.environ[name] = str(threads)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    numba: Any = sys.modules.get("numba")
    if numba is not None:
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))


def _restored(saved: int, stream: int) -> None:
    os.dup2(saved, stream)
    os.close(saved)


def _no_fault_log() -> None:
    faulthandler.disable()


@contextlib.contextmanager
def _noting_exit(log: int) -> Iterator[None]:
    end, worker = os._exit, os.getpid()

    def noted(status: int) -> NoReturn:
        # Every child of `multiprocessing` ends like that; it is not the cell.
        if os.getpid() == worker:
            os.write(log, f"\n{EXIT_MARK}({status})\n".encode())
        end(status)

    os._exit = noted
    try:
        yield
    finally:
        os._exit = end


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable


@contextlib.contextmanager
def _files_for_owner_only() -> Iterator[None]:
    """What a cell writes, temporary files above all, may hold rows."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def _file_size(disk_mb: float) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    wanted = int(disk_mb * 2**20)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
