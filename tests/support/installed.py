"""A third-party plugin package as pip would install it, for runs in other processes."""

from __future__ import annotations

import os
from pathlib import Path

_PLUGIN = """
import os
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.core.errors import NotApplicable
from bench.core.method import Method
from bench.core.release import Release, Rows


@dataclass(frozen=True)
class Misbehaves(Method):
    name: ClassVar[str] = "misbehaves"
    title: ClassVar[str] = "A plugin that fails in a chosen way"
    uses_budget: ClassVar[bool] = False
    how: str = "raise"

    def synthesize(self, private, spec, rng):
        if self.how == "exit":
            os._exit(3)
        if self.how == "skip":
            raise NotApplicable("not for this task")
        raise ValueError("something broke")
"""


def install_plugin(folder: Path) -> dict[str, str]:
    """Write the package; returns the environment in which it is installed."""
    information = folder / "misbehaves-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "misbehaves_plugin.py").write_text(_PLUGIN)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaves\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[bench.methods]\nmisbehaves = misbehaves_plugin:Misbehaves\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}
