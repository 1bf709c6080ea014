"""One page a method: what it is, what it did to the rows, and how it fared over the grid."""

from __future__ import annotations

import functools
import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import pandas as pd
from markupsafe import Markup

from bench.errors import StoreError
from bench.leaderboard.charts import svg
from bench.leaderboard.charts.draw import legend, utility_figures
from bench.leaderboard.charts.panels import PALETTE, scene
from bench.leaderboard.dossier import words as dossier_words
from bench.leaderboard.dossier.words import LedgerStep, steps, stored_ledger
from bench.leaderboard.pages.board import Board, CellLink, Incident
from bench.leaderboard.ranking.rank import CEILING, FLOOR, is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables.about import ClassCount, Identity, MethodCard, identity_of
from bench.leaderboard.tables.load import WITHHELD, records
from bench.leaderboard.tables.show import ipc_order
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import Page
from bench.plugins.metric import Direction
from bench.results.records import Status

_MOST_REASONS = 12
_MOST_STEPS = 40
_MOST_LEDGERS = 4
_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@final
@dataclass(frozen=True)
class Hyperparameter:
    """A hyperparameter as the label has it."""

    name: str
    value: str
    default: str
    text: str
    changed: bool


@final
@dataclass(frozen=True)
class GroupedVerdict:
    """A verdict with one reason, and where it was given."""

    verdict: str
    kind: str
    reason: str
    alike: int
    """Other reasons that differ from it in numbers only."""
    datasets: tuple[str, ...]
    targets: tuple[float, ...]
    rows: int


@final
@dataclass(frozen=True)
class LedgerSource:
    """A cell whose ledger is shown."""

    task: str
    dataset: str
    ipc: str
    target: float | None
    path: str
    """Its page, if it has one."""


@final
@dataclass(frozen=True)
class LedgerInWords:
    """The ledger of cells in words, or why it cannot be read."""

    places: tuple[LedgerSource, ...]
    steps: tuple[LedgerStep, ...]
    more: int
    problem: str


def method_pages(board: Board) -> Iterator[Page]:
    """One page a method."""
    found = page_rows(board)
    standings = {item.label: item for item in board.standings}
    unranked = {item.label: item for item in board.unranked}
    references = [row for row in board.rows if row.reference]
    finished = _finished(board)
    for label, own in found.by_label.items():
        rows = [item.row for item in own]
        first = rows[0]
        card = board.about.methods.get(first.method)
        drawn = _drawn(rows, references)
        setting = scene(drawn, board.styles)
        figures = utility_figures(setting)
        judged, more_reasons = capped(_judgements(rows), _MOST_REASONS)
        yield rendering.page(
            rendering.method_path(label),
            "method.html",
            card_style=card_style(),
            board=board,
            label=label,
            first=first,
            card=card,
            text=doc_blocks(card.text) if card else (),
            parameters=_settings(first, card),
            unread=first.parameters if settings(first.parameters) is None else "",
            standing=standings.get(label),
            unranked=unranked.get(label),
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
            ledgers=_ledgers(board, finished.get(label, ())),
            items=sorted(own, key=_by_dataset),
            withheld=sorted({row.dataset for row in rows} & found.withheld),
            figure=figures[0] if figures else None,
            legend=legend(setting, drawn) if figures else (),
            definitions=svg.definitions(),
            failures=failures(board, label=label),
        )


def _by_dataset(item: GridRow) -> tuple[Any, ...]:
    row = item.row
    target = row.epsilons.target
    return row.dataset, ipc_order(row.ipc), row.variant, target is None, target or 0.0


def _settings(row: Row, card: MethodCard | None) -> tuple[Hyperparameter, ...]:
    given = settings(row.parameters) or {}
    known = {item.name: item for item in card.parameters} if card else {}
    found = []
    for name in (*known, *(name for name in given if name not in known)):
        default = known[name].default if name in known else ""
        value = given.get(name, default)
        text = known[name].text if name in known else ""
        found.append(Hyperparameter(name, value, default, text, name in given and value != default))
    return tuple(found)


def _claimed(row: Row) -> str:
    """Where what is claimed is not what was asked for, that is worth a line."""
    claimed, target = row.epsilons.claimed, row.epsilons.target
    if claimed is None or claimed.low == claimed.high == target:
        return ""
    asked = "no target" if target is None else f"target {target:g}"
    return f"{claimed.high:.4g} at {asked}"


def _judgements(rows: Sequence[Row]) -> list[GroupedVerdict]:
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
            GroupedVerdict(
                verdict,
                kind,
                reasons[0] if reasons else "",
                len(reasons) - 1 if reasons else 0,
                distinct(row.dataset for row in own),
                tuple(sorted({r.epsilons.target for r in own if r.epsilons.target is not None})),
                len(own),
            )
        )
    return sorted(found, key=lambda item: (item.verdict, -item.rows))


# Plots --------------------------------------------------------------------------------------------


def _drawn(rows: Sequence[Row], references: Sequence[Row]) -> list[Row]:
    """The method at the IPC it has most results for, with the reference lines at that IPC."""
    budgeted = [row for row in rows if row.epsilons.target is not None and row.headline is not None]
    if not budgeted:
        return []
    ipcs = [row.ipc for row in budgeted]
    ipc = max(sorted(set(ipcs), key=ipc_order), key=ipcs.count)
    own = [row for row in budgeted if row.ipc == ipc]
    datasets = {row.dataset for row in own}
    beside = [
        row
        for row in references
        if row.label != own[0].label
        and row.dataset in datasets
        and (row.ipc == ipc or row.reference == "ceiling")
    ]
    return [*own, *beside]


# Ledgers ------------------------------------------------------------------------------------------


def _finished(board: Board) -> dict[str, list[dict[str, Any]]]:
    """One finished cell of each method, task, unit and way of counting: the smallest epsilon."""
    cells = board.results.cells
    cells = cells[cells["status"] == Status.OK.value]
    # Cells that have a page come first: the reader can go on from there.
    order = cells.assign(_unlinked=~cells["key"].isin(board.cell_pages))
    order = order.sort_values(
        ["_unlinked", "eps_target", "shown_dataset", "seed"], na_position="last"
    )
    columns = ["shown_label", "task", "unit", "private_counts"]
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in records(order.drop_duplicates(columns)):
        found.setdefault(str(cell["shown_label"]), []).append(cell)
    return found


def _ledgers(board: Board, cells: Sequence[dict[str, Any]]) -> tuple[LedgerInWords, ...]:
    """Cells in which the same was recorded share one list."""
    alike: dict[tuple[tuple[LedgerStep, ...], str], list[LedgerSource]] = {}
    for cell in cells[:_MOST_LEDGERS]:
        home = board.results.homes.get(cell["key"])
        told: tuple[LedgerStep, ...] = ()
        problem = ""
        try:
            ledger = None if home is None else stored_ledger(home, cell["key"])
            if ledger is None:
                continue
            told = steps(ledger)
        except StoreError as refused:
            problem = str(refused)
        place = LedgerSource(
            task=str(cell["task"]) or "unknown task",
            dataset=str(cell["shown_dataset"]),
            ipc=str(cell["shown_ipc"]),
            target=None if pd.isna(cell["eps_target"]) else float(cell["eps_target"]),
            path=board.cell_pages.get(cell["key"], ""),
        )
        alike.setdefault((told, problem), []).append(place)
    found = []
    for (told, problem), places in alike.items():
        shown, more = capped(told, _MOST_STEPS)
        found.append(LedgerInWords(tuple(places), tuple(shown), more, problem))
    return tuple(found)


# Datasets -----------------------------------------------------------------------------------------


_MOST_FIGURES = 2


@final
@dataclass(frozen=True)
class MethodLine:
    """A method in the table of one IPC: a result for each target, or one for all."""

    label: str
    reference: str
    flat: GridRow | None
    """The result of a method without a budget."""
    by_target: Mapping[float, GridRow]


@final
@dataclass(frozen=True)
class ResultTable:
    """Methods by target epsilon, at one IPC and setting."""

    ipc: str
    variant: str
    metric: str
    direction: str
    targets: tuple[float, ...]
    lines: tuple[MethodLine, ...]


@final
@dataclass(frozen=True)
class ClassShare:
    """One class with its share of the rows and the colour it is drawn in."""

    name: str
    rows: int
    percent: str
    colour: str


def dataset_pages(board: Board) -> Iterator[Page]:
    """One page a dataset."""
    found = page_rows(board)
    for dataset, own in found.by_dataset.items():
        rows = [item.row for item in own]
        card = board.about.datasets.get(found.identities[dataset])
        # What was read off private rows is not a declaration.
        declared = card is not None and not (board.public and card.inferred)
        shares = _shares(card.by_class) if card is not None and declared else ()
        setting = scene(rows, board.styles)
        figures, more_figures = capped(utility_figures(setting), _MOST_FIGURES)
        yield rendering.page(
            rendering.dataset_path(dataset),
            "dataset.html",
            card_style=card_style(),
            board=board,
            dataset=dataset,
            first=rows[0],
            card=card,
            declared=declared,
            shares=shares,
            balance=_balance(shares),
            unit=dossier_words.unit_of(card.unit if card and card.unit else rows[0].unit),
            splits=distinct(row.split for row in rows),
            private_counts={row.private_counts for row in rows if row.epsilons.target is not None},
            cells=sum(row.cells for row in rows),
            ok=sum(row.finished for row in rows),
            failed=sum(row.failed for row in rows),
            skipped=sum(row.skipped for row in rows),
            methods=len({row.label for row in rows}),
            withheld=[dataset] if dataset in found.withheld else [],
            ceilings=[item for item in own if item.row.reference == CEILING],
            tables=_tables(own),
            figures=figures,
            more_figures=more_figures,
            legend=legend(setting, rows) if figures else (),
            definitions=svg.definitions(),
            failures=failures(board, dataset=dataset),
        )


# Results ------------------------------------------------------------------------------------------


def _tables(items: Sequence[GridRow]) -> tuple[ResultTable, ...]:
    """A table for each IPC and setting in which a method with a budget took part, largest first.

    A method without a budget stands in the tables of its IPC; the real rows stand in all.
    """
    ceilings = [item for item in items if item.row.reference == CEILING]
    others = [item for item in items if item.row.reference != CEILING]
    flat = [item for item in others if item.row.epsilons.target is None]
    budgeted: dict[tuple[str, str], list[GridRow]] = {}
    for item in others:
        if item.row.epsilons.target is not None:
            budgeted.setdefault((item.row.ipc, item.row.variant), []).append(item)
    for item in flat:
        name = (item.row.ipc, item.row.variant)
        if not any(ipc == item.row.ipc for ipc, _ in budgeted):
            budgeted.setdefault(name, [])
    found = []
    for (ipc, variant), own in budgeted.items():
        beside = [item for item in flat if item.row.ipc == ipc]
        split = {item.row.split for item in own} or {item.row.split for item in beside}
        above = [item for item in ceilings if item.row.split in split]
        found.append(_table(ipc, variant, [*above, *own, *beside]))
    # Numbers first, largest on top; then full size; then methods with a IPC of their own.
    order = {"full": 1, "own": 2}
    return tuple(
        sorted(
            found,
            key=lambda table: (
                order.get(table.ipc, 0),
                tuple(-part for part in ipc_order(table.ipc)),
                table.variant,
            ),
        )
    )


def _table(ipc: str, variant: str, items: Sequence[GridRow]) -> ResultTable:
    lines: dict[str, list[GridRow]] = {}
    for item in items:
        lines.setdefault(item.row.label, []).append(item)
    headline = next((item.row.headline for item in items if item.row.headline is not None), None)
    targets = {item.row.epsilons.target for item in items}
    made = [_line(label, own) for label, own in lines.items()]
    return ResultTable(
        ipc=ipc,
        variant=variant,
        metric="" if headline is None else headline.metric,
        direction="" if headline is None else headline.direction,
        targets=tuple(sorted(target for target in targets if target is not None)),
        lines=tuple(sorted(made, key=_order)),
    )


def _line(label: str, own: Sequence[GridRow]) -> MethodLine:
    return MethodLine(
        label=label,
        reference=own[0].row.reference,
        flat=next((item for item in own if item.row.epsilons.target is None), None),
        by_target={
            item.row.epsilons.target: item for item in own if item.row.epsilons.target is not None
        },
    )


def _order(line: MethodLine) -> tuple[Any, ...]:
    """The ceiling, sound methods by mean rank, other methods; the floor closes the table."""
    rows = [item.row for item in (*line.by_target.values(), *([line.flat] if line.flat else []))]
    ranks = [row.place.rank for row in rows if row.place.rank is not None]
    return (
        line.reference != CEILING,
        line.reference == FLOOR,
        not any(is_sound(row.verdict) for row in rows),
        sum(ranks) / len(ranks) if ranks else float("inf"),
        line.label,
    )


# Class balance ------------------------------------------------------------------------------------


def _shares(counts: Sequence[ClassCount]) -> tuple[ClassShare, ...]:
    total = sum(item.rows for item in counts)
    if not total:
        return ()
    colours = PALETTE
    return tuple(
        ClassShare(
            item.name, item.rows, f"{100 * item.rows / total:.1f}%", colours[n % len(colours)]
        )
        for n, item in enumerate(counts)
    )


def _balance(shares: Sequence[ClassShare]) -> Markup:
    """A bar with a piece for each class."""
    total = sum(share.rows for share in shares)
    pieces, start = [], 0.0
    piece = Markup('<rect x="{:.2f}" width="{:.2f}" height="14" fill="{}"><title>{}</title></rect>')
    for share in shares:
        width = 400 * share.rows / total
        title = f"{share.name}: {share.rows:,} ({share.percent})"
        pieces.append(piece.format(start, width, share.colour, title))
        start += width
    return Markup(
        '<svg class="balance" viewBox="0 0 400 14" preserveAspectRatio="none" role="img" '
        'aria-label="class balance">{}</svg>'
    ).format(Markup("").join(pieces))


# What both kinds of page share --------------------------------------------------------------------


PREFORMATTED, PARAGRAPH, LISTED, NUMBERED = "pre", "p", "ul", "ol"
_ITEM = re.compile(r"(?:[-*]|(\d{1,2})[.)]) +")


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
class DocBlock:
    """A piece of a docstring: a paragraph, a list, or lines that stand as they are."""

    kind: str
    text: str
    items: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class PageRows:
    """All rows of a board by method and by dataset."""

    by_label: Mapping[str, tuple[GridRow, ...]]
    by_dataset: Mapping[str, tuple[GridRow, ...]]
    ceilings: Mapping[str, tuple[Row, ...]]
    """Rows of the real data by dataset."""
    identities: Mapping[str, Identity]
    """The dataset behind each dataset."""
    withheld: frozenset[str]
    """Datasets of which this site leaves scores out."""


def page_rows(board: Board) -> PageRows:
    """Gather once what every page asks for."""
    ceilings: dict[str, list[Row]] = {}
    for row in board.rows:
        if row.reference == CEILING:
            ceilings.setdefault(row.dataset, []).append(row)
    by_label: dict[str, list[GridRow]] = {}
    by_dataset: dict[str, list[GridRow]] = {}
    for row in board.rows:
        top = next((c for c in ceilings.get(row.dataset, ()) if c.split == row.split), None)
        item = GridRow(row, ratio_to(row, top), _links(row, board))
        by_label.setdefault(row.label, []).append(item)
        by_dataset.setdefault(row.dataset, []).append(item)
    columns = ["shown_dataset", "dataset", "dataset_name", "dataset_parameters"]
    cells = board.results.cells
    withheld = (
        set(cells.loc[cells[WITHHELD], "shown_dataset"]) if WITHHELD in cells.columns else set()
    )
    named = records(cells[columns].drop_duplicates("shown_dataset"))
    return PageRows(
        by_label={name: tuple(own) for name, own in by_label.items()},
        by_dataset={name: tuple(own) for name, own in by_dataset.items()},
        ceilings={name: tuple(own) for name, own in ceilings.items()},
        identities={str(cell["shown_dataset"]): identity_of(cell) for cell in named},
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
    board: Board, *, label: str | None = None, dataset: str | None = None
) -> tuple[Failure, ...]:
    """What did not finish, of one method or on one dataset."""
    return tuple(
        Failure(item, board.cell_pages.get(item.key, ""))
        for item in board.incidents
        if label in (None, item.label) and dataset in (None, item.dataset)
    )


def doc_blocks(text: str) -> tuple[DocBlock, ...]:
    """Paragraphs of a docstring; lists become lists, and what is indented keeps its lines."""
    found: list[DocBlock] = []
    for piece in text.split("\n\n"):
        paragraph: list[str] = []
        lines = piece.strip("\n").splitlines()
        # A list may follow upon the sentence that announces it.
        while lines and not lines[0].startswith((" ", "\t")) and not _ITEM.match(lines[0]):
            paragraph.append(lines.pop(0).strip())
        if paragraph:
            found.append(DocBlock(PARAGRAPH, " ".join(paragraph)))
        item = _ITEM.match(lines[0]) if lines else None
        if item:
            found.append(DocBlock(NUMBERED if item[1] else LISTED, "", _list_items(lines)))
        elif lines:
            found.append(DocBlock(PREFORMATTED, textwrap.dedent("\n".join(lines))))
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
    return Markup(rendering.asset("plots.css") + rendering.asset("card.css"))
