"""Published results: what is added, replaced, left out and told, and that nothing private is."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.engine import plan as planning
from bench.engine.publish import publish
from bench.errors import StoreError
from bench.leaderboard.tables.load import load_results
from bench.leaderboard.tables.published import before, published_directory, versions
from bench.plugins.metric import HEADLINES
from bench.results import published
from bench.results.records import Outcome, Status
from bench.results.run_directory import RunStore
from tests.support.publishing import (
    DATASET,
    METRICS,
    TABLE,
    cell_of,
    changed,
    failed,
    finished,
    run_of,
)


def target(tmp_path: Path) -> Path:
    return tmp_path / "versions" / "2026.11"


def cli(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def told(directory: Path) -> str:
    """Return everything that the files of a directory say, tables decoded."""
    return "\n".join(
        repr(pq.read_table(path).to_pylist()) if path.suffix == ".parquet" else path.read_text()
        for path in sorted(directory.iterdir())
        if path.is_file()
    )


def test_a_published_cell_has_the_numbers_of_its_run(tmp_path: Path) -> None:
    # Of what is not shown, the headline is published all the same.
    scores = tuple(replace(score, shown=False) for score in finished().scores)
    run = run_of(tmp_path / "run", replace(finished(), scores=scores), finished("real", 0, None))
    done = publish([run], target(tmp_path))
    assert (done.cells, done.added, done.replaced, done.left_out) == (2, 2, 0, ())
    there = target(tmp_path)
    assert set(contents(there)) == set(published.FILES)
    row = published.rows_of(there)[finished().row.key]
    stored = pd.read_parquet(run / "cells.parquet").set_index("key").loc[row.key]
    for name in ("eps_proven", "eps_claimed", "verdict", "fingerprint", "source_hash", "versions"):
        assert getattr(row, name) == stored[name]
    kept = pd.read_parquet(there / "scores.parquet").set_index(["key", "metric"])
    every = pd.read_parquet(run / "scores.parquet").set_index(["key", "metric"])
    for place, score in kept.iterrows():
        assert score["value"] == every.loc[place, "value"] or math.isnan(score["value"])
    mine = {metric for key, metric in kept.index if key == row.key}
    assert mine == {score.metric for score in scores} & set(HEADLINES.values()) != set()
    others = [place for place in every.index if place[0] != row.key]
    assert others and set(others) < set(kept.index)


def test_every_proven_epsilon_is_checked_against_its_published_ledger(tmp_path: Path) -> None:
    outcomes = [finished(seed=seed) for seed in (0, 1)]
    run = run_of(tmp_path / "run", *outcomes, finished("real", 0, None))
    publish([run], target(tmp_path))
    there = target(tmp_path)
    # Two seeds share one ledger; `real` has proven nothing, so that its ledger stays in the run.
    assert pq.read_metadata(there / "ledgers.parquet").num_rows == 1
    results = load_results([there])
    assert results.without_ledger == results.tampered == 0
    assert set(results.cells["verdict"]) == {"sound", "non-private"}
    # Without the ledgers nothing is proven any more.
    (there / "ledgers.parquet").unlink()
    results = load_results([there])
    assert results.without_ledger == 2 and "sound" not in set(results.cells["verdict"])


def test_a_published_epsilon_that_its_ledger_does_not_prove_is_tampered(tmp_path: Path) -> None:
    publish([run_of(tmp_path / "run", finished())], target(tmp_path))
    place = target(tmp_path) / "cells.parquet"
    table = pq.read_table(place)
    column = table.schema.get_field_index("eps_proven")
    pq.write_table(table.set_column(column, "eps_proven", pa.array([0.5])), place)
    results = load_results([target(tmp_path)])
    assert list(results.cells["verdict"]) == ["tampered"] and results.tampered == 1


def test_an_exchanged_ledger_is_refused(tmp_path: Path) -> None:
    publish([run_of(tmp_path / "run", finished())], target(tmp_path))
    place = target(tmp_path) / "ledgers.parquet"
    table = pd.read_parquet(place)
    table["text"] = table["text"].str.replace("1e-05", "1e-06")
    table.to_parquet(place)
    results = load_results([target(tmp_path)])
    assert list(results.cells["verdict"]) == ["tampered"]


def test_publishing_again_changes_no_byte(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", finished(), failed(finished(seed=1)))
    publish([run], target(tmp_path), today="2026-11-18")
    first = contents(target(tmp_path))
    again = publish([run], target(tmp_path), today="2026-11-19")
    assert (again.added, again.replaced) == (0, 0)
    assert contents(target(tmp_path)) == first


def test_the_order_of_two_runs_does_not_matter(tmp_path: Path) -> None:
    one, two = finished(), finished(seed=1)
    a, b = run_of(tmp_path / "a", one), run_of(tmp_path / "b", two)
    publish([a], tmp_path / "x" / "2026.11")
    publish([b], tmp_path / "x" / "2026.11")
    publish([b, a], tmp_path / "y" / "2026.11")
    for name in ("cells.parquet", "scores.parquet", "timings.parquet", "ledgers.parquet"):
        x, y = ((tmp_path / side / "2026.11" / name).read_bytes() for side in "xy")
        assert x == y, name


@pytest.mark.parametrize("good_first", [True, False])
def test_a_cell_that_went_well_stays_under_its_key(tmp_path: Path, good_first: bool) -> None:
    good, bad = finished(), failed(finished())
    later = changed(bad, finished_at="2999-01-01T00:00:00+00:00")
    runs = [run_of(tmp_path / "good", good), run_of(tmp_path / "bad", later)]
    for run in runs if good_first else reversed(runs):
        publish([run], target(tmp_path))
    (row,) = published.rows_of(target(tmp_path)).values()
    assert row.status == "ok"


def test_a_later_cell_replaces_the_one_of_other_libraries(tmp_path: Path) -> None:
    old = changed(finished(), key="0" * len(finished().row.key), finished_at="2026-01-01T00:00:00")
    publish([run_of(tmp_path / "old", old)], target(tmp_path))
    done = publish([run_of(tmp_path / "new", finished())], target(tmp_path))
    assert (done.cells, done.added, done.replaced) == (1, 0, 1)
    scores = pd.read_parquet(target(tmp_path) / "scores.parquet")
    assert set(scores["key"]) == {finished().row.key}
    # And an older run directory does not bring it back.
    again = publish([tmp_path / "old"], target(tmp_path))
    assert again.replaced == 0
    assert set(published.rows_of(target(tmp_path))) == {finished().row.key}


def test_cells_of_other_code_are_left_out_with_the_reason(tmp_path: Path) -> None:
    other = changed(finished(seed=1), source_hash="0" * 64)
    metrics = json.loads(finished(seed=2).row.metrics) | {"ks": "0" * 64}
    scored = changed(finished(seed=2), metrics=json.dumps(metrics))
    result = cli("publish", run_of(tmp_path / "run", finished(), other, scored), "--to",
                 target(tmp_path))  # fmt: skip
    assert result.exit_code == 1, result.output
    assert "1 cell: the code of method marginals is not the installed one" in result.output
    assert "1 cell: the code of metric ks is not the installed one" in result.output
    assert set(published.rows_of(target(tmp_path))) == {finished().row.key}


def test_a_finished_cell_without_a_hash_of_its_code_is_left_out(tmp_path: Path) -> None:
    nameless = changed(finished(seed=1), source_hash="")
    early = changed(failed(finished(seed=2)), source_hash="")
    done = publish([run_of(tmp_path / "run", finished(), nameless, early)], target(tmp_path))
    assert done.left_out == ("run: 1 cell: the code of method marginals is not the installed one",)
    assert set(published.rows_of(target(tmp_path))) == {finished().row.key, early.row.key}


@pytest.mark.parametrize("digest", ["", "0" * 64])
def test_a_metric_that_is_not_installed_is_a_reason(tmp_path: Path, digest: str) -> None:
    metrics = json.dumps({"zzz": digest})
    run = run_of(tmp_path / "run", finished(), changed(finished(seed=1), metrics=metrics))
    done = publish([run], target(tmp_path))
    assert done.left_out == ("run: 1 cell: metric 'zzz' is not installed",)


def test_a_checkout_with_changes_is_refused_or_marked(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", finished(), dirty=True)
    result = cli("publish", run, "--to", target(tmp_path))
    assert result.exit_code == 2 and "changes that are in no commit" in result.output
    assert not target(tmp_path).exists()
    assert cli("publish", run, "--to", target(tmp_path), "--allow-dirty").exit_code == 0
    assert "uncommitted changes" in (target(tmp_path) / "LOG.md").read_text()


def test_data_that_are_not_open_are_left_out(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", finished())
    about = json.loads((run / "about.json").read_text())
    about["datasets"][0]["open"] = False
    (run / "about.json").write_text(json.dumps(about))
    with pytest.raises(StoreError, match="not declared to be open"):
        publish([run], target(tmp_path))


def test_published_results_are_no_run_to_publish(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", finished())
    publish([run], target(tmp_path))
    result = cli("publish", target(tmp_path), "--to", tmp_path / "other")
    assert result.exit_code == 2 and "name run directories" in result.output
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").write_text("mine")
    result = cli("publish", run, "--to", full)
    assert result.exit_code == 2 and [path.name for path in full.iterdir()] == ["letter.txt"]


def test_no_row_and_no_text_of_a_method_is_published(tmp_path: Path) -> None:
    planted = 4711.0625
    outcome = finished("real", 0, None)
    noted = changed(outcome, notes=json.dumps({"mean": planted}), log_tail=f"saw {planted}")
    run = run_of(tmp_path / "run", replace(noted, log=""), finished())
    publish([run], target(tmp_path))
    assert str(planted) in told(run)
    assert str(planted) not in told(target(tmp_path))


def test_a_version_that_would_be_too_large_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish([run_of(tmp_path / "a", finished())], target(tmp_path))
    before_it = contents(target(tmp_path))
    monkeypatch.setattr(published, "LARGEST", 1_000)
    with pytest.raises(StoreError, match="begin a new version"):
        publish([run_of(tmp_path / "b", finished(seed=1))], target(tmp_path))
    assert contents(target(tmp_path)) == before_it


def test_two_runs_that_disagree_under_one_key_are_told(tmp_path: Path) -> None:
    outcome = finished()
    score = next(one for one in outcome.scores if one.metric == "c-index/cox")
    assert score.value is not None
    moved = replace(score, value=score.value + 0.01)
    scores = tuple(moved if one is score else one for one in outcome.scores)
    publish([run_of(tmp_path / "a", outcome)], target(tmp_path))
    done = publish([run_of(tmp_path / "b", replace(outcome, scores=scores))], target(tmp_path))
    assert any("published before with c-index/cox" in text for text in done.remarks)


# Of a stranger ------------------------------------------------------------------------------------


def overwritten(directory: Path, name: str, value: str) -> Path:
    """Write a column of the published cells anew."""
    place = directory / "cells.parquet"
    table = pq.read_table(place)
    column = table.schema.get_field_index(name)
    pq.write_table(table.set_column(column, name, pa.array([value] * len(table))), place)
    return directory


@pytest.mark.parametrize(
    "column, text, told",
    [
        ("metrics", "[", "not a JSON object"),
        ("metrics", "[]", "not a JSON object"),
        ("metrics", '{"ks": 1}', "other values than texts"),
        ("versions", "[", "not a JSON object"),
        ("parameters", "[", "not a JSON object"),
        ("dataset_parameters", "null", "not a JSON object"),
        ("finished_at", "yesterday", "Invalid isoformat"),
    ],
)
def test_texts_that_no_version_has_written_are_refused(
    tmp_path: Path, column: str, text: str, told: str
) -> None:
    run = run_of(tmp_path / "run", finished())
    publish([run], target(tmp_path))
    there = overwritten(target(tmp_path), column, text)
    for read in (published.compact, published.rows_of, lambda there: publish([run], there)):
        with pytest.raises(StoreError, match=rf"cells.parquet: column {column} holds .*{told}"):
            read(there)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    publish([run_of(tmp_path / "run", finished(), finished(seed=1))], target(tmp_path))
    there = overwritten(target(tmp_path), "key", finished().row.key)
    for name in ("scores.parquet", "timings.parquet"):
        frame = pd.read_parquet(there / name)
        frame[frame["key"] == finished().row.key].to_parquet(there / name)
    with pytest.raises(StoreError, match=r"cells.parquet: column key holds '.*' twice"):
        published.compact(there)


def test_a_doubled_column_of_the_ledgers_is_refused(tmp_path: Path) -> None:
    publish([run_of(tmp_path / "run", finished())], target(tmp_path))
    place = target(tmp_path) / "ledgers.parquet"
    table = pq.read_table(place)
    text = table["text"]
    doubled = pa.Table.from_arrays([table["sha256"], text, text], names=["sha256", "text", "text"])
    pq.write_table(doubled, place)
    with pytest.raises(StoreError, match=r"ledgers.parquet: expected the columns sha256, text"):
        published.compact(target(tmp_path))
    assert list(load_results([target(tmp_path)]).cells["verdict"]) == ["tampered"]


# The log ------------------------------------------------------------------------------------------


def test_the_log_counts_what_was_published(tmp_path: Path) -> None:
    outcomes = [finished(), finished(seed=1), failed(finished(seed=2))]
    run = run_of(tmp_path / "run", *outcomes, finished("real", 0, None))
    publish([run], target(tmp_path), today="2026-11-18")
    log = (target(tmp_path) / "LOG.md").read_text()
    assert "4 cells: 3 ok, 1 error" in log
    assert "| marginals | 2 | 0 | 1 | **33.3%** |" in log
    assert "| marginals | gbsg2 | 1 | error | it did not converge |" in log
    assert "c0ffeec0ffee" in log and "a processor" in log
    spent = sum(
        one.processor_seconds
        for outcome in [*outcomes[:2], finished("real", 0, None)]
        for one in outcome.timings
        if not one.metric
    )
    version = published.check_published(target(tmp_path))
    # What storing took is added when a cell is stored.
    assert spent / 3600 <= version.core_hours + 1e-4 <= spent / 3600 + 0.01
    assert version.slices[0].untimed == 1


def test_the_log_says_what_the_grids_leave_out(tmp_path: Path) -> None:
    slow = run_of(tmp_path / "slow", finished(), left_out=["gats is | slow"])
    both = run_of(tmp_path / "both", finished(seed=1), left_out=["gats is | slow", "large"])
    publish([slow], target(tmp_path), today="2026-11-18")
    publish([both], target(tmp_path), today="2026-11-19")
    log = (target(tmp_path) / "LOG.md").read_text()
    assert "## Left out of the grid\n\n- gats is \\| slow\n- large\n\n" in log
    assert published.check_published(target(tmp_path)).slices[0].left_out == ("gats is | slow",)


# Versions -----------------------------------------------------------------------------------------


def test_versions_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "run", finished())
    for name in ("2026.11.10", "2026.11.2", "2025.04", "notes"):
        publish([run], tmp_path / "versions" / name)
    places = versions(tmp_path / "versions")
    assert [path.name for path in places] == ["2025.04", "2026.11.2", "2026.11.10"]
    assert before(places[1]) == places[0] and before(places[0]) is None
    from bench.leaderboard.tables import published as where

    monkeypatch.setattr(where, "home", lambda: tmp_path / "versions")
    assert published_directory("published") == places[2]
    assert published_directory("2025.04") == places[0]
    with pytest.raises(StoreError, match=r"2024.01 is not in this package; there are: 2025.04"):
        published_directory("2024.01")


# Continuing from the published results alone ------------------------------------------------------


def plan(tmp_path: Path, *outcomes: Outcome, skip_failed: bool = False) -> planning.RunPlan:
    """Plan three seeds in an empty directory, with these cells published."""
    publish([run_of(tmp_path / "run", *outcomes)], target(tmp_path))
    with RunStore(tmp_path / "empty") as store:
        return planning.plan_cells(
            [cell_of(seed=seed) for seed in range(3)],
            {TABLE: DATASET},
            store,
            METRICS,
            published=published.rows_of(target(tmp_path)),
            skip_failed=skip_failed,
        )


def test_published_cells_are_not_computed_again(tmp_path: Path) -> None:
    found = plan(tmp_path, finished(seed=0), finished(seed=2))
    assert found.published == 2 and [job.cell.seed for job in found.jobs] == [1]
    assert [cell.seed for cell, _ in found.wanted] == [1]


@pytest.mark.parametrize("skip, left", [(False, [1, 2]), (True, [2])])
def test_published_failures_are_tried_again_unless_asked(
    tmp_path: Path, skip: bool, left: list[int]
) -> None:
    bad = failed(finished(seed=1), Status.TIMEOUT)
    found = plan(tmp_path, finished(seed=0), bad, skip_failed=skip)
    assert sorted(job.cell.seed for job in found.jobs) == left


def test_a_cell_without_all_metrics_is_computed_again(tmp_path: Path) -> None:
    recorded = json.loads(finished().row.metrics)
    del recorded["ks"]
    found = plan(tmp_path, changed(finished(), metrics=json.dumps(recorded)), finished(seed=1))
    assert found.published == 1 and sorted(job.cell.seed for job in found.jobs) == [0, 2]


def test_a_cell_under_another_key_is_computed_again(tmp_path: Path) -> None:
    other = changed(finished(), key="0" * len(finished().row.key))
    found = plan(tmp_path, other)
    assert found.published == 0 and len(found.jobs) == 3


def test_skip_failed_needs_published() -> None:
    result = cli("run", "--grid", "smoke", "--skip-failed")
    assert result.exit_code == 2 and "--published" in result.output
