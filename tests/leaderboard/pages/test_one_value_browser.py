"""One number has one value: every page of a site prints equal quantities equally."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import browser
from tests.support.browser import Visit
from tests.support.front_visit import choose, drawn
from tests.support.quantities import METHODS, Printed, SmallSite

ALL = """all => all.map(
  (one) => [one.dataset.quantity, one.innerText.replace(/\\s+/g, " ").trim()])"""


@pytest.fixture(scope="module", params=[True, False], ids=["complete", "incomplete"])
def small(request: Any, tmp_path_factory: pytest.TempPathFactory) -> SmallSite:
    """A site in which all methods meet everywhere, and one in which they do not."""
    return SmallSite(tmp_path_factory.mktemp("small"), complete=request.param)


@pytest.fixture
def opened(chromium: Any, small: SmallSite) -> Iterator[Visit]:
    with browser.visited(chromium, small.folder / "index.html") as visit:
        yield visit
        assert visit.complaints == []


def _front(visit: Visit) -> list[tuple[str, str]]:
    drawn(visit)  # all rows
    found = visit.page.eval_on_selector_all("[data-quantity]", ALL)
    return [(name, text) for name, text in found if text]


def _leaders(visit: Visit, table: str) -> list[tuple[str, ...]]:
    """The methods that a table calls the best, with task and target."""
    found = visit.page.eval_on_selector_all(f"{table} [data-quantity]", ALL)
    return [tuple(name.split("|")[:3]) for name, _ in found if name.endswith("|of real")]


def test_equal_quantities_are_printed_equal(opened: Visit, small: SmallSite) -> None:
    texts: dict[str, dict[str, set[str]]] = {}
    for name, text in _front(opened):
        texts.setdefault(name, {}).setdefault("index.html", set()).add(text)
    pages = list(small.pages())
    for path in pages:
        for name, text in Printed(path.read_text(encoding="utf-8")).found:
            texts.setdefault(name, {}).setdefault(path.name, set()).add(text)
    different = {
        name: by_page for name, by_page in texts.items() if len(set().union(*by_page.values())) > 1
    }
    assert different == {}
    # The walk met what it should meet, on several pages each.
    several = [name for name, by_page in texts.items() if len(by_page) > 1]
    for kind in ("utility", "of real", "rank", "seeds sd", "eps proven", "eps claimed"):
        assert sum(name.endswith(f"|{kind}") and name.count("|") == 6 for name in several) >= 12
    ranked = ("marginals", *METHODS)
    assert {f"{label}|mean rank" for label in ranked} <= set(several)
    assert {f"{label}|win rate" for label in ranked} <= set(several)
    assert {f"{label}|of real" for label in ranked} <= set(several)
    assert len(pages) > 65
    real = [texts[name] for name in texts if name.startswith("real|") and name.endswith("of real")]
    assert len(real) == 3
    assert all(text == {"100.0%"} for by_page in real for text in by_page.values())


def test_the_first_table_is_what_the_filters_give(opened: Visit) -> None:
    """The best of a task and target by Python is that of the script for the same selection."""
    lead = dict(opened.page.eval_on_selector_all("#lead-lines [data-quantity]", ALL))
    assert len(lead) >= 8
    for task in ("classification", "survival"):
        for target in ("1", "10"):
            choose(opened, "task", f"={task}")
            choose(opened, "eps", f"={target}")
            found = dict(opened.page.eval_on_selector_all("#standings [data-quantity]", ALL))
            own = {name: text for name, text in lead.items() if f"|{task}|{target}|" in name}
            for name, text in own.items():
                label, _, _, kind = name.split("|")
                assert found[f"{label}|{kind}"] == text
            first = opened.page.locator("#standings tbody th a").first.inner_text()
            assert f"{first}|{task}|{target}|mean rank" in own


def test_the_switch_ranks_methods_where_their_defaults_were_chosen(
    opened: Visit, small: SmallSite
) -> None:
    switch = opened.page.locator("#tuned-too")
    if switch.count() == 0:
        assert small.directory.joinpath("about.json").exists() is False
        return
    before = [row for row in drawn(opened) if row["method"].startswith("alpha")]
    here = [row for row in before if row["dataset"].startswith("d3")]
    assert here and all("tuned" in row["method"] for row in here)
    assert all("not ranked: tuned here" in row["rank"] for row in here)
    assert opened.page.locator("#lead-tuned").is_hidden()
    # A line names the best with tuned methods where these are others, and nowhere else
    # (tests/leaderboard/pages/test_lead.py has such a run).
    leaders = [_leaders(opened, name) for name in ("#lead-lines", "#lead-tuned")]
    named = "with tuned:" in (opened.page.locator("#lead-lines").text_content() or "")
    assert leaders[0] and named is (leaders[0] != leaders[1])
    assert "alpha on d3" in opened.page.locator("#lead details").first.text_content()
    switch.check()
    after = [row for row in drawn(opened) if row["method"].startswith("alpha")]
    assert all(" of 5" in row["rank"] for row in after if row["dataset"].startswith("d3"))
    assert opened.page.locator("#lead-lines").is_hidden()
    lead = dict(opened.page.eval_on_selector_all("#lead-tuned [data-quantity]", ALL))
    choose(opened, "task", "=survival")
    choose(opened, "eps", "=10")
    found = dict(opened.page.eval_on_selector_all("#standings [data-quantity]", ALL))
    own = {name: text for name, text in lead.items() if "|survival|10|" in name}
    assert own
    for name, text in own.items():
        parts = name.split("|")
        assert found[f"{parts[0]}|{parts[-1]}"] == text
    assert "tuned=1" in opened.page.evaluate("location.hash")
    assert opened.page.locator("#front-chart").is_hidden()
    assert opened.page.locator("#front-tuned figure svg").first.is_visible()


def test_the_picture_averages_what_the_ranking_averages(opened: Visit) -> None:
    """The share of the real rows at one target, over all datasets: picture and table agree."""
    switch = opened.page.locator("#tuned-too")
    for tuned in (False, True) if switch.count() else (False,):
        figure = "#front-tuned" if tuned else "#front-chart"
        if tuned:
            switch.check()
        opened.page.wait_for_selector(f"{figure} figure .plot svg")
        opened.page.locator(f"{figure} .chart-tools summary").click()
        # The table of numbers is made when it is opened.
        opened.page.wait_for_selector(f"{figure} .chart-tools tbody tr")
        lines = opened.page.eval_on_selector_all(
            f"{figure} .chart-tools tbody tr",
            "all => all.map((one) => [...one.cells].map((cell) => cell.innerText))",
        )
        drawn = {}
        for method, _, percent, *_, words in lines:
            (target,) = re.findall(r"target ε ([\d.]+):", words)
            drawn[method, target] = float(percent)
            assert f": {float(percent):.1f}% of the utility of the real rows" in words
        note = opened.page.inner_text(f"{figure} .chart-note")
        assert ("alpha on d3" in note) == (switch.count() > 0 and not tuned)
        compared = 0
        for target in ("1", "10"):
            choose(opened, "eps", f"={target}")
            table = dict(opened.page.eval_on_selector_all("#standings [data-quantity]", ALL))
            for method in {name for name, _ in drawn}:
                if f"{method}|of real" in table:
                    assert table[f"{method}|of real"] == f"{drawn[method, target]:.1f}%"
                    compared += 1
        choose(opened, "eps", "")
        assert compared >= 6


def test_the_first_screen(opened: Visit) -> None:
    """Best methods, four epsilons and a picture at 1280 x 800, without scrolling."""
    opened.page.set_viewport_size({"width": 1280, "height": 800})
    for name in ("#lead .best table", "#front-chart", ".notes-line", "#filters"):
        box = opened.page.locator(name).bounding_box()
        assert box is not None and box["y"] + box["height"] <= 800, name
    heads = opened.page.inner_text("#lead thead")
    for word in ("target", "claimed", "proven", "audited", "Verdict", "Fit", "Of real"):
        assert word in heads
    # Nothing scrolls sideways, and the results are not in a box of their own.
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert (
        opened.page.evaluate(
            """() => {
              let one = document.querySelector("#results").parentElement;
              for (; one !== document.body; one = one.parentElement) {
                if (getComputedStyle(one).overflow !== "visible") return one.className;
              }
              return "";
            }"""
        )
        == ""
    )
