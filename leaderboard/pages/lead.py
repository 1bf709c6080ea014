"""The first table of the front page: the best sound method of each task and target epsilon.

All numbers are those of `ranking.quantities`, over the groups of that task and target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import pandas as pd

from bench.leaderboard.pages.board import Board
from bench.leaderboard.ranking import quantities
from bench.leaderboard.ranking.quantities import Standing
from bench.leaderboard.ranking.rank import is_sound, placements, ranking_table
from bench.leaderboard.ranking.rows import Row, ceilings, severity
from bench.leaderboard.tables.load import TUNED
from bench.leaderboard.tables.measures import Span
from bench.plugins.description import MethodDescription

MOST = 8
"""Number of lines of the table; the filters show the other targets."""


@final
@dataclass(frozen=True)
class LeadMethod:
    """A best method, with what is proven about it there."""

    label: str
    reference: str
    card: MethodDescription | None
    mean_rank: float | None
    """None where it is the only sound method."""
    among: int
    of_real: float | None
    claimed: Span | None
    proven: Span | None
    audited: Span | None
    detectable: float | None
    verdict: str
    verdict_kind: str
    seconds: float | None
    datasets: int

    @property
    def by_maintainers(self) -> bool:
        """Whether the maintainers of the benchmark designed it."""
        return self.card is not None and self.card.by_maintainers and not self.reference


@final
@dataclass(frozen=True)
class LeadLine:
    """One task and target epsilon."""

    task: str
    target: float
    methods: tuple[LeadMethod, ...]
    """Several for a tie; empty where no sound method has a score."""
    left_out: tuple[str, ...]
    """Methods without a rank here, because their defaults were chosen with the datasets in view."""
    datasets: int


@final
@dataclass(frozen=True)
class Lead:
    """Lines with methods ranked only on datasets that were not in view, and on all."""

    lines: tuple[LeadLine, ...]
    with_tuned: tuple[LeadLine, ...]
    """The same if methods are ranked on all datasets; empty where nothing is left out."""
    more: int
    """Number of lines that were left out."""


def lead(board: Board) -> Lead:
    """Return the table of the best sound methods."""
    lines = _lines(board, board.places)
    tuned = any(row.tuned for row in board.rows)
    with_tuned: tuple[LeadLine, ...] = ()
    if tuned:
        results = board.results
        cells = results.cells.assign(**{TUNED: False})
        with_tuned = _lines(board, placements(ranking_table(cells, results.scores)))
    return Lead(lines[:MOST], with_tuned[:MOST], max(0, len(lines) - MOST))


def _lines(board: Board, places: pd.DataFrame) -> tuple[LeadLine, ...]:
    grouped: dict[tuple[str, float], list[Row]] = {}
    for row in board.rows:
        if row.epsilons.target is not None:
            grouped.setdefault((row.task, row.epsilons.target), []).append(row)
    task_of = {row.dataset: row.task for row in board.rows}
    tasks = places["shown_dataset"].map(task_of)
    lines = []
    for (task, target), rows in sorted(grouped.items()):
        chosen = places[(tasks == task) & (places["eps_target"] == target)]
        lines.append(_line(board, task, target, rows, chosen))
    # The smallest target of every task first, so that a short table has all tasks.
    by_task: dict[str, int] = {}
    turns = []
    for line in lines:
        by_task[line.task] = by_task.get(line.task, -1) + 1
        turns.append((by_task[line.task], line))
    kept = [line for _, line in sorted(turns, key=lambda pair: pair[0])][:MOST]
    rest = [line for line in lines if line not in kept]
    return (*(line for line in lines if line in kept), *rest)


def _line(
    board: Board, task: str, target: float, rows: Sequence[Row], places: pd.DataFrame
) -> LeadLine:
    reals = [row for row in board.rows if row.epsilons.target is None]
    order = quantities.standings(places, [*rows, *reals], board.alpha)
    named = places.loc[places["rank"].notna(), ["shown_label", "shown_dataset"]]
    ranked = set(named.itertuples(index=False, name=None))
    best = [_method(board, rows, one.label, one) for one in quantities.leaders(order)]
    if not best:
        scored = {
            row.label
            for row in rows
            if is_sound(row.verdict) and row.headline is not None and row.headline.value is not None
        }
        # Who has nobody to be ranked with is named, but not called the best.
        best = [_method(board, rows, label, None) for label in sorted(scored)][:1]
    chosen = {one.label for one in best}
    left_out = {
        row.label
        for row in rows
        if row.tuned and is_sound(row.verdict) and (row.label, row.dataset) not in ranked
    }
    return LeadLine(
        task=task,
        target=target,
        methods=tuple(best),
        left_out=tuple(sorted(left_out - chosen)),
        datasets=len({row.dataset for row in rows}),
    )


def _method(board: Board, rows: Sequence[Row], label: str, standing: Standing | None) -> LeadMethod:
    own = [row for row in rows if row.label == label]
    verdict = max((row.verdict for row in own), key=severity)
    seconds = [row.fit_seconds for row in own if row.fit_seconds is not None]
    audits = [row.epsilons.detectable for row in own if row.epsilons.detectable is not None]
    worst = next(row for row in own if row.verdict == verdict)
    share = standing.of_real if standing else _share(own, ceilings(board.rows))
    return LeadMethod(
        label=label,
        reference=own[0].reference,
        card=board.about.methods.get(own[0].method),
        mean_rank=None if standing is None else standing.mean_rank,
        among=0 if standing is None else round(standing.among),
        of_real=share,
        claimed=_joined(row.epsilons.claimed for row in own),
        proven=_joined(row.epsilons.proven for row in own),
        audited=_joined(row.epsilons.audited for row in own),
        detectable=max(audits, default=None),
        verdict=verdict,
        verdict_kind=worst.verdict_kind,
        seconds=sum(seconds) / len(seconds) if seconds else None,
        datasets=len({row.dataset for row in own}) if standing is None else standing.datasets,
    )


def _share(rows: Sequence[Row], tops: Mapping[tuple[str, str], Row]) -> float | None:
    shares = [(row.dataset, quantities.headline_of_real(row, tops)) for row in rows]
    return quantities.over_datasets((name, share) for name, share in shares if share is not None)


def _joined(spans: Iterable[Span | None]) -> Span | None:
    known = [span for span in spans if span is not None]
    if not known:
        return None
    return Span(min(span.low for span in known), max(span.high for span in known))
