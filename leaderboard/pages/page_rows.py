"""The rows of the board as the pages of methods and datasets need them."""

from __future__ import annotations

import functools
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from markupsafe import Markup

from bench.leaderboard.pages import shell
from bench.leaderboard.ranking.rank import CEILING, WITHHELD
from bench.leaderboard.tables.about import identity_of
from bench.leaderboard.tables.aggregate import Row
from bench.leaderboard.tables.board import Board, Incident
from bench.leaderboard.tables.load import records
from bench.plugins.description import Identity
from bench.plugins.metric import Direction

PREFORMATTED, PARAGRAPH, LISTED, NUMBERED = "pre", "p", "ul", "ol"
_ITEM = re.compile(r"(?:[-*]|(\d{1,2})[.)]) +")


@final
@dataclass(frozen=True)
class CellLink:
    """The page of one cell."""

    seed: int
    path: str


@final
@dataclass(frozen=True)
class GridRow:
    """A row of the board with what stands beside it."""

    row: Row
    ratio: float | None
    """Headline over that of the real rows; None where that says nothing."""
    links: tuple[CellLink, ...]


@final
@dataclass(frozen=True)
class Failure:
    """An incident, with the page of one of its cells if it has one."""

    incident: Incident
    path: str


@final
@dataclass(frozen=True)
class Block:
    """A piece of a docstring: a paragraph, a list, or lines that stand as they are."""

    kind: str
    text: str
    items: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class PageRows:
    """All rows of a board by method and by dataset."""

    by_entrant: Mapping[str, tuple[GridRow, ...]]
    by_cohort: Mapping[str, tuple[GridRow, ...]]
    ceilings: Mapping[str, tuple[Row, ...]]
    """Rows of the real data by dataset."""
    identities: Mapping[str, Identity]
    """The dataset behind each cohort."""
    withheld: frozenset[str]
    """Datasets of which this site leaves scores out."""


def page_rows(board: Board) -> PageRows:
    """Gather once what every page asks for."""
    ceilings: dict[str, list[Row]] = {}
    for row in board.rows:
        if row.reference == CEILING:
            ceilings.setdefault(row.cohort, []).append(row)
    by_entrant: dict[str, list[GridRow]] = {}
    by_cohort: dict[str, list[GridRow]] = {}
    for row in board.rows:
        top = next((c for c in ceilings.get(row.cohort, ()) if c.split == row.split), None)
        item = GridRow(row, ratio_to(row, top), _links(row, board))
        by_entrant.setdefault(row.entrant, []).append(item)
        by_cohort.setdefault(row.cohort, []).append(item)
    columns = ["cohort", "dataset", "dataset_name", "dataset_parameters"]
    cells = board.results.cells
    withheld = set(cells.loc[cells[WITHHELD], "cohort"]) if WITHHELD in cells.columns else set()
    named = records(cells[columns].drop_duplicates("cohort"))
    return PageRows(
        by_entrant={name: tuple(own) for name, own in by_entrant.items()},
        by_cohort={name: tuple(own) for name, own in by_cohort.items()},
        ceilings={name: tuple(own) for name, own in ceilings.items()},
        identities={str(cell["cohort"]): identity_of(cell) for cell in named},
        withheld=frozenset(map(str, withheld)),
    )


def ratio_to(row: Row, ceiling: Row | None) -> float | None:
    """Share of what the real rows reach, for headlines where more is better and zero is nothing."""
    if ceiling is None or row.reference == CEILING:
        return None
    own, top = row.headline, ceiling.headline
    if own is None or top is None or own.value is None or not top.value or own.metric != top.metric:
        return None
    if own.direction != Direction.HIGHER.value or top.value <= 0:
        return None
    ratio = own.value / top.value
    return ratio if math.isfinite(ratio) else None


def _links(row: Row, board: Board) -> tuple[CellLink, ...]:
    pages = board.cell_pages
    return tuple(
        CellLink(seed, pages[key])
        for seed, key in zip(row.seeds, row.keys, strict=True)
        if key in pages
    )


def failures(
    board: Board, *, entrant: str | None = None, cohort: str | None = None
) -> tuple[Failure, ...]:
    """What did not finish, of one method or on one dataset."""
    return tuple(
        Failure(item, board.cell_pages.get(item.key, ""))
        for item in board.incidents
        if entrant in (None, item.entrant) and cohort in (None, item.cohort)
    )


def blocks(text: str) -> tuple[Block, ...]:
    """Paragraphs of a docstring; lists become lists, and what is indented keeps its lines."""
    found: list[Block] = []
    for piece in text.split("\n\n"):
        paragraph: list[str] = []
        lines = piece.strip("\n").splitlines()
        # A list may follow upon the sentence that announces it.
        while lines and not lines[0].startswith((" ", "\t")) and not _ITEM.match(lines[0]):
            paragraph.append(lines.pop(0).strip())
        if paragraph:
            found.append(Block(PARAGRAPH, " ".join(paragraph)))
        item = _ITEM.match(lines[0]) if lines else None
        if item:
            found.append(Block(NUMBERED if item[1] else LISTED, "", _list_items(lines)))
        elif lines:
            found.append(Block(PREFORMATTED, textwrap.dedent("\n".join(lines))))
    return tuple(found)


def _list_items(lines: Sequence[str]) -> tuple[str, ...]:
    items: list[str] = []
    for line in lines:
        start = _ITEM.match(line)
        if start:
            items.append(line[start.end() :].strip())
        else:
            items[-1] += f" {line.strip()}"
    return tuple(items)


def settings(text: str) -> Mapping[str, str] | None:
    """Parameters of a cell, each as JSON; None for what is no JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {str(name): json.dumps(value) for name, value in found.items()}


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, in order, without empty ones."""
    return tuple(dict.fromkeys(text for text in texts if text))


def capped(items: Sequence[Any], most: int) -> tuple[Sequence[Any], int]:
    """The first ones, and how many are not shown."""
    return items[:most], max(0, len(items) - most)


@functools.cache
def card_style() -> Markup:
    """The style sheet of these pages beside the common one."""
    return Markup(shell.asset("card.css"))
