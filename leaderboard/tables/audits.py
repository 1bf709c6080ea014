"""Joins audits to the cells that they apply to.

A bound is shown only for the cells of the audited setting: same code, parameters, dataset, IPC,
target and delta. A passed audit proves nothing and transfers nowhere. A refutation holds for that
code and those parameters everywhere: it changes the verdict of all their cells.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bench.errors import InputError, StoreError
from bench.results.audits import Refutation, refutations
from bench.results.records import CellRow, Outcome
from bench.results.verdicts import Verdict


def audited(cells: pd.DataFrame, audits: Sequence[Outcome], alpha: float = 0.05) -> pd.DataFrame:
    """Return the cells with audited and maximum detectable epsilon, and refuted verdicts."""
    finished = [(one.row, one.audit) for one in audits if one.audit is not None]
    if not finished or cells.empty:
        return cells
    try:
        decided = refutations(audits, alpha)
    except InputError as problem:
        raise StoreError(str(problem)) from None
    bounds = cells["eps_audited"].astype(float).to_numpy(copy=True)
    verdicts, reasons = (
        cells["verdict"].to_numpy(copy=True),
        cells["verdict_reason"].to_numpy(copy=True),
    )
    detectable = np.full(len(cells), np.nan)
    parameters = cells["parameters"].map(_canonical)
    for row, audit in finished:
        same_code = (
            (cells["method"] == row.method)
            & (cells["source_hash"] == row.source_hash)
            & (parameters == _canonical(row.parameters))
        ).to_numpy()
        here = same_code & _setting(cells, row)
        if row.eps_audited is not None:
            bounds[here] = np.fmax(bounds[here], row.eps_audited)
        if audit.eps_detectable is not None:
            detectable[here] = np.fmax(detectable[here], audit.eps_detectable)
        refuted = decided[row.key]
        if refuted.claim or refuted.proof:
            word, reason = _refuted(row, audit.trials, refuted)
            # Cells of other settings are refuted as well, but not those without a verdict.
            marked = same_code & (cells["verdict"] != "").to_numpy()
            for stays in (Verdict.PROOF_REFUTED, Verdict.TAMPERED):
                marked &= verdicts != stays.value
            verdicts[marked], reasons[marked] = word, reason
    return cells.assign(
        eps_audited=bounds,
        eps_detectable=detectable,
        verdict=verdicts,
        verdict_reason=reasons,
    )


def _setting(cells: pd.DataFrame, row: CellRow) -> Any:
    """Return which cells have the audited dataset, IPC, target and delta."""
    target = cells["eps_target"].astype(float).to_numpy()
    ipc = cells["ipc"].astype("Float64").to_numpy(dtype=float, na_value=math.nan)
    return (
        (
            cells["dataset_name"].where(cells["dataset_name"] != "", cells["dataset"])
            == (row.dataset_name or row.dataset)
        )
        & (cells["dataset_parameters"].map(_canonical) == _canonical(row.dataset_parameters))
        & _same(target, row.eps_target)
        & _same(ipc, row.ipc)
        & (cells["full_size"].astype(bool) == row.full_size)
        & (cells["delta"] == row.delta)
    ).to_numpy()


def _same(values: Any, wanted: float | None) -> Any:
    return np.isnan(values) if wanted is None else values == wanted


def _refuted(row: CellRow, trials: int, refuted: Refutation) -> tuple[str, str]:
    where = f"{row.label} on {row.dataset}"
    if row.eps_target is not None:
        where += f" at target {row.eps_target:g}"
    bound = f"epsilon is at least {refuted.audited or math.nan:.3g}"
    evidence = f"{trials} trials and as many with fresh seeds, corrected for {refuted.methods}"
    if refuted.proof:
        word, number, p_value = Verdict.PROOF_REFUTED.value, row.eps_proven, refuted.p_proof
        name = "proven"
    else:
        word, number, p_value = Verdict.CLAIM_REFUTED.value, row.eps_claimed, refuted.p_claim
        name = "claimed"
    reason = (
        f"audit of {where}: {bound}, over the {name} {number or math.nan:.3g} (p = {p_value:.2g}; "
        f"{evidence} methods)"
    )
    return word, reason


def _canonical(text: str) -> str:
    parsed = _parameters(text)
    return json.dumps(parsed, sort_keys=True) if isinstance(parsed, dict) else text


def _parameters(text: str) -> Mapping[str, Any] | None:
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
