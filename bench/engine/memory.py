"""Peak memory of this process between two points, where the operating system tells."""

from __future__ import annotations

from pathlib import Path

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def reset_peak_memory() -> None:
    """Start a new peak: worker processes are reused, so the old one belongs to another cell."""
    if _CLEAR.exists():
        try:
            _CLEAR.write_text("5", encoding="ascii")
        except OSError:
            return  # not permitted here: the peak then covers the whole process


def peak_memory_mb() -> float | None:
    """Largest resident memory since the reset, in MiB; None where it cannot be read."""
    if not _STATUS.exists():
        return None
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None
