"""One page a method: what it is, what it did to the rows, and how it fared over the grid."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import pandas as pd

from bench.errors import StoreError
from bench.leaderboard.charts import plots
from bench.leaderboard.dossier.ledger_words import Step, steps, stored_ledger
from bench.leaderboard.pages import links, shell
from bench.leaderboard.pages.page_rows import (
    GridRow,
    blocks,
    capped,
    card_style,
    distinct,
    failures,
    page_rows,
    settings,
)
from bench.leaderboard.pages.shell import Page
from bench.leaderboard.tables.aggregate import Row, size_order
from bench.leaderboard.tables.board import Board
from bench.leaderboard.tables.load import records
from bench.plugins.description import MethodDescription
from bench.results.records import Status

_MOST_REASONS = 12
_MOST_STEPS = 40
_MOST_LEDGERS = 4
_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@final
@dataclass(frozen=True)
class Setting:
    """A hyperparameter as the entrant has it."""

    name: str
    value: str
    default: str
    text: str
    changed: bool


@final
@dataclass(frozen=True)
class Judgement:
    """A verdict with one reason, and where it was given."""

    verdict: str
    kind: str
    reason: str
    alike: int
    """Other reasons that differ from it in numbers only."""
    cohorts: tuple[str, ...]
    targets: tuple[float, ...]
    rows: int


@final
@dataclass(frozen=True)
class Place:
    """A cell whose ledger is shown."""

    task: str
    cohort: str
    size: str
    target: float | None
    path: str
    """Its page, if it has one."""


@final
@dataclass(frozen=True)
class Record:
    """The ledger of cells in words, or why it cannot be read."""

    places: tuple[Place, ...]
    steps: tuple[Step, ...]
    more: int
    problem: str


def pages(board: Board) -> Iterator[Page]:
    """One page a method."""
    found = page_rows(board)
    standings = {item.entrant: item for item in board.standings}
    unranked = {item.entrant: item for item in board.unranked}
    references = [row for row in board.rows if row.reference]
    finished = _finished(board)
    for entrant, own in found.by_entrant.items():
        rows = [item.row for item in own]
        first = rows[0]
        card = board.about.methods.get(first.method)
        figure = _figure(rows, references, board)
        judged, more_reasons = capped(_judgements(rows), _MOST_REASONS)
        yield shell.page(
            links.method_path(entrant),
            "method.html",
            card_style=card_style(),
            board=board,
            entrant=entrant,
            first=first,
            card=card,
            text=blocks(card.text) if card else (),
            parameters=_settings(first, card),
            unread=first.parameters if settings(first.parameters) is None else "",
            standing=standings.get(entrant),
            unranked=unranked.get(entrant),
            cells=sum(row.cells for row in rows),
            ok=sum(row.finished for row in rows),
            failed=sum(row.failed for row in rows),
            skipped=sum(row.skipped for row in rows),
            kinds=distinct(row.verdict_kind for row in rows),
            judgements=judged,
            more_reasons=more_reasons,
            claims=distinct(source for row in rows for source in row.claim_sources),
            claimed=sorted({_claimed(row) for row in rows} - {""}),
            units=distinct(row.unit or "row" for row in rows),
            adjacencies=distinct(row.adjacency for row in rows),
            deltas=sorted({row.delta for row in rows}),
            accountants=distinct(n for row in rows for n in row.accountants if n != "none"),
            warnings=distinct(text for row in rows for text in row.warnings),
            ledgers=_ledgers(board, finished.get(entrant, ())),
            items=sorted(own, key=_by_dataset),
            withheld=sorted({row.cohort for row in rows} & found.withheld),
            figure=figure,
            legend=_legend(rows, references, board) if figure else (),
            failures=failures(board, entrant=entrant),
        )


def _by_dataset(item: GridRow) -> tuple[Any, ...]:
    row = item.row
    target = row.epsilons.target
    return row.cohort, size_order(row.size), row.variant, target is None, target or 0.0


def _settings(row: Row, card: MethodDescription | None) -> tuple[Setting, ...]:
    given = settings(row.parameters) or {}
    known = {item.name: item for item in card.parameters} if card else {}
    found = []
    for name in (*known, *(name for name in given if name not in known)):
        default = known[name].default if name in known else ""
        value = given.get(name, default)
        text = known[name].text if name in known else ""
        found.append(Setting(name, value, default, text, name in given and value != default))
    return tuple(found)


def _claimed(row: Row) -> str:
    """Where what is claimed is not what was asked for, that is worth a line."""
    claimed, target = row.epsilons.claimed, row.epsilons.target
    if claimed is None or claimed.low == claimed.high == target:
        return ""
    asked = "no target" if target is None else f"target {target:g}"
    return f"{claimed.high:.4g} at {asked}"


def _judgements(rows: Sequence[Row]) -> list[Judgement]:
    """Verdicts by how many rows they were given for; reasons that differ in numbers are one."""
    alike: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.verdict:
            without = _NUMBERS.sub("#", "; ".join(row.verdict_reasons))
            alike.setdefault((row.verdict, row.verdict_kind, without), []).append(row)
    found = []
    for (verdict, kind, _), own in alike.items():
        reasons = distinct("; ".join(row.verdict_reasons) for row in own)
        found.append(
            Judgement(
                verdict,
                kind,
                reasons[0] if reasons else "",
                len(reasons) - 1 if reasons else 0,
                distinct(row.cohort for row in own),
                tuple(sorted({r.epsilons.target for r in own if r.epsilons.target is not None})),
                len(own),
            )
        )
    return sorted(found, key=lambda item: (item.verdict, -item.rows))


# Plots --------------------------------------------------------------------------------------------


def _drawn(rows: Sequence[Row], references: Sequence[Row]) -> list[Row]:
    """The method at the size it has most results for, with the reference lines at that size."""
    budgeted = [row for row in rows if row.epsilons.target is not None and row.headline is not None]
    if not budgeted:
        return []
    sizes = [row.size for row in budgeted]
    size = max(sorted(set(sizes), key=size_order), key=sizes.count)
    own = [row for row in budgeted if row.size == size]
    cohorts = {row.cohort for row in own}
    beside = [
        row
        for row in references
        if row.entrant != own[0].entrant
        and row.cohort in cohorts
        and (row.size == size or row.reference == "ceiling")
    ]
    return [*own, *beside]


def _figure(rows: Sequence[Row], references: Sequence[Row], board: Board) -> plots.Figure | None:
    drawn = plots.figures(_drawn(rows, references), board.styles)
    return drawn[0] if drawn else None


def _legend(
    rows: Sequence[Row], references: Sequence[Row], board: Board
) -> tuple[plots.Legend, ...]:
    drawn = _drawn(rows, references)
    names = {row.entrant for row in drawn}
    used = {name: style for name, style in board.styles.items() if name in names}
    return plots.legend(drawn, used)


# Ledgers ------------------------------------------------------------------------------------------


def _finished(board: Board) -> dict[str, list[dict[str, Any]]]:
    """One finished cell of each method, task, unit and way of counting: the smallest epsilon."""
    cells = board.results.cells
    cells = cells[cells["status"] == Status.OK.value]
    # Cells that have a page come first: the reader can go on from there.
    order = cells.assign(_unlinked=~cells["key"].isin(board.cell_pages))
    order = order.sort_values(["_unlinked", "eps_target", "cohort", "seed"], na_position="last")
    columns = ["entrant", "task", "unit", "private_counts"]
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in records(order.drop_duplicates(columns)):
        found.setdefault(str(cell["entrant"]), []).append(cell)
    return found


def _ledgers(board: Board, cells: Sequence[dict[str, Any]]) -> tuple[Record, ...]:
    """Cells in which the same was recorded share one list."""
    alike: dict[tuple[tuple[Step, ...], str], list[Place]] = {}
    for cell in cells[:_MOST_LEDGERS]:
        home = board.results.homes.get(cell["key"])
        told: tuple[Step, ...] = ()
        problem = ""
        try:
            ledger = None if home is None else stored_ledger(home, cell["key"])
            if ledger is None:
                continue
            told = steps(ledger)
        except StoreError as refused:
            problem = str(refused)
        place = Place(
            task=str(cell["task"]) or "unknown task",
            cohort=str(cell["cohort"]),
            size=str(cell["size"]),
            target=None if pd.isna(cell["eps_target"]) else float(cell["eps_target"]),
            path=board.cell_pages.get(cell["key"], ""),
        )
        alike.setdefault((told, problem), []).append(place)
    found = []
    for (told, problem), places in alike.items():
        shown, more = capped(told, _MOST_STEPS)
        found.append(Record(tuple(places), tuple(shown), more, problem))
    return tuple(found)
