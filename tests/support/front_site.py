"""A run with a bit of everything that the front page filters by, and what it should show of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy import stats

from bench.leaderboard.pages.site import write_site
from tests.leaderboard.conftest import Run

EVIL = "<script>alert(1)</script>"
REFERENCES = ("real", "subset", "marginals")
SOUND = ("alpha", "beta", "gamma", EVIL)
DATASETS = (
    ("actg175", "survival", "c-index/cox"),
    ("breast-cancer", "classification", "auroc"),
    ("curial-sim", "classification", "auroc"),
    ("gbsg2", "survival", "c-index/cox"),
    ("heart", "classification", "auroc"),
    ("lung", "survival", "c-index/cox"),
)
OTHER_MODEL = {"classification": "auroc/forest", "survival": "c-index/aft"}
IPCS = (10, 50)
TARGETS = (1.0, 10.0)
SEEDS = (0, 1, 2)

_NON_PRIVATE: dict[str, Any] = {
    "eps_target": None,
    "eps_claimed": None,
    "eps_proven": float("inf"),
    "verdict": "non-private",
    "verdict_reason": "rows were read without noise",
}


@final
@dataclass(frozen=True)
class Line:
    """What one row of the page stands for."""

    method: str
    dataset: str
    ipc: str
    target: float | None
    verdict: str

    @property
    def task(self) -> str:
        """Of its dataset."""
        return next(task for name, task, _ in DATASETS if name == self.dataset)


@final
class FrontSite:
    """The run, written as a site, and its utilities for tests to compute with."""

    def __init__(self, folder: Path) -> None:
        self.utility: dict[tuple[str, str, str, float | None, int], float] = {}
        """By method, dataset, IPC, target and seed; NaN where the cell failed."""
        self.forest: dict[tuple[str, str, str, float | None, int], float] = {}
        """The same by the other model."""
        self.lines: set[Line] = set()
        self._random = np.random.default_rng(9)
        self._run = Run()
        for place, (dataset, task, metric) in enumerate(DATASETS):
            top = 0.95 - 0.05 * place
            for seed in SEEDS:
                shared = {"dataset": dataset, "task": task, "seed": seed}
                self._add("real", top, metric, "own", **shared, **_NON_PRIVATE, ipc=None)
                for ipc in IPCS:
                    sized = {**shared, "ipc": ipc}
                    self._add("subset", top - 0.03, metric, str(ipc), **sized, **_NON_PRIVATE)
                    for target in TARGETS:
                        self._spent(top, metric, target, **sized)
        self.directory = self._run.write(folder / "run")
        self.folder = folder / "site"
        self.summary = write_site([self.directory], self.folder, cells=60)

    def _spent(self, top: float, metric: str, target: float, **shared: Any) -> None:
        ipc, seed, dataset = str(shared["ipc"]), shared["seed"], shared["dataset"]
        spent = {"eps_target": target, "eps_claimed": target, "eps_proven": 0.9 * target}
        self._add("marginals", top - 0.2, metric, ipc, **spent, **shared)
        unproven = {**spent, "eps_proven": float("inf"), "verdict": "unproven"}
        self._add("pate", top - 0.3, metric, ipc, **unproven, **shared)
        trusting = {**spent, "verdict": "sound, trusting interpret 0.6"}
        for number, method in enumerate(SOUND):
            # One fails now and then, one everywhere on a dataset, one is not tried on another.
            sometimes = method == "beta" and seed == 1 and dataset == "heart"
            if sometimes or (method == "gamma" and dataset == "lung"):
                self._run.fail(method, "timeout", "over 60 s", **shared, eps_target=target)
                self._note(method, dataset, ipc, target, seed, np.nan, np.nan)
                verdict = "sound" if sometimes else ""
                self.lines.add(Line(method, dataset, ipc, target, verdict))
            elif not (method == EVIL and dataset == "actg175"):
                how = trusting if method == "gamma" else spent
                self._add(method, top - 0.05 * number, metric, ipc, **how, **shared)

    def _add(self, method: str, middle: float, metric: str, shown_ipc: str, **changes: Any) -> None:
        utility, other = (float(middle + self._random.normal(0, 0.04)) for _ in range(2))
        key = self._run.add(method, **changes)
        run, task = self._run, changes["task"]
        run.score(key, metric, utility, utility - 0.02, utility + 0.02)
        run.score(key, OTHER_MODEL[task], other, other - 0.02, other + 0.02)
        run.score(key, "ks", 1 - middle, direction="lower", family="fidelity")
        attack = float(self._random.uniform(0.45, 0.6))
        run.score(key, "mia/auroc", attack, attack - 0.03, attack + 0.03, "lower", "privacy")
        verdict = changes.get("verdict", "sound")
        target, dataset = changes["eps_target"], changes["dataset"]
        self._note(method, dataset, shown_ipc, target, changes["seed"], utility, other)
        self.lines.add(Line(method, dataset, shown_ipc, target, verdict.partition(" trusting")[0]))

    def _note(
        self,
        method: str,
        dataset: str,
        ipc: str,
        target: float | None,
        seed: int,
        utility: float,
        other: float,
    ) -> None:
        self.utility[method, dataset, ipc, target, seed] = utility
        self.forest[method, dataset, ipc, target, seed] = other

    def ranks(
        self, methods: Iterable[str], other_model: bool = False
    ) -> dict[tuple[str, str, str, float], float]:
        """Mean over seeds of scipy's ranks among these methods, the failing ones all last."""
        values = self.forest if other_model else self.utility
        found = {}
        for dataset, _, _ in DATASETS:
            for ipc in map(str, IPCS):
                for target in TARGETS:
                    own = [m for m in methods if (m, dataset, ipc, target, 0) in values]
                    table = np.array(
                        [[values[m, dataset, ipc, target, s] for m in own] for s in SEEDS]
                    )
                    # What is printed equal is tied.
                    printed = np.round(np.nan_to_num(table, nan=-np.inf), 3)
                    ranks = stats.rankdata(-printed, axis=1)
                    ranks[np.isnan(table)] = len(own)
                    if len(own) > 1:
                        for method, rank in zip(own, ranks.mean(axis=0), strict=True):
                            found[method, dataset, ipc, target] = float(rank)
        return found
