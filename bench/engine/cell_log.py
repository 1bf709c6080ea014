"""What a cell prints, its last words when it crashes, and how many threads it may use."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

LOG = "output.log"
EXIT_MARK = "bench: the process was ended by os._exit"
CRASH_MARK = "Fatal Python error:"
_TAIL = 16_384


@contextlib.contextmanager
def captured(folder: Path, disk_mb: float) -> Iterator[None]:
    """Send what the cell prints to a file in `folder`, and its temporary files below it.

    A segmentation fault leaves its traceback there, a call of `os._exit` its own line: the
    process is gone then, and the file is all that tells the cell's own fault from a lost machine.
    No file can grow beyond the disk limit.
    """
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with (folder / LOG).open("ab", buffering=0) as log, contextlib.ExitStack() as stack:
        for stream in (1, 2):
            stack.callback(_restored, os.dup(stream), stream)
            os.dup2(log.fileno(), stream)
        faulthandler.enable(file=log)
        stack.callback(_no_fault_log)
        stack.enter_context(_noting_exit(log.fileno()))
        stack.enter_context(_temporary_files_in(scratch))
        stack.enter_context(_file_size(disk_mb))
        yield


def tail(folder: Path) -> str:
    """The last lines of what a cell printed."""
    path = folder / LOG
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read().decode(errors="replace")


@contextlib.contextmanager
def threads_capped(threads: int) -> Iterator[None]:
    """No more than so many threads in BLAS, OpenMP, torch and numba, as far as they are loaded.

    What is loaded later reads the environment variables, which Ray sets from the CPUs of the task.
    """
    import threadpoolctl

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        # Numba refuses to change once its threads run; one that is not loaded reads this.
        if name != "NUMBA_NUM_THREADS" or "numba" not in sys.modules:
            os.environ[name] = str(threads)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    numba: Any = sys.modules.get("numba")
    if numba is not None:
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    with threadpoolctl.threadpool_limits(threads):
        yield


def _restored(saved: int, stream: int) -> None:
    os.dup2(saved, stream)
    os.close(saved)


def _no_fault_log() -> None:
    faulthandler.disable()


@contextlib.contextmanager
def _noting_exit(log: int) -> Iterator[None]:
    end = os._exit

    def noted(status: int) -> NoReturn:
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
