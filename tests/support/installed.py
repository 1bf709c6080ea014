"""A third-party plugin package as pip would install it, for runs in other processes."""

from __future__ import annotations

import os
from pathlib import Path

_PLUGIN = """
import ctypes
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.errors import NotApplicable
from bench.plugins.method import Method
from bench.plugins.release import Release, Rows
from bench.plugins.method import Resources


@dataclass(frozen=True)
class Misbehaves(Method):
    name: ClassVar[str] = "misbehaves"
    title: ClassVar[str] = "A plugin that fails in a chosen way"
    uses_budget: ClassVar[bool] = False
    how: str = "raise"

    def synthesize(self, private, spec, rng):
        print(f"about to {self.how}", flush=True)
        if self.how == "exit":
            os._exit(3)
        if self.how == "leave":
            sys.exit("enough")
        if self.how == "skip":
            raise NotApplicable("not for this task")
        if self.how == "crash":
            ctypes.string_at(0)
        if self.how == "leak":
            kept = []
            while True:
                kept.append(np.ones(4_000_000))
        if self.how == "file":
            with tempfile.TemporaryFile() as file:
                while True:
                    file.write(bytes(1_000_000))
        if self.how == "files":
            folder = tempfile.mkdtemp()
            for number in range(10**9):
                with open(os.path.join(folder, str(number)), "wb") as file:
                    file.write(bytes(1_000_000))
        if self.how == "nothing":
            return None
        if self.how == "nan":
            width = private.width
            return Release(Rows(np.full((2, width), np.nan), np.array([0, 1])))
        raise ValueError("something broke")


@dataclass(frozen=True)
class Hangs(Method):
    name: ClassVar[str] = "hangs"
    title: ClassVar[str] = "A plugin that never ends"
    uses_budget: ClassVar[bool] = False
    resources: ClassVar[Resources] = Resources(minutes=0.05)
    how: str = "loop"

    def synthesize(self, private, spec, rng):
        print(f"hanging in a {self.how}", flush=True)
        if self.how == "child":
            subprocess.run([sys.executable, "-c", "while True: pass"])
        if self.how == "lock":
            # Inside a C call that keeps the interpreter's lock: no thread of ours can run.
            ctypes.PyDLL(None).pause()
        while True:
            pass


@dataclass(frozen=True)
class DiesOnce(Method):
    name: ClassVar[str] = "dies-once"
    title: ClassVar[str] = "A plugin whose worker is lost the first time"
    uses_budget: ClassVar[bool] = False
    folder: str = ""

    def synthesize(self, private, spec, rng):
        try:
            os.mkdir(os.path.join(self.folder, "died"))
        except FileExistsError:
            return Release(Rows(rng.uniform(-1, 1, (2, private.width)), np.array([0, 1])))
        os.kill(os.getpid(), 9)


@dataclass(frozen=True)
class Waits(Method):
    name: ClassVar[str] = "waits"
    title: ClassVar[str] = "Reports to a test that it runs, and resumes when the test allows it"
    uses_budget: ClassVar[bool] = False
    folder: str = ""
    mark: str = ""

    def synthesize(self, private, spec, rng):
        import ray

        # Opening a named pipe waits for the other end: no polling, no sleeping.
        with open(os.path.join(self.folder, "running"), "w") as pipe:
            pipe.write(f"{self.mark} {os.getpid()} {ray.get_runtime_context().get_node_id()}")
        with open(os.path.join(self.folder, f"go-{self.mark}")) as pipe:
            pipe.read()
        return Release(Rows(rng.uniform(-1, 1, (2, private.width)), np.array([0, 1])))
"""


def install_plugin(folder: Path) -> dict[str, str]:
    """Write the package; returns the environment in which it is installed."""
    information = folder / "misbehaves-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "misbehaves_plugin.py").write_text(_PLUGIN)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaves\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[bench.methods]\nmisbehaves = misbehaves_plugin:Misbehaves\n"
        "hangs = misbehaves_plugin:Hangs\nwaits = misbehaves_plugin:Waits\n"
        "dies-once = misbehaves_plugin:DiesOnce\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}
