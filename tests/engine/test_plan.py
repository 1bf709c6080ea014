"""What is left to do in a run directory."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench.engine import keys
from bench.engine import plan as planning
from bench.engine.cell import run_cell
from bench.errors import StoreError
from bench.plugins import registry
from bench.plugins.source import build_dataset
from bench.results.journal import read_journal
from bench.results.records import Cell, Outcome, Variant
from bench.results.run_directory import RunStore

DATASET = build_dataset(registry.build_source("gbsg2"))
CELL = Cell(
    method=Variant("ldpdc", "ldpdc 20", (("group_size", 20.0),)),
    dataset=Variant("gbsg2", "cohort"),
    ipc=5,
    full_size=False,
    epsilon=2.0,
    delta=1e-5,
    seed=3,
    split="default",
    split_seed=0,
)
KEY = keys.cell_key(CELL, DATASET.fingerprint)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_cell(CELL, KEY, DATASET, ("ks",))


@pytest.fixture
def store(tmp_path: Path, outcome: Outcome) -> RunStore:
    store = RunStore(tmp_path / "run")
    with store:
        store.record(outcome, DATASET.encoder)
    return store


def test_a_row_tells_its_cell(outcome: Outcome) -> None:
    cell = planning.stored_cell(outcome.row)
    assert cell == CELL
    assert keys.cell_key(cell, DATASET.fingerprint) == outcome.row.key


def test_only_what_is_missing_is_scored(store: RunStore) -> None:
    plan, datasets = planning.plan_stored(store, ("dcr", "ks", "tvd"))
    (job,) = plan.jobs
    assert job.metrics == ("dcr", "tvd")
    stored = planning.stored_outcome(job, store, DATASET)
    assert stored is not None and job.scoring
    again = run_cell(job.cell, job.key, DATASET, job.metrics, stored)
    assert not again.fitted and again.row.fit_seconds == stored.row.fit_seconds
    assert {score.metric for score in again.scores} >= {"ks", "tvd", "dcr/gap"}
    assert set(json.loads(again.row.metrics)) == {"ks", "tvd", "dcr"}
    done, _ = planning.plan_stored(store, ("ks",))
    assert (done.jobs, done.cached) == ([], 1)
    assert all(isinstance(entry, Variant) for entry in datasets)


def test_scores_by_an_older_source_are_outdated(store: RunStore) -> None:
    row, scores = store.finished[KEY]
    store.finished = {KEY: (replace(row, metrics='{"ks": "another"}'), scores)}
    plan, _ = planning.plan_stored(store, ("ks",))
    assert plan.jobs[0].metrics == ("ks",)
    stored = planning.stored_outcome(plan.jobs[0], store, DATASET)
    again = run_cell(CELL, KEY, DATASET, ("ks",), stored)
    assert len(again.scores) == len(scores)


def test_what_cannot_be_scored_is_said(store: RunStore) -> None:
    row, scores = store.finished[KEY]
    store.finished = {
        "a": (replace(row, key="a", fingerprint="other"), scores),
        "b": (replace(row, key="b", dataset_name="gone"), scores),
        "c": (replace(row, key="c", rows_released=None), scores),
        "d": (replace(row, key="d"), scores),
    }
    plan, _ = planning.plan_stored(store, ("tvd",))
    assert plan.jobs == [] and plan.wanted == []
    said = "\n".join(plan.notices)
    assert "the dataset has changed since" in said
    assert "unknown dataset 'gone'" in said
    assert "a released model is not stored" in said
    assert "its release is missing or damaged" in said


def test_a_folder_that_is_no_run_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a run directory"):
        RunStore.existing(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_journal_of_an_earlier_version_is_read(tmp_path: Path, outcome: Outcome) -> None:
    cell = asdict(outcome.row)
    scores = [asdict(score) for score in outcome.scores]
    for record, later in ((cell, ("metrics", "dataset_name")), *((s, ("limit",)) for s in scores)):
        for name in later:
            del record[name]
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps({"cell": cell, "scores": scores}) + "\n")
    ((row, read),) = read_journal(path).values()
    assert row.metrics == "{}" and row.dataset == "cohort"
    assert read[0].limit is None
