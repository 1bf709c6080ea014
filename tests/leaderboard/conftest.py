"""Run directories made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from bench.leaderboard.tables import load
from bench.leaderboard.tables.checks import CheckedCells
from bench.results.records import CellRow, ScoreRow, to_table
from tests.support import browser
from tests.support.browser import Visit

if TYPE_CHECKING:
    from tests.support.front_site import FrontSite

CELL: dict[str, Any] = {
    "method": "ldpdc",
    "parameters": "{}",
    "dataset": "breast-cancer",
    "dataset_parameters": "{}",
    "task": "classification",
    "ipc": 50,
    "full_size": False,
    "eps_target": 1.0,
    "eps_claimed": 1.0,
    "eps_proven": 0.75,
    "eps_audited": None,
    "delta": 1e-5,
    "verdict": "sound",
    "verdict_reason": "epsilon 0.75 at delta 1e-05 by PLD",
    "claim_source": "theorem 1",
    "accountant": "PLD",
    "adjacency": "add-remove",
    "unit": "row",
    "study_only": False,
    "private_counts": False,
    "warnings": "",
    "seed": 0,
    "split": "default",
    "split_seed": 0,
    "status": "ok",
    "reason": "",
    "log_tail": "",
    "rows_released": 100,
    "notes": "{}",
    "fit_seconds": 2.0,
    "score_seconds": 3.0,
    "peak_memory_mb": 250.0,
    "fingerprint": "f",
    "source_hash": "s",
    "metrics_hash": "m",
    "versions": "{}",
    "finished_at": "2026-01-01T00:00:00.000+00:00",
}

UNFINISHED: dict[str, Any] = {
    "eps_claimed": None,
    "eps_proven": None,
    "verdict": "",
    "verdict_reason": "",
    "claim_source": "",
    "accountant": "",
    "rows_released": None,
    "fit_seconds": None,
    "score_seconds": None,
    "metrics_hash": "",
}


class Run:
    """Collects cells with their scores and writes the two tables."""

    def __init__(self) -> None:
        self.cells: list[CellRow] = []
        self.scores: list[ScoreRow] = []

    def add(self, label: str, utility: float | None = None, **changes: Any) -> str:
        """A cell; with a utility also its AUROC, with an interval of +-0.02."""
        values = {**CELL, "method": label, "label": label, **changes}
        coordinates = ("dataset", "ipc", "full_size", "eps_target", "delta", "seed")
        values.setdefault("key", "/".join([label, *(str(values[name]) for name in coordinates)]))
        self.cells.append(CellRow(**values))
        if utility is not None:
            self.score(values["key"], "auroc", utility, utility - 0.02, utility + 0.02)
        return str(values["key"])

    def fail(
        self, label: str, status: str = "error", reason: str = "it broke", **changes: Any
    ) -> str:
        """A cell that did not finish."""
        return self.add(label, **{**UNFINISHED, "status": status, "reason": reason, **changes})

    def score(
        self,
        key: str,
        metric: str,
        value: float | None,
        low: float | None = None,
        high: float | None = None,
        direction: str = "higher",
        family: str = "utility",
        reason: str = "",
    ) -> None:
        """A score of a cell."""
        self.scores.append(ScoreRow(key, metric, value, low, high, direction, family, reason))

    def write(self, directory: Path) -> Path:
        """The run directory."""
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(to_table(self.cells, CellRow), directory / "cells.parquet")
        pq.write_table(to_table(self.scores, ScoreRow), directory / "scores.parquet")
        return directory


@pytest.fixture(scope="module", autouse=True)
def _tables_are_believed() -> Iterator[None]:
    """Tables made by hand have no ledgers, without which nothing would be sound.

    That verdicts are checked is tested in `tests/cli/test_tampered.py`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "checked", lambda cells, homes: CheckedCells(cells, 0, 0))
        yield


@pytest.fixture
def run() -> Run:
    """An empty run."""
    return Run()


@pytest.fixture
def new_run() -> Callable[[], Run]:
    """For tests that need several."""
    return Run


@pytest.fixture
def non_private() -> dict[str, Any]:
    """What a method without budget and claim reports."""
    return {
        "eps_target": None,
        "eps_claimed": None,
        "eps_proven": float("inf"),
        "verdict": "non-private",
        "verdict_reason": "rows were read without noise",
        "claim_source": "",
        "accountant": "",
    }


@pytest.fixture
def unproven() -> dict[str, Any]:
    """What a method with a claim and without a proof reports."""
    return {
        "eps_proven": float("inf"),
        "verdict": "unproven",
        "verdict_reason": "claims epsilon 1 (a paper), but rows were read without noise",
    }


@pytest.fixture
def mixed_run(run: Run, non_private: dict[str, Any], unproven: dict[str, Any]) -> Run:
    """Two datasets, two epsilons, two seeds; a ceiling, a floor, failures and a skipped method."""
    names: Sequence[tuple[str, float]] = (("breast-cancer", 0.9), ("curial-sim", 0.8))
    for dataset, top in names:
        for seed in (0, 1):
            shared = {"dataset": dataset, "seed": seed}
            real = {**non_private, "ipc": None, "rows_released": 341}
            run.add("real", top + 0.01 * seed, **shared, **real)
            run.add("gats", top - 0.05, **shared, **non_private)
            for epsilon in (1.0, 10.0):
                spent = {"eps_target": epsilon, "eps_claimed": epsilon, "eps_proven": epsilon * 0.9}
                run.add("marginals", top - 0.2, **shared, **spent)
                run.add("pate", top - 0.3, **shared, **{**spent, **unproven})
                if dataset == "curial-sim" and epsilon == 1.0 and seed == 1:
                    run.fail("ldpdc", "timeout", "over 60 s", **shared, eps_target=epsilon)
                else:
                    run.add("ldpdc", top - 0.1, **shared, **spent)
                run.fail("picky", "skipped", "takes images only", **shared, eps_target=epsilon)
    return run


# In a browser -----------------------------------------------------------------------------------
# A browser ends with its file: while one runs, nothing else in the process can start an event loop.


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for all tests of a file."""
    with browser.started() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> FrontSite:
    """One site for all tests of a file."""
    from tests.support.front_site import FrontSite  # which needs `Run` from here

    return FrontSite(tmp_path_factory.mktemp("front"))


@pytest.fixture
def front(chromium: Any, site: FrontSite) -> Iterator[Visit]:
    """The front page, newly opened; nothing may complain."""
    with browser.visited(chromium, site.folder / "index.html") as visit:
        yield visit
        assert visit.complaints == []
