"""A third-party plugin whose cells try to get away from their limits, as pip would install it."""

from __future__ import annotations

import os
from pathlib import Path

_PLUGIN = '''
import ctypes
import mmap
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import resource_tracker, shared_memory
from typing import ClassVar

import numpy as np

from bench.plugins.method import Method
from bench.plugins.release import Release, Rows

MEGABYTE = bytes(2**20)
TOO_MUCH = 1500
"""Megabytes. Bounded, so that a machine survives a watcher that does not notice."""


def orphan(code, mark):
    """Start a process whose parent ends at once, in a session of its own."""
    start = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
    subprocess.run([sys.executable, "-c", start, sys.executable, "-c", code, mark], check=True)


@dataclass(frozen=True)
class Uncontained(Method):
    name: ClassVar[str] = "uncontained"
    title: ClassVar[str] = "A plugin that uses memory where it is not expected"
    uses_budget: ClassVar[bool] = False
    how: str = ""
    mark: str = ""

    def synthesize(self, private, spec, rng):
        kept = getattr(self, f"_{self.how}".replace("-", "_"))()
        if self.how not in ("leaves", "crash", "good"):
            time.sleep(20)  # to be stopped
        if self.how == "crash":
            ctypes.string_at(0)
        return Release(Rows(rng.uniform(-1, 1, (2, private.width)), np.array([0, 1])))

    def _good(self):
        pass

    def _greedy_orphan(self):
        code = f"import time; kept = bytearray({TOO_MUCH} * 2**20)\\nwhile True: time.sleep(1)"
        orphan(code, self.mark)

    def _file(self):
        file = open(f"/dev/shm/{self.mark}-file", "wb")
        for _ in range(TOO_MUCH):
            file.write(MEGABYTE)
        return file

    def _folder(self):
        os.mkdir(f"/dev/shm/{self.mark}-folder")
        for number in range(TOO_MUCH // 50):
            with open(f"/dev/shm/{self.mark}-folder/{number}", "wb") as file:
                for _ in range(50):
                    file.write(MEGABYTE)
                if not number:
                    self._until_seen()  # the folder is the cell's once a file in it was seen open

    def _unnamed(self):
        number = os.memfd_create("unnamed")
        for _ in range(TOO_MUCH):
            os.write(number, MEGABYTE)

    def _mapped(self):
        block = mmap.mmap(-1, TOO_MUCH * 2**20)  # shared, without a name or a file
        for _ in range(TOO_MUCH):
            block.write(MEGABYTE)
        return block

    def _segment(self):
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        first = int(self.mark[-7:], 16)
        for key in range(first, first + TOO_MUCH // 15):
            number = libc.shmget(key, 15 * 2**20, 0o1600)
            address = libc.shmat(number, None, 0)
            ctypes.memset(address, 1, 15 * 2**20)
            libc.shmdt(ctypes.c_void_p(address))

    def _leaves(self):
        """All of it fits into the limits, and is left behind by a cell that ends well."""
        orphan("import time\\nwhile True: time.sleep(1)", self.mark)
        with open(f"/dev/shm/{self.mark}-left", "wb") as file:
            file.write(MEGABYTE)
            self._until_seen()
        block = shared_memory.SharedMemory(f"{self.mark}-block", create=True, size=2**20)
        resource_tracker.unregister(block._name, "shared_memory")  # nobody else removes it
        self._until_seen()

    def _crash(self):
        orphan("import time\\nwhile True: time.sleep(1)", self.mark)
        self._until_seen()

    def _until_seen(self):
        """The watcher looks at everything once a second."""
        time.sleep(2.5)
'''


def install_uncontained(folder: Path) -> dict[str, str]:
    """Write the package; returns the environment in which it is installed."""
    information = folder / "uncontained-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "uncontained_plugin.py").write_text(_PLUGIN)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: uncontained\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text(
        "[bench.methods]\nuncontained = uncontained_plugin:Uncontained\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}
