"""How much memory a piece of a test takes, whatever ran in the same process before it."""

from __future__ import annotations

import contextlib
import re
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

RESET = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")


def _peak() -> int:
    """The highest resident memory of this process so far, in kB: since the last reset where the
    system has one, else since its start."""
    if STATUS.exists():
        return int(re.findall(r"VmHWM:\s+(\d+)", STATUS.read_text())[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextlib.contextmanager
def megabytes_taken() -> Iterator[Callable[[], float]]:
    """A function that says how far memory has risen above what was in use at the start.

    Where the peak cannot be reset it says how far the peak has risen, which may be less.
    """
    with contextlib.suppress(OSError):
        RESET.write_text("5")
    before = _peak()
    yield lambda: (_peak() - before) / 1024
