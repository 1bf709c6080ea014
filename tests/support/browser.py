"""A Chromium of the system, driven by playwright; tests skip with the reason where it is absent."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
from tests.support.places import ROOT

NAMES = ("chromium", "chromium-browser", "google-chrome")

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """The browser, for as long as tests need it."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium on this machine ({', '.join(NAMES)}); apt-get install chromium")
    with api.sync_playwright() as playwright:
        # The sandbox needs rights that containers, where tests run as root, do not have.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@final
@dataclass
class Visit:
    """An open page with what it complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextlib.contextmanager
def visited(
    browser: Browser, path: Path, width: int = 1280, scheme: str = "light", fragment: str = ""
) -> Iterator[Visit]:
    """Open a file; console errors, page errors and anything fetched are written down."""
    size: Any = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    visit = Visit(page)
    page.on(
        "console",
        lambda message: (
            visit.complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.on("request", lambda request: visit.requests.append(request.url))
    page.goto(path.resolve().as_uri() + fragment, wait_until="load")
    try:
        yield visit
    finally:
        context.close()


def keep(visit: Visit, name: str, whole: bool = False) -> Path:
    """A screenshot under `build/screenshots`, to be looked at."""
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    visit.page.screenshot(path=str(path), full_page=whole)
    return path


def draw_all(visit: Visit) -> int:
    """Scroll until every visible chart of the page is drawn; return their number."""
    return int(
        visit.page.evaluate(
            """async () => {
              const all = [...document.querySelectorAll("figure.chart")];
              const shown = all.filter((figure) => figure.checkVisibility());
              const wait = () => new Promise((go) => setTimeout(go, 50));
              for (const figure of shown) {
                figure.scrollIntoView();
                const missing = () => !figure.querySelector(".chart-tools");
                for (let k = 0; k < 400 && missing(); k++) await wait();
                if (!figure.querySelector(".plot svg")) throw new Error(figure.textContent);
              }
              scrollTo(0, 0);
              return shown.length;
            }"""
        )
    )
