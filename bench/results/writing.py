"""The one writer: whatever the harness writes for its users is written by these functions.

What the operating system refuses (a full disk, a file system that became read-only, a folder that
was removed in the middle) becomes one typed error that names the place and says what to do. Files
appear whole or not at all. Run directories hold times and events of test rows, and logs with
values of rows: their files can be read by their owner only.

Where power may be cut, a file is there for good once it was synced, and its name once the folder
was: a system may write the two in any order. `tests/results/test_power_cuts.py` cuts the power at
every write of a run directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from bench.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

OWNER_ONLY: Final = 0o600
OWNER_FOLDER: Final = 0o700
FOR_ALL: Final = 0o666
"""For what is made to be given away, such as a site; the user's mask applies."""

RESUME: Final = "then run the same command again: what has finished is kept"

_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or ask for a larger quota",
    errno.EROFS: "make the file system writable",
    errno.EACCES: "make the folder writable for you",
    errno.EPERM: "make the folder writable for you",
    errno.ENOENT: "its folder is missing, or was removed meanwhile: put it back or name another",
    errno.ESTALE: "its folder was removed meanwhile: put it back or name another",
    errno.ENOTDIR: "a file is where a folder should be: move it or name another place",
    errno.EEXIST: "a file is where a folder should be: move it or name another place",
    errno.EISDIR: "a folder is where a file should be: move it or name another place",
    errno.EFBIG: "allow larger files",
}


@contextlib.contextmanager
def writing(place: Path, then: str = RESUME) -> Iterator[None]:
    """Turn an error of the operating system into one line about `place`."""
    try:
        yield
    except OSError as problem:
        raise StoreError(in_one_line(place, problem, then)) from None


def in_one_line(place: Path, problem: OSError, then: str = RESUME) -> str:
    """Return what cannot be written, why, and what to do about it."""
    words = os.strerror(problem.errno) if problem.errno else str(problem).splitlines()[0]
    advice = _ADVICE.get(problem.errno or 0, "check the disk")
    return f"{place}: cannot be written ({words}); {advice}, {then}"


def make_folder(path: Path) -> None:
    """Create a folder for its owner only; the folder above must exist.

    It is not created along: where a run directory was removed in the middle, a new one in its place
    would hide that.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, OWNER_FOLDER)


def sync_folder(path: Path) -> None:
    """Make the names in a folder outlive a power cut: those that were added, renamed or removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # a folder above the run directory that may be entered, but not listed
    try:
        os.fsync(descriptor)
    except OSError as problem:
        # Some network file systems cannot: they write names at once.
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def sync_files(folder: Path) -> None:
    """Make the files of a folder outlive a power cut, and their names in it.

    Called once when all are written: each sync after the first has little left to wait for.
    """
    for entry in os.scandir(folder):
        if entry.is_file(follow_symlinks=False):
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    sync_folder(folder)


def append_to(path: Path) -> IO[bytes]:
    """Open a file to append to with `append`; a new one can be read by its owner only.

    Nothing is buffered: what a full disk has refused must not be tried again when it is closed.
    """
    return _opened(path, os.O_APPEND, OWNER_ONLY, 0)


def append(file: IO[bytes], content: bytes) -> int:
    """Append and sync, all or nothing; return the place."""
    place = file.seek(0, os.SEEK_END)
    try:
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), place)
        raise
    return place


def create(path: Path, mode: int = OWNER_ONLY) -> IO[bytes]:
    """Open a new or emptied file."""
    return _opened(path, os.O_TRUNC, mode)


def _opened(path: Path, flags: int, mode: int, buffering: int = -1) -> IO[bytes]:
    # Links are not followed: a stranger's run directory may hold one that leads out of it.
    flags |= os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, mode)
    try:
        if mode == OWNER_ONLY and os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, mode)  # one that an earlier version has written
        return os.fdopen(descriptor, "wb", buffering)
    except BaseException:
        os.close(descriptor)
        raise


@contextlib.contextmanager
def replacing(path: Path, mode: int = OWNER_ONLY, *, synced: bool = True) -> Iterator[IO[bytes]]:
    """Write a file so that a reader sees the old or the new content, nothing between.

    What can be computed again, or is synced with others later, need not be `synced`: that takes as
    long as all the rest.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        with create(temporary, mode) as file:
            yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if synced:
            sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes, mode: int = OWNER_ONLY) -> None:
    """Write a whole file, or leave what is there."""
    with replacing(path, mode) as file:
        file.write(content)


def write_table(path: Path, table: pa.Table, *, synced: bool = False, **options: Any) -> None:
    """Write a table as Parquet, whole or not at all."""
    import pyarrow.parquet as pq

    with replacing(path, synced=synced) as file:
        pq.write_table(table, file, **options)


def write_together(folder: Path, tables: Mapping[str, pa.Table], **options: Any) -> None:
    """Write files of tables into a folder; after a power cut each is the old or the new one."""
    import pyarrow.parquet as pq

    parts = {name: folder / f".{name}.part" for name in tables}
    try:
        for name, table in tables.items():
            with create(parts[name]) as file:
                pq.write_table(table, file, **options)
        sync_files(folder)
        for name, part in parts.items():
            os.replace(part, folder / name)
        sync_folder(folder)
    except BaseException:
        for part in parts.values():
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        raise
