"""The first screen of a site with as many methods as the published one, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.pages.site import write_site
from bench.plugins.description import FILE, Descriptions, MethodDescription
from tests.leaderboard.conftest import Run
from tests.support import browser

pytestmark = pytest.mark.slow

METHODS = 36
LONG = "zero-order-dc(standardise=rows)"
TRUSTING = "sound, trusting smartnoise-synth 1.0.6"
TASKS = (
    ("classification", "auroc", 3),
    ("image", "accuracy/convnet", 1),
    ("survival", "c-index/cox", 5),
)
TARGETS = (0.5, 1.0, 3.0, 10.0)

# The name of a trusted library ends with an ellipsis, on purpose; its badge does not.
LEAD = ".lead td:not(.verdict-of), .lead .verdict-of .badge"

CLIPPED = """(selector) => [...document.querySelectorAll(selector)].filter((cell) => {
  const box = cell.getBoundingClientRect();
  const range = document.createRange();
  range.selectNodeContents(cell);
  return [...range.getClientRects()].some((own) => own.width > 1 && own.right > box.right + 1);
}).map((cell) => cell.innerText)"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some forty methods on nine datasets at four epsilons; half had a dataset in view."""
    run = Run()
    names = [f"method-{number:02}" for number in range(METHODS)] + [LONG]
    for task, metric, count in TASKS:
        for dataset in (f"{task[:5]}-{number}" for number in range(count)):
            free: dict[str, Any] = {"dataset": dataset, "task": task, "study_only": True}
            top = run.add("real", **free, ipc=None, eps_target=None, verdict="non-private")
            run.score(top, metric, 0.9)
            for number, name in enumerate(names):
                for target in TARGETS:
                    verdict = TRUSTING if number % 5 == 0 else "sound"
                    spent = {"eps_target": target, "eps_proven": 0.9994 * target}
                    key = run.add(name, **free, **spent, eps_claimed=target, verdict=verdict)
                    run.score(key, metric, 0.8 - 0.005 * number + 0.01 * target)
    run.fail("method-01", "skipped", "takes no images", dataset="image-0", task="image", seed=7)
    path = run.write(tmp_path_factory.mktemp("first") / "run")
    cards = tuple(
        MethodDescription(
            name,
            name,
            "Somebody and Another, A paper, ICML 2021",
            tuned_on=("class-0", "survi-0") if number % 2 else (),
            link="https://example.org/paper",
            family="graphical model",
        )
        for number, name in enumerate(names)
    )
    (path / FILE).write_text(Descriptions(methods=cards).to_json(), encoding="utf-8")
    site = path.parent / "site"
    write_site([path], site, cells=0)
    return site


def test_answers_and_picture_need_no_scrolling(chromium: Any, folder: Path) -> None:
    """At 1280 x 800: the best of each task at each target, with four epsilons, and the picture."""
    with browser.visited(chromium, folder / "index.html") as visit:
        visit.page.set_viewport_size({"width": 1280, "height": 800})
        lines = visit.page.locator("#lead-lines tr")
        assert lines.count() == len(TASKS) * len(TARGETS)
        bottom = "node => node.getBoundingClientRect().bottom"
        assert lines.last.evaluate(bottom) <= 800
        visit.page.wait_for_selector("#front-chart figure .plot svg")
        assert visit.page.locator("#front-chart").evaluate(bottom) <= 800
        for column in ("ε target", "claimed", "proven", "audited", "Verdict"):
            assert column in visit.page.inner_text("table.lead thead")
        ticks = visit.page.locator("#front-chart .plot svg text").all_text_contents()
        # A proven epsilon of 0.4997 is left of every mark without that of its target.
        assert {"0.5", "1", "3", "10"} <= set(ticks)
        assert visit.complaints == []
        browser.keep(visit, "first-screen-1280")


@pytest.mark.parametrize("width", browser.WIDTHS)
def test_no_text_runs_into_the_next_cell(chromium: Any, folder: Path, width: int) -> None:
    """Long names covered mean ranks and colours, and a verdict the rank beside it."""
    with browser.visited(chromium, folder / "index.html", width) as visit:
        for selector in ("#standings th, #standings td", "#results tbody > tr > *", LEAD):
            assert visit.page.locator(selector).count() > 10
            assert visit.page.evaluate(CLIPPED, selector) == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    with browser.visited(chromium, folder / "plots.html", width) as visit:
        assert visit.page.locator(".heat tbody th").count() > 10
        assert visit.page.evaluate(CLIPPED, "details[open] .heat tbody th") == []


def test_lists_of_many_names_are_folded(chromium: Any, folder: Path) -> None:
    with browser.visited(chromium, folder / "index.html") as visit:
        note = visit.page.locator("#front-chart .chart-note").inner_text()
        assert "without results where defaults were chosen: 18 methods" in note
        assert "method-01 on class-0, survi-0" not in note
        folded = visit.page.locator("#front-chart .averaged")
        assert "method-01 on class-0, survi-0" in (folded.text_content() or "")
        skipped = visit.page.locator("#incidents details")
        assert "1 cell" in skipped.locator("summary").inner_text()
        assert not skipped.locator("table").is_visible()
        assert visit.page.inner_text("#incidents").startswith("Failed and skipped cells")
