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
    assert found.tuned == {"alpha": ("d3",)}
    assert lines["classification", 1.0].otherwise == ()
    assert all(line.otherwise == () for line in found.with_tuned)
    assert {one.task for one in found.lines} == {"classification", "survival"}


def test_many_tuned_methods_do_not_push_the_answers_off_the_screen(
    run: Any, tmp_path: Path
) -> None:
    """With 40 methods each line listed some 20 names: the first screen held three answers."""
    names = [f"tuned-{number:02}" for number in range(20)]
    run.add("plain", 0.7)
    run.add("other", 0.6)
    for name in names:
        run.add(name, 0.8 if name == names[3] else 0.5)
    directory = run.write(tmp_path / "run")
    cards = [
        MethodDescription(name, name, "A paper", tuned_on=("breast-cancer",)) for name in names
    ]
    (directory / FILE).write_text(Descriptions(methods=tuple(cards)).to_json(), encoding="utf-8")
    (page,) = front.pages(compile_board([directory]))
    text = page.content.decode()
    body = text.split('<tbody id="lead-lines">')[1].split("</tbody>")[0]
    assert [name for name in names if f">{name}<" in body or name in body] == [names[3]]
    assert f"with tuned: {names[3]}" in body
    folded = text.split("Not ranked where their defaults were chosen: 20 sound methods")[1]
    assert all(f"{name} on breast-cancer" in folded.split("</details>")[0] for name in names)


def test_who_is_ranked_on_few_datasets_is_not_called_the_best(run: Any, tmp_path: Path) -> None:
    """A federated method, which runs on one of three datasets, was the best method of the task."""
    for dataset in ("d1", "d2", "d3"):
        run.add("a", 0.8, dataset=dataset)
        run.add("b", 0.7, dataset=dataset)
    run.add("federated", 0.9, dataset="d1")
    board = compile_board([run.write(tmp_path / "run")])
    (line,) = lead(board).lines
    assert [one.label for one in line.methods] == ["a"]
    assert [one.label for one in board.standings] == ["a", "b", "federated"]
    assert [one.apart for one in board.standings] == [False, False, True]


def test_a_model_is_not_the_best_of_the_releases(run: Any, tmp_path: Path) -> None:
    for label, value in (("a", 0.8), ("b", 0.7)):
        run.add(label, value)
    for label, value in (("model", 0.9), ("worse-model", 0.85)):
        run.add(label, value, ipc=None)
    board = compile_board([run.write(tmp_path / "run")])
    (line,) = lead(board).lines
    assert [one.label for one in line.methods] == ["a"]
    assert [one.label for one in board.standings] == ["a", "b", "model", "worse-model"]


def test_the_four_epsilons_with_the_power_of_the_audit(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.9, eps_claimed=0.5)
    run.add("b", 0.8)
    directory = run.write(tmp_path / "run")
    card = MethodDescription(
        "a", "A", "Somebody, A paper, ICML 2021", link="https://example.org/a", family="mixing"
    )
    ours = MethodDescription("b", "B", "none: ours, 2025", by_maintainers=True)
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


@pytest.mark.parametrize(
    ("paper", "authors"),
    [
        ("Thakur et al., Democratising Clinical AI, 2024", "Thakur et al."),
        ("Zheng, Dasu and Wang, Improving Noise", "Zheng et al."),
        ("Jordon and Yoon, PATE-GAN", "Jordon and Yoon"),
        ("none: a baseline, of this benchmark", ""),
        ("A paper", ""),
    ],
)
def test_a_paper_without_an_address_is_named_by_its_authors(
    run: Any, tmp_path: Path, paper: str, authors: str
) -> None:
    run.add("a", 0.9)
    directory = run.write(tmp_path / "run")
    card = MethodDescription("a", "A", paper)
    (directory / FILE).write_text(Descriptions(methods=(card,)).to_json(), encoding="utf-8")
    board = compile_board([directory])
    (line,) = lead(board).lines
    assert line.methods[0].authors == authors
    (page,) = front.pages(board)
    shown = page.content.decode().split('<tbody id="lead-lines">')[1].split("</tbody>")[0]
    assert (f">{authors}</span>" in shown) is bool(authors)


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
    assert [line.task for line in found.lines] == ["classification"] * 6 + ["survival"] * 6
    assert found.more == 10


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
    assert f"here: a ({show.share(best.beaten)})" in found.finding
    assert np.mean([0.69, 0.69, 0.90]) > np.mean([0.70, 0.70, 0.50])
