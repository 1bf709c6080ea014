"""Rows without a proven epsilon: what is stored of them, and what is not."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.engine.cell import run_cell
from bench.errors import StoreError
from bench.plugins.release import Rows
from bench.plugins.source import build_dataset
from bench.results import private_rows
from bench.results.private_rows import RowsSummary, digest, may_travel, read_summary
from bench.results.records import Cell, Outcome, Variant
from bench.results.run_directory import RunStore
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())
CELL = Cell(
    method=Variant("subset", "subset"),
    dataset=Variant("toy-table", "toy-table"),
    ipc=7,
    full_size=False,
    epsilon=None,
    delta=1e-5,
    seed=0,
    split="default",
    split_seed=0,
)
KEY = "abc123"


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_cell(CELL, KEY, DATASET, ("ks",))


def kept(directory: Path, outcome: Outcome, *, keep: bool) -> Outcome:
    with RunStore(directory, keep_private_rows=keep) as store:
        return store.record(outcome, DATASET.encoder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_rows_are_not_stored_and_a_summary_stands_for_them(
    tmp_path: Path, outcome: Outcome
) -> None:
    row = kept(tmp_path / "run", outcome, keep=False).row
    assert names(tmp_path / "run" / "releases" / KEY) == [
        "ledger.json",
        "release.json",
        "rows.json",
    ]
    assert not (tmp_path / "run" / private_rows.FOLDER).exists()
    assert not list((tmp_path / "run").rglob("*synthetic*"))
    summary = read_summary(tmp_path / "run", KEY)
    assert summary is not None
    assert (summary.rows, summary.by_class) == (14, (7, 7))
    assert summary.columns == ("age", "marker", "smoker", "stage", "outcome")
    store = RunStore(tmp_path / "run")
    assert store.release_intact(KEY) and store.read_release(KEY, DATASET.encoder) is None
    assert store.rows_not_stored(KEY) == summary.sha256
    assert set(json.loads(row.release_hashes)) == {"ledger.json", "release.json", "rows.json"}


def test_rows_that_are_kept_say_in_every_name_that_they_are_not_private(
    tmp_path: Path, outcome: Outcome
) -> None:
    row = kept(tmp_path / "run", outcome, keep=True).row
    folder = tmp_path / "run" / "non-private-rows" / KEY
    assert names(folder) == ["non-private-encoded.parquet", "non-private-synthetic.parquet"]
    assert not [path for path in (tmp_path / "run").rglob("*") if path.stat().st_mode & 0o077]
    assert len(pd.read_parquet(folder / "non-private-synthetic.parquet")) == 14
    store = RunStore(tmp_path / "run")
    assert store.rows_not_stored(KEY) == ""
    release = store.read_release(KEY, DATASET.encoder)
    assert release is not None and release.rows is not None and outcome.release is not None
    assert outcome.release.rows is not None
    assert release.rows.values.tobytes() == outcome.release.rows.values.tobytes()
    assert {"non-private-encoded.parquet"} < set(json.loads(row.release_hashes))
    # The same cell fitted anew without the option: the old rows are not those of this release.
    kept(tmp_path / "run", outcome, keep=False)
    assert not folder.exists()


def test_kept_rows_that_were_altered_are_not_read(tmp_path: Path, outcome: Outcome) -> None:
    kept(tmp_path / "run", outcome, keep=True)
    place = tmp_path / "run" / "non-private-rows" / KEY / "non-private-encoded.parquet"
    frame = pd.read_parquet(place)
    import pyarrow.parquet as pq

    table = pq.read_table(place)
    frame.loc[0, "v0"] += 0.5
    changed = type(table).from_pandas(frame, preserve_index=False)
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), place)
    assert RunStore(tmp_path / "run").read_release(KEY, DATASET.encoder) is None


def test_a_summary_of_a_stranger_is_refused(tmp_path: Path, outcome: Outcome) -> None:
    kept(tmp_path / "run", outcome, keep=False)
    path = tmp_path / "run" / "releases" / KEY / "rows.json"
    document = json.loads(path.read_text())
    for change in ({"rows": -1}, {"by_class": [1, "a"]}, {"columns": [1]}, {"weighted": "no"}):
        path.write_text(json.dumps({**document, **change}))
        with pytest.raises(StoreError, match="not a summary"):
            read_summary(tmp_path / "run", KEY)


@pytest.mark.parametrize(
    "epsilon, verdict, allowed",
    [
        (0.9, "sound", True),
        (1.4, "unproven", True),
        (0.9, "claim refuted", True),
        (0.9, "proof refuted", False),
        (0.9, "tampered", False),
        (math.inf, "non-private", False),
        (math.inf, "unproven", False),
        (math.nan, "sound", False),
        (None, "", False),
    ],
)
def test_which_rows_may_be_copied(
    outcome: Outcome, epsilon: float | None, verdict: str, allowed: bool
) -> None:
    row = dataclasses.replace(outcome.row, eps_proven=epsilon, verdict=verdict)
    assert may_travel(row) is allowed


def test_the_digest_depends_on_every_number_and_its_type() -> None:
    values, labels = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    rows = [
        Rows(values, labels),
        Rows(values[::-1], labels),
        Rows(values.astype(np.float32), labels),
        Rows(values.reshape(2, 3), labels[:2]),
        Rows(values, np.array([0, 1, 0])),
        Rows(values, labels, weights=np.ones(3)),
        Rows(values, labels, soft_labels=np.ones((3, 1))),
    ]
    assert len({digest(one) for one in rows}) == len(rows)
    assert digest(rows[0]) == digest(Rows(np.asfortranarray(values), labels))
    assert RowsSummary.of(rows[0], ["a", "b"]).by_class == (1, 2)
