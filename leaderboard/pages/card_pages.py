"""One page per method and one per dataset: cards, results, figures and failures."""

from __future__ import annotations

import functools
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import pandas as pd
from markupsafe import Markup

from bench.errors import StoreError
from bench.leaderboard.charts.chart import colour
from bench.leaderboard.charts.overview import method_legend
from bench.leaderboard.charts.panels import PALETTE, scene
from bench.leaderboard.charts.sheet import SCRIPT, Sheet, legend
from bench.leaderboard.charts.tradeoffs import UtilityFigure, utility_figures
from bench.leaderboard.dossier import words as dossier_words
from bench.leaderboard.dossier.words import LedgerStep, steps, stored_ledger
from bench.leaderboard.pages.board import Board, CellLink, Incident
from bench.leaderboard.ranking.quantities import headline_of_real, identity
from bench.leaderboard.ranking.rank import CEILING, FLOOR, is_sound
from bench.leaderboard.ranking.rows import Row, ceilings
from bench.leaderboard.tables.about import identity_of
from bench.leaderboard.tables.load import WITHHELD, records
from bench.leaderboard.tables.show import ipc_order
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import Page
from bench.plugins.description import ClassCount, Identity, MethodDescription
from bench.results.records import Status

_MOST_REASONS = 12
_MOST_STEPS = 40
_MOST_LEDGERS = 4
_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@final
@dataclass(frozen=True)
class Hyperparameter:
    """A hyperparameter of a method in the grid."""

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
    """Number of other reasons that differ only in numbers."""
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
    """Path of its page, if any."""


@final
@dataclass(frozen=True)
class LedgerInWords:
    """The common ledger of some cells in words, or why it cannot be read."""

    places: tuple[LedgerSource, ...]
    steps: tuple[LedgerStep, ...]
    more: int
    problem: str


def method_pages(board: Board) -> Iterator[Page]:
    """Yield one page per method."""
    gathered = page_rows(board)
    standings = {item.label: item for item in board.standings}
    unranked = {item.label: item for item in board.unranked}
    references = [row for row in board.rows if row.reference]
    finished = _finished(board)
    for label, items in gathered.by_label.items():
        rows = [item.row for item in items]
        tried = [row for row in rows if row.finished or row.failed]
        first = rows[0]
        card = board.about.methods.get(first.method)
        drawn = _drawn(rows, references)
        setting = scene(drawn, board.styles)
        sheet = Sheet()
        figures = _placed(utility_figures(setting)[:1], sheet)
        judged, more_reasons = capped(_judgements(rows), _MOST_REASONS)
        yield rendering.page(
            rendering.method_path(label),
            "method.html",
            card_style=card_style(),
            board=board,
            identity=identity,
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
            items=sorted(items, key=_by_dataset),
            withheld=sorted({row.dataset for row in rows} & gathered.withheld),
            scripts=(SCRIPT,),
            tuned=distinct(row.dataset for row in rows if row.tuned),
            not_taken=sorted({row.dataset for row in rows} - {row.dataset for row in tried}),
            figure=figures[0] if figures else None,
            legend=legend(method_legend(setting, drawn)),
            charts=sheet.data(),
            failures=failures(board, label=label),
        )


def _by_dataset(item: GridRow) -> tuple[Any, ...]:
    row = item.row
    target = row.epsilons.target
    return row.dataset, ipc_order(row.ipc), row.variant, target is None, target or 0.0


def _settings(row: Row, card: MethodDescription | None) -> tuple[Hyperparameter, ...]:
    given = settings(row.parameters) or {}
    known = {item.name: item for item in card.parameters} if card else {}
    hyperparameters = []
    for name in (*known, *(name for name in given if name not in known)):
        default = known[name].default if name in known else ""
        value = given.get(name, default)
        text = known[name].text if name in known else ""
        hyperparameters.append(
            Hyperparameter(name, value, default, text, name in given and value != default)
        )
    return tuple(hyperparameters)


def _claimed(row: Row) -> str:
    """Return the claimed epsilon in words if it differs from the target."""
    claimed, target = row.epsilons.claimed, row.epsilons.target
    if claimed is None or claimed.low == claimed.high == target:
        return ""
    asked = "no target" if target is None else f"target {target:g}"
    return f"{claimed.high:.4g} at {asked}"


def _judgements(rows: Sequence[Row]) -> list[GroupedVerdict]:
    """Return the verdicts by number of rows; reasons that differ only in numbers are merged."""
    alike: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.verdict:
            without = _NUMBERS.sub("#", "; ".join(row.verdict_reasons))
            alike.setdefault((row.verdict, row.verdict_kind, without), []).append(row)
    verdicts = []
    for (verdict, kind, _), members in alike.items():
        reasons = distinct("; ".join(row.verdict_reasons) for row in members)
        verdicts.append(
            GroupedVerdict(
                verdict,
                kind,
                reasons[0] if reasons else "",
                len(reasons) - 1 if reasons else 0,
                distinct(row.dataset for row in members),
                tuple(
                    sorted({r.epsilons.target for r in members if r.epsilons.target is not None})
                ),
                len(members),
            )
        )
    return sorted(verdicts, key=lambda item: (item.verdict, -item.rows))


# Plots --------------------------------------------------------------------------------------------


def _drawn(rows: Sequence[Row], references: Sequence[Row]) -> list[Row]:
    """Return the method at the IPC with the most results, with the references at that IPC."""
    budgeted = [row for row in rows if row.epsilons.target is not None and row.headline is not None]
    if not budgeted:
        return []
    ipcs = [row.ipc for row in budgeted]
    ipc = max(sorted(set(ipcs), key=ipc_order), key=ipcs.count)
    shown = [row for row in budgeted if row.ipc == ipc]
    datasets = {row.dataset for row in shown}
    beside = [
        row
        for row in references
        if row.label != shown[0].label
        and row.dataset in datasets
        and (row.ipc == ipc or row.reference == "ceiling")
    ]
    return [*shown, *beside]


# Ledgers ------------------------------------------------------------------------------------------


def _finished(board: Board) -> dict[str, list[dict[str, Any]]]:
    """Return one finished cell per method, task, unit and kind of counts: the smallest epsilon."""
    cells = board.results.cells
    cells = cells[cells["status"] == Status.OK.value]
    # Prefer cells that have a page, to which the reader can navigate.
    order = cells.assign(_unlinked=~cells["key"].isin(board.cell_pages))
    order = order.sort_values(
        ["_unlinked", "eps_target", "shown_dataset", "seed"], na_position="last"
    )
    columns = ["shown_label", "task", "unit", "private_counts"]
    by_label: dict[str, list[dict[str, Any]]] = {}
    for cell in records(order.drop_duplicates(columns)):
        by_label.setdefault(str(cell["shown_label"]), []).append(cell)
    return by_label


def _ledgers(board: Board, cells: Sequence[dict[str, Any]]) -> tuple[LedgerInWords, ...]:
    """Return the ledgers of some cells; cells with the same ledger share one list."""
    alike: dict[tuple[tuple[LedgerStep, ...], str], list[LedgerSource]] = {}
    for cell in cells[:_MOST_LEDGERS]:
        home = board.results.homes.get(cell["key"])
        shown_steps: tuple[LedgerStep, ...] = ()
        problem = ""
        try:
            ledger = None if home is None else stored_ledger(home, cell["key"])
            if ledger is None:
                continue
            shown_steps = steps(ledger)
        except StoreError as refused:
            problem = str(refused)
        place = LedgerSource(
            task=str(cell["task"]) or "unknown task",
            dataset=str(cell["shown_dataset"]),
            ipc=str(cell["shown_ipc"]),
            target=None if pd.isna(cell["eps_target"]) else float(cell["eps_target"]),
            path=board.cell_pages.get(cell["key"], ""),
        )
        alike.setdefault((shown_steps, problem), []).append(place)
    ledgers = []
    for (shown_steps, problem), places in alike.items():
        shown, more = capped(shown_steps, _MOST_STEPS)
        ledgers.append(LedgerInWords(tuple(places), tuple(shown), more, problem))
    return tuple(ledgers)


# Datasets -----------------------------------------------------------------------------------------


_MOST_FIGURES = 2


@final
@dataclass(frozen=True)
class MethodLine:
    """A method in the table of one IPC: one result per target, or one for all."""

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
    """One class with its share of the rows and its colour."""

    name: str
    rows: int
    percent: str
    colour: str


def dataset_pages(board: Board) -> Iterator[Page]:
    """Yield one page per dataset."""
    gathered = page_rows(board)
    for dataset, items in gathered.by_dataset.items():
        rows = [item.row for item in items]
        card = board.about.datasets.get(gathered.identities[dataset])
        # What was inferred from private rows is not a declaration.
        declared = card is not None and not (board.public and card.inferred)
        private_counts = {row.private_counts for row in rows if row.epsilons.target is not None}
        # Counts that a release pays for with its budget are not published exactly beside it.
        paid = board.public and dataset in gathered.withheld and True in private_counts
        counted = declared and not paid
        shares = _shares(card.by_class) if card is not None and counted else ()
        setting = scene(rows, board.styles)
        sheet = Sheet()
        found, more_figures = capped(utility_figures(setting), _MOST_FIGURES)
        figures = _placed(found, sheet)
        yield rendering.page(
            rendering.dataset_path(dataset),
            "dataset.html",
            card_style=card_style(),
            board=board,
            identity=identity,
            dataset=dataset,
            first=rows[0],
            card=card,
            declared=declared,
            shares=shares,
            balance=_balance(shares),
            unit=dossier_words.unit_of(card.unit if card and card.unit else rows[0].unit),
            splits=distinct(row.split for row in rows),
            counted=counted,
            private_counts=private_counts,
            cells=sum(row.cells for row in rows),
            ok=sum(row.finished for row in rows),
            failed=sum(row.failed for row in rows),
            skipped=sum(row.skipped for row in rows),
            methods=len({row.label for row in rows}),
            withheld=[dataset] if dataset in gathered.withheld else [],
            ceilings=[item for item in items if item.row.reference == CEILING],
            tables=_tables(items),
            scripts=(SCRIPT,),
            figures=figures,
            more_figures=more_figures,
            legend=legend(method_legend(setting, rows)),
            charts=sheet.data(),
            failures=failures(board, dataset=dataset),
        )


# Results ------------------------------------------------------------------------------------------


def _tables(items: Sequence[GridRow]) -> tuple[ResultTable, ...]:
    """Return one table per IPC and setting of the methods with a budget, largest first.

    A method without a budget is in the tables of its IPC; the real rows are in all tables.
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
    tables = []
    for (ipc, variant), with_budget in budgeted.items():
        beside = [item for item in flat if item.row.ipc == ipc]
        split = {item.row.split for item in with_budget} or {item.row.split for item in beside}
        above = [item for item in ceilings if item.row.split in split]
        tables.append(_table(ipc, variant, [*above, *with_budget, *beside]))
    # Numbers first, largest on top; then full size; then methods that set their own size.
    order = {"full": 1, "own": 2}
    return tuple(
        sorted(
            tables,
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
    made = [_line(label, members) for label, members in lines.items()]
    return ResultTable(
        ipc=ipc,
        variant=variant,
        metric="" if headline is None else headline.metric,
        direction="" if headline is None else headline.direction,
        targets=tuple(sorted(target for target in targets if target is not None)),
        lines=tuple(sorted(made, key=_order)),
    )


def _line(label: str, items: Sequence[GridRow]) -> MethodLine:
    return MethodLine(
        label=label,
        reference=items[0].row.reference,
        flat=next((item for item in items if item.row.epsilons.target is None), None),
        by_target={
            item.row.epsilons.target: item for item in items if item.row.epsilons.target is not None
        },
    )


def _order(line: MethodLine) -> tuple[Any, ...]:
    """Return a sort key: the ceiling, sound methods by mean rank, other methods, the floor."""
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
    colours = [colour(name) for name in PALETTE]
    return tuple(
        ClassShare(
            item.name, item.rows, f"{100 * item.rows / total:.1f}%", colours[n % len(colours)]
        )
        for n, item in enumerate(counts)
    )


def _balance(shares: Sequence[ClassShare]) -> Markup:
    """Return a bar with one segment per class."""
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
    """A row of the leaderboard with its ratio and links."""

    row: Row
    of_real: float | None
    """Share of the headline score in that of the real rows, see `quantities`."""
    links: tuple[CellLink, ...]


@final
@dataclass(frozen=True)
class Failure:
    """An incident with the page of one of its cells, if any."""

    incident: Incident
    path: str


@final
@dataclass(frozen=True)
class DocBlock:
    """A block of a docstring: a paragraph, a list, or preformatted lines."""

    kind: str
    text: str
    items: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class PageRows:
    """All rows of a board by method and by dataset."""

    by_label: Mapping[str, tuple[GridRow, ...]]
    by_dataset: Mapping[str, tuple[GridRow, ...]]
    identities: Mapping[str, Identity]
    """Plugin name and parameters of each dataset."""
    withheld: frozenset[str]
    """Datasets whose scores this site leaves out."""


def page_rows(board: Board) -> PageRows:
    """Gather once what every page needs."""
    tops = ceilings(board.rows)
    by_label: dict[str, list[GridRow]] = {}
    by_dataset: dict[str, list[GridRow]] = {}
    for row in board.rows:
        item = GridRow(row, headline_of_real(row, tops), _links(row, board))
        by_label.setdefault(row.label, []).append(item)
        by_dataset.setdefault(row.dataset, []).append(item)
    columns = ["shown_dataset", "dataset", "dataset_name", "dataset_parameters"]
    cells = board.results.cells
    withheld = (
        set(cells.loc[cells[WITHHELD], "shown_dataset"]) if WITHHELD in cells.columns else set()
    )
    named = records(cells[columns].drop_duplicates("shown_dataset"))
    return PageRows(
        by_label={name: tuple(items) for name, items in by_label.items()},
        by_dataset={name: tuple(items) for name, items in by_dataset.items()},
        identities={str(cell["shown_dataset"]): identity_of(cell) for cell in named},
        withheld=frozenset(map(str, withheld)),
    )


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
    """Return what did not finish, of one method or on one dataset."""
    return tuple(
        Failure(item, board.cell_pages.get(item.key, ""))
        for item in board.incidents
        if label in (None, item.label) and dataset in (None, item.dataset)
    )


def doc_blocks(text: str) -> tuple[DocBlock, ...]:
    """Return the blocks of a docstring: paragraphs, lists, and indented preformatted lines."""
    blocks: list[DocBlock] = []
    for piece in text.split("\n\n"):
        paragraph: list[str] = []
        lines = piece.strip("\n").splitlines()
        # A list may follow its introductory sentence without an empty line.
        while lines and not lines[0].startswith((" ", "\t")) and not _ITEM.match(lines[0]):
            paragraph.append(lines.pop(0).strip())
        if paragraph:
            blocks.append(DocBlock(PARAGRAPH, " ".join(paragraph)))
        item = _ITEM.match(lines[0]) if lines else None
        if item:
            blocks.append(DocBlock(NUMBERED if item[1] else LISTED, "", _list_items(lines)))
        elif lines:
            blocks.append(DocBlock(PREFORMATTED, textwrap.dedent("\n".join(lines))))
    return tuple(blocks)


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
    """Return the parameters of a cell, each as JSON; None if they are not a JSON object."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    return {str(name): json.dumps(value) for name, value in parsed.items()}


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Return each non-empty text once, in order."""
    return tuple(dict.fromkeys(text for text in texts if text))


def _placed(
    figures: Sequence[UtilityFigure], sheet: Sheet
) -> tuple[tuple[str, tuple[Markup, ...]], ...]:
    """Return the IPC and the placed charts of each figure."""
    return tuple((figure.ipc, tuple(map(sheet.place, figure.charts))) for figure in figures)


def capped(items: Sequence[Any], most: int) -> tuple[Sequence[Any], int]:
    """Return the first items, and how many are left out."""
    return items[:most], max(0, len(items) - most)


@functools.cache
def card_style() -> Markup:
    """Return the style sheet of these pages."""
    return Markup(rendering.asset("plots.css") + rendering.asset("card.css"))
