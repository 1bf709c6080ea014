"""Projections of grids from stored timings, against laws that are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.engine import timing_table
from bench.engine.estimate import PowerLaw, project, released_rows, stored_timings
from bench.engine.grid import load_grid, parse_grid
from bench.engine.timing_table import TimingLine, lines_of, parse, shipped, size_of, to_text
from bench.errors import InputError
from bench.plugins import registry
from tests.results.test_compaction import timed
from tests.support.tracked_runs import opened

GBSG2 = size_of("gbsg2", {})


def line(kind: str = "fit", **facts: object) -> TimingLine:
    given = {
        "kind": kind, "method": "ldpdc" if kind == "fit" else "", "dataset": "gbsg2",
        "task": "survival", "ipc": "50", "epsilon": 1.0 if kind == "fit" else None,
        "result": "rows", "metric": "", "rows": GBSG2.rows, "columns": GBSG2.columns,
        "released": 100, "cells": 1, "seconds": 2.0, "low": 2.0, "high": 2.0, **facts,
    }  # fmt: skip
    return TimingLine(**given)  # type: ignore[arg-type]


def grid(**axes: object):  # type: ignore[no-untyped-def]
    facts = {"datasets": ["gbsg2"], "methods": ["ldpdc"], "ipc": [50], "epsilon": [1.0], **axes}
    return parse_grid("\n".join(f"{k} = {json.dumps(v)}" for k, v in facts.items()), "g")


def test_what_was_measured_is_added_up() -> None:
    timings = [line(seconds=2.0), line("score", seconds=5.0, low=4.0, high=8.0)]
    timings.append(line("reference", seconds=3.0))
    found = project(grid(seeds=[0, 1]).cells(), (), timings)
    assert found.seconds == 2 * (2.0 + 5.0) + 3.0 and found.fit_seconds == 4.0
    assert found.low == pytest.approx(2 * (2.0 / 1.1 + 4.0) + 3.0)
    assert found.high == pytest.approx(2 * (2.0 * 1.1 + 8.0) + 3.0)
    (pair,) = found.pairs
    assert pair.basis == {"measured": 2} and (pair.method, pair.dataset) == ("ldpdc", "gbsg2")


def test_the_mean_weighs_cells() -> None:
    timings = [line(seconds=2.0, cells=3), line(seconds=6.0), line("score", seconds=0.0)]
    assert project(grid().cells(), (), timings).seconds == 3.0


def test_a_method_that_skips_a_dataset_costs_nothing() -> None:
    timings = [line("skip", method="ldpdc", seconds=0.0), line(dataset="digits"), line("score")]
    assert project(grid().cells(), (), timings).seconds == 0.0


def test_a_power_law_is_found_again() -> None:
    """seconds = 0.01 * released**0.8 * (rows * columns)**0.6 * epsilon**0.5, without noise."""
    rng, lines = np.random.default_rng(0), []
    for _ in range(200):
        released, rows = int(rng.integers(50, 5000)), int(rng.integers(100, 10**6))
        epsilon = float(rng.choice([0.5, 1.0, 3.0, 10.0]))
        seconds = 0.01 * released**0.8 * (rows * 10) ** 0.6 * epsilon**0.5
        lines.append(
            line(released=released, rows=rows, columns=10, epsilon=epsilon, seconds=seconds)
        )
    law = PowerLaw(lines)
    assert law.exponents == pytest.approx([0.8, 0.6, 0.5], abs=0.02)
    features = [np.log(300.0), np.log(20_000.0), np.log(2.0)]
    expected = 0.01 * 300**0.8 * 20_000**0.6 * 2**0.5
    assert law.seconds(features, "gbsg2")[0] == pytest.approx(expected, rel=0.05)


def test_one_observation_leaves_the_stated_exponents() -> None:
    law = PowerLaw([line(seconds=4.0)])
    assert law.exponents == pytest.approx([0.3, 0.5, 0.0])
    ten_times = [np.log(1000.0), np.log(GBSG2.rows * GBSG2.columns), np.log(7.0)]
    assert law.seconds(ten_times, "gbsg2")[0] == pytest.approx(4.0 * 10**0.3)


def test_bases_and_their_ranges() -> None:
    timings = [line(), line("score", seconds=0.0, low=0.0, high=0.0)]
    timings.append(line(method="gats", epsilon=None))
    asked = grid(ipc=[50, 500], datasets=["gbsg2", "breast-cancer"], methods=["ldpdc", "dp-hp"])
    found = {
        (pair.method, pair.dataset): pair for pair in project(asked.cells(), (), timings).pairs
    }
    assert found["ldpdc", "gbsg2"].basis == {"measured": 1, "interpolated": 1}
    assert set(found["ldpdc", "breast-cancer"].basis) <= {"extrapolated", "guessed"}
    assert found["dp-hp", "gbsg2"].basis == {"guessed": 2}
    guess = found["dp-hp", "gbsg2"]
    assert guess.high == pytest.approx(5.0 * guess.seconds, rel=0.01)


def test_other_metrics_cost_their_share() -> None:
    default = registry.select_metrics(())
    shares = [line("share", metric=name, seconds=1 / len(default)) for name in default]
    timings = [line(seconds=0.0), line("score", seconds=10.0), *shares]
    all_of_them = project(grid().cells(), default, timings).seconds
    half = project(grid().cells(), default[: len(default) // 2], timings).seconds
    assert all_of_them == 10.0
    assert half == pytest.approx(10.0 * (len(default) // 2) / len(default))
    assert project(grid().cells(), ("never-timed",), timings).not_counted == ("never-timed",)


def test_released_rows_follow_from_what_is_asked() -> None:
    (cell,) = grid().cells()
    assert released_rows(cell, GBSG2) == 100
    (full,) = grid(ipc=["full"]).cells()
    assert released_rows(full, GBSG2) == GBSG2.rows


def test_timings_of_a_run_become_lines_and_come_back(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as store:
        store.record(timed("a", 4.0, rows_released=100), None)
        store.record(timed("b", 8.0, rows_released=100, seed=4), None)
    lines = lines_of(tmp_path / "run")
    by_kind = {one.kind: one for one in lines}
    fit = by_kind["fit"]
    assert (fit.method, fit.dataset, fit.ipc, fit.epsilon) == (
        "ldpdc(clip=1.0)",
        "gbsg2",
        "50",
        1.0,
    )
    assert (fit.seconds, fit.cells, fit.released, fit.rows) == (6.0, 2, 100, GBSG2.rows)
    assert by_kind["score"].seconds == 1.0, "1.5 of which 0.5 on the real rows alone"
    assert by_kind["reference"].seconds == 0.5 and by_kind["share"].seconds == 1.0
    assert parse(to_text(lines, "somewhere")) == lines
    text = 'datasets = ["gbsg2"]\nipc = [50]\nepsilon = [1.0]\n'
    text += 'methods = [{name = "ldpdc", parameters = {clip = 1.0}}]\n'
    cells = parse_grid(text, "g").cells()
    found = project(cells, (), stored_timings([tmp_path / "run"], shipped_too=False))
    assert found.seconds == 6.0 + 1.0 + 0.5


def test_own_timings_win_over_those_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_table, "shipped", lambda: pytest.fail("not through the module"))
    with opened(tmp_path / "run") as store:
        store.record(timed("a", 4.0, rows_released=100, label="ldpdc"), None)
    lines = stored_timings([tmp_path / "run"])
    mine = [
        one for one in lines if (one.kind, one.method, one.dataset) == ("fit", "ldpdc", "gbsg2")
    ]
    assert [one.seconds for one in mine] == [4.0]
    assert any(one.method == "real" for one in lines), "others come from the package"


def test_the_table_of_the_package_covers_the_grids_of_the_package() -> None:
    found = project(load_grid("quick").cells(), (), shipped())
    assert all(set(pair.basis) <= {"measured", "interpolated"} for pair in found.pairs)
    assert 0 < found.low <= found.seconds <= found.high


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(InputError, match="line 3 cannot be read"):
        parse("# x\nkind,method\nfit,ldpdc\n")


def bench(*arguments: object):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


def test_the_command(tmp_path: Path) -> None:
    text = bench("--grid", "quick", "--dry-run", "--estimate").output
    assert "core-hours (range" in text and "by method" in text and "by dataset" in text
    whole = json.loads(bench("--grid", "quick", "--dry-run", "--estimate", "--json").stdout)
    assert whole["cells"] == len(load_grid("quick").cells())
    assert len(whole["pairs"]) == 25
    refused = bench("--estimate")
    assert refused.exit_code == 2 and "give --dry-run too" in refused.output
    assert "give it too" in bench("--dry-run", "--timings", tmp_path).output
    empty = tmp_path / "run"
    with opened(empty):
        pass
    nothing = bench("--dry-run", "--estimate", "--timings", empty)
    assert nothing.exit_code == 2 and "no timings" in nothing.output


def test_a_dry_run_names_missing_datasets(tmp_path: Path) -> None:
    result = bench(
        "--methods", "real", "--datasets", "adult,gbsg2", "--dry-run", "--data-dir", tmp_path
    )
    assert result.exit_code == 0 and result.stdout.splitlines()[-1] == "2 cells"
    assert "missing: adult (1 cell would fail): needs adult/adult.data" in result.stderr
    assert "bench data get adult" in result.stderr and "gbsg2" not in result.stderr
