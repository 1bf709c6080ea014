"""Folders in the shared temporary folder that no other user can read, prepare or replace.

Their names contain a random part, they are created with mode 0700, and a folder that is already
there is used only if it is ours. Who needs one holds a lock on a file in it: the system releases
the lock of a process that was killed, so that what it left behind can be recognized and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.errors import FolderClosedError, UnsafeFolderError

CELLS = "bench-cells-"
_LOCK = "in-use.lock"
_CLOSED = "closed"
_UNMARKED_SECONDS = 3600.0
"""Age of a folder without a lock at which nobody is about to lock it any more."""


def make_private(folder: Path) -> Path:
    """Create a folder for this user alone, or check that the existing one is, and still in use."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)
    if not _is_private(folder):
        raise UnsafeFolderError(folder)
    if (folder / _CLOSED).exists():
        raise FolderClosedError(folder)
    return folder


def base_folder(run: str) -> Path:
    """Return the folder in which the cells of a run are shown on a machine."""
    return Path(tempfile.gettempdir()) / f"{CELLS}{os.getuid()}-{run}"


def close(folder: Path) -> None:
    """Remove all that is in a folder, and allow nothing new: who comes late is refused.

    Without the folder, a cell that starts while its run ends would create it again, and nobody
    would remove what it writes.
    """
    if not folder.exists():
        return
    (folder / _CLOSED).touch(mode=0o600)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in (_CLOSED, _LOCK):
            path.unlink(missing_ok=True)


def hold(folder: Path) -> int | None:
    """Mark a folder as in use until this process ends; None if another process holds it."""
    # Visible only once it is locked: otherwise it would look like the lock of a dead process.
    new = folder / f".{_LOCK}.{os.getpid()}"
    lock = folder / _LOCK
    if not lock.exists():
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        new.replace(lock)
        return descriptor
    descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    os.utime(descriptor)
    return descriptor


def still_in_use(lock: int | None) -> None:
    """Renew the age of a lock that is held."""
    if lock is not None:
        os.utime(lock)


def remove_left_over(prefix: str, minimum_age: float, parent: Path | None = None) -> None:
    """Remove folders of this user whose holders are dead, `minimum_age` seconds after their mark.

    Anybody can create entries in a shared temporary folder: what is not ours is left alone. So is
    a young folder without a lock: somebody is about to hold it.
    """
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        if _is_private(folder) and _abandoned(folder, minimum_age):
            remove(folder)


def remove(folder: Path, seconds: float = 10.0) -> None:
    """Remove a folder in which processes that are about to end may still create files."""
    deadline = time.monotonic() + seconds
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)


def _abandoned(folder: Path, minimum_age: float) -> bool:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        try:
            age = time.time() - os.lstat(folder).st_mtime
        except OSError:
            return False  # gone: its holder has removed it meanwhile
        # Its watcher never came to hold it.
        return age > max(minimum_age, _UNMARKED_SECONDS)
    except OSError:
        return False
    with _closing(descriptor):
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or time.time() - found.st_mtime < minimum_age:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def _is_private(folder: Path) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return ours and not stat.S_IMODE(found.st_mode) & 0o077


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)
