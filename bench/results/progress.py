"""How far a run is, for `bench status`: written by the driver, read by anybody."""

from __future__ import annotations

import datetime
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from bench.results.records import Cell
from bench.results.run_directory import write_atomically

_EVERY_SECONDS = 2.0


@final
class Progress:
    """Keeps `progress.json` in the run directory up to date."""

    def __init__(self, directory: Path, total: int, cached: int, seconds: float = 0.0) -> None:
        """`seconds`: how long ago the run began; planning records cells as well."""
        self._path = directory / "progress.json"
        self._facts: dict[str, Any] = {
            "total": total,
            "cached": cached,
            "started_at": _now(seconds),
            "pid": os.getpid(),
            "host": platform.node(),
            "ended": None,
        }
        self._since: dict[str, str] = {}
        self._written = 0.0
        self._write([])

    def running(self, cells: Sequence[tuple[str, Cell]]) -> None:
        """These cells are in flight; written every few seconds."""
        self._since = {key: self._since.get(key) or _now() for key, _ in cells}
        if time.monotonic() - self._written >= _EVERY_SECONDS:
            self._write(cells)

    def end(self, how: str) -> None:
        """The run is over: `finished` or `interrupted`."""
        self._facts["ended"] = how
        self._write([])

    def _write(self, cells: Sequence[tuple[str, Cell]]) -> None:
        running = [
            {"key": key, "cell": cell.describe(), "since": self._since[key]} for key, cell in cells
        ]
        document = {**self._facts, "running": running}
        write_atomically(self._path, json.dumps(document, indent=1).encode())
        self._written = time.monotonic()


def _now(ago: float = 0.0) -> str:
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)
    return now.isoformat(timespec="seconds")
