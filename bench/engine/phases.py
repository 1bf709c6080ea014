"""The phase that a cell is in, shown in a file by the process that computes the cell.

Whoever runs cells names the folder (`showing`), the code that computes one says what it does next
(`enter`), and progress displays read the file (`read`). Nothing follows from it: outside of
`showing`, and where the file cannot be written, a phase is not shown.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from bench.errors import one_line

_FILE = "phase"
_LONGEST = 80

_folder: ContextVar[Path | None] = ContextVar("folder of the phase", default=None)


@contextlib.contextmanager
def showing(folder: Path) -> Iterator[None]:
    """Show in this folder what the cell does that is computed meanwhile."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def enter(phase: str, what: str = "") -> None:
    """Say that a phase begins; `what` is for example the metric that is computed."""
    folder = _folder.get()
    if folder is None:
        return
    with contextlib.suppress(OSError):  # a full disk is met, and told, by the cell itself
        new = folder / f".{_FILE}"
        new.write_text(f"{phase} {what}".strip(), encoding="utf-8")
        new.replace(folder / _FILE)


def read(folder: Path) -> str:
    """Return the phase that is shown in a folder, as one line; nothing where there is none.

    The code of a method could write there, too: what is read is bounded, and no pipe is waited for.
    """
    try:
        file = os.open(folder / _FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        return one_line(os.read(file, 4 * _LONGEST).decode("utf-8", "replace"), _LONGEST)
    except OSError:
        return ""
    finally:
        os.close(file)
