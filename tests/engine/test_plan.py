"""What is left to do in a run directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest

from bench.engine import keys
from bench.engine import plan as planning
from bench.engine.cell import run_cell
from bench.engine.plan import Action
from bench.errors import BenchError, StoreError
from bench.plugins import registry
from bench.plugins.source import build_dataset
from bench.results.journal import Finished, read_journal
from bench.results.records import Cell, Outcome, Variant
from bench.results.run_directory import RunStore

DATASET = build_dataset(registry.build_source("gbsg2"))
CELL = Cell(
    method=Variant("ldpdc", "ldpdc 20", (("group_size", 20.0),)),
    dataset=Variant("gbsg2", "gbsg2 trial"),
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


# A plan is a value: nothing is read from or written to a directory ------------------------------


@dataclass(frozen=True)
class Memory:
    """What is stored, without a directory."""

    finished: Mapping[str, Finished] = field(default_factory=dict)
    intact: bool = True
    charges: frozenset[str] = frozenset()
    missing_rows: str = ""

    def all(self) -> Iterator[Finished]:
        return iter(self.finished.values())

    def release_intact(self, key: str) -> bool:
        return self.intact

    def rows_not_stored(self, key: str) -> str:
        return self.missing_rows

    def charged(self) -> set[str]:
        return set(self.charges)


def planned(
    stored: Memory, cell: Cell = CELL, metrics: tuple[str, ...] = ("ks",)
) -> planning.RunPlan:
    return planning.plan_cells([cell], {cell.dataset: DATASET}, stored, metrics)


def remembered(outcome: Outcome, **facts: object) -> Memory:
    row = replace(outcome.row, **facts)  # type: ignore[arg-type]
    return Memory({row.key: (row, outcome.scores)})


def test_a_plan_of_nothing_stored_fits_everything() -> None:
    plan = planned(Memory())
    (job,) = plan.jobs
    assert (job.cell, job.key, job.scoring, job.metrics) == (CELL, KEY, False, ("ks",))
    assert plan == planned(Memory())
    assert (plan.wanted, plan.cached, plan.refused) == (((CELL, KEY),), 0, ())


def test_a_dataset_that_cannot_be_loaded_refuses_its_cells() -> None:
    problem = BenchError("dataset gbsg2: not there")
    plan = planning.plan_cells([CELL], {CELL.dataset: problem}, Memory(), ("ks",))
    (refused,) = plan.refused
    assert refused.reason == str(problem) and plan.jobs == ()
    assert plan.wanted == ((CELL, refused.key),)


def test_long_jobs_come_first(outcome: Outcome) -> None:
    slow = replace(CELL, method=replace(CELL.method, label="slow"), seed=7)
    row = replace(outcome.row, key="other", label="slow", fit_seconds=1e6)
    stored = Memory({"other": (row, ())})
    plan = planning.plan_cells([CELL, slow], {CELL.dataset: DATASET}, stored, ("ks",))
    assert [job.cell for job in plan.jobs] == [slow, CELL]


@pytest.mark.parametrize(
    "facts, intact, metrics, action",
    [
        ({}, True, ("ks",), Action.KEEP),
        ({}, True, ("ks", "tvd"), Action.SCORE),
        ({}, False, ("ks",), Action.FIT),
        ({"rows_released": None}, True, ("ks", "tvd"), Action.KEEP),
        ({"status": "error"}, True, ("ks",), Action.SCORE),
        ({"status": "error", "rows_released": None}, True, ("ks",), Action.FIT),
        ({"status": "timeout", "verdict": ""}, True, ("ks",), Action.FIT),
        ({"status": "skipped", "verdict": ""}, False, ("ks",), Action.KEEP),
    ],
)
def test_what_happens_to_a_cell_that_is_stored(
    outcome: Outcome,
    facts: dict[str, object],
    intact: bool,
    metrics: tuple[str, ...],
    action: Action,
) -> None:
    row = replace(outcome.row, **facts)  # type: ignore[arg-type]
    decision = planning.decide(CELL, row, lambda: intact, metrics)
    assert decision.action is action
    if action is Action.SCORE:
        assert decision.metrics == metrics[1:]


@pytest.mark.parametrize(
    "facts, charged_by, action, text",
    [
        (None, "", Action.FIT, ""),
        (None, "key", Action.REFUSE, "was charged and did not finish"),
        (None, "other code", Action.REFUSE, "by another version of the method"),
        ({"status": "error", "rows_released": None}, "key", Action.KEEP, "its budget is spent"),
    ],
)
def test_a_budget_is_spent_once(
    outcome: Outcome,
    facts: dict[str, object] | None,
    charged_by: str,
    action: Action,
    text: str,
) -> None:
    secure = replace(CELL, secure_noise=True)
    row = None if facts is None else replace(outcome.row, **facts)  # type: ignore[arg-type]
    decision = planning.decide(secure, row, lambda: True, ("ks",), charged_by)
    assert decision.action is action and text in decision.text
    # Seeded noise spends nothing for good.
    again = planning.decide(CELL, row, lambda: True, ("ks",), charged_by)
    assert again.action is Action.FIT


def test_what_is_kept_and_why_the_rest_is_done(outcome: Outcome) -> None:
    plan = planned(remembered(outcome))
    assert (plan.jobs, plan.cached, plan.reasons) == ((), 1, ())
    plan = planned(remembered(outcome), metrics=("ks", "tvd"))
    assert plan.reasons == ("1 cell: metrics missing: tvd",)
    plan = planned(remembered(outcome, key="older", source_hash="older"))
    assert plan.reasons == ("1 cell: code changed (ldpdc, or a module that it imports)",)


# In a run directory -------------------------------------------------------------------------------


def test_a_row_tells_its_cell(outcome: Outcome) -> None:
    cell = outcome.row.cell
    assert cell == CELL
    assert keys.cell_key(cell, DATASET.fingerprint) == outcome.row.key


def test_only_what_is_missing_is_scored(store: RunStore) -> None:
    datasets = planning.load_stored(store)
    plan = planning.plan_stored(store, datasets, ("dcr", "ks", "tvd"))
    (job,) = plan.jobs
    assert job.metrics == ("dcr", "tvd")
    stored = planning.stored_outcome(job, store, DATASET)
    assert stored is not None and job.scoring
    again = run_cell(job.cell, job.key, DATASET, job.metrics, stored)
    assert not again.fitted and again.row.fit_seconds == stored.row.fit_seconds
    assert {score.metric for score in again.scores} >= {"ks", "tvd", "dcr/gap"}
    assert set(json.loads(again.row.metrics)) == {"ks", "tvd", "dcr"}
    done = planning.plan_stored(store, datasets, ("ks",))
    assert (done.jobs, done.cached) == ((), 1)
    assert all(isinstance(entry, Variant) for entry in datasets)


def test_scores_by_an_older_source_are_outdated(store: RunStore) -> None:
    row, scores = store.finished[KEY]
    store.finished = {KEY: (replace(row, metrics='{"ks": "another"}'), scores)}
    plan = planning.plan_stored(store, planning.load_stored(store), ("ks",))
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
    plan = planning.plan_stored(store, planning.load_stored(store), ("tvd",))
    assert plan.jobs == () and plan.wanted == ()
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
    assert row.metrics == "{}" and row.dataset == "gbsg2 trial"
    assert read[0].limit is None
