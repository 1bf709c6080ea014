"""Methods of a run directory, pair by pair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.engine import compare as comparison
from bench.engine import keys
from bench.engine.cell import run_cell
from bench.engine.grid import parse_grid
from bench.errors import InputError, UnknownNameError
from bench.plugins import registry
from bench.plugins.source import build_dataset
from bench.results.run_directory import RunStore

GRID = """
datasets = ["breast-cancer", "gbsg2"]
methods = ["real", "marginals", "ldpdc"]
ipc = [20]
epsilon = [1.0]
seeds = [0, 1]
"""
METRICS = registry.select_metrics(["auroc", "c-index/cox"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("compared") / "run"
    datasets = {
        name: build_dataset(registry.build_source(name)) for name in ("breast-cancer", "gbsg2")
    }
    with RunStore(directory) as store:
        for cell in parse_grid(GRID, "small").cells():
            dataset = datasets[cell.dataset.name]
            key = keys.cell_key(cell, dataset.fingerprint)
            store.record(run_cell(cell, key, dataset, METRICS), dataset.encoder)
    return directory


def test_every_pair_of_each_group_by_the_headline_of_its_task(run: Path) -> None:
    found, notices = comparison.compare_run(run)
    assert notices == []
    assert {(one.dataset, one.metric) for one in found} == {
        ("breast-cancer", "auroc"),
        ("gbsg2", "c-index/cox"),
    }
    assert len(found) == 6 and all(one.seeds == 2 for one in found)
    assert all(one.ipc == "20" and one.eps_target == 1.0 for one in found)
    best = next(one for one in found if (one.first, one.second) == ("real", "ldpdc"))
    assert best.difference > 0 and best.low <= best.difference <= best.high
    assert best.first_verdict == "non-private" and best.second_verdict == "sound"
    assert all(one.p <= one.p_holm <= 1 for one in found)
    assert all(one.p_seeds is None or 0 < one.p_seeds <= 1 for one in found)
    assert best.p_seeds is not None


def test_the_difference_is_that_of_the_scores(run: Path) -> None:
    found, _ = comparison.compare_run(run, "auroc", ["real", "marginals"])
    (one,) = found
    with RunStore.existing(run) as store:
        values = {
            label: [
                score.value
                for row, scores in store.finished.values()
                for score in scores
                if row.label == label and row.dataset == "breast-cancer" and score.metric == "auroc"
            ]
            for label in ("real", "marginals")
        }
    expected = sum(values["real"]) / 2 - sum(values["marginals"]) / 2
    assert one.difference == pytest.approx(expected)


def test_what_is_missing_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean ldpdc"):
        comparison.compare_run(run, methods=["ldpd"])
    with pytest.raises(UnknownNameError, match="unknown metric to compare by"):
        comparison.compare_run(run, "ks")
    found, notices = comparison.compare_run(run, "c-index/aft", ["real", "ldpdc"])
    assert found == [] and "no predictions were kept" in notices[0]
    with pytest.raises(InputError, match="nothing to compare: real and ldpdc"):
        comparison.check_some(found, notices)


def test_the_command(run: Path) -> None:
    said = CliRunner().invoke(main, ["compare", str(run)])
    assert said.exit_code == 0, said.output
    assert "p (Holm)" in said.output and "non-private / sound" in said.output
    read = json.loads(CliRunner().invoke(main, ["compare", str(run), "--json"]).output)
    assert len(read["comparisons"]) == 6


def test_the_table_marks_what_is_significant(run: Path) -> None:
    found, _ = comparison.compare_run(run)
    lines = comparison.to_text([replace(found[0], p_holm=0.01), replace(found[0], p_holm=0.2)])
    assert ["*" in line for line in lines.splitlines()] == [False, True, False]


def test_the_leaderboard_of_one_dataset_shows_the_same_tests(run: Path, tmp_path: Path) -> None:
    """Issue 24: the front page called chance what `bench compare` called significant."""
    directory, site = tmp_path / "one", tmp_path / "site"
    with RunStore(directory) as store:
        dataset = build_dataset(registry.build_source("breast-cancer"))
        for cell in parse_grid(GRID, "small").cells():
            if cell.dataset.name == "breast-cancer" and cell.method.name != "real":
                key = keys.cell_key(cell, dataset.fingerprint)
                store.record(run_cell(cell, key, dataset, METRICS[:1]), dataset.encoder)
        store.compact()
    (pair,), _ = comparison.compare_run(directory)
    told = CliRunner().invoke(main, ["leaderboard", str(directory), "-o", str(site)])
    assert told.exit_code == 0, told.output
    page = (site / "index.html").read_text(encoding="utf-8")
    table = page.split('id="paired"')[1].split("</table>")[0]
    assert f'data-value="{pair.p_holm}"' in table
    assert f"{abs(pair.difference):.3f}" in table
    # Several datasets are tested over datasets.
    several = CliRunner().invoke(main, ["leaderboard", str(run), "-o", str(tmp_path / "both")])
    assert several.exit_code == 0, several.output
    assert 'id="paired"' not in (tmp_path / "both/index.html").read_text(encoding="utf-8")
