"""Charts of cell pages for readers without scripts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.charts.cell import CellFigure
from bench.leaderboard.charts.chart import Chart
from bench.leaderboard.pages import cell_pages
from bench.leaderboard.pages.site import write_site
from bench.leaderboard.tables.details import CellFiles
from tests.support import browser
from tests.support.cell_files import write

KEYS = ("k1", "k2")


@pytest.fixture
def survival(run: Any, tmp_path: Path) -> Path:
    """Two cells with two figures each."""
    for seed, key in enumerate(KEYS):
        run.add("ldpdc", dataset="gbsg2", task="survival", seed=seed, key=key)
        run.score(key, "c-index/cox", 0.7)
    directory = run.write(tmp_path / "run")
    for key in KEYS:
        (directory / "details" / key).mkdir(parents=True)
        files = CellFiles(directory, key)
        write(files, "km", time=[0.0, 1.0], real=[1.0, 0.5], released=[1.0, 0.4])
        write(files, "mia-roc", fpr=[0.0, 1.0], tpr=[0.0, 1.0])
    return directory


def _drawings(site: Path) -> list[list[str]]:
    pages = [path.read_text(encoding="utf-8") for path in sorted((site / "cells").glob("*.html"))]
    return [re.findall(r"<noscript>(<svg.*?</svg>)</noscript>", page, re.DOTALL) for page in pages]


def test_all_charts_of_a_small_site_are_drawn(survival: Path, tmp_path: Path) -> None:
    write_site([survival], tmp_path / "site")
    pages = _drawings(tmp_path / "site")
    assert [len(drawn) for drawn in pages] == [2, 2]
    for first, second in pages:
        assert "share without event" in first and "true-positive rate" in second
    assert "of 2 charts" not in (tmp_path / "site").joinpath("index.html").read_text()


def test_a_large_site_draws_at_least_the_first(
    survival: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_pages, "STATIC", 1)
    write_site([survival], tmp_path / "site")
    assert [len(drawn) for drawn in _drawings(tmp_path / "site")] == [1, 1]
    page = next((tmp_path / "site" / "cells").glob("*.html")).read_text(encoding="utf-8")
    assert "shows 1 of 2 charts" in page


def test_every_figure_has_its_turn() -> None:
    charts = [Chart(name, "", name, lambda _: {}, {}, {}) for name in "abcd"]
    figures = [CellFigure("one", tuple(charts[:3])), CellFigure("two", tuple(charts[3:]))]
    found = cell_pages.first_charts(figures, 3)
    assert [chart.title for chart in found] == ["a", "d", "b"]
    assert len(cell_pages.first_charts(figures, 0)) == 1
    assert cell_pages.first_charts([], 9) == []


def test_without_scripts_the_picture_is_there(
    chromium: Any, survival: Path, tmp_path: Path
) -> None:
    write_site([survival], tmp_path / "site")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(next((tmp_path / "site" / "cells").glob("*.html")).resolve().as_uri())
    drawn = page.locator("figure noscript svg")
    assert drawn.count() == 2
    for number in range(2):
        box = drawn.nth(number).bounding_box()
        assert box is not None and box["width"] > 200 and box["height"] > 100
    assert page.locator("figure .plot").first.is_hidden(), "no empty room for the script's picture"
    context.close()
    with browser.visited(chromium, next((tmp_path / "site" / "cells").glob("*.html"))) as visit:
        assert visit.page.locator("figure noscript svg").count() == 0
        assert visit.complaints == []
