"""Reads and handles the front page in a browser."""

from __future__ import annotations

import json
import re

from tests.support.browser import Visit
from tests.support.front_site import FrontSite, Line

ABSENT = "–"  # noqa: RUF001


def drawn(visit: Visit) -> list[dict[str, str]]:
    """All rows of the results as column -> text."""
    names: list[str] = visit.page.eval_on_selector_all(
        "#results th[data-column]", "heads => heads.map((head) => head.dataset.column)"
    )
    return [dict(zip(names, row, strict=False)) for row in _texts(visit, "[...row.cells]")]


def drawn_column(visit: Visit, column: str) -> list[str]:
    """The texts of one column of the results: in much less time than all of them."""
    heads = '[...document.querySelectorAll("#results th[data-column]")]'
    place = f"{heads}.findIndex((head) => head.dataset.column === {json.dumps(column)})"
    return [text for (text,) in _texts(visit, f"[row.cells[{place}]]")]


def _texts(visit: Visit, cells: str) -> list[list[str]]:
    """What is seen of some cells of every row of the results."""
    more = visit.page.locator("#more")
    while more.is_visible():
        more.click()
    found: list[list[str]] = visit.page.evaluate(
        f"""() => [...document.querySelectorAll("#results tbody tr:not(.detail)")].map((row) =>
          {cells}.map((cell) => cell.innerText.replace(/\\s+/g, " ").trim()))"""
    )
    return found


def line_of(row: dict[str, str], site: FrontSite) -> Line:
    """Which line of the run a drawn row is."""
    methods = {line.method for line in site.lines}
    name = next(name for name in methods if row["method"].startswith(name))
    ipc = "own" if row["ipc"] == "own size" else row["ipc"]
    verdict = re.sub(" trusting.*", "", row["verdict"])
    kinds = ("sound,", "sound", "unproven", "non-private")
    kind = next((k for k in kinds if verdict.startswith(k)), "")
    target = None if row["target"] == ABSENT else float(row["target"])
    return Line(name, row["dataset"].split()[0], ipc, target, kind)


def choose(visit: Visit, name: str, value: str) -> None:
    """Pick an option of a filter."""
    visit.page.select_option(f"select[name={name}]", value=value)


def keep_methods(visit: Visit, *methods: str) -> None:
    """Tick methods."""
    if visit.page.locator("#methods").get_attribute("open") is None:
        visit.page.click("#methods summary")
    for method in methods:
        visit.page.locator(f"input[name=method][value='{method}']").check()


def first_number(text: str) -> float:
    """Of a cell; infinite where the sign stands, not a number where there is none."""
    found = re.search(r"-?[\d,.]*\d|∞", text)
    if found is None:
        return float("nan")
    return float("inf") if found[0] == "∞" else float(found[0].replace(",", ""))
