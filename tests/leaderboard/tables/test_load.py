"""Reading run directories, and refusing what is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.errors import StoreError
from bench.leaderboard.tables.load import load_results


def _change(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def test_columns_and_names(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.8)
    run.add("b", 0.8, ipc=None, full_size=True)
    run.add("c", 0.8, ipc=None)
    results = load_results([run.write(tmp_path / "mine")])
    assert results.cells["shown_label"].tolist() == ["a", "b", "c"]
    assert results.cells["shown_ipc"].tolist() == ["50", "full", "own"]
    assert results.runs == ("mine",)
    assert len(results.scores) == 3
    assert (results.replaced, results.unclaimed) == (0, 0)


def test_same_key_in_two_runs_keeps_the_latest(new_run: Callable[[], Any], tmp_path: Path) -> None:
    early, late = new_run(), new_run()
    early.add("a", 0.1, finished_at="2026-01-01T09:00:00.000+00:00")
    late.add("a", 0.9, finished_at="2026-01-01T10:00:00.000+00:00")
    # Written in another time zone: later as text, earlier in time.
    other = new_run()
    other.add("a", 0.5, finished_at="2026-01-01T11:30:00.000+02:00")
    directories = [r.write(tmp_path / n) for n, r in (("l", late), ("e", early), ("o", other))]
    results = load_results(directories)
    assert results.scores["value"].tolist() == [0.9]
    assert results.replaced == 2


def test_a_cell_run_again_with_changed_code_replaces_the_old_one(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1, key="old code", source_hash="1", finished_at="2026-01-01T00:00:00+00:00")
    run.add("a", 0.9, key="new code", source_hash="2", finished_at="2026-01-02T00:00:00+00:00")
    results = load_results([run.write(tmp_path)])
    assert results.cells["key"].tolist() == ["new code"]
    assert results.scores["value"].tolist() == [0.9]
    assert results.replaced == 1


def test_other_seeds_and_settings_do_not_replace_each_other(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1, seed=0)
    run.add("a", 0.1, seed=1)
    run.add("a", 0.1, delta=1e-6)
    run.add("a", 0.1, study_only=True, key="seeded")
    assert len(load_results([run.write(tmp_path)]).cells) == 4


def test_the_same_directory_twice_counts_once(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1)
    directory = run.write(tmp_path / "r")
    results = load_results([directory, tmp_path / "r" / ".." / "r"])
    assert (len(results.cells), results.replaced) == (1, 0)


def test_one_label_for_two_parameters_is_distinguished(
    new_run: Callable[[], Any], tmp_path: Path
) -> None:
    first, second = new_run(), new_run()
    first.add("a", 0.1, parameters='{"x": 1, "y": 2}')
    first.add("b", 0.1, parameters='{"x": 1, "y": 2}')
    second.add("a", 0.1, parameters='{"x": 9}', key="k2")
    second.add("b", 0.1, parameters='{"y": 2, "x": 1}', seed=1)
    results = load_results([first.write(tmp_path / "1"), second.write(tmp_path / "2")])
    assert sorted(results.cells["shown_label"]) == [
        'a [a {"x": 1, "y": 2}]',
        'a [a {"x": 9}]',
        "b",
        "b",
    ]


def test_a_lost_cell_learns_task_and_unit_from_its_dataset(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1, unit="patient")
    run.fail("b", task="", unit="")
    cells = load_results([run.write(tmp_path)]).cells
    assert cells["task"].tolist() == ["classification"] * 2
    assert cells["unit"].tolist() == ["patient"] * 2


def test_scores_without_a_cell_are_counted(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1)
    run.score("nobody", "auroc", 0.7)
    results = load_results([run.write(tmp_path)])
    assert len(results.scores) == 1
    assert results.unclaimed == 1


def test_columns_of_a_later_version_are_ignored(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1)
    directory = run.write(tmp_path)
    _change(directory / "cells.parquet", lambda t: t.append_column("new", pa.array([1])))
    assert "new" not in load_results([directory]).cells


def test_an_empty_run_beside_a_full_one(new_run: Callable[[], Any], tmp_path: Path) -> None:
    full = new_run()
    full.add("a", 0.1, eps_audited=0.2)
    results = load_results([new_run().write(tmp_path / "e"), full.write(tmp_path / "f")])
    assert len(results.cells) == 1


def test_no_directory_at_all() -> None:
    with pytest.raises(StoreError, match="no run directory"):
        load_results([])


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere: no such directory; give a directory that"):
        load_results([tmp_path / "nowhere"])


@pytest.mark.parametrize("name", ["cells.parquet", "scores.parquet"])
def test_missing_table(run: Any, tmp_path: Path, name: str) -> None:
    run.add("a", 0.1)
    (run.write(tmp_path) / name).unlink()
    with pytest.raises(StoreError, match=rf"holds no {name}.*bench run"):
        load_results([tmp_path])


def test_torn_table(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1)
    path = run.write(tmp_path) / "scores.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"scores\.parquet: cannot be read as Parquet"):
        load_results([tmp_path])


def test_text_that_is_no_text(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1)
    path = run.write(tmp_path) / "scores.parquet"
    broken = pa.array([b"\xff\xfe"]).view(pa.string())
    _change(path, lambda t: t.set_column(1, "metric", broken))
    with pytest.raises(StoreError, match=r"scores\.parquet: cannot be read as Parquet"):
        load_results([tmp_path])


def test_missing_column(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1)
    path = run.write(tmp_path) / "cells.parquet"
    _change(path, lambda t: t.drop_columns(["eps_proven", "verdict"]))
    with pytest.raises(StoreError, match="column eps_proven is missing; column verdict is missing"):
        load_results([tmp_path])


def test_wrong_type(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1)
    path = run.write(tmp_path) / "scores.parquet"
    _change(path, lambda t: t.set_column(2, "value", pa.array(["0.1"])))
    with pytest.raises(StoreError, match="column value is string, expected double"):
        load_results([tmp_path])


def test_empty_where_a_value_is_needed(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.1)
    path = run.write(tmp_path) / "scores.parquet"
    _change(path, lambda t: t.set_column(1, "metric", pa.array([None], pa.string())))
    with pytest.raises(StoreError, match="empty values in metric"):
        load_results([tmp_path])


def test_unknown_status(run: Any, tmp_path: Path) -> None:
    run.fail("a", status="sulking")
    with pytest.raises(StoreError, match="status 'sulking', expected one of ok, skipped"):
        load_results([run.write(tmp_path)])


@pytest.mark.parametrize("target", [0.0, -1.0, float("inf")])
def test_impossible_target(run: Any, tmp_path: Path, target: float) -> None:
    run.add("a", 0.1, eps_target=target)
    with pytest.raises(StoreError, match="eps_target"):
        load_results([run.write(tmp_path)])


def test_two_values_of_one_metric(run: Any, tmp_path: Path) -> None:
    key = run.add("a", 0.1)
    run.score(key, "auroc", 0.9)
    with pytest.raises(StoreError, match="two values of 'auroc'"):
        load_results([run.write(tmp_path)])


def test_a_metric_that_changed_its_direction(run: Any, tmp_path: Path) -> None:
    run.score(run.add("a"), "ks", 0.1, direction="lower")
    run.score(run.add("b"), "ks", 0.1, direction="higher")
    with pytest.raises(StoreError, match="metric 'ks'"):
        load_results([run.write(tmp_path)])
