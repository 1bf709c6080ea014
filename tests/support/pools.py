"""A third-party library that uses `multiprocessing.Pool`, wrapped, as pip would install it."""

from __future__ import annotations

import os
from pathlib import Path

_PLUGIN = """
import multiprocessing
import time
from dataclasses import dataclass
from typing import ClassVar

from bench import DataFrameMethod, Resources


@dataclass(frozen=True)
class Pools(DataFrameMethod):
    name: ClassVar[str] = "pools"
    title: ClassVar[str] = "Counts in a pool"
    package: ClassVar[str] = "pools"

    def fit(self, frame, request):
        for _ in range(10):
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(abs, [-1, -2]) == [1, 2]
        return lambda rows: frame.sample(rows, replace=True)


@dataclass(frozen=True)
class Stuck(DataFrameMethod):
    name: ClassVar[str] = "stuck"
    title: ClassVar[str] = "Waits for a pool that never answers"
    package: ClassVar[str] = "pools"
    resources: ClassVar[Resources] = Resources(minutes=0.1)

    def fit(self, frame, request):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(time.sleep, [10**6] * 2)
"""


def install_pools(folder: Path) -> dict[str, str]:
    """Write the package; returns the environment in which it is installed."""
    information = folder / "pools-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "pools_plugin.py").write_text(_PLUGIN)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: pools\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[bench.methods]\npools = pools_plugin:Pools\nstuck = pools_plugin:Stuck\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}
