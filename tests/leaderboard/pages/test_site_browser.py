"""The whole site in a browser: links, complaints, readable by everybody, harmless."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pytest

from bench.leaderboard.charts.chart import COLOURS
from bench.leaderboard.charts.panels import MARKERS, PALETTE
from bench.leaderboard.charts.sheet import LIBRARY
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import LIST
from tests.support import browser
from tests.support.card_page import CardPage
from tests.support.dossiers import one_release
from tests.support.front_site import EVIL, FrontSite
from tests.support.places import ROOT

CHECKS = (ROOT / "tests" / "support" / "browser_checks.js").read_text()
KINDS = ("front", "plots", "method", "dataset", "cell", "dossier")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One site for all tests here, with a dossier beside it."""
    made = FrontSite(tmp_path_factory.mktemp("whole")).folder
    release = one_release(tmp_path_factory.mktemp("dossier"), label=EVIL)
    (made / "dossier.html").write_text(release.page("abc123"), encoding="utf-8")
    return made


def one_of(folder: Path, kind: str) -> Path:
    """A page of each kind; of methods and cells those with the stranger's name."""
    if kind in ("front", "plots", "dossier"):
        return folder / {"front": "index.html"}.get(kind, f"{kind}.html")
    pages = sorted((folder / f"{kind}s").glob("*.html"))
    strange = [page for page in pages if "alert(1)" in page.read_text() and kind != "dataset"]
    return (strange or pages)[0]


# Links --------------------------------------------------------------------------------------------


def _goals(page: Path, links: list[str]) -> Iterator[tuple[str, Path, str]]:
    for link in links:
        parts = urlsplit(link)
        assert not parts.scheme and not parts.netloc, (page, link)
        yield link, (page.parent / unquote(parts.path)) if parts.path else page, parts.fragment


def test_every_link_of_the_site_leads_to_a_file_or_a_place_on_it(
    chromium: Any, folder: Path
) -> None:
    pages = {path: CardPage(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    found = {path: list(page.links) for path, page in pages.items()}
    # The front page draws its own: open what can be opened.
    front = folder / "index.html"
    with browser.visited(chromium, front) as visit:
        while visit.page.locator("#more").is_visible():
            visit.page.click("#more")
        visit.page.evaluate("document.querySelectorAll('button.open').forEach((b) => b.click())")
        found[front] = visit.page.eval_on_selector_all(
            "a[href]", "links => links.map((link) => link.getAttribute('href'))"
        )
    assert len([link for link in found[front] if link.startswith("cells/")]) == 60
    # Pages with charts load the library beside them; the next site reads the list of files.
    reached = {front, (folder / LIBRARY).resolve(), (folder / LIST).resolve()}
    count = 0
    for page, links in found.items():
        for link, goal, fragment in _goals(page, links):
            assert goal.is_file(), (page.name, link)
            reached.add(goal.resolve())
            count += 1
            if fragment and goal.suffix == ".html" and "=" not in fragment:
                assert f'id="{fragment}"' in goal.read_text(encoding="utf-8"), (page.name, link)
    assert count > 1000
    # Nothing is written that nobody links to.
    written_files = {path.resolve() for path in folder.rglob("*") if path.is_file()}
    assert written_files - {path.resolve() for path in reached} == set()


# Readable -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (390, "dark"),
        # The other two differ from these in nothing but the pair.
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(390, "light", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_readable_everywhere(
    chromium: Any, folder: Path, kind: str, width: int, scheme: str
) -> None:
    with browser.visited(chromium, one_of(folder, kind), width, scheme) as visit:
        browser.keep(visit, f"{kind}-{width}-{scheme}", whole=True)
        visit.page.evaluate(
            "document.querySelectorAll('details').forEach((own) => { own.open = true; })"
        )
        browser.draw_all(visit)
        found = visit.page.evaluate(CHECKS)
        assert found == {"faint": [], "small": [], "cut": [], "wide": 0}
        assert visit.complaints == []
        own = one_of(folder, kind).resolve().as_uri()
        assert set(visit.requests) - {(folder / LIBRARY).resolve().as_uri()} == {own}


# Colours ------------------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SIGHT = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}


def _linear(colour: str) -> npt.NDArray[np.float64]:
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _lab(linear: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    matrix = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    xyz = matrix @ np.clip(linear, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def _luminance(colour: str) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ _linear(colour))


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _series(scheme: str) -> dict[str, tuple[str, ...]]:
    """The colours of lines: of methods, and of the rows of a cell."""
    place = browser.SCHEMES.index(scheme)
    return {
        "plots": tuple(COLOURS[name][place] for name in PALETTE),
        "figures": tuple(COLOURS[name][place] for name in ("real", "released", "control", "other")),
    }


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("scheme", browser.SCHEMES)
def test_colours_of_series_are_distinguishable(scheme: str, sight: str) -> None:
    for where, colours in _series(scheme).items():
        seen = [_lab(SIGHT[sight] @ _linear(colour)) for colour in colours]
        for (i, one), (j, other) in itertools.combinations(enumerate(seen), 2):
            # About 2.3 is just noticeable side by side; thin lines need several times that.
            assert np.linalg.norm(one - other) > 9, (where, colours[i], colours[j])


@pytest.mark.parametrize(("scheme", "page"), [("light", "#ffffff"), ("dark", "#14171a")])
def test_colours_of_series_stand_out_from_the_page(scheme: str, page: str) -> None:
    assert page in rendering.asset("page.css")
    for colours in _series(scheme).values():
        for colour in colours:
            # Marks carry a shape and a name too; WCAG asks 3 of graphics that have neither.
            assert _contrast(colour, page) > 2, colour


def test_colour_is_never_the_only_difference() -> None:
    assert len(PALETTE) == 6
    assert len(set(MARKERS)) >= 6


def test_the_contrast_and_the_distance_are_those_of_the_standards() -> None:
    assert _contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert _contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)  # WCAG's own example
    assert _lab(_linear("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)


# Harmless -----------------------------------------------------------------------------------------


def test_a_name_that_is_a_script_runs_nowhere(chromium: Any, folder: Path) -> None:
    pages = [one_of(folder, kind) for kind in KINDS]
    assert sum("alert(1)" in page.read_text() for page in pages) >= 5
    for page in pages:
        with browser.visited(chromium, page) as visit:
            asked: list[str] = []
            visit.page.on("dialog", lambda dialog: asked.append(dialog.message))  # noqa: B023
            visit.page.reload()
            assert asked == []
            assert visit.complaints == []
            found = visit.page.evaluate("[...document.scripts].map((s) => s.textContent.trim())")
            assert not [code for code in found if code.startswith("alert")]
            if page.parent != folder or page.name in ("index.html", "plots.html", "dossier.html"):
                shown = EVIL in visit.page.inner_text("body")
                assert shown or "datasets" in page.parts, page
