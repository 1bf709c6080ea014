"""Run directories with releases, written by hand, and what their dossiers say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.leaderboard.dossier.material import gather
from bench.leaderboard.dossier.page import render
from bench.privacy.accounting import Budget
from bench.privacy.events import laplace, non_private, sampled_gaussian
from bench.privacy.ledger import Entry, Ledger
from bench.results.records import CellRow, ScoreRow
from tests.leaderboard.conftest import CELL, Run

ODDS = "can increase the odds"
"""Stands in the conclusion about a sound release, and nowhere else."""


def sound_ledger(unit: str = "row", delta: float = 1e-5) -> Ledger:
    """Two classes with three noisy sums each, and one histogram of all."""
    ledger = Ledger(Budget(1.0, delta), unit=unit)
    for name in ("benign", "malignant"):
        path = (("split", "train"), ("class", name))
        ledger.add(Entry(path, sampled_gaussian(0.1, 3.0)), 3)
    ledger.add(Entry((("split", "train"),), laplace(4.0)), 1)
    return ledger


def raw_ledger(target: float | None = None) -> Ledger:
    """Rows were read."""
    ledger = Ledger(None if target is None else Budget(target, 1e-5))
    ledger.add(Entry((("split", "train"),), non_private(), reason="rows were read without noise"))
    return ledger


class Made:
    """A run directory with tables and one release, written by hand."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run = Run()

    def cell(self, label: str, key: str, **changes: Any) -> str:
        """A cell; keys must be plain names."""
        return self.run.add(label, key=key, **changes)

    def release(
        self, key: str, ledger: Ledger | None, columns: tuple[str, ...] = ("age", "target")
    ) -> None:
        """The files of a release with two rows of class 0 and one of class 1."""
        folder = self.directory / "releases" / key
        folder.mkdir(parents=True)
        pq.write_table(
            pa.table({name: [1, 2, 3] for name in columns}), folder / "synthetic.parquet"
        )
        encoded = pa.table({"age": [0.1, 0.2, 0.3], "(label)": [0, 0, 1]})
        pq.write_table(encoded, folder / "encoded.parquet")
        if ledger is not None:
            (folder / "ledger.json").write_text(ledger.to_json())
        (folder / "release.json").write_text(json.dumps({"result": "rows"}))

    def page(self, wanted: str, public: bool = False) -> str:
        """The dossier."""
        self.run.write(self.directory)
        return render(gather(self.directory, wanted), public)


def one_release(directory: Path, ledger: Ledger | None = None, **changes: Any) -> Made:
    """A run with one release of a sound method, changed as asked."""
    made = Made(directory)
    ledger = ledger or sound_ledger()
    proof = ledger.proof()
    given = {"eps_proven": proof.epsilon, "accountant": proof.accountant, **changes}
    made.cell(given.pop("label", "ldpdc"), "abc123", **given)
    made.release("abc123", ledger)
    return made


def row(key: str, **changes: Any) -> CellRow:
    values = {**CELL, "label": "ldpdc", "key": key, **changes}
    return CellRow(**values)


def score(metric: str, value: float | None, low: float, high: float, **changes: Any) -> ScoreRow:
    given = {"direction": "lower", "family": "privacy", "reason": "", **changes}
    interval = (None, None) if value is None else (low, high)
    return ScoreRow("abc123", metric, value, *interval, **given)


def box(page: str) -> str:
    """The text of the conclusion."""
    found = re.search(r'<div class="box.*?</div>', page, re.DOTALL)
    assert found is not None
    return re.sub(r"<[^>]+>", " ", found.group(0))


def plain(page: str) -> str:
    """The text of the page on one line."""
    text = re.sub(r"<style>.*?</style>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))
