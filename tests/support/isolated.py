"""Tiny wheels, and a plugin with its own environment, for tests without a network."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from bench.plugins.method import Environment

TINY = Environment("tiny", ("tinypackage==1.0",), ("tinypackage",))
EMPTY = Environment("empty", (), ())

_TINY = "ANSWER = 42\n"

_PLUGIN = """
import os
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.plugins.method import Environment
from bench.errors import NotApplicable
from bench.plugins.method import Method
from bench import gaussian
from bench.plugins.release import Claim, Release, Rows


@dataclass(frozen=True)
class Secluded(Method):
    name: ClassVar[str] = "secluded"
    title: ClassVar[str] = "A method with its own environment"
    environment: ClassVar[Environment] = Environment(
        "tiny", ("tinypackage==1.0",), ("tinypackage",)
    )
    seeded: ClassVar[bool] = False
    how: str = "well"

    def synthesize(self, private, spec, rng):
        if self.how == "exit":
            os._exit(3)
        if self.how == "memory":
            raise MemoryError("too large")
        if self.how == "skip":
            raise NotApplicable("not for this task")
        import tinypackage

        if self.how == "raise":
            raise ValueError("something broke")
        private.reserve(gaussian(100.0))
        private.gaussian_sum(lambda rows: rows.values, 1.0, 100.0)
        per_class = spec.rows_per_class(private.counts)
        labels = np.repeat(np.arange(len(per_class)), per_class)
        values = rng.uniform(-1, 1, (len(labels), private.width))
        notes = {"prefix": sys.prefix, "answer": tinypackage.ANSWER, "process": str(os.getpid())}
        return Release(Rows(values, labels), claim=Claim.of(spec.budget, "itself"), notes=notes)
"""


def write_wheel(
    folder: Path,
    name: str = "tinypackage",
    version: str = "1.0",
    source: str = _TINY,
    requires: tuple[str, ...] = (),
    padding: int = 0,
) -> Path:
    """A wheel with one module; `padding` adds that many bytes to what is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    information = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files: dict[str, str | bytes] = {
        f"{name}.py": source,
        f"{information}/METADATA": metadata + "".join(f"Requires-Dist: {r}\n" for r in requires),
        f"{information}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    if padding:
        files[f"{name}_padding.bin"] = os.urandom(padding)
    record = [*files, f"{information}/RECORD"]
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, content in files.items():
            archive.writestr(place, content)
        archive.writestr(f"{information}/RECORD", "".join(f"{place},,\n" for place in record))
    return path


def without_index(root: Path, wheels: Path) -> Mapping[str, str]:
    """Variables with which environments are built below `root`, from these wheels alone."""
    wheels.mkdir(parents=True, exist_ok=True)
    return {
        "BENCH_ENVIRONMENTS": str(root),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
    }


def install_secluded(folder: Path) -> Mapping[str, str]:
    """Write the plugin as pip would install it; returns the variables that make it visible."""
    information = folder / "secluded-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "secluded_plugin.py").write_text(_PLUGIN)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: secluded\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[bench.methods]\nsecluded = secluded_plugin:Secluded\n"
    )
    return {"PYTHONPATH": str(folder)}
