"""Checks every verdict against the ledger that is stored with the release, as results are loaded.

What a table says is never repeated without a check: epsilon and verdict are computed again from
`ledger.json`, and the files of the release are compared with their digests. A contradiction is
shown as `tampered`, and a proof without a ledger as `unproven`; neither has a proven epsilon then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pandas as pd

from bench.results.integrity import Ledgers, Stated, accounting_version, check_release
from bench.results.verdicts import Verdict

_COLUMNS = [
    *("key", "eps_target", "eps_claimed", "eps_proven", "delta", "verdict", "verdict_reason"),
    *("claim_source", "accountant", "adjacency", "unit", "versions", "release_hashes"),
]


@final
@dataclass(frozen=True)
class CheckedCells:
    """Cells with verdicts that follow from their ledgers."""

    cells: pd.DataFrame
    tampered: int
    """Cells whose files contradict their row."""
    without_ledger: int
    """Cells that the tables call sound and whose ledger is not there, or cannot be replayed."""


def checked(cells: pd.DataFrame, homes: Mapping[str, Path]) -> CheckedCells:
    """Check all finished cells; `homes` has the run directory of each, by key."""
    ledgers = Ledgers()
    verdicts, reasons, proven = (
        cells[name].to_numpy(copy=True) for name in ("verdict", "verdict_reason", "eps_proven")
    )
    versions = {text: accounting_version(text) for text in cells["versions"].unique()}
    tampered = without = 0
    for number, values in enumerate(zip(*(cells[name] for name in _COLUMNS), strict=True)):
        given = dict(zip(_COLUMNS, values, strict=True))
        if not given["verdict"]:
            continue
        given["dp_accounting"] = versions[given.pop("versions")]
        for name in ("eps_target", "eps_claimed", "eps_proven"):
            given[name] = None if pd.isna(given[name]) else float(given[name])
        stated = Stated(**given)
        found = check_release(homes[stated.key], stated, ledgers)
        tampered += found.verdict == Verdict.TAMPERED.value
        without += found.verdict != stated.verdict and not found.contradictions
        verdicts[number], reasons[number] = found.verdict, found.reason
        proven[number] = math.nan if found.eps_proven is None else found.eps_proven
    table = cells.assign(verdict=verdicts, verdict_reason=reasons, eps_proven=proven)
    return CheckedCells(table, tampered, without)
