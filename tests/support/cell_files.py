"""Details of a cell written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.leaderboard.tables.details import CellFiles


def new_files(folder: Path) -> CellFiles:
    """A cell without any details yet."""
    (folder / "details" / "k").mkdir(parents=True)
    return CellFiles(folder, "k")


def write(files: CellFiles, name: str, **columns: Any) -> Path:
    """One table of details."""
    assert files.home is not None
    path = files.home / "details" / files.key / f"{name}.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def sides(real: list[float], released: list[float], spread: float = 0.1) -> dict[str, list[float]]:
    """Columns of a table that compares real and released rows, with intervals."""
    found: dict[str, list[float]] = {}
    for name, values in (("real", real), ("released", released)):
        found[name] = values
        found[f"{name}-low"] = [value * (1 - spread) for value in values]
        found[f"{name}-high"] = [value * (1 + spread) for value in values]
    return found
