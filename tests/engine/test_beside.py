"""A run among published results: what may stand beside it, and what is named instead."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
from click.testing import CliRunner

from bench.cli.main import main
from bench.engine.beside import beside
from bench.engine.publish import publish
from bench.leaderboard.ranking.rank import placements, ranking_table
from bench.leaderboard.tables.load import load_results
from bench.results import published
from bench.results.records import Outcome
from tests.support.publishing import changed, failed, finished, run_of


def version(tmp_path: Path, *outcomes: Outcome) -> Path:
    target = tmp_path / "versions" / "2026.11"
    publish([run_of(tmp_path / "published-run", *outcomes)], target)
    return target


def version_of_any_code(tmp_path: Path, *outcomes: Outcome) -> Path:
    """Write a version as it is once the code has changed: `bench publish` takes that of today."""
    target = tmp_path / "versions" / "2026.11"
    run = published.compact(run_of(tmp_path / "published-run", *outcomes))
    published.write(target, run, published.Version("2026.11", "2026-11-01", "2026-11-01"), "")
    return target


THEIRS = (finished(), finished(seed=1), finished(epsilon=3.0), finished("real", 0, None))


def named(outcome: Outcome, label: str, **more: object) -> Outcome:
    """Return the outcome as that of another method."""
    key = f"{label}-{outcome.row.key}"[:60]
    return changed(outcome, method=label, label=label, key=key, **more)


def test_only_the_groups_of_the_run_are_beside_it(tmp_path: Path) -> None:
    there = version(tmp_path, *THEIRS)
    mine = run_of(tmp_path / "mine", finished("ldpdc"))
    with beside([mine], there) as found:
        assert found.named == ()
        assert (found.cells, found.left_out) == (3, 1)
        cells = pd.read_parquet(found.directory / "cells.parquet")
        assert sorted(zip(cells["label"], cells["seed"], strict=True)) == [
            ("marginals", 0), ("marginals", 1), ("real", 0),
        ]  # fmt: skip
        assert set(cells["eps_target"].dropna()) == {1.0}
        # Their epsilons are checked against their ledgers as before.
        results = load_results([found.directory, mine])
        assert results.without_ledger == results.tampered == 0
        assert len(results.cells) == 4
        place = found.directory
    assert not place.exists()


def test_what_is_not_published_is_named(tmp_path: Path) -> None:
    there = version(tmp_path, *THEIRS)
    mine = run_of(tmp_path / "mine", finished("ldpdc", epsilon=2.0), finished("ldpdc"))
    with beside([mine], there) as found:
        assert found.named == (
            "dataset gbsg2, 5 rows per class, epsilon 2, delta 1e-05: no published results",
        )


def test_other_rows_are_named(tmp_path: Path) -> None:
    there = version(tmp_path, *THEIRS)
    mine = run_of(tmp_path / "mine", changed(finished("ldpdc"), fingerprint="0" * 64))
    with beside([mine], there) as found:
        assert found.cells == 0
        assert found.named == (
            "dataset gbsg2 has other rows or another split than published: its published results "
            "are left out",
        )


def test_another_split_is_another_dataset(tmp_path: Path) -> None:
    there = version(tmp_path, *THEIRS)
    mine = run_of(tmp_path / "mine", changed(finished("ldpdc"), split_seed=4))
    with beside([mine], there) as found:
        assert found.named == ("dataset gbsg2, split default 4 is not published",)


def test_other_metrics_are_named_and_their_scores_left_out(tmp_path: Path) -> None:
    there = version(tmp_path, *THEIRS)
    metrics = json.loads(finished("ldpdc").row.metrics) | {"ks": "0" * 64}
    mine = run_of(tmp_path / "mine", changed(finished("ldpdc"), metrics=json.dumps(metrics)))
    with beside([mine], there) as found:
        (text,) = found.named
        assert text.startswith("metric ks has other code than published")
        scores = pd.read_parquet(found.directory / "scores.parquet")
        assert found.cells == 3 and "its published scores are left out" in text
        assert "c-index/cox" in set(scores["metric"])
        assert not [name for name in scores["metric"] if name.startswith("ks")]


def with_other(outcome: Outcome, metric: str, **more: object) -> Outcome:
    """Return the outcome as scored by other code of this metric."""
    metrics = json.loads(outcome.row.metrics) | {metric: "0" * 64}
    return changed(outcome, metrics=json.dumps(metrics), **more)


def places_of(*directories: Path) -> pd.DataFrame:
    """Return the placements of a board of these directories."""
    results = load_results(directories)
    return placements(ranking_table(results.cells, results.scores)).set_index("shown_label")


def test_a_cell_without_its_headline_metric_does_not_fail_but_is_left_out(tmp_path: Path) -> None:
    there = version(tmp_path, *THEIRS, finished("dm"))
    mine = run_of(tmp_path / "mine", with_other(finished("ldpdc"), "c-index/cox"))
    with beside([mine], there) as found:
        assert (found.cells, found.left_out) == (0, 5)
        (text,) = found.named
        assert text == (
            "metric c-index/cox has other code than published: the published cells that it ranks "
            "with that code (dataset gbsg2) are left out, with all their scores (score the run "
            "with the code of that version, or wait for the next)"
        )
        assert pd.read_parquet(found.directory / "scores.parquet").empty
        place = places_of(found.directory, mine)
        assert list(place.index) == ["ldpdc"] and place["rank"].isna().all()
    site = tmp_path / "site"
    arguments = ["leaderboard", str(mine), "--with", str(there), "-o", str(site)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "0 cells of version 2026.11 beside the runs, 5 left out" in result.output


def test_cells_of_the_same_headline_code_stay(tmp_path: Path) -> None:
    # The version has two codes of the metric, one of them that of the run.
    old = with_other(finished(epsilon=3.0), "c-index/cox")
    there = version_of_any_code(tmp_path, finished(), old)
    mine = run_of(tmp_path / "mine", finished("ldpdc"), finished("ldpdc", epsilon=3.0))
    with beside([mine], there) as found:
        assert found.cells == 1
        place = places_of(found.directory, mine)
        ranked = place[place["rank"].notna()]
        assert set(ranked.index) == {"marginals", "ldpdc"} and not ranked["failing"].any()
        assert set(ranked["eps_target"]) == {1.0}


def test_a_row_is_not_left_with_its_failures_alone(tmp_path: Path) -> None:
    some = (with_other(finished(), "c-index/cox"), failed(finished(seed=1)))
    never = [failed(changed(finished("dm"), seed=seed, key=f"dm-{seed}")) for seed in (0, 1)]
    there = version_of_any_code(tmp_path, *some, *never)
    mine = run_of(tmp_path / "mine", finished("ldpdc"), finished("ldpdc", seed=1))
    with beside([mine], there) as found:
        # What failed on every seed did so whatever the code of the metric.
        assert set(pd.read_parquet(found.directory / "cells.parquet")["label"]) == {"dm"}
        assert found.cells == 2


def test_the_cell_of_the_run_counts_whichever_finished_last(tmp_path: Path) -> None:
    later = changed(finished(), finished_at="2030-01-01T00:00:00+00:00")
    there = version(tmp_path, later, finished(seed=1))
    for key in (later.row.key, "1" * 20):
        own = changed(finished(), key=key, finished_at="2020-01-01T00:00:00+00:00")
        mine = run_of(tmp_path / key, own)
        with beside([mine], there) as found:
            assert (found.cells, found.left_out, found.named) == (1, 1, ())
            cells = load_results([found.directory, mine]).cells.set_index("seed")
            assert cells.loc[0, "finished_at"] == own.row.finished_at
            assert set(cells.index) == {0, 1}


def test_other_code_of_a_method_does_not_mix(tmp_path: Path) -> None:
    there = version(tmp_path, *THEIRS)
    mine = run_of(tmp_path / "mine", changed(finished(), source_hash="0" * 64, key="1" * 20))
    with beside([mine], there) as found:
        assert found.named == (
            "method marginals has other code than published: its published results are left out",
        )
        assert set(pd.read_parquet(found.directory / "cells.parquet")["label"]) == {"real"}


def test_a_method_has_its_place_on_the_board(tmp_path: Path) -> None:
    there = version(tmp_path, *THEIRS)
    mine = run_of(tmp_path / "mine", finished("ldpdc"), finished("ldpdc", epsilon=2.0))
    site = tmp_path / "site"
    arguments = ["leaderboard", str(mine), "--with", str(there), "-o", str(site)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "3 cells of version 2026.11 beside the runs, 1 left out" in result.output
    assert "with 2026.11: dataset gbsg2, 5 rows per class, epsilon 2" in result.output
    page = (site / "index.html").read_text()
    assert "With version 2026.11." in page and "no published results" in page
    table = pd.read_parquet(site / "leaderboard.parquet")
    ranked = table[table["rank"].notna()]
    assert {"ldpdc", "marginals"} <= set(ranked[ranked.columns[0]]) | set(ranked.get("method", ()))


def test_a_site_is_needed(tmp_path: Path) -> None:
    there = version(tmp_path, finished())
    arguments = ["leaderboard", str(there), "--with", str(there), "--check", str(there)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and "name -o SITE too" in result.output


def test_a_run_is_no_version(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", replace(finished()))
    arguments = ["leaderboard", str(run), "--with", str(run), "-o", str(tmp_path / "site")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and "holds no published results" in result.output
