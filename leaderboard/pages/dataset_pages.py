"""One page a dataset: what is publicly declared about it, and who did how well on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from markupsafe import Markup

from bench.leaderboard.charts import plots
from bench.leaderboard.dossier import words as dossier_words
from bench.leaderboard.pages import links, shell
from bench.leaderboard.pages.page_rows import (
    GridRow,
    capped,
    card_style,
    distinct,
    failures,
    page_rows,
)
from bench.leaderboard.pages.shell import Page
from bench.leaderboard.ranking.rank import CEILING, FLOOR, is_sound
from bench.leaderboard.tables.aggregate import size_order
from bench.leaderboard.tables.board import Board
from bench.plugins.description import ClassCount

_MOST_FIGURES = 2


@final
@dataclass(frozen=True)
class Line:
    """A method in the table of one size: a result for each target, or one for all."""

    entrant: str
    reference: str
    flat: GridRow | None
    """The result of a method without a budget."""
    by_target: Mapping[float, GridRow]


@final
@dataclass(frozen=True)
class Table:
    """Methods by target epsilon, at one size and setting."""

    size: str
    variant: str
    metric: str
    direction: str
    targets: tuple[float, ...]
    lines: tuple[Line, ...]


@final
@dataclass(frozen=True)
class Share:
    """One class with its share of the rows and the colour it is drawn in."""

    name: str
    rows: int
    percent: str
    colour: str


def pages(board: Board) -> Iterator[Page]:
    """One page a dataset."""
    found = page_rows(board)
    for cohort, own in found.by_cohort.items():
        rows = [item.row for item in own]
        card = board.about.datasets.get(found.identities[cohort])
        # What was read off private rows is not a declaration.
        declared = card is not None and not (board.public and card.inferred)
        shares = _shares(card.by_class) if card is not None and declared else ()
        figures, more_figures = capped(plots.figures(rows, board.styles), _MOST_FIGURES)
        drawn = {row.entrant for row in rows}
        used = {name: style for name, style in board.styles.items() if name in drawn}
        yield shell.page(
            links.dataset_path(cohort),
            "dataset.html",
            card_style=card_style(),
            board=board,
            cohort=cohort,
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
            methods=len(drawn),
            withheld=[cohort] if cohort in found.withheld else [],
            ceilings=[item for item in own if item.row.reference == CEILING],
            tables=_tables(own),
            figures=figures,
            more_figures=more_figures,
            legend=plots.legend(rows, used) if figures else (),
            failures=failures(board, cohort=cohort),
        )


# Results ------------------------------------------------------------------------------------------


def _tables(items: Sequence[GridRow]) -> tuple[Table, ...]:
    """A table for each size and setting in which a method with a budget took part, largest first.

    A method without a budget stands in the tables of its size; the real rows stand in all.
    """
    ceilings = [item for item in items if item.row.reference == CEILING]
    others = [item for item in items if item.row.reference != CEILING]
    flat = [item for item in others if item.row.epsilons.target is None]
    budgeted: dict[tuple[str, str], list[GridRow]] = {}
    for item in others:
        if item.row.epsilons.target is not None:
            budgeted.setdefault((item.row.size, item.row.variant), []).append(item)
    for item in flat:
        name = (item.row.size, item.row.variant)
        if not any(size == item.row.size for size, _ in budgeted):
            budgeted.setdefault(name, [])
    found = []
    for (size, variant), own in budgeted.items():
        beside = [item for item in flat if item.row.size == size]
        split = {item.row.split for item in own} or {item.row.split for item in beside}
        above = [item for item in ceilings if item.row.split in split]
        found.append(_table(size, variant, [*above, *own, *beside]))
    # Numbers first, largest on top; then full size; then methods with a size of their own.
    order = {"full": 1, "own": 2}
    return tuple(
        sorted(
            found,
            key=lambda table: (
                order.get(table.size, 0),
                tuple(-part for part in size_order(table.size)),
                table.variant,
            ),
        )
    )


def _table(size: str, variant: str, items: Sequence[GridRow]) -> Table:
    lines: dict[str, list[GridRow]] = {}
    for item in items:
        lines.setdefault(item.row.entrant, []).append(item)
    headline = next((item.row.headline for item in items if item.row.headline is not None), None)
    targets = {item.row.epsilons.target for item in items}
    made = [_line(entrant, own) for entrant, own in lines.items()]
    return Table(
        size=size,
        variant=variant,
        metric="" if headline is None else headline.metric,
        direction="" if headline is None else headline.direction,
        targets=tuple(sorted(target for target in targets if target is not None)),
        lines=tuple(sorted(made, key=_order)),
    )


def _line(entrant: str, own: Sequence[GridRow]) -> Line:
    return Line(
        entrant=entrant,
        reference=own[0].row.reference,
        flat=next((item for item in own if item.row.epsilons.target is None), None),
        by_target={
            item.row.epsilons.target: item for item in own if item.row.epsilons.target is not None
        },
    )


def _order(line: Line) -> tuple[Any, ...]:
    """The ceiling, sound methods by mean rank, other methods; the floor closes the table."""
    rows = [item.row for item in (*line.by_target.values(), *([line.flat] if line.flat else []))]
    ranks = [row.place.rank for row in rows if row.place.rank is not None]
    return (
        line.reference != CEILING,
        line.reference == FLOOR,
        not any(is_sound(row.verdict) for row in rows),
        sum(ranks) / len(ranks) if ranks else float("inf"),
        line.entrant,
    )


# Class balance ------------------------------------------------------------------------------------


def _shares(counts: Sequence[ClassCount]) -> tuple[Share, ...]:
    total = sum(item.rows for item in counts)
    if not total:
        return ()
    colours = plots.PALETTE
    return tuple(
        Share(item.name, item.rows, f"{100 * item.rows / total:.1f}%", colours[n % len(colours)])
        for n, item in enumerate(counts)
    )


def _balance(shares: Sequence[Share]) -> Markup:
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
