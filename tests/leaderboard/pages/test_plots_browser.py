"""The page of plots in a browser: choosing, links that remember, wide, narrow, light, dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.pages import plots_page
from bench.leaderboard.pages.board import compile_board
from bench.leaderboard.templates import rendering
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
    rendering.write(folder, tuple(plots_page.pages(board)))
    return folder / "plots.html"


@pytest.mark.parametrize("width", browser.WIDTHS)
@pytest.mark.parametrize("scheme", browser.SCHEMES)
def test_readable_without_complaints(chromium: Any, page: Path, width: int, scheme: str) -> None:
    with browser.visited(chromium, page, width, scheme) as visit:
        assert visit.complaints == []
        assert visit.requests == [page.resolve().as_uri()]
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        tick = visit.page.locator("#privacy .panel .tick").first
        scale = tick.evaluate("node => node.getScreenCTM().a")
        size = tick.evaluate("node => parseFloat(getComputedStyle(node).fontSize)")
        assert scale * size >= 9.5  # pixels
        browser.keep(visit, f"plots-{width}-{scheme}", whole=True)


def test_choosing_is_remembered_in_the_address(chromium: Any, page: Path) -> None:
    with browser.visited(chromium, page) as visit:
        assert visit.page.locator(".picked").count() == 0
        visit.page.select_option("#pick", label="m02")
        visit.page.select_option("#only", label="<b>one</b>")
        address = visit.page.evaluate("location.hash")
        picked = visit.page.locator(".picked").count()
        shown = visit.page.locator("#privacy details[open] .panels > div:visible").count()
        assert picked > 0
        assert shown == 1
    with browser.visited(chromium, page, fragment=address) as again:
        assert again.page.locator(".picked").count() == picked
        assert again.page.locator("#only option:checked").inner_text() == "<b>one</b>"
        again.page.select_option("#pick", "")
        again.page.select_option("#only", "")
        assert again.page.locator(".picked").count() == 0
        assert again.page.locator("#privacy details[open] .panels > div:visible").count() == 3


def test_a_point_in_the_background_answers_to_the_mouse(chromium: Any, page: Path) -> None:
    with browser.visited(chromium, page) as visit:
        found = visit.page.evaluate(
            """() => {
              const group = document.querySelector("#attacks g[data-e] > .p").parentNode;
              group.ownerSVGElement.scrollIntoView();
              const [x, y] = group.querySelector(".p").getAttribute("d").match(/[\\d.]+/g);
              const matrix = group.getScreenCTM();
              const point = new DOMPoint(+x, +y).matrixTransform(matrix);
              const hit = document.elementsFromPoint(point.x, point.y);
              const title = group.querySelector("title").textContent;
              return [title, hit.includes(group.querySelector(".p"))];
            }"""
        )
        assert found[0].startswith("m0")
        assert found[1]


def test_keyboard(chromium: Any, page: Path) -> None:
    with browser.visited(chromium, page) as visit:
        summary = visit.page.locator("#privacy details.figure > summary").nth(1)
        summary.focus()
        visit.page.keyboard.press("Enter")
        assert (
            visit.page.locator("#privacy details.figure").nth(1).get_attribute("open") is not None
        )
