"""Opens the files of a run directory, which may come from a stranger.

Everything that reads a run directory opens its files here. What the names in a journal or a table
could otherwise reach or stop is refused, with one line that names the file:

- Every part of a path is a plain name, and a cell's folder is named by its key. Nothing outside the
  directory can be named.
- No link is followed, neither for the file nor for a folder on the way to it. Each folder is opened
  relative to the one above, so that no later look-up by path can end elsewhere. The run directory
  itself is named by the user and may be a link.
- Only regular files are opened: a FIFO would hang a reader, a device may never end.
- A file larger than its kind can be is not read, and neither is a line of a journal.

A command that writes to a run directory calls `survey` once it holds the lock: no link and no
special file anywhere below means that no write can leave the directory either.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bench.errors import StoreError

LARGEST_DOCUMENT = 64 << 20
"""Bytes of a JSON file. A ledger of a thousand parts has less than one; `about.json` some."""
LARGEST_JOURNAL = 1 << 36
"""Bytes of a journal: 100,000 cells with 100 scores each have 3 GB. It is read line by line."""
LONGEST_LINE = 32 << 20
"""Bytes of a line of a journal, which is held in memory: a cell with 1,000 scores has 0.3 MB."""
LARGEST_TABLE = 1 << 33
"""Bytes of a Parquet file: 60,000 released images of 3,072 pixels have 1.4 GB."""
DEEPEST = 40
"""Levels of lists and objects within each other in a JSON file; bench writes fewer than ten."""

_DEEPEST_FOLDER = 20
_PLAIN_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]{0,199}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, in case that what was a regular file a moment ago is a FIFO now.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def is_plain_name(name: object) -> bool:
    """Return True for what may become one part of a path: no slash, and no dot in front."""
    return isinstance(name, str) and _PLAIN_NAME.fullmatch(name) is not None


def check_key(key: object, where: Path) -> None:
    """Refuse the key of a cell that cannot name a folder; keys of bench are hexadecimal digits."""
    if not is_plain_name(key):
        raise StoreError(
            f"{where}: key {str(key)[:60]!r} is not a plain name of letters, digits, '.', '_' "
            "and '-'; the directory was not written by bench"
        )


def in_the_run(problem: StoreError, directory: Path) -> str:
    """Return a message for pages, which may be published: without the path of the run directory."""
    return str(problem).replace(f"{directory}{os.sep}", "")


# Opening ------------------------------------------------------------------------------------------


def open_file(directory: Path, *parts: str, most: int = LARGEST_TABLE) -> IO[bytes] | None:
    """Open a file for reading, given by its parts below the run directory; None where it is absent.

    Raises `StoreError` for whatever the module docstring refuses.
    """
    folder = _open_folder(directory, parts[:-1])
    if folder is None:
        return None
    path = directory.joinpath(*parts)
    try:
        opened = _open_regular(path, os.O_RDONLY, folder)
    except FileNotFoundError:
        return None
    finally:
        os.close(folder)
    size = os.fstat(opened).st_size
    if size > most:
        os.close(opened)
        raise StoreError(
            f"{path}: has {size:,} bytes, more than such a file can have ({most:,}); it was not "
            "written by bench"
        )
    return os.fdopen(opened, "rb")


def open_to_write(path: Path, flags: int) -> int:
    """Open a file of a run directory by these flags (of `os.open`); no link is followed.

    The folder must have been surveyed. A new file is readable by its owner only.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _open_regular(path, flags, folder)
    finally:
        os.close(folder)


def _open_folder(directory: Path, parts: tuple[str, ...]) -> int | None:
    """Return a descriptor of the folder; None where it, or one on the way, is absent."""
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StoreError(f"{directory}: cannot be opened ({problem.strerror})") from None
    path = directory
    for part in parts:
        path = path / part
        try:
            _check_part(part, path)
            inner = os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise _refusal(path, folder, "a folder", problem) from None
        finally:
            os.close(folder)
        folder = inner
    return folder


def _open_regular(path: Path, flags: int, folder: int) -> int:
    _check_part(path.name, path)
    try:
        # Looked at before it is opened: opening alone can already act on a device.
        with contextlib.suppress(FileNotFoundError):
            _check_regular(path, os.lstat(path.name, dir_fd=folder))
        opened = os.open(path.name, flags | _FILE, 0o600, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise _refusal(path, folder, "a regular file", problem) from None
    try:
        _check_regular(path, os.fstat(opened))
    except StoreError:
        os.close(opened)
        raise
    return opened


def _check_part(part: str, path: Path) -> None:
    if not is_plain_name(part):
        raise StoreError(
            f"{path}: {part[:60]!r} is not a plain name, and would lead out of the run directory"
        )


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _not(path, status.st_mode, "a regular file")


def _refusal(path: Path, folder: int, expected: str, problem: OSError) -> StoreError:
    """Return the error for a file or folder that did not open: with its kind, if that is why."""
    if problem.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
        with contextlib.suppress(OSError):
            return _not(path, os.lstat(path.name, dir_fd=folder).st_mode, expected)
    return StoreError(f"{path}: cannot be opened ({problem.strerror})")


def _not(path: Path, mode: int, expected: str) -> StoreError:
    kind = _KINDS.get(stat.S_IFMT(mode), "another kind of file")
    if stat.S_ISLNK(mode):
        return StoreError(f"{path} is a symbolic link, which is not followed; put the files there")
    return StoreError(f"{path} is {kind} and not {expected}; it was not written by bench")


# Reading ------------------------------------------------------------------------------------------


def read_bytes(directory: Path, *parts: str, most: int = LARGEST_DOCUMENT) -> bytes | None:
    """Return the content of a file; None where it is absent."""
    file = open_file(directory, *parts, most=most)
    if file is None:
        return None
    with file:
        # One byte more than it may have: it could grow while it is read.
        content = file.read(most + 1)
    if len(content) > most:
        raise StoreError(f"{directory.joinpath(*parts)}: grew beyond {most:,} bytes")
    return content


def read_text(directory: Path, *parts: str, most: int = LARGEST_DOCUMENT) -> str | None:
    """Return the text of a file; None where it is absent."""
    content = read_bytes(directory, *parts, most=most)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        raise StoreError(f"{directory.joinpath(*parts)}: is not UTF-8 text") from None


def read_object(directory: Path, *parts: str) -> dict[str, Any] | None:
    """Return the JSON object in a file; None where there is none to read."""
    text = read_text(directory, *parts)
    return None if text is None else parse_object(text)


def parse_object(text: str | bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for other text, and for objects nested deeper than any of ours."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and not _deeper(document, DEEPEST) else None


def _deeper(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(item, levels - 1) for item in inner)


def lines_of(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Return the lines of a file from where it stands; refuse one that would fill the memory."""
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise too_long(path)
        yield line


def too_long(path: Path) -> StoreError:
    """Return the error for a line that would fill the memory."""
    return StoreError(
        f"{path}: has a line of more than {LONGEST_LINE:,} bytes; it was not written by bench"
    )


def modified(directory: Path, *parts: str) -> int | None:
    """Return when a regular file was last written, in nanoseconds; None where there is none."""
    file = open_file(directory, *parts)
    if file is None:
        return None
    with file:
        return os.fstat(file.fileno()).st_mtime_ns


def names_in(directory: Path, *parts: str) -> list[str]:
    """Return the plain names in a folder, sorted; none where it is absent.

    Other names are not looked at: a killed run leaves files behind that begin with a dot.
    """
    folder = _open_folder(directory, parts)
    if folder is None:
        return []
    try:
        return sorted(name for name in os.listdir(folder) if is_plain_name(name))
    finally:
        os.close(folder)


def link_or_copy(source: IO[bytes], target: Path) -> None:
    """Make an opened file appear elsewhere: as another name of it, or as a copy on another disk.

    Files of a run directory are replaced, never written into: sharing them is safe.
    """
    try:
        # By the descriptor, not by the path: what was checked is what is linked. Naming a folder
        # makes Python call linkat, which follows the link of the system to the opened file.
        number = source.fileno()
        os.link(f"/proc/self/fd/{number}", target, src_dir_fd=number, follow_symlinks=True)
    except OSError:
        with target.open("xb") as copy:
            shutil.copyfileobj(source, copy)


# Before writing -----------------------------------------------------------------------------------


def survey(directory: Path) -> list[Path]:
    """Refuse a run directory with a link or a special file anywhere below it.

    A command that writes follows paths: through a link it would change files elsewhere. What is
    written meanwhile by a run of ours is none of them. Returned is what a killed run has left
    half-written, which the holder of the lock may remove.
    """
    waiting = [(directory, 0)]
    parts: list[Path] = []
    while waiting:
        folder, depth = waiting.pop()
        if depth > _DEEPEST_FOLDER:
            raise StoreError(
                f"{folder}: folders lie deeper in each other than in any run directory; it was not "
                "written by bench"
            )
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            continue
        except OSError as problem:
            raise StoreError(f"{folder}: cannot be read ({problem.strerror})") from None
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(".part"):
                parts.append(Path(entry.path))
            if entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), depth + 1))
            elif not entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    raise _not(Path(entry.path), mode, "a regular file or folder")
    return parts


def open_lock(directory: Path) -> IO[bytes]:
    """Open the lock file of a run directory, creating it; no link is followed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.fdopen(open_to_write(directory / "lock", flags), "ab")
