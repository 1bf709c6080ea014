"""The delta of a cell where the grid does not state one."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from bench.engine.cell import blank_row
from bench.engine.grid import Grid, default_delta, load_grid, parse_grid
from bench.engine.options import manifest
from bench.errors import GridError
from bench.plugins import registry
from bench.plugins.source import build_dataset
from bench.results.records import Variant
from tests.support.planted import write_ward

SMALL = 'datasets = ["gbsg2"]\nmethods = ["marginals"]\nipc = [5]\nepsilon = [1]\n'
LARGE = Variant("curial-sim", "curial-sim")


def test_it_is_one_in_ten_times_the_declared_rows_and_at_most_1e_5() -> None:
    assert default_delta(Variant("gbsg2", "gbsg2")) == 1e-5  # 686 rows
    declared = registry.build_source("curial-sim").declare()
    rows = sum(declared.by_class)
    assert rows > 10_000
    assert default_delta(LARGE) == 1 / (10 * rows)


def test_it_does_not_trigger_our_own_warning() -> None:
    grid = Grid("g", (LARGE,), (Variant("marginals", "marginals"),), epsilon=(1.0,))
    (cell, *_) = grid.cells()
    dataset = build_dataset(registry.build_source("curial-sim"))
    assert blank_row(cell, "k", dataset).warnings == ""
    (stated, *_) = grid.narrowed(delta=1e-5).cells()
    assert "delta 1e-05 is above 1/(10 n)" in blank_row(stated, "k", dataset).warnings


def test_with_private_counts_it_does_not_depend_on_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    write_ward(tmp_path)
    entries = (Variant("ward", "ward"), LARGE, Variant("gbsg2", "gbsg2"))
    grid = Grid("g", entries, (Variant("real", "real"), Variant("marginals", "marginals")))
    deltas = {cell.delta for cell in grid.cells(private_counts=True)}
    # Of all methods, those without a budget included: a delta that follows from n would tell it.
    assert deltas == {1e-8}


def test_a_stated_delta_is_kept_and_an_option_replaces_it() -> None:
    grid = parse_grid(SMALL + "delta = 1e-3\n", "g")
    assert {cell.delta for cell in grid.cells()} == {1e-3}
    assert {cell.delta for cell in grid.cells(private_counts=True)} == {1e-3}
    assert {cell.delta for cell in grid.narrowed(delta=1e-7).cells()} == {1e-7}
    for delta in (0.0, 1.0, float("nan")):
        with pytest.raises(GridError, match="not between 0 and 1"):
            grid.narrowed(delta=delta)


def test_the_description_of_a_run_says_by_which_rule() -> None:
    assert manifest(parse_grid(SMALL, "g"), ())["delta"] == "min(1e-5, 1/(10 n))"
    assert manifest(parse_grid(SMALL + "delta = 1e-3\n", "g"), ())["delta"] == 1e-3


@pytest.mark.parametrize("name", ["smoke", "quick", "full"])
def test_no_built_in_grid_has_a_delta_that_is_warned_about(name: str) -> None:
    @functools.cache
    def rows(dataset: Variant) -> int:
        declared = registry.build_source(dataset.name, dict(dataset.parameters)).declare()
        return sum(declared.by_class)

    for cell in load_grid(name).cells():
        assert cell.delta <= 1 / (10 * rows(cell.dataset))


def test_a_broken_file_of_a_dataset_fails_later_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    write_ward(tmp_path)
    (tmp_path / "own" / "ward.toml").write_text("nonsense")
    assert default_delta(Variant("ward", "ward")) == 1e-5
