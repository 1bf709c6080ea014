"""The first table of the front page: the best sound method of each task and target epsilon.

All numbers are those of `ranking.quantities`, over the groups of that task and target.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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

MOST = 12
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
    beaten: float | None
    """Its win rate; None likewise."""
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

    @property
    def trusted(self) -> str:
        """The library that the proof trusts, below the kind of its verdict; mostly empty."""
        return self.verdict.removeprefix(self.verdict_kind).strip()

    @property
    def authors(self) -> str:
        """First author of its paper: `Zheng et al.`; empty where there is no paper."""
        first, comma, _ = ("" if self.card is None else self.card.paper).partition(", ")
        if not comma or first.startswith("none"):
            return ""
        return first if first.endswith("et al.") or " and " in first else f"{first} et al."


@final
@dataclass(frozen=True)
class LeadLine:
    """One task and target epsilon."""

    task: str
    target: float
    methods: tuple[LeadMethod, ...]
    """Several for a tie; empty where no sound method has a score."""
    otherwise: tuple[str, ...]
    """The best methods if those are ranked too whose defaults were chosen with a dataset of this
    line in view; empty where these are the same."""
    datasets: int


@final
@dataclass(frozen=True)
class Lead:
    """Lines with methods ranked only on datasets that were not in view, and on all."""

    lines: tuple[LeadLine, ...]
    with_tuned: tuple[LeadLine, ...]
    """The same if methods are ranked on all datasets; empty where nothing is left out."""
    tuned: Mapping[str, tuple[str, ...]]
    """Sound methods with the datasets on which they are not ranked, because their defaults were
    chosen with these in view."""
    more: int
    """Number of lines that were left out."""

    @property
    def by_task(self) -> tuple[tuple[LeadLine, ...], ...]:
        """The lines of each task."""
        return _by_task(self.lines)

    @property
    def by_task_with_tuned(self) -> tuple[tuple[LeadLine, ...], ...]:
        """The same for methods ranked on all datasets."""
        return _by_task(self.with_tuned)


def _by_task(lines: Sequence[LeadLine]) -> tuple[tuple[LeadLine, ...], ...]:
    return tuple(tuple(own) for _, own in itertools.groupby(lines, key=lambda line: line.task))


def lead(board: Board) -> Lead:
    """Return the table of the best sound methods."""
    lines = _lines(board, board.places)
    with_tuned: tuple[LeadLine, ...] = ()
    if any(row.tuned for row in board.rows):
        results = board.results
        cells = results.cells.assign(**{TUNED: False})
        with_tuned = _lines(board, placements(ranking_table(cells, results.scores)))
        lines = tuple(map(_compared, lines, with_tuned))
    return Lead(lines[:MOST], with_tuned[:MOST], _tuned(board), max(0, len(lines) - MOST))


def _compared(line: LeadLine, with_tuned: LeadLine) -> LeadLine:
    """Return the line with those that are best if nothing is left out."""
    best = tuple(one.label for one in with_tuned.methods)
    same = best == tuple(one.label for one in line.methods)
    return replace(line, otherwise=() if same else best)


def _tuned(board: Board) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for row in board.rows:
        if row.tuned and row.epsilons.target is not None and is_sound(row.verdict):
            found.setdefault(row.label, set()).add(row.dataset)
    return {label: tuple(sorted(found[label])) for label in sorted(found)}


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
    best = [_method(board, rows, one.label, one) for one in quantities.leaders(order)]
    if not best:
        scored = {
            row.label
            for row in rows
            if is_sound(row.verdict) and row.headline is not None and row.headline.value is not None
        }
        # Who has nobody to be ranked with is named, but not called the best.
        best = [_method(board, rows, label, None) for label in sorted(scored)][:1]
    return LeadLine(
        task=task,
        target=target,
        methods=tuple(best),
        otherwise=(),
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
        beaten=None if standing is None else standing.beaten,
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
