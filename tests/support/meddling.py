"""A third-party plugin that changes its process in ways that others could notice."""

from __future__ import annotations

import os
from pathlib import Path

WAYS = (
    "default-dtype",
    "proof",
    "print-options",
    "error-state",
    "environment",
    "threads",
    "random-state",
    "metric",
    "warnings",
    "folder",
    "umask",
    "output",
    "score-check",
    "garbage-collector",
    "signals",
    "import-path",
    "locale",
    "recursion-limit",
)

_PLUGIN = '''
import gc
import json
import locale
import os
import random
import signal
import sys
import tempfile
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.plugins.method import Method
from bench.plugins.release import Release, Rows
from bench.privacy.accounting import Proof
from bench.privacy.ledger import Ledger


def nothing_spent(self):
    return Proof(0.0, self.delta, "RDP")


def state():
    """What others could notice, as text."""
    import torch

    mask = os.umask(0o077)
    os.umask(mask)
    try:
        os.fstat(1)
        output = "open"
    except OSError:
        output = "closed"
    return json.dumps({
        "dtype": str(torch.get_default_dtype()),
        "torch threads": torch.get_num_threads(),
        "proof": Ledger.proof.__name__,
        "print": np.get_printoptions()["precision"],
        "error": np.geterr()["divide"],
        "environment": os.environ.get("BENCH_MEDDLED", ""),
        "filters": sum("meddled" in str(one) for one in warnings.filters),
        "folder": os.path.basename(os.getcwd()),
        "umask": mask,
        "output": output,
        "collector": gc.isenabled(),
        "handler": str(signal.getsignal(signal.SIGUSR1)),
        "path": "/meddled" in sys.path,
        "locale": locale.setlocale(locale.LC_NUMERIC),
        "recursion": sys.getrecursionlimit(),
    })


@dataclass(frozen=True)
class Meddles(Method):
    name: ClassVar[str] = "meddles"
    title: ClassVar[str] = "Changes its process"
    uses_budget: ClassVar[bool] = False
    how: str = ""

    def synthesize(self, private, spec, rng):
        getattr(self, f"do_{self.how}".replace("-", "_"))()
        return Release(Rows(rng.uniform(-1, 1, (2, private.width)), np.array([0, 1])))

    def do_default_dtype(self):
        import torch

        torch.set_default_dtype(torch.float64)

    def do_proof(self):
        Ledger.proof = nothing_spent

    def do_print_options(self):
        np.set_printoptions(precision=1)

    def do_error_state(self):
        np.seterr(all="raise")

    def do_environment(self):
        os.environ["BENCH_MEDDLED"] = "yes"
        os.environ["PATH"] = ""

    def do_threads(self):
        import torch

        torch.set_num_threads(2)

    def do_random_state(self):
        random.seed(7)
        np.random.seed(7)

    def do_metric(self):
        from bench.plugins.metric import Metric
        from bench.plugins import registry

        kind = type(registry.metric("ks"))
        kind.compute = lambda self, evaluation: self.all_absent("meddled")

    def do_warnings(self):
        warnings.filterwarnings("error", message="meddled")

    def do_folder(self):
        os.chdir(tempfile.gettempdir())

    def do_umask(self):
        os.umask(0)

    def do_output(self):
        sys.stdout.close()
        os.close(1)
        os.close(2)

    def do_score_check(self):
        import bench.engine.score

        bench.engine.score.check_scores = lambda computed, metric: metric.all_absent("meddled")

    def do_garbage_collector(self):
        gc.disable()

    def do_signals(self):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def do_import_path(self):
        sys.path.insert(0, "/meddled")

    def do_locale(self):
        locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")

    def do_recursion_limit(self):
        sys.setrecursionlimit(90)


@dataclass(frozen=True)
class Watches(Method):
    name: ClassVar[str] = "watches"
    title: ClassVar[str] = "Notes the state of its process"
    uses_budget: ClassVar[bool] = False

    def synthesize(self, private, spec, rng):
        notes = {"state": state(), "drawn": str((random.random(), float(np.random.random())))}
        return Release(Rows(rng.uniform(-1, 1, (2, private.width)), np.array([0, 1])), notes=notes)
'''

_AT_IMPORT = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench.plugins.method import Method
from bench.plugins.release import Release, Rows
from bench.privacy.accounting import Proof
from bench.privacy.ledger import Ledger

Ledger.proof = lambda self: Proof(0.0, self.delta, "RDP")


@dataclass(frozen=True)
class Hasty(Method):
    name: ClassVar[str] = "hasty"
    title: ClassVar[str] = "Changes its process when it is imported"
    uses_budget: ClassVar[bool] = False

    def synthesize(self, private, spec, rng):
        private.raw("it looks")
        return Release(Rows(rng.uniform(-1, 1, (2, private.width)), np.array([0, 1])))
"""


def install_meddling(folder: Path) -> dict[str, str]:
    """Write the package; returns the environment in which it is installed."""
    information = folder / "meddling-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "meddling_plugin.py").write_text(_PLUGIN)
    (folder / "hasty_plugin.py").write_text(_AT_IMPORT)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: meddling\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[bench.methods]\nmeddles = meddling_plugin:Meddles\n"
        "watches = meddling_plugin:Watches\nhasty = hasty_plugin:Hasty\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}
