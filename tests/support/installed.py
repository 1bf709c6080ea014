"""A third-party plugin package as pip would install it, for runs in other processes."""

from __future__ import annotations

import os
from pathlib import Path

SECRET = "patient Smith, 67, relapsed"
"""Text of an exception that must not leave the internal log."""

_PLUGIN = """
import ctypes
import multiprocessing
import os
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.errors import NotApplicable
from bench.plugins.method import Method
from bench.plugins.release import Claim, Federation, Release, ReleasedModel, Rows, Transfer
from bench.plugins.method import Resources


def worker():
    # The process of Ray that runs the cell: it started the server of this process.
    with open(f"/proc/{os.getppid()}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def is_socket(number):
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class Unusual(BaseException):
    pass


class Muddled(ReleasedModel):
    def __init__(self, answer):
        self.answer = answer
        self.stuck = (number for number in ())  # a generator cannot be sent to another process

    def predict(self, values):
        return self.answer(len(values))


@dataclass(frozen=True)
class Nonsense(Method):
    name: ClassVar[str] = "nonsense"
    title: ClassVar[str] = "A plugin that returns what is no release, or raises what is no error"
    uses_budget: ClassVar[bool] = False
    how: str = ""

    def synthesize(self, private, spec, rng):
        print(f"about to {self.how}: SECRET", flush=True)
        values, labels = rng.uniform(-1, 1, (2, private.width)), np.array([0, 1])
        return getattr(self, self.how.replace("-", "_"))(values, labels, private)

    def long_doubles(self, values, labels, private):
        return Release(Rows(values.astype(np.longdouble), labels))

    def endless_rows(self, values, labels, private):
        return Release(Rows(np.broadcast_to(values[:1], (10**12, private.width)), labels))

    def complex_numbers(self, values, labels, private):
        return Release(Rows(values + 1j, labels))

    def objects(self, values, labels, private):
        return Release(Rows(np.array([[{}] * private.width] * 2, dtype=object), labels))

    def lists(self, values, labels, private):
        return Release(Rows(values.tolist(), labels.tolist()))

    def nested(self, values, labels, private):
        return Release(Rows({"huge": {"list": values.tolist()}}, labels))

    def labels_beyond(self, values, labels, private):
        return Release(Rows(values, labels + 2**40))

    def soft_negative(self, values, labels, private):
        return Release(Rows(values, labels, soft_labels=-np.ones((2, 2))))

    def weights_infinite(self, values, labels, private):
        return Release(Rows(values, labels, weights=np.array([np.inf, 1.0])))

    def surrogates(self, values, labels, private):
        return Release(Rows(values, labels), notes={"found": "\\ud800"})

    def tuple_keys(self, values, labels, private):
        return Release(Rows(values, labels), notes={("a", 1): 2.0})

    def long_notes(self, values, labels, private):
        return Release(Rows(values, labels), notes={"all": "x" * 50_000_000})

    def word_as_claim(self, values, labels, private):
        return Release(Rows(values, labels), claim=Claim("abc", 1e-5, "itself"))

    def federation_of_words(self, values, labels, private):
        sent = (Transfer("model", "first", "sideways", None, -1),)
        return Release(Rows(values, labels), federation=Federation("everybody", sent))

    def ledger_of_surrogates(self, values, labels, private):
        private.raw("because \\udfff")
        return Release(Rows(values, labels))

    def model_of_words(self, values, labels, private):
        return Release(model="the model")

    def model_that_answers_words(self, values, labels, private):
        return Release(model=Muddled(lambda rows: ["yes"] * rows))

    def generator_exit(self, values, labels, private):
        raise GeneratorExit("done")

    def interrupt(self, values, labels, private):
        raise KeyboardInterrupt("not by the user")

    def unusual(self, values, labels, private):
        raise Unusual("SECRET")

    def mute(self, values, labels, private):
        raise Mute

    def tell(self, values, labels, private):
        raise ValueError("row content: SECRET")

    def shout(self, values, labels, private):
        raise NotApplicable("\\x1b[2J" + "too loud " * 6_000_000)

    def folders(self, values, labels, private):
        scratch = tempfile.gettempdir()
        with open(os.path.join(scratch, "rows"), "w") as file:
            file.write("private")
        os.mkdir(os.path.join(scratch, "more"))
        cell = os.path.dirname(scratch)
        places = [os.path.dirname(cell), cell, scratch]
        places += [entry.path for folder in (cell, scratch) for entry in os.scandir(folder)]
        wide = [place for place in places if os.stat(place).st_mode & 0o077]
        assert len(places) >= 7 and not wide, wide
        return Release(Rows(values, labels))

    def pool(self, values, labels, private):
        for _ in range(10):
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(abs, [-1, -2]) == [1, 2]
        return Release(Rows(values, labels))


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
        if self.how == "kill-itself":
            os.kill(os.getpid(), 9)
        if self.how == "kill-its-server":
            os.kill(os.getppid(), 9)
            time.sleep(60)
        if self.how == "abort":
            os.abort()
        if self.how == "close-files":
            os.closerange(3, 4096)
            return Release(Rows(np.zeros((2, private.width)), np.array([0, 1])))
        if self.how == "hang-up":
            os.closerange(3, 4096)
            time.sleep(600)
        if self.how in ("scribble", "half"):
            sockets = [n for n in map(int, os.listdir("/proc/self/fd")) if n > 2 and is_socket(n)]
            content = b"\\xff" * 4096 if self.how == "scribble" else bytes(7)
            for number in sockets:
                os.write(number, content)
            os.closerange(3, 4096)
            time.sleep(600)
        if self.how == "replace-the-wall":
            import bench.engine.fit

            bench.engine.fit.check_release = lambda release, encoder: release
            return Release(Rows(np.full((2, private.width), np.nan), np.array([0, 1])))
        if self.how == "replace-the-ledger":
            from bench.privacy.ledger import Ledger

            Ledger.to_record = lambda self: {"entries": "none"}
            return Release(Rows(np.zeros((2, private.width)), np.array([0, 1])))
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
            subprocess.run(["sleep", "600"])
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
        os.kill(worker(), 9)
        time.sleep(60)


@dataclass(frozen=True)
class Waits(Method):
    name: ClassVar[str] = "waits"
    title: ClassVar[str] = "Reports to a test where it runs, and resumes when the test allows it"
    uses_budget: ClassVar[bool] = False
    folder: str = ""
    mark: str = ""

    def synthesize(self, private, spec, rng):
        # Opening a named pipe waits for the other end: no polling, no sleeping.
        with open(os.path.join(self.folder, "running"), "w") as pipe:
            pipe.write(f"{self.mark} {worker()} {os.environ['RAY_RAYLET_PID']}")
        with open(os.path.join(self.folder, f"go-{self.mark}")) as pipe:
            pipe.read()
        return Release(Rows(rng.uniform(-1, 1, (2, private.width)), np.array([0, 1])))
"""


def install_plugin(folder: Path) -> dict[str, str]:
    """Write the package; returns the environment in which it is installed."""
    information = folder / "misbehaves-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "misbehaves_plugin.py").write_text(_PLUGIN.replace("SECRET", SECRET))
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaves\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[bench.methods]\nmisbehaves = misbehaves_plugin:Misbehaves\n"
        "hangs = misbehaves_plugin:Hangs\nwaits = misbehaves_plugin:Waits\n"
        "dies-once = misbehaves_plugin:DiesOnce\nnonsense = misbehaves_plugin:Nonsense\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}
