"""Run directories are read without writing to them, and cheaply."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import bench
from bench.errors import StoreError
from bench.results.reading import (
    AUDITS,
    FORMAT_VERSION,
    check_run,
    read_audits,
    read_charges,
)
from bench.results.records import AuditRow, CellRow, Outcome, ScoreRow
from bench.results.run_directory import RunStore
from tests.results.test_audits import audit_outcome

ROW = CellRow(
    key="a1", method="ldpdc", label="ldpdc", parameters="{}", dataset="gbsg2",
    dataset_parameters="{}", task="classification", ipc=None, full_size=True, eps_target=1.0,
    eps_claimed=None, eps_proven=math.inf, eps_audited=None, delta=1e-5, verdict="unproven",
    verdict_reason="", claim_source="", accountant="", adjacency="add-remove", unit="row",
    study_only=True, private_counts=False, warnings="", seed=3, split="default", split_seed=0,
    status="ok", reason="", log_tail="", rows_released=5, notes="{}", fit_seconds=1.0,
    score_seconds=None, peak_memory_mb=None, fingerprint="f", source_hash="s", metrics_hash="",
    versions="{}", finished_at="2026-01-01T00:00:00+00:00", dataset_name="gbsg2",
)  # fmt: skip
SCORES = (ScoreRow("a1", "ks", 0.5, None, None, "lower", "fidelity", ""),)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore(tmp_path / "run") as store:
        store.record(Outcome(ROW, SCORES), None)
        store.record(Outcome(replace(ROW, key="b2", ipc=10, full_size=False)), None)
        store.compact()
    return tmp_path / "run"


def test_results_are_typed_tables(run: Path) -> None:
    found = bench.load_results(run)
    assert found.cells["key"].tolist() == ["a1", "b2"]
    assert found.cells["ipc"].dtype == pd.Int64Dtype() and found.cells["ipc"][1] == 10
    assert found.cells["ipc"].isna().tolist() == [True, False]
    assert found.cells["eps_proven"].tolist() == [math.inf, math.inf]
    assert found.scores["value"].tolist() == [0.5]
    assert set(found.audits.columns) == {
        *CellRow.__dataclass_fields__,
        *AuditRow.__dataclass_fields__,
    }
    assert len(found.audits) == 0 and found.directory == run


def test_results_of_a_run_that_has_not_ended_come_from_its_journal(run: Path) -> None:
    compiled = bench.load_results(str(run))
    with RunStore(run) as store:
        store.record(Outcome(replace(ROW, key="c3")), None)
        later = (run / "cells.parquet").stat().st_mtime + 5
        os.utime(run / "journal.jsonl", (later, later))
        assert bench.load_results(run).cells["key"].tolist() == ["a1", "b2", "c3"]
    (run / "cells.parquet").unlink()
    found = bench.load_results(run)
    assert found.cells["key"].tolist() == ["a1", "b2", "c3"]
    pd.testing.assert_frame_equal(found.scores, compiled.scores)
    pd.testing.assert_frame_equal(found.cells[:2], compiled.cells)


def test_what_is_no_run_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such directory"):
        bench.load_results(tmp_path / "nothing")
    with pytest.raises(StoreError, match=r"holds no cells\.parquet"):
        bench.load_results(tmp_path)


def test_the_format_version_is_written_and_that_of_old_directories_read(run: Path) -> None:
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["format_version"] == FORMAT_VERSION and "form" not in manifest
    (run / "run.json").write_text('{"form": 1, "grid": "smoke"}')
    assert check_run(run)["grid"] == "smoke"
    with RunStore(run) as store:
        store.write_manifest({"wall_seconds": 1})
    manifest = json.loads((run / "run.json").read_text())
    assert manifest == {"grid": "smoke", "wall_seconds": 1, "format_version": FORMAT_VERSION}
    (run / "run.json").write_text('{"form": 2}')
    with pytest.raises(StoreError, match="format version 2, this version reads format version 1"):
        check_run(run)


def test_charges_keep_their_identity(run: Path) -> None:
    with RunStore(run) as store:
        store.charge("a1", "who")
        store.charge("b2")
        assert store.charged() == {"a1", "who", "b2"}
    assert [(charge.key, charge.identity) for charge in read_charges(run)] == [
        ("a1", "who"),
        ("b2", ""),
    ]


def test_audits_are_read_from_the_journal_or_from_the_tables(tmp_path: Path) -> None:
    failed = audit_outcome("three", label="three", status="error", reason="lost")
    audits = [*(audit_outcome(key, label=key) for key in ("two", "one")), failed]
    with RunStore(tmp_path) as store:
        store.record(Outcome(ROW, SCORES), None)
        for outcome in audits:
            store.record(outcome, None)
        assert [one.row.key for one in read_audits(tmp_path)] == ["one", "three", "two"]
        store.compact()
    audits.sort(key=lambda one: one.row.label)
    assert read_audits(tmp_path) == tuple(audits)
    (tmp_path / "journal.jsonl").unlink()
    assert read_audits(tmp_path) == tuple(audits)
    tables = bench.load_results(tmp_path)
    assert tables.cells["key"].tolist() == [ROW.key]
    assert tables.audits["key"].tolist() == ["two", "one", "three"]
    assert tables.audits["p_claim"].isna().tolist() == [False, False, True]
    (tmp_path / AUDITS).unlink()
    with pytest.raises(StoreError, match="not one that this version can read"):
        read_audits(tmp_path)
    assert read_audits(tmp_path / "nowhere") == ()


STATUS = """
import sys
from bench.cli.main import main

try:
    main(["status", sys.argv[1]])
finally:
    print("loaded:", *sorted(name.split(".")[0] if "." not in name else name
                             for name in sys.modules))
"""


def test_status_loads_neither_accounting_nor_methods(run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STATUS, str(run)], capture_output=True, text=True, check=False
    )
    said, _, loaded = done.stdout.partition("loaded: ")
    assert "2 cells ended" in said, done.stderr
    modules = set(loaded.split())
    heavy = {"dp_accounting", "scipy", "torch", "pandas", "pyarrow", "numpy", "sklearn", "ray"}
    assert not modules & heavy
    assert not {name for name in modules if name.startswith(("bench.privacy", "bench.methods"))}
