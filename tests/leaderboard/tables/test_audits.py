"""Audits beside the cells that they speak about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.errors import StoreError
from bench.leaderboard.tables.load import load_results
from bench.results.records import AuditRow, CellRow, to_table
from tests.results.test_audits import audit_outcome

AUDIT: dict[str, Any] = {
    "key": "one",
    "method": "ldpdc",
    "parameters": "{}",
    "source_hash": "s",
    "dataset": "breast-cancer",
    "dataset_parameters": "{}",
    "ipc": 50,
    "eps_target": 1.0,
    "eps_claimed": 1.0,
    "eps_proven": 0.75,
    "delta": 1e-5,
    "eps_audited": 0.25,
    "eps_detectable": 4.2,
    "trials": 1000,
    "status": "ok",
}
REFUTED = {
    "eps_audited": 2.0,
    "p_claim": 1e-6,
    "p_proof": 1e-6,
    "replicated_eps": 2.1,
    "replicated_p_claim": 1e-6,
    "replicated_p_proof": 1e-6,
}


DETECTABLE = next(n for n in ("eps_detectable", "ceiling") if n in AuditRow.__dataclass_fields__)


def write_audits(directory: Path, *rows: dict[str, Any]) -> None:
    """Add audits to the tables of a run."""
    outcomes = [audit_outcome(**{**AUDIT, **row}) for row in rows]
    cells = pq.read_table(directory / "cells.parquet")
    added = to_table([outcome.row for outcome in outcomes], CellRow)
    pq.write_table(
        pa.concat_tables([cells.select(added.schema.names).cast(added.schema), added]),
        directory / "cells.parquet",
    )
    audits = [outcome.audit for outcome in outcomes if outcome.audit is not None]
    pq.write_table(to_table(audits, AuditRow), directory / "audits.parquet")


def test_a_bound_stands_beside_the_cells_of_its_setting_only(run: Any, tmp_path: Path) -> None:
    run.add("here", 0.8, method="ldpdc")
    run.add("other size", 0.8, method="ldpdc", ipc=10)
    run.add("other target", 0.8, method="ldpdc", eps_target=3.0)
    run.add("other code", 0.8, method="ldpdc", source_hash="t")
    run.add("other method", 0.8, method="gats")
    directory = run.write(tmp_path)
    write_audits(
        directory, {DETECTABLE: 3.5}, {"key": "two", "eps_audited": 0.5, "status": "error"}
    )
    cells = load_results([directory]).cells.set_index("shown_label")
    assert cells["eps_audited"].dropna().to_dict() == {"here": 0.25}
    assert cells["eps_detectable"].dropna().to_dict() == {"here": 3.5}
    assert set(cells["verdict"]) == {"sound"}


def test_a_refutation_holds_for_that_code_everywhere(run: Any, tmp_path: Path) -> None:
    run.add("here", 0.8, method="ldpdc")
    run.add("other size", 0.8, method="ldpdc", ipc=10)
    run.add("other code", 0.8, method="ldpdc", source_hash="t")
    directory = run.write(tmp_path)
    write_audits(directory, REFUTED)
    cells = load_results([directory]).cells.set_index("shown_label")
    assert cells["verdict"].to_dict() == {
        "here": "proof refuted",
        "other size": "proof refuted",
        "other code": "sound",
    }
    assert "at least 2.1" in cells["verdict_reason"]["here"]
    assert cells["eps_audited"].dropna().to_dict() == {"here": 2.0}


def test_without_a_replication_nothing_is_refuted(run: Any, tmp_path: Path) -> None:
    run.add("here", 0.8, method="ldpdc")
    directory = run.write(tmp_path)
    write_audits(directory, {**REFUTED, "replicated_p_claim": 0.2, "replicated_p_proof": 0.2})
    assert load_results([directory]).cells["verdict"].tolist() == ["sound"]


def test_a_table_of_audits_that_is_none_is_refused(run: Any, tmp_path: Path) -> None:
    run.add("here", 0.8, method="ldpdc")
    directory = run.write(tmp_path)
    (directory / "audits.parquet").write_text("no table")
    with pytest.raises(StoreError, match="bench audit"):
        load_results([directory])
