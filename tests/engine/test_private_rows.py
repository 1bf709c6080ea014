"""Scoring, verifying and merging releases whose rows are not stored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.engine import keys
from bench.engine import plan as planning
from bench.engine.cell import Remake, finish_cell, run_cell
from bench.engine.fit import FitResult
from bench.engine.merge import merge_runs
from bench.engine.plan import Action
from bench.engine.verify import verify
from bench.plugins import registry
from bench.plugins.source import build_dataset
from bench.results import private_rows
from bench.results.records import Cell, Outcome, Status, Variant
from bench.results.run_directory import RunStore

ENTRY = Variant("gbsg2", "gbsg2")
DATASET = build_dataset(registry.build_source("gbsg2"))
CELL = Cell(
    method=Variant("subset", "subset"),
    dataset=ENTRY,
    ipc=20,
    full_size=False,
    epsilon=None,
    delta=1e-5,
    seed=1,
    split="default",
    split_seed=0,
)
KEY = keys.cell_key(CELL, DATASET.fingerprint)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_cell(CELL, KEY, DATASET, ("ks",))


@pytest.fixture
def run(tmp_path: Path, outcome: Outcome) -> Path:
    with RunStore(tmp_path / "run") as store:
        store.record(outcome, DATASET.encoder)
        store.compact()
    return tmp_path / "run"


def remake_of(run: Path, digest: str = "") -> Remake:
    with RunStore(run) as store:
        return Remake(Outcome(*store.finished[KEY]), digest or store.rows_not_stored(KEY))


def test_the_rows_are_made_again_and_only_the_new_metrics_computed(
    run: Path, outcome: Outcome
) -> None:
    scored = run_cell(CELL, KEY, DATASET, ("tvd",), remake_of(run))
    assert (scored.row.status, scored.fitted) == ("ok", False)
    assert {score.metric for score in scored.scores} == {"ks", "tvd"}
    assert set(json.loads(scored.row.metrics)) == {"ks", "tvd"}
    # What scoring the rows at once would have given.
    both = run_cell(CELL, KEY, DATASET, ("ks", "tvd"))
    assert {s.metric: s.value for s in both.scores} == {s.metric: s.value for s in scored.scores}
    assert scored.row.fit_seconds == outcome.row.fit_seconds


def test_other_rows_than_were_released_are_not_scored(run: Path) -> None:
    scored = run_cell(CELL, KEY, DATASET, ("tvd",), remake_of(run, "0" * 64))
    assert scored.row.status == "error"
    assert "the same seed gave other rows than were released" in scored.row.reason
    assert scored.row.verdict == "non-private"
    assert {score.metric for score in scored.scores} == {"ks"}


@pytest.mark.parametrize("status", [Status.SKIPPED, Status.TIMEOUT])
def test_a_failure_to_make_them_again_leaves_the_verdict_and_the_scores(
    run: Path, status: Status
) -> None:
    fitted = FitResult(status, reason="no such environment")
    ended = finish_cell(CELL, KEY, DATASET, ("tvd",), fitted, remake=remake_of(run))
    # A skipped cell would count as done.
    assert ended.row.status == ("error" if status is Status.SKIPPED else status.value)
    assert ended.row.reason.endswith("could not be made again: no such environment")
    assert ended.row.verdict == "non-private" and ended.scores[0].metric == "ks"


def plan_of(run: Path, metrics: tuple[str, ...], cell: Cell = CELL) -> planning.RunPlan:
    with RunStore(run) as store:
        return planning.plan_cells([cell], {ENTRY: DATASET}, store, metrics)


def test_a_run_makes_the_rows_again_where_metrics_are_missing(run: Path) -> None:
    assert plan_of(run, ("ks",)).jobs == ()
    plan = plan_of(run, ("ks", "tvd"))
    (job,) = plan.jobs
    assert job.scoring and job.fits and len(job.remake) == 64 and job.metrics == ("tvd",)
    assert plan.reasons == ("1 cell: metrics missing: tvd; rows not stored, made again",)


def test_scoring_a_directory_makes_the_rows_again_or_says_why_not(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scored() -> planning.RunPlan:
        with RunStore(run) as store:
            return planning.plan_stored(store, {ENTRY: DATASET}, ("ks", "tvd"))

    (job,) = scored().jobs
    assert job.remake
    with monkeypatch.context() as changed:
        changed.setattr(registry.method_class("subset"), "seeded", False)
        (notice,) = scored().notices
        assert "rows, which have no proven epsilon, are not stored" in notice
        assert "method subset cannot be seeded; `bench run --keep-private-rows` keeps" in notice
    with monkeypatch.context() as changed:
        changed.setattr(keys, "cell_key", lambda *_, **__: "another")
        (notice,) = scored().notices
        assert "the method or a library that it imports has changed" in notice


@pytest.mark.parametrize(
    "facts, secure, action, said",
    [
        ({}, False, Action.SCORE, ""),
        ({}, True, Action.KEEP, "secure noise cannot be drawn again; `bench run --keep-private"),
        # One whose metric failed, or that could not be made again: fitted anew, all metrics.
        ({"status": "error"}, False, Action.FIT, ""),
    ],
)
def test_what_happens_to_a_stored_cell_without_its_rows(
    outcome: Outcome, facts: dict[str, str], secure: bool, action: Action, said: str
) -> None:
    row = replace(outcome.row, **facts)  # type: ignore[arg-type]
    cell = replace(CELL, secure_noise=secure)
    decision = planning.decide(cell, row, lambda: True, ("tvd",), "", lambda: True)
    assert decision.action is action
    assert said in decision.text
    if action is Action.FIT:
        assert decision.metrics == ("tvd", "ks")


def test_verifying_compares_digests(run: Path) -> None:
    found = verify(run)
    (again,) = found.recomputed
    assert found.good and again.remarks == ("its rows are not stored: their digest is compared",)
    path = run / "releases" / KEY / "rows.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "sha256": "0" * 64}))
    found = verify(run)
    assert any("rows.json is not the file that was released" in text for text in found.problems)
    assert found.recomputed[0].differences == ("the released rows have another digest",)


def test_merging_takes_no_rows_unless_asked_and_compares_digests(
    tmp_path: Path, outcome: Outcome
) -> None:
    for name in ("a", "b"):
        with RunStore(tmp_path / name, keep_private_rows=True) as store:
            store.record(outcome, DATASET.encoder)
            store.compact()
    merge_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert not list((tmp_path / "c").rglob("*synthetic*"))
    assert verify(tmp_path / "c").good
    merge_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "d", keep_private_rows=True)
    assert len(list((tmp_path / "d").rglob("non-private-*.parquet"))) == 2
    assert verify(tmp_path / "d").good
    path = tmp_path / "b" / "releases" / KEY / "rows.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sha256": "0" * 64}))
    merged = merge_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "e")
    assert merged.conflicts[0].differences == ("the released rows",)


def test_rows_that_an_earlier_version_stored_are_said_and_left_out_of_a_merge(run: Path) -> None:
    folder = run / "releases" / KEY
    with RunStore(run, keep_private_rows=True) as store:
        fitted = run_cell(CELL, KEY, DATASET, ("ks",))
        store.record(fitted, DATASET.encoder)
        store.compact()
    kept = run / private_rows.FOLDER / KEY
    (kept / private_rows.SYNTHETIC).rename(folder / "synthetic.parquet")
    (kept / private_rows.ENCODED).rename(folder / "encoded.parquet")
    (folder / "rows.json").unlink()
    assert any("hold their rows in releases/" in text for text in verify(run, sample=0).remarks)
    merge_runs([run], run.parent / "merged")
    left = sorted(path.name for path in (run.parent / "merged" / "releases" / KEY).iterdir())
    assert left == ["ledger.json", "release.json"]
