"""Plots are well-formed, complete and harmless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.leaderboard.charts import svg
from bench.leaderboard.charts.draw import legend, utility_figures
from bench.leaderboard.charts.panels import scene, styles
from bench.leaderboard.ranking.rows import aggregate
from bench.leaderboard.tables.load import load_results


@pytest.fixture
def draw(tmp_path: Path) -> Callable[[Any], dict[str, list[ElementTree.Element]]]:
    """The panels of a run by IPC, parsed."""

    def compute(run: Any) -> dict[str, list[ElementTree.Element]]:
        rows, _ = aggregate(load_results([run.write(tmp_path)]))
        return {
            figure.ipc: [ElementTree.fromstring(str(panel)) for panel in figure.panels]
            for figure in utility_figures(scene(rows, styles(rows)))
        }

    return compute


def _titles(panel: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in panel.iter("title")]


def test_a_panel_for_each_dataset_and_size(mixed_run: Any, draw: Any) -> None:
    mixed_run.add("ldpdc", 0.9, ipc=100)
    figures = draw(mixed_run)
    assert list(figures) == ["100", "50"]
    assert [(panel.get("aria-label") or "").split(".")[0] for panel in figures["50"]] == [
        "auroc ↑ against target ε on breast-cancer, 50 rows per class",
        "auroc ↑ against target ε on curial-sim, 50 rows per class",
    ]


def test_every_row_is_drawn(mixed_run: Any, draw: Any) -> None:
    panel = draw(mixed_run)["50"][0]
    lines = panel.findall(".//path[@class='l']")
    # ldpdc, marginals, pate with two points each; picky was skipped.
    assert sorted((line.get("d") or "").count("L") for line in lines) == [1, 1, 1]
    # The real rows, and gats, which has no budget.
    assert len(panel.findall(".//path[@class='v']")) == 2
    marks = [use.get("class") for use in panel.iter("use")]
    # Sound ones filled (2 x 2), pate (2) and gats (1) hollow.
    assert sorted(marks, key=str) == [None] * 4 + ["h"] * 3
    missing = [title for title in _titles(panel) if "no value" in title]
    assert missing == [f"picky, target ε {e}: no value. takes images only" for e in (1, 10)]


def test_higher_utility_is_drawn_higher(run: Any, draw: Any) -> None:
    for epsilon, value in ((1.0, 0.5), (10.0, 0.9)):
        run.add("a", value, eps_target=epsilon)
    (panel,) = draw(run)["50"]
    (line,) = panel.findall(".//path[@class='l']")
    points = (line.get("d") or "").removeprefix("M").split("L")
    (left, low), (right, high) = (map(float, point.split(" ")) for point in points)
    assert left < right
    assert high < low  # y runs downwards
    (whiskers,) = panel.findall(".//path[@class='w']")
    assert (whiskers.get("d") or "").count("M") == 2


def test_names_are_escaped(run: Any, draw: Any) -> None:
    name = "<script>alert(1)</script>\"'&"
    run.add(name, 0.5, dataset=name)
    run.add("real", 0.9, dataset=name, eps_target=None)
    (panel,) = draw(run)["50"]
    assert not list(panel.iter("script"))
    assert name in (panel.get("aria-label") or "")
    assert any(title.startswith(name) for title in _titles(panel))


def test_values_that_no_axis_can_show(run: Any, draw: Any) -> None:
    run.score(run.add("a"), "auroc", float("inf"))
    assert draw(run) == {}
    run.add("b", 0.5)
    (panel,) = draw(run)["50"]
    assert any("a, target ε 1: no value" in title for title in _titles(panel))


def test_many_methods_are_faint_lines(run: Any, draw: Any, tmp_path: Path) -> None:
    for number in range(12):
        run.add(f"m{number:02}", 0.5 + 0.01 * number)
    run.add("marginals", 0.4)
    (panel,) = draw(run)["50"]
    faint = panel.findall(".//path[@class='p']")
    assert len(faint) == 6
    assert len(list(panel.iter("use"))) == 7
    rows, _ = aggregate(load_results([run.write(tmp_path)]))
    named = [item.name for item in legend(scene(rows, styles(rows)), rows)]
    assert named == ["m11", "m10", "m09", "m08", "m07", "m06", "marginals"]


def test_colours_and_markers_are_distinct(run: Any, tmp_path: Path) -> None:
    for number in range(30):
        run.add(f"method {number}", 0.5)
    rows, _ = aggregate(load_results([run.write(tmp_path)]))
    assert len(set(styles(rows).values())) == 30


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0.43, 1.02, (0.6, 0.8, 1.0)),
        (0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (0.701, 0.709, (0.702, 0.704, 0.706, 0.708)),
        (-12.0, 31.0, (-10.0, 0.0, 10.0, 20.0, 30.0)),
    ],
)
def test_ticks(low: float, high: float, expected: tuple[float, ...]) -> None:
    assert svg.ticks(low, high) == pytest.approx(expected)
