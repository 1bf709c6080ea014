"""The first table of the front page: its numbers follow from the tables of the run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.leaderboard.charts.heat import heat_map
from bench.leaderboard.charts.panels import scene
from bench.leaderboard.pages import front
from bench.leaderboard.pages.board import compile_board
from bench.leaderboard.pages.lead import lead
from bench.leaderboard.ranking import quantities
from bench.leaderboard.tables import show
from bench.plugins.description import FILE, Descriptions, MethodDescription
from tests.support.front_page import FrontPage
from tests.support.quantities import TARGETS, small_run


def _ranks(values: pd.DataFrame) -> pd.DataFrame:
    """Ranks of each dataset and seed by pandas, of what is printed."""
    printed = values["value"].map(lambda value: float(f"{value + 1e-12:.3f}"))
    groups = printed.groupby([values["dataset"], values["seed"]])
    return values.assign(rank=groups.rank(ascending=False))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("task", ["classification", "survival"])
def test_the_numbers_come_from_the_parquet_tables(tmp_path: Path, task: str, target: float) -> None:
    """By pandas alone, from `cells.parquet` and `scores.parquet`."""
    directory = small_run(tmp_path / "run", complete=True)
    cells = pd.read_parquet(directory / "cells.parquet")
    scores = pd.read_parquet(directory / "scores.parquet")
    metric = {"classification": "auroc", "survival": "c-index/cox"}[task]
    table = cells.merge(scores[scores["metric"] == metric], on="key")
    table = table[table["task"] == task]
    own = table[(table["eps_target"] == target) & (table["verdict"] == "sound")]
    ranks = _ranks(own).groupby(["label", "dataset"])["rank"].mean().groupby("label").mean()
    best = ranks.idxmin()
    means = own[own["label"] == best].groupby("dataset")["value"].mean()
    real = table[table["label"] == "real"].groupby("dataset")["value"].mean()
    share = (means / real).round(3).mean()

    board = compile_board([directory])
    (line,) = [one for one in lead(board).lines if (one.task, one.target) == (task, target)]
    method = line.methods[0]
    tied = [label for label in ranks.index if abs(ranks[label] - ranks.min()) < 0.005]
    assert [one.label for one in line.methods] == tied and method.label == best
    assert method.mean_rank == pytest.approx(ranks.min())
    assert method.of_real == pytest.approx(share)
    cell = own[own["label"] == best]
    assert method.claimed == quantities_span(cell["eps_claimed"])
    assert method.proven == quantities_span(cell["eps_proven"])
    assert method.seconds == pytest.approx(cell["fit_seconds"].mean())
    (page,) = front.pages(board)
    printed = dict(re.findall(r'data-quantity="([^"]+)">([^<]+)<', page.content.decode()))
    percentage = printed[f"{best}|{task}|{target:g}|of real"]
    assert float(percentage.removesuffix("%")) == pytest.approx(100 * share, abs=0.0501)
    assert float(printed[f"{best}|{task}|{target:g}|mean rank"]) == pytest.approx(
        ranks.min(), abs=0.0051
    )


def quantities_span(values: pd.Series[float]) -> Any:
    from bench.leaderboard.tables.measures import Span

    return Span(values.min(), values.max())


def test_the_rows_of_the_page_come_from_the_parquet_tables(tmp_path: Path) -> None:
    directory = small_run(tmp_path / "run", complete=True)
    cells = pd.read_parquet(directory / "cells.parquet")
    scores = pd.read_parquet(directory / "scores.parquet")
    (page,) = front.pages(compile_board([directory]))
    rows = FrontPage(page.content.decode()).rows
    assert len(rows) == 3 * (1 + 5 * 2)
    for row in rows:
        chosen = cells[(cells["label"] == row.words["label"])]
        chosen = chosen[chosen["dataset"] == row.words["dataset"]]
        target = row.facts["target"]
        spent = chosen["eps_target"]
        chosen = chosen[spent.isna() if target is None else spent == target]
        values = scores[scores["metric"] == row.words["metric"]]
        values = values[values["key"].isin(chosen["key"])]
        assert row.utility["value"] == pytest.approx(values["value"].mean(), abs=5.1e-4)
        assert row.facts["proven"] == chosen["eps_proven"].max()


def test_who_is_tuned_is_left_out_and_said(tmp_path: Path) -> None:
    found = lead(compile_board([small_run(tmp_path / "run", complete=False)]))
    lines = {(line.task, line.target): line for line in found.lines}
    assert lines["survival", 1.0].left_out == ("alpha",)
    assert lines["classification", 1.0].left_out == ()
    assert all(line.left_out == () for line in found.with_tuned)
    assert {one.task for one in found.lines} == {"classification", "survival"}


def test_the_four_epsilons_with_the_power_of_the_audit(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.9, eps_claimed=0.5)
    run.add("b", 0.8)
    directory = run.write(tmp_path / "run")
    card = MethodDescription(
        "a", "A", "Somebody, A paper, ICML 2021", link="https://example.org/a", family="mixing"
    )
    ours = MethodDescription("b", "B", "none: ours", by_maintainers=True)
    (directory / FILE).write_text(Descriptions(methods=(card, ours)).to_json(), encoding="utf-8")
    board = compile_board([directory])
    (page,) = front.pages(board)
    text = page.content.decode()
    body = text.split('<tbody id="lead-lines">')[1].split("</tbody>")[0]
    told = " ".join(re.sub("<[^>]+>", " ", body).split())
    assert told.startswith("classification 1 dataset a mixing, 2021, paper")
    assert '<a href="https://example.org/a"' in body
    assert "no audit" in told and " sound 2.0" in told
    (line,) = lead(board).lines
    assert (line.methods[0].claimed.low, line.methods[0].proven.high) == (0.5, 0.75)
    assert not line.methods[0].by_maintainers


def test_the_only_sound_method_is_named_and_not_called_best(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.9)
    (line,) = lead(compile_board([run.write(tmp_path / "run")])).lines
    assert [(one.label, one.mean_rank) for one in line.methods] == [("a", None)]


def test_a_tie_is_a_tie(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.9811)
    run.add("b", 0.9812)
    run.add("c", 0.9)
    (line,) = lead(compile_board([run.write(tmp_path / "run")])).lines
    assert [one.label for one in line.methods] == ["a", "b"]


def test_many_targets_are_shortened_but_every_task_is_there(run: Any, tmp_path: Path) -> None:
    for target in range(1, 12):
        for label in ("a", "b"):
            changes = {"eps_target": float(target), "eps_proven": 0.5}
            run.add(label, 0.9, **changes)
            key = run.add(label, dataset="s", task="survival", **changes)
            run.score(key, "c-index/cox", 0.7)
    found = lead(compile_board([run.write(tmp_path / "run")]))
    assert [line.task for line in found.lines] == ["classification"] * 4 + ["survival"] * 4
    assert found.more == 14


def test_the_plots_crown_whom_the_front_page_crowns(run: Any, tmp_path: Path) -> None:
    """Issue 24: `b` has the higher mean share, `a` the better mean rank; pages disagreed."""
    for number, (first, second) in enumerate(((0.70, 0.69), (0.70, 0.69), (0.50, 0.90))):
        run.add("a", first, dataset=f"d{number}")
        run.add("b", second, dataset=f"d{number}")
        free = {"eps_target": None, "ipc": None, "verdict": "non-private"}
        run.add("real", 0.95, dataset=f"d{number}", **free)
    board = compile_board([run.write(tmp_path / "run")])
    found = heat_map(scene(board.rows, board.styles), board.rows, "50", 1.0)
    assert found is not None
    (line,) = lead(board).lines
    (best,) = line.methods
    assert best.label == "a" == quantities.leaders(board.standings)[0].label
    assert f"here: a ({show.mean_rank(best.mean_rank)})" in found.finding
    assert np.mean([0.69, 0.69, 0.90]) > np.mean([0.70, 0.70, 0.50])
