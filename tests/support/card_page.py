"""Reads the pages of methods and datasets as a browser would see them."""

from __future__ import annotations

from collections.abc import Iterable
from html.parser import HTMLParser
from typing import final

from bench.leaderboard.templates.rendering import Page as Written

SECTIONS = "section"


@final
class CardPage(HTMLParser):
    """Text of each section, table rows as lists of texts, and all links."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.tags: list[str] = []
        self.links: list[str] = []
        self.sections: dict[str, str] = {"": ""}
        self.rows: dict[str, list[list[str]]] = {}
        self._section = ""
        self._silent = False
        self._in_cell = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append(tag)
        self._silent = tag in ("style", "script")
        if tag == SECTIONS:
            self._section = attributes.get("id") or ""
            self.sections[self._section] = ""
        if tag == "a":
            self.links.append(attributes.get("href") or "")
        if tag == "tr":
            self.rows.setdefault(self._section, []).append([])
        if tag in ("td", "th"):
            self.rows[self._section][-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._silent = False
        if tag == SECTIONS:
            self._section = ""
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        plain = " ".join(data.split())
        self.sections[self._section] = f"{self.sections[self._section]} {plain}".strip()
        if self._in_cell:
            row = self.rows[self._section][-1]
            row[-1] = f"{row[-1]} {plain}".strip()

    def row(self, section: str, *start: str) -> list[str]:
        """The one row whose first cells are these."""
        (found,) = [row for row in self.rows.get(section, []) if row[: len(start)] == list(start)]
        return found


def parsed(pages: Iterable[Written]) -> dict[str, CardPage]:
    """All pages by path."""
    return {page.path: CardPage(page.content.decode()) for page in pages}
