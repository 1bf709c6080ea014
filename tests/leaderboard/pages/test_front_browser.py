"""The front page in a browser: sorting, filtering, the address, ranks among whoever is shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest

from tests.support import browser
from tests.support.browser import Visit
from tests.support.front_site import (
    DATASETS,
    EVIL,
    IPCS,
    REFERENCES,
    SOUND,
    TARGETS,
    FrontSite,
    Line,
)
from tests.support.front_visit import (
    ABSENT,
    choose,
    drawn,
    drawn_column,
    first_number,
    keep_methods,
    line_of,
)

# Sorting ------------------------------------------------------------------------------------------


def _key_of(column: str) -> Callable[[str], Any]:
    if column in ("method", "dataset"):
        return lambda text: text.lower()
    if column == "verdict":
        # From sound to worse; a row without any verdict is absent.
        order = {"sound": 0.0, "sound,": 1.0, "unproven": 2.0, "non-private": 3.0}
        return lambda text: order.get(text.split()[0], float("nan"))
    if column == "ipc":
        return lambda text: float("inf") if text == "own size" else float(text)
    if column == "rank":
        return lambda text: float("nan") if "not" in text else first_number(text)
    return lambda text: float("nan") if text.startswith(ABSENT) else first_number(text)


@pytest.mark.parametrize(
    ("dataset", "wanted"), [("=lung", ()), ("", ("dataset", "ipc", "utility"))]
)
def test_every_column_sorts_both_ways(front: Visit, dataset: str, wanted: tuple[str, ...]) -> None:
    """All columns over one dataset, where a method failed everywhere; some over all rows."""
    columns = front.page.eval_on_selector_all(
        "#results th[data-column]", "heads => heads.map((head) => head.dataset.column)"
    )
    assert {"method", "target", "verdict", "rank", "utility", "ratio", "failed"} < set(columns)
    assert {"metric:ks", "metric:mia/auroc", "fit"} < set(columns)
    front.page.check("#all-columns")
    choose(front, "dataset", dataset)
    for column in wanted or columns:
        head = front.page.locator(f'#results th[data-column="{column}"]')
        first = head.get_attribute("data-first")
        other = {"ascending": "descending", "descending": "ascending"}[str(first)]
        for way in (first, other):
            head.locator("button").click()
            assert head.get_attribute("aria-sort") == way
            values = [_key_of(column)(text) for text in drawn_column(front, column)]
            assert len(values) > 20
            present = [value for value in values if value == value]
            # What is absent stands last either way.
            assert all(value != value for value in values[len(present) :]), (column, way)
            ordered = sorted(present, reverse=way == "descending")
            assert present == ordered, (column, way)


def test_the_table_has_the_main_columns_until_all_are_wanted(front: Visit) -> None:
    extra = front.page.locator('#results th[data-column="metric:ks"]')
    assert extra.is_hidden()
    assert front.page.locator('#results th[data-column="fit"]').is_visible()
    # A table of a hundred columns is built when it is wanted: the page answers sooner.
    count = "document.querySelector('#results tbody tr').cells.length"
    heads = front.page.locator("#results th[data-column]").count()
    assert front.page.evaluate(count) < heads
    front.page.check("#all-columns")
    assert extra.is_visible()
    assert front.page.evaluate(count) == heads
    front.page.locator("#results tbody .open").first.click()
    assert front.page.locator("#results tr.detail dt").count() > 0
    front.page.uncheck("#all-columns")
    assert extra.is_hidden()


def test_an_address_that_sorts_by_another_column_shows_it(chromium: Any, site: FrontSite) -> None:
    with browser.visited(
        chromium, site.folder / "index.html", fragment="#sort=metric%3Aks"
    ) as visit:
        assert visit.page.locator('#results th[data-column="metric:ks"]').is_visible()
        assert visit.page.is_checked("#all-columns")


def test_a_click_on_the_standings_sorts_them(front: Visit) -> None:
    front.page.click("#standings th:nth-child(1) button")
    names = front.page.locator("#standings tbody th a").all_inner_texts()
    assert names == sorted(names) and len(names) == 5


# Filters ------------------------------------------------------------------------------------------


def _expected(site: FrontSite, filters: dict[str, str]) -> set[Line]:
    """Reference lines stay: dataset and task alone hide them, or another IPC or epsilon."""

    def fits(line: Line) -> bool:
        reference = line.method in REFERENCES
        target = "" if line.target is None else f"{line.target:g}"
        loose = {"ipc": line.ipc == "own", "eps": target == ""}
        own = {
            "dataset": line.dataset,
            "task": line.task,
            "ipc": line.ipc,
            "eps": target,
            "verdict": line.verdict,
        }
        for name, value in filters.items():
            if own[name] == value or (reference and loose.get(name, name == "verdict")):
                continue
            # A line that never finished has no verdict: it stays with its method.
            if name == "verdict" and line.verdict == "":
                kept = {o.method for o in site.lines if o.verdict == value}
                if line.method in kept:
                    continue
            return False
        return True

    return {line for line in site.lines if fits(line)}


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"dataset": "gbsg2"},
        {"task": "survival"},
        {"ipc": "10"},
        {"eps": "10"},
        {"verdict": "unproven"},
        {"verdict": "sound,"},
        {"verdict": "non-private"},
        {"task": "classification", "ipc": "50", "eps": "1", "verdict": "sound"},
        {"dataset": "lung", "eps": "1", "verdict": "sound,"},
    ],
)
def test_filters_show_these_rows_and_no_other(
    front: Visit, site: FrontSite, filters: dict[str, str]
) -> None:
    for name, value in filters.items():
        choose(front, name, f"={value}" if value != "sound," else "=sound, trusting")
    rows = [line_of(row, site) for row in drawn(front)]
    assert len(rows) == len(set(rows))
    assert set(rows) == _expected(site, filters)
    assert front.page.inner_text("#shown") == f"{len(rows)} of {len(site.lines)} rows"
    assert {"real", "subset", "marginals"} <= {row.method for row in rows}


def test_every_value_that_is_there_can_be_chosen(front: Visit) -> None:
    def values(name: str) -> list[str]:
        found: list[str] = front.page.eval_on_selector_all(
            f"select[name={name}] option", "all => all.map((option) => option.value)"
        )
        return found

    assert values("dataset") == ["", *(f"={name}" for name, _, _ in DATASETS)]
    assert values("task") == ["", "=classification", "=survival"]
    assert values("ipc") == ["", "=10", "=50", "=own"]
    assert values("eps") == ["", "=1", "=10", "="]
    assert values("model") == ["", "=aft", "=cox", "=forest", "=xgboost"]
    assert values("verdict") == ["", "=", "=sound", "=sound, trusting", "=unproven", "=non-private"]


def test_the_downstream_model_changes_utility_and_ranks(front: Visit, site: FrontSite) -> None:
    choose(front, "model", "=forest")
    ranks = site.ranks(("marginals", *SOUND), other_model=True)
    for row in drawn(front):
        line = line_of(row, site)
        if line.task == "survival":
            assert row["utility"].startswith(ABSENT)
            continue
        if line.method == "gamma" or line.verdict == "":
            continue
        values = [
            site.forest.get((line.method, line.dataset, line.ipc, line.target, s)) for s in range(3)
        ]
        known = [v for v in values if v is not None and v == v]
        assert first_number(row["utility"]) == pytest.approx(np.mean(known), abs=6e-4)
        assert "auroc/forest" in row["utility"]
        if line.method in SOUND:
            rank = ranks[line.method, line.dataset, line.ipc, line.target or 0.0]
            assert first_number(row["rank"]) == pytest.approx(rank, abs=6e-3)


# The address --------------------------------------------------------------------------------------


def test_the_address_holds_all_that_was_chosen(
    chromium: Any, site: FrontSite, front: Visit
) -> None:
    choose(front, "task", "=survival")
    choose(front, "eps", "=10")
    keep_methods(front, EVIL, "beta")
    front.page.click('#results th[data-column="utility"] button')
    address = front.page.evaluate("location.hash")
    assert parse_qsl(address[1:], keep_blank_values=True) == [
        ("task", "survival"),
        ("eps", "10"),
        ("method", EVIL),
        ("method", "beta"),
        ("sort", "-utility"),
    ]
    rows = drawn(front)
    with browser.visited(chromium, site.folder / "index.html", fragment=address) as again:
        assert again.complaints == []
        assert drawn(again) == rows
        assert again.page.input_value("select[name=task]") == "=survival"
        assert again.page.inner_text("#methods-shown") == "2 of 5"
        sorted_by = again.page.locator("#results th[aria-sort]")
        assert sorted_by.get_attribute("data-column") == "utility"
    front.page.go_back()
    assert "sort" not in front.page.evaluate("location.hash")
    assert [line_of(row, site) for row in drawn(front)] != [line_of(row, site) for row in rows]
    front.page.click("#show-all")
    assert front.page.evaluate("location.hash") == "#all"
    assert len(drawn(front)) == len(site.lines)


@pytest.mark.parametrize(
    "fragment", ["#dataset=nowhere&sort=-nothing&method=nobody", "#%E0%A4%A", "#ranking", "#sort"]
)
def test_an_address_that_says_nothing_shows_all(
    chromium: Any, site: FrontSite, fragment: str
) -> None:
    with browser.visited(chromium, site.folder / "index.html", fragment=fragment) as visit:
        assert visit.complaints == []
        assert len(drawn(visit)) == len(site.lines)


# The keyboard -------------------------------------------------------------------------------------


def test_everything_can_be_done_by_keyboard(front: Visit) -> None:
    page = front.page
    reached: list[str] = []
    outlines = []
    for _ in range(80):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => {
              const own = document.activeElement, style = getComputedStyle(own);
              const head = own.closest("th[data-column]");
              const name = own.name || own.id || (head && "sort:" + head.dataset.column);
              const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
              return [name || own.className || own.tagName, outlined];
            }"""
        )
        reached.append(name)
        outlines.append((name, outline))
        if name == "sort:utility":
            break
    filters = ["dataset", "task", "ipc", "eps", "model", "verdict"]
    assert [name for name in reached if name in filters] == filters
    assert "sort:method" in reached and "show-all" in reached
    assert [name for name, outline in outlines if not outline] == []
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#sort=-utility"
    page.keyboard.press("Space")
    assert page.evaluate("location.hash") == "#sort=utility"
    page.focus("select[name=dataset]")
    page.keyboard.press("ArrowDown")
    assert "dataset=actg175" in page.evaluate("location.hash")
    opener = page.locator("#results button.open").first
    opener.focus()
    page.keyboard.press("Enter")
    assert opener.get_attribute("aria-expanded") == "true"
    assert "Pages of its cells" in page.inner_text("#results tr.detail")
    page.keyboard.press("Space")
    assert page.locator("#results tr.detail").count() == 0


# What rows say ------------------------------------------------------------------------------------


def test_rows_say_epsilons_verdict_utility_and_direction(front: Visit, site: FrontSite) -> None:
    rows = {line_of(row, site): row for row in drawn(front)}
    own = rows[Line("pate", "heart", "50", 10.0, "unproven")]
    names = ("target", "claimed", "proven", "audited")
    assert [own[name] for name in names] == ["10", "10", "∞", ABSENT]
    assert own["verdict"] == "unproven epsilon 0.75 at delta 1e-05 by PLD"
    assert own["rank"] == "not ranked: unproven"
    values = [site.utility["pate", "heart", "50", 10.0, seed] for seed in range(3)]
    mean = np.mean(values)
    assert own["utility"] == (
        f"{mean:.3f} [{mean - 0.02:.3f}, {mean + 0.02:.3f}] "
        f"auroc ↑; 3 seeds: {min(values):.3f} to {max(values):.3f}"
    )
    assert own["deviation"] == f"{np.std(values, ddof=1):.3f}"
    real = np.mean([site.utility["real", "heart", "own", None, seed] for seed in range(3)])
    assert own["ratio"] == f"{100 * mean / real:.1f}%"
    heads = front.page.locator("#results th[data-column] button").all_inner_texts()
    assert all(head.strip()[-1] in "↑↓·▴▾" for head in heads)


def test_reference_lines_are_there_whatever_is_chosen(front: Visit, site: FrontSite) -> None:
    keep_methods(front, "gamma")
    choose(front, "verdict", "=unproven")
    table = front.page.locator("#references tbody tr").all()
    assert len(table) == len(DATASETS)
    for row, (dataset, _, metric) in zip(table, DATASETS, strict=True):
        cells = [text.strip() for text in row.locator("th, td").all_inner_texts()]
        assert cells[:2] == [dataset, f"{metric} ↑"]
        for kind, cell in zip(("real", "subset", "marginals"), cells[2:], strict=True):
            means = [
                np.mean([site.utility[kind, dataset, ipc, target, s] for s in range(3)])
                for ipc, target in itertools.product(
                    ("own",) if kind == "real" else map(str, IPCS),
                    TARGETS if kind == "marginals" else (None,),
                )
            ]
            numbers = [float(text) for text in cell.split(" to ")]
            assert numbers == pytest.approx(sorted({min(means), max(means)}), abs=6e-4)
    for kind in ("ceiling", "sample", "floor"):
        assert front.page.locator(f"#results tr.floor .scale .{kind}").count() > 0
