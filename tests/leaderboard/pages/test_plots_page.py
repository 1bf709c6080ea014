"""The page of plots: complete, harmless, and not too large."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.charts.heat import STEPS, heat_map, step, steps
from bench.leaderboard.charts.panels import scene
from bench.leaderboard.pages import plots_page
from bench.leaderboard.pages.board import compile_board

SCRIPT = "<script>alert(1)</script>"


class Parsed(HTMLParser):
    """Tags with their attributes, and text."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def render(tmp_path: Path) -> Callable[[Any], Parsed]:
    """The page of a run."""

    def compute(run: Any) -> Parsed:
        (page,) = plots_page.pages(compile_board([run.write(tmp_path / "run")]))
        assert page.path == "plots.html"
        return Parsed(page.content.decode())

    return compute


def test_all_sections(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    sections = [a["id"] for tag, a in page.tags if tag == "section"]
    assert sections == ["how", "overview", "privacy", "attacks", "ipc", "heat", "time", "audit"]
    labels = [a["aria-label"] or "" for tag, a in page.tags if a.get("role") == "img"]
    assert [label.split(",")[0] for label in labels] == [
        "% of real utility ↑ against proven ε on Utility and privacy",
        "% of real utility ↑ against target ε on Utility against epsilon",
        "auroc ↑ against target ε on breast-cancer",
        "auroc ↑ against target ε on curial-sim",
        "auroc ↑ against fit seconds ↓ on breast-cancer",
        "auroc ↑ against fit seconds ↓ on curial-sim",
        "auroc ↑ against peak memory in MB ↓ on breast-cancer",
        "auroc ↑ against peak memory in MB ↓ on curial-sim",
    ]
    assert "No row has both a utility score and the score of an attack." in page.text
    assert "All releases have 50 rows per class" in page.text
    assert "None of the 20 rows was audited" in page.text


def test_an_empty_run(run: Any, render: Any) -> None:
    page = render(run)
    assert "The runs hold no cells yet." in page.text
    assert not [tag for tag, _ in page.tags if tag == "section"]


def test_only_failures(run: Any, render: Any) -> None:
    run.fail("broken")
    page = render(run)
    assert "No method with a budget has a utility score yet." in page.text
    assert "✕" in page.text  # in the table of methods by datasets


def test_strange_names_are_harmless(run: Any, render: Any) -> None:
    evil = SCRIPT + "\"' onmouseover=alert(1) {{ 7 * 7 }} &amp;</style></svg></title></select>"
    for ipc in (10, 20):
        key = run.add(evil, 0.5, dataset=evil, ipc=ipc, eps_audited=3.0, verdict=evil)
        run.score(key, evil, 0.5, direction="lower", family="privacy")
        run.add("good", 0.6, dataset=evil, ipc=ipc)
    run.fail(evil, reason=evil, dataset=evil, ipc=10, seed=1)
    run.fail("picky", "skipped", evil, dataset=evil, ipc=10)
    run.add("real", 0.9, dataset=evil, eps_target=None)
    page = render(run)
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == 2  # the code, and the data of the charts
    assert names.count("style") == 2
    assert not [name for _, a in page.tags for name in a if name.startswith("on")]
    assert SCRIPT not in page.source
    assert "7 * 7" in page.source and "{{ 49" not in page.source
    for number in range(20):
        run.add(f"{evil}{number}", 0.5, dataset=evil, ipc=10)
    assert SCRIPT not in render(run).source


def test_nothing_is_fetched(mixed_run: Any, render: Any) -> None:
    page = render(mixed_run)
    plain = re.sub(
        r'"\$schema":"[^"]*"|xmlns(:xlink)?="[^"]*"', "", page.source
    )  # names, not links
    assert not re.search(r"url\(|@import|https?://", plain)
    assert not [a for _, a in page.tags if "src" in a]
    anchors = {a["id"] for _, a in page.tags if "id" in a}
    inside = {(a.get("href") or "")[1:] for _, a in page.tags if (a.get("href") or "")[:1] == "#"}
    assert inside <= anchors


def test_the_same_tables_give_the_same_bytes(mixed_run: Any, tmp_path: Path) -> None:
    directory = mixed_run.write(tmp_path)
    first, second = (next(plots_page.pages(compile_board([directory]))).content for _ in range(2))
    assert first == second


def test_what_there_is_no_room_for_is_named(
    run: Any, render: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ipc in (10, 20, 50):
        run.add("a", 0.5, ipc=ipc)
    monkeypatch.setattr(plots_page, "FIRST_BUDGET", 1)
    page = render(run)
    words = "Not drawn, to limit the size of this page: 20 rows per class; 10 rows per class."
    assert words in page.text


def test_the_heat_map_by_hand(run: Any, tmp_path: Path, non_private: Any, unproven: Any) -> None:
    for dataset, top in (("one", 0.8), ("two", 0.5)):
        run.add("real", top, dataset=dataset, ipc=None, **non_private)
        run.add("a", 0.4, dataset=dataset)
        run.add("b", 0.8, dataset=dataset, **unproven)
    run.add("a", 0.6, dataset="three")  # without real rows
    run.add("half", 0.4, dataset="one")
    run.fail("half", dataset="one", seed=1, reason="too slow")
    run.fail("half", dataset="two", reason="too large")
    run.fail("half", "skipped", "images only", dataset="three")
    board = compile_board([run.write(tmp_path)])
    found = heat_map(scene(board.rows, board.styles), board.rows, "50", 1.0)
    assert found is not None
    assert [column.name for column in found.columns] == ["one", "three", "two"]
    cells = {line.label: line.cells for line in found.lines}
    assert [cell.text for cell in cells["a"]] == ["50.0", "0.600", "80.0"]
    assert [cell.classes for cell in cells["a"]] == ["h1", "plain", "h4"]
    assert [cell.text for cell in cells["b"]] == ["100.0○", "", "160.0○"]
    assert [cell.text for cell in cells["half"]] == ["50.0", "skip", "✕"]
    assert [cell.classes for cell in cells["half"]] == ["h1 failing", "none", "failing"]
    assert "1 of 2 cells failed: too slow" in cells["half"][0].title
    assert cells["half"][2].title == "no value: too large"
    assert found.finding.startswith(
        "Highest win rate of the sound methods here: a (75.0%), ranked on 2 of 3"
    )


def test_steps_of_colour() -> None:
    assert [step(share) for share in (0.0, 0.499, 0.5, 0.94, 0.95, 1.0, 1.2)] == [
        0, 0, 1, 5, 6, 7, 7,
    ]  # fmt: skip
    assert len(steps()) == len(STEPS) + 1
    assert [item.text for item in steps()][1] == "50 to 60%"
