"""The front page: one table, the ranking, and who can be told apart."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from bench.leaderboard.charts.critical_difference import diagram
from bench.leaderboard.pages import links, shell, show
from bench.leaderboard.pages.front_columns import columns, groups
from bench.leaderboard.pages.front_data import document
from bench.leaderboard.pages.front_models import models, ratio_metrics
from bench.leaderboard.pages.shell import Page
from bench.leaderboard.ranking.rank import REFERENCES
from bench.leaderboard.tables.aggregate import severity, size_order
from bench.leaderboard.tables.board import Board

INCIDENTS = 300
"""Kinds of failure that the page lists; the tables hold all of them."""

_SCRIPTS = (
    "tables.js",
    "front_state.js",
    "front_rank.js",
    "front_rows.js",
    "front_lede.js",
    "front_page.js",
)


def pages(board: Board) -> Iterator[Page]:
    """The front page."""
    rows, results = board.rows, board.results
    finished = [text for text in results.cells["finished_at"] if text]
    choices = models(rows)
    ratios = frozenset(
        name for metric in choices.headlines.values() for name in ratio_metrics(metric, True)
    )
    shown = columns(rows, ratios)
    yield shell.page(
        links.FRONT,
        "index.html",
        front_style=Markup(shell.asset("front.css")),
        scripts=_SCRIPTS if rows else _SCRIPTS[:1],
        runs=results.runs,
        counts=board.counts,
        notes=board.notes,
        public=board.public,
        alpha=board.alpha,
        last_finished=show.moment(max(finished, default="")),
        document=document(board, shown, choices),
        any_rows=bool(rows),
        columns=shown,
        groups=groups(shown),
        comparisons=[(result, diagram(result, board.styles)) for result in board.found.comparisons],
        absent_entrants=board.found.absent,
        datasets=sorted({row.cohort for row in rows}),
        methods=sorted({(row.entrant, row.reference) for row in rows}),
        tasks=sorted({row.task for row in rows}),
        models=tuple(choices.metrics),
        sizes=sorted({row.size for row in rows}, key=size_order),
        targets=sorted({row.epsilons.target for row in rows if row.epsilons.target is not None}),
        budgetless=any(row.epsilons.target is None for row in rows),
        verdicts=sorted({row.verdict_kind for row in rows}, key=severity),
        unranked=board.unranked,
        incidents=board.incidents[:INCIDENTS],
        more_incidents=max(0, len(board.incidents) - INCIDENTS),
        references=REFERENCES,
    )
