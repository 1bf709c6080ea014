"""The front page: one table, the ranking, and who can be told apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from bench.leaderboard import export, links, plots, shell
from bench.leaderboard.aggregate import Row, size_order
from bench.leaderboard.board import Board
from bench.leaderboard.critical_difference import diagram
from bench.leaderboard.rank import REFERENCES
from bench.leaderboard.shell import Page


@final
@dataclass(frozen=True)
class Column:
    """A metric beside the headline."""

    metric: str
    direction: str
    family: str


def pages(board: Board) -> Iterator[Page]:
    """The front page."""
    rows, results = board.rows, board.results
    finished = [text for text in results.cells["finished_at"] if text]
    yield shell.page(
        links.FRONT,
        "index.html",
        script="page.js",
        runs=results.runs,
        counts=board.counts,
        notes=board.notes,
        last_finished=max(finished, default=""),
        rows=rows,
        columns=_metric_columns(rows),
        standings=board.standings,
        comparisons=[(result, diagram(result, board.styles)) for result in board.found.comparisons],
        absent_entrants=board.found.absent,
        datasets=sorted({row.cohort for row in rows}),
        methods=sorted({row.entrant for row in rows}),
        sizes=sorted({row.size for row in rows}, key=size_order),
        targets=sorted({row.epsilons.target for row in rows if row.epsilons.target is not None}),
        verdicts=sorted({row.verdict_kind for row in rows}),
        unranked=board.unranked,
        incidents=board.incidents,
        figures=plots.figures(rows, board.styles),
        legend=plots.legend(rows, board.styles),
        references=REFERENCES,
    )


def _metric_columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    known = {m.metric: m for row in rows for m in row.measures.values()}
    names = export.metric_names(rows, beside_headlines=True)
    return tuple(Column(name, known[name].direction, known[name].family) for name in names)
