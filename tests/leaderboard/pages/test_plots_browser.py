"""The page of plots in a browser: choosing, links that remember, wide, narrow, light, dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.charts.chart import library
from bench.leaderboard.charts.sheet import LIBRARY
from bench.leaderboard.pages import plots_page
from bench.leaderboard.pages.board import compile_board
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import Page
from tests.leaderboard.conftest import Run
from tests.support import browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve methods on three datasets, at three epsilons and two IPCs; some of it fails."""
    run = Run()
    for place, dataset in enumerate(("<b>one</b>", "two", "three")):
        run.add("real", 0.95, dataset=dataset, ipc=None, eps_target=None, verdict="non-private")
        for number in range(12):
            for ipc in (10, 50):
                for epsilon in (0.5, 1.0, 8.0):
                    where = {"dataset": dataset, "ipc": ipc, "eps_target": epsilon}
                    if number == 3 and epsilon == 0.5:
                        run.fail("m03", **where)
                        continue
                    utility = 0.6 + 0.02 * number + 0.01 * epsilon - 0.03 * place
                    key = run.add(f"m{number:02}", utility, **where, eps_proven=0.9 * epsilon)
                    attack = 0.5 + 0.01 * number
                    run.score(key, "mia/auroc", attack, attack, attack, "lower", "privacy")
    folder = tmp_path_factory.mktemp("site")
    board = compile_board([run.write(folder / "run")])
    rendering.write(folder, (*plots_page.pages(board), Page(LIBRARY, library())))
    return folder / "plots.html"


@pytest.mark.parametrize("width", browser.WIDTHS)
@pytest.mark.parametrize("scheme", browser.SCHEMES)
def test_readable_without_complaints(chromium: Any, page: Path, width: int, scheme: str) -> None:
    with browser.visited(chromium, page, width, scheme) as visit:
        assert browser.draw_all(visit) > 10
        assert visit.complaints == []
        library = page.with_name(LIBRARY).resolve().as_uri()
        assert visit.requests == [page.resolve().as_uri(), library]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        tick = visit.page.locator("#privacy .plot svg text").first
        scale = tick.evaluate("node => node.getScreenCTM().a")
        size = tick.evaluate("node => parseFloat(getComputedStyle(node).fontSize)")
        assert scale * size >= 9.5  # pixels
        browser.keep(visit, f"plots-{width}-{scheme}", whole=True)


def _faint(visit: Any, section: str) -> int:
    """Number of marks of a section that are faint because another series was chosen."""
    browser.draw_all(visit)
    marks = visit.page.locator(f'{section} .plot svg path[opacity="0.15"]')
    return int(marks.count())


def test_choosing_is_remembered_in_the_address(chromium: Any, page: Path) -> None:
    with browser.visited(chromium, page) as visit:
        assert _faint(visit, "#privacy") == 0
        visit.page.select_option("#pick", label="m08")
        visit.page.select_option("#only", label="<b>one</b>")
        address = visit.page.evaluate("location.hash")
        shown = visit.page.locator("#privacy details[open] figure:visible").count()
        assert _faint(visit, "#privacy") > 0
        assert shown == 1
    with browser.visited(chromium, page, fragment=address) as again:
        assert _faint(again, "#privacy") > 0
        assert again.page.locator("#only option:checked").inner_text() == "<b>one</b>"
        again.page.select_option("#pick", "")
        again.page.select_option("#only", "")
        assert _faint(again, "#privacy") == 0
        assert again.page.locator("#privacy details[open] figure:visible").count() == 3


def test_a_legend_filters_and_numbers_are_those_of_the_chart(chromium: Any, page: Path) -> None:
    with browser.visited(chromium, page) as visit:
        browser.draw_all(visit)
        button = visit.page.locator('#privacy button[data-series="m11"]')
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        visit.page.wait_for_selector('#privacy .plot svg path[opacity="0.15"]')
        assert _faint(visit, "#time") == 0  # another section
        button.click()
        visit.page.wait_for_function(
            """document.querySelectorAll('#privacy .plot svg path[opacity="0.15"]').length === 0"""
        )
        figure = visit.page.locator("#privacy details[open] figure").first
        figure.locator(".chart-tools summary").click()
        figure.locator("tbody tr").first.wait_for()  # the numbers are listed when they are opened
        heads = figure.locator("th").all_inner_texts()
        assert heads[:3] == ["method", "target ε", "auroc ↑"]
        rows = [row.split("\t") for row in figure.locator("tbody tr").all_inner_texts()]
        assert ["m11", "0.5", "0.825"] in [row[:3] for row in rows]
        assert visit.complaints == []


def test_a_point_answers_to_the_mouse(chromium: Any, page: Path) -> None:
    with browser.visited(chromium, page) as visit:
        browser.draw_all(visit)
        figure = visit.page.locator("#attacks details[open] figure").first
        figure.scroll_into_view_if_needed()
        figure.locator("svg g.mark-symbol path").last.hover(force=True)
        tip = visit.page.locator("#vg-tooltip-element.visible")
        tip.wait_for()
        assert "mia/auroc" in tip.inner_text()


def test_a_chart_is_saved_in_light_colours(chromium: Any, page: Path) -> None:
    with browser.visited(chromium, page, scheme="dark") as visit:
        browser.draw_all(visit)
        button = visit.page.locator("#privacy .chart-tools button", has_text="SVG").first
        with visit.page.expect_download() as saved:
            button.click()
        text = Path(saved.value.path()).read_text()
        assert saved.value.suggested_filename.endswith(".svg")
        assert "#0072b2" in text and "#3d8fe0" not in text
        assert visit.complaints == []


def test_keyboard(chromium: Any, page: Path) -> None:
    with browser.visited(chromium, page) as visit:
        summary = visit.page.locator("#privacy details.figure > summary").nth(1)
        summary.focus()
        visit.page.keyboard.press("Enter")
        assert (
            visit.page.locator("#privacy details.figure").nth(1).get_attribute("open") is not None
        )
