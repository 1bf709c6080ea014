"""Runs that are joined: what is kept, what is a conflict, and that nothing else is touched."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bench.cli.runs import merge as command
from bench.engine import keys
from bench.engine import merge as merging
from bench.engine.cell import failed_row, run_cell
from bench.engine.verify import verify
from bench.errors import StoreError
from bench.plugins.source import build_dataset
from bench.results.journal import Finished, read_journal
from bench.results.reading import FORMAT_VERSION, read_audits
from bench.results.records import Cell, Outcome, Status, Variant
from bench.results.run_directory import RunStore
from tests.results.test_audits import audit_outcome
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())


def cell_of(seed: int) -> Cell:
    return Cell(
        Variant("marginals", "marginals"), Variant("toy-table", "toy-table"), 10, False, 1.0, 1e-5,
        seed, "default", 0,
    )  # fmt: skip


def computed(seed: int, *metrics: str) -> Outcome:
    cell = cell_of(seed)
    return run_cell(cell, keys.cell_key(cell, DATASET.fingerprint), DATASET, metrics or ("ks",))


ONE, TWO = computed(0), computed(1)
KEY = ONE.row.key


def stored(directory: Path, *outcomes: Outcome, **facts: object) -> Path:
    with RunStore(directory) as store:
        store.write_manifest(facts)
        for outcome in outcomes:
            store.record(outcome, DATASET.encoder)
        store.compact()
    return directory


def in_journal(directory: Path) -> dict[str, Finished]:
    """What a journal holds, without the digests that are recorded with a release."""
    found = read_journal(directory / "journal.jsonl")
    assert all(bool(row.release_hashes) == bool(row.verdict) for row, _ in found.values())
    return {key: (replace(row, release_hashes=""), scores) for key, (row, scores) in found.items()}


def failed(outcome: Outcome, status: Status = Status.ERROR) -> Outcome:
    return Outcome(failed_row(cell_of(outcome.row.seed), outcome.row.key, DATASET, status, "oops"))


def other_score(outcome: Outcome, by: float) -> Outcome:
    first, *rest = outcome.scores
    assert first.value is not None
    return replace(outcome, scores=(replace(first, value=first.value + by), *rest))


def bench_merge(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_two_halves_make_a_whole(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", ONE, grid="x", seeds=[0], started_at="2026-01-02", delta=1e-5)
    b = stored(tmp_path / "b", TWO, grid="y", seeds=[1], started_at="2026-01-01", delta=1e-5)
    result = bench_merge(a, b, "-o", tmp_path / "c")
    assert result.exit_code == 0 and "2 cells from 2 runs" in result.output
    c = tmp_path / "c"
    journal = in_journal(c)
    assert journal == {o.row.key: (o.row, o.scores) for o in (ONE, TWO)}
    assert len(pd.read_parquet(c / "cells.parquet")) == 2
    assert len(pd.read_parquet(c / "scores.parquet")) == len(ONE.scores) + len(TWO.scores)
    assert (c / "details" / KEY / "ks.parquet").is_file()
    file = c / "releases" / KEY / "encoded.parquet"
    assert os.path.samefile(file, a / "releases" / KEY / "encoded.parquet")
    facts = json.loads((c / "run.json").read_text())
    assert (facts["grid"], facts["seeds"], facts["delta"]) == ("x + y", [0, 1], 1e-5)
    assert facts["started_at"] == "2026-01-01" and facts["format_version"] == 1
    assert [part["directory"] for part in facts["merged_from"]] == [str(a), str(b)]
    assert [part["kept"] for part in facts["merged_from"]] == [1, 1]
    assert verify(c, sample=0).good
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


@pytest.mark.parametrize("dirty", [(True, False), (False, True), (True, None), (True, True)])
def test_one_run_of_a_checkout_with_changes_marks_the_whole(
    tmp_path: Path, dirty: tuple[bool | None, bool | None]
) -> None:
    runs = [
        stored(tmp_path / name, outcome, commit=name, dirty=one)
        for name, outcome, one in zip("ab", (ONE, TWO), dirty, strict=True)
    ]
    merging.merge_runs(runs, tmp_path / "c")
    assert json.loads((tmp_path / "c" / "run.json").read_text())["dirty"] is True


def test_what_is_not_known_of_one_checkout_is_not_known_of_the_whole(tmp_path: Path) -> None:
    runs = [stored(tmp_path / "a", ONE, dirty=False), stored(tmp_path / "b", TWO, dirty=None)]
    merging.merge_runs(runs, tmp_path / "c")
    assert "dirty" not in json.loads((tmp_path / "c" / "run.json").read_text())


def test_files_are_copied_where_they_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("another disk")

    a = stored(tmp_path / "a", ONE)
    monkeypatch.setattr(os, "link", refuse)
    merging.merge_runs([a], tmp_path / "c")
    files = [side / "releases" / KEY / "encoded.parquet" for side in (a, tmp_path / "c")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert not os.path.samefile(*files)


def test_the_same_result_is_kept_once(tmp_path: Path) -> None:
    # Other times and a rounding error are not another result.
    again = other_score(replace(ONE, row=replace(ONE.row, fit_seconds=99.0)), 1e-13)
    a, b = stored(tmp_path / "a", ONE, TWO), stored(tmp_path / "b", again)
    merge = merging.merge_runs([a, b], tmp_path / "c")
    assert (len(merge.choices), merge.doubles, merge.conflicts) == (2, 1, ())
    assert in_journal(tmp_path / "c")[KEY][0] == ONE.row


def test_files_written_otherwise_hold_the_same_release(tmp_path: Path) -> None:
    a, b = stored(tmp_path / "a", ONE), stored(tmp_path / "b", ONE)
    path = b / "releases" / KEY / "encoded.parquet"
    pq.write_table(pq.read_table(path), path, compression="gzip")
    assert path.read_bytes() != (a / "releases" / KEY / "encoded.parquet").read_bytes()
    assert merging.plan_merge([a, b]).conflicts == ()


@pytest.mark.parametrize("status", [Status.ERROR, Status.SKIPPED, Status.TIMEOUT])
@pytest.mark.parametrize("good_first", [True, False])
def test_good_beats_failed(tmp_path: Path, status: Status, good_first: bool) -> None:
    a, b = stored(tmp_path / "a", ONE), stored(tmp_path / "b", failed(ONE, status))
    merge = merging.merge_runs([a, b] if good_first else [b, a], tmp_path / "c")
    assert merge.conflicts == ()
    assert in_journal(tmp_path / "c")[KEY] == (ONE.row, ONE.scores)
    assert RunStore(tmp_path / "c").release_intact(KEY)


def test_a_whole_release_beats_a_damaged_one(tmp_path: Path) -> None:
    a, b = stored(tmp_path / "a", ONE), stored(tmp_path / "b", ONE)
    (a / "releases" / KEY / "encoded.parquet").write_bytes(b"torn")
    assert merging.merge_runs([a, b], tmp_path / "c").conflicts == ()
    assert RunStore(tmp_path / "c").release_intact(KEY)


def test_other_scores_are_a_conflict_and_the_first_is_kept(tmp_path: Path) -> None:
    a, b = stored(tmp_path / "a", ONE), stored(tmp_path / "b", other_score(ONE, 0.25))
    result = bench_merge(b, a, "-o", tmp_path / "c")
    assert result.exit_code == 1
    metric, value = ONE.scores[0].metric, ONE.scores[0].value
    assert value is not None
    assert f"differ: {metric} {value + 0.25:.10g} and {value:.10g}" in result.stderr
    assert "marginals on toy-table ipc=10 eps=1 seed=0" in result.stderr
    kept = in_journal(tmp_path / "c")[KEY][1][0].value
    assert kept == value + 0.25


def test_other_rows_are_a_conflict(tmp_path: Path) -> None:
    assert ONE.release is not None and ONE.release.rows is not None
    rows = ONE.release.rows
    changed = np.array(rows.values)
    changed[0, 0] += 0.125
    release = replace(ONE.release, rows=replace(rows, values=changed))
    a, b = stored(tmp_path / "a", ONE), stored(tmp_path / "b", replace(ONE, release=release))
    (conflict,) = merging.plan_merge([a, b]).conflicts
    assert conflict.differences == ("the released rows",) and conflict.kept == a
    secure = replace(ONE, row=replace(ONE.row, study_only=False))
    c = stored(tmp_path / "c", secure)
    (conflict,) = merging.plan_merge([c, b]).conflicts
    assert "budgets add up" in conflict.differences[0]


def test_strict_writes_nothing(tmp_path: Path) -> None:
    a, b = stored(tmp_path / "a", ONE), stored(tmp_path / "b", other_score(ONE, 0.25))
    result = bench_merge(a, b, "-o", tmp_path / "c", "--strict")
    assert result.exit_code == 1 and "nothing was written" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_scores_that_only_one_run_has_are_added(tmp_path: Path) -> None:
    tvd = computed(0, "tvd")
    a, b = stored(tmp_path / "a", ONE), stored(tmp_path / "b", tvd)
    merge = merging.merge_runs([a, b], tmp_path / "c")
    assert merge.conflicts == ()
    row, scores = in_journal(tmp_path / "c")[KEY]
    both = computed(0, "ks", "tvd")
    assert {s.metric: s.value for s in scores} == {s.metric: s.value for s in both.scores}
    assert (row.metrics, row.metrics_hash) == (both.row.metrics, both.row.metrics_hash)
    names = {path.name for path in (tmp_path / "c" / "details" / KEY).iterdir()}
    assert names == {p.name for d in (a, b) for p in (d / "details" / KEY).iterdir()}


def test_charges_are_joined(tmp_path: Path) -> None:
    a, b = stored(tmp_path / "a"), stored(tmp_path / "b")
    for directory, charges in ((a, ("x", "y")), (b, ("y", "z"))):
        with RunStore(directory) as store:
            for key in charges:
                store.charge(key, f"identity-of-{key}" if key == "x" else "")
    # A torn last line was never acted upon; the source is not repaired either.
    torn = (b / "charges.jsonl").read_bytes() + b'{"key": "w'
    (b / "charges.jsonl").write_bytes(torn)
    merging.merge_runs([a, b], tmp_path / "c")
    assert RunStore(tmp_path / "c").charged() == {"x", "identity-of-x", "y", "z"}
    assert (b / "charges.jsonl").read_bytes() == torn
    (a / "charges.jsonl").write_text('nonsense\n{"key": "x"}\n')
    with pytest.raises(StoreError, match="charges may be lost"):
        merging.merge_runs([a, b], tmp_path / "d")


def audited(directory: Path, *outcomes: Outcome) -> Path:
    """A run directory that holds these audits."""
    for outcome in outcomes:
        folder = directory / "audits" / outcome.row.key
        folder.mkdir(parents=True)
        (folder / "ledger.json").write_text(json.dumps(outcome.row.key))
        pq.write_table(pa.table({"number": [0]}), folder / "trials.parquet")
    (directory / "run.json").write_text(json.dumps({"format_version": FORMAT_VERSION}))
    return stored(directory, *outcomes)


def test_audits_are_joined(tmp_path: Path) -> None:
    one, two, three = (audit_outcome(key, label=key) for key in ("one", "two", "three"))
    lost = audit_outcome("two", label="two", status="error", reason="lost")
    a = audited(tmp_path / "a", one, lost)
    b = audited(tmp_path / "b", two, three)
    merge = merging.merge_runs([a, b], tmp_path / "c")
    assert merge.conflicts == () and merge.doubles == 1
    assert read_audits(tmp_path / "c") == (one, three, two)
    folder = tmp_path / "c" / "audits" / "one"
    assert (folder / "ledger.json").read_text() == '"one"' and (folder / "trials.parquet").exists()


def test_audits_that_contradict_each_other_are_a_conflict(tmp_path: Path) -> None:
    a = audited(tmp_path / "a", audit_outcome("one", eps_audited=1.0, p_claim=0.5))
    b = audited(tmp_path / "b", audit_outcome("one", eps_audited=2.0, p_claim=0.25))
    (conflict,) = merging.merge_runs([a, b], tmp_path / "c").conflicts
    assert "eps_audited 1.0 and 2.0; p_claim 0.5 and 0.25" in conflict.describe()
    assert [one.row.eps_audited for one in read_audits(tmp_path / "c")] == [1.0]


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", ONE)
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("precious")
    with pytest.raises(StoreError, match="is not empty"):
        merging.merge_runs([a], full)
    with pytest.raises(StoreError, match="is not a folder"):
        merging.merge_runs([a], full / "thesis.txt")
    empty = tmp_path / "empty"
    empty.mkdir()
    merging.merge_runs([a], empty)
    assert (empty / "run.json").is_file()


def test_unfit_sources_are_refused(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", ONE)
    with pytest.raises(StoreError, match="named twice"):
        merging.merge_runs([a, a / ".." / "a"], tmp_path / "c")
    with pytest.raises(StoreError, match="not a run directory"):
        merging.merge_runs([a, tmp_path / "b"], tmp_path / "c")
    with RunStore(a), pytest.raises(StoreError, match="in use"):
        merging.merge_runs([a], tmp_path / "c")
    (a / "run.json").write_text('{"format_version": 2}')
    with pytest.raises(StoreError, match="format version 2"):
        merging.merge_runs([a], tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("key", ["../../evil", "/etc", "..", ".hidden", "a b", "", "a\n", "é"])
def test_a_key_that_is_no_plain_name_is_refused(tmp_path: Path, key: str) -> None:
    a = stored(tmp_path / "a", ONE)
    line = (a / "journal.jsonl").read_text().replace(json.dumps(KEY), json.dumps(key))
    (a / "journal.jsonl").write_text(line)
    with pytest.raises(StoreError, match="not a plain name"):
        merging.merge_runs([a], tmp_path / "c")
    (a / "journal.jsonl").write_text("")
    (a / "charges.jsonl").write_text(json.dumps({"key": key}) + "\n")
    with pytest.raises(StoreError, match="charges"):
        merging.merge_runs([a], tmp_path / "c")


@pytest.mark.parametrize("place", ["releases", f"releases/{KEY}", f"releases/{KEY}/notes.txt"])
def test_a_strangers_links_are_not_followed(tmp_path: Path, place: str) -> None:
    a = stored(tmp_path / "a", ONE)
    secret = tmp_path / "secret"
    if place.endswith("notes.txt"):
        secret.write_text("mine")
    else:
        (a / place).rename(secret)
    (a / place).symlink_to(secret)
    with pytest.raises(StoreError, match="symbolic link"):
        merging.merge_runs([a], tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "secret"]


def test_lines_that_are_not_those_of_cells_are_left_out_and_said(tmp_path: Path) -> None:
    a = stored(tmp_path / "a", ONE, TWO)
    one, two = (json.loads(line) for line in (a / "journal.jsonl").read_text().splitlines())
    one["scores"] = two["scores"]
    lines = [json.dumps(one), json.dumps(two), '{"cell": [1]}']
    before = "\n".join([*lines, ""])
    (a / "journal.jsonl").write_text(before)
    merged = merging.merge_runs([a], tmp_path / "c")
    assert [choice.key for choice in merged.choices] == [TWO.row.key]
    first, last = merged.sources[0].journal.notices
    assert "line 1 is not that of a cell (it holds scores of another cell)" in first
    assert "line 3 is not that of a cell" in last
    assert (a / "journal.jsonl").read_text() == before, "a source is only read"
    assert len(pd.read_parquet(tmp_path / "c" / "cells.parquet")) == 1


def test_logs_of_failed_cells_stay_where_they_are(tmp_path: Path) -> None:
    """They may hold values of rows: a merged directory, made to be passed on, holds none."""
    said = replace(failed(ONE), log="row content: 0.123456789")
    stored(tmp_path / "a", said)
    stored(tmp_path / "b", computed(1, "ks"))
    assert (tmp_path / "a" / "logs" / f"{KEY}.log").is_file()
    assert bench_merge(tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c").exit_code == 0
    row, _ = in_journal(tmp_path / "c")[KEY]
    assert row.reason.endswith("; its log stayed in the run directory that was merged")
    assert "see logs/" not in row.reason
    assert not (tmp_path / "c" / "logs").exists()
    for path in (tmp_path / "c").rglob("*"):
        assert not path.is_file() or b"0.123456789" not in path.read_bytes()
    # What was merged is merged again, and says it once.
    assert bench_merge(tmp_path / "c", "-o", tmp_path / "d").exit_code == 0
    assert in_journal(tmp_path / "d")[KEY][0].reason == row.reason
