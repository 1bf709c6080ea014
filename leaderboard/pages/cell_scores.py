"""The scores of one cell as the page shows them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from bench.leaderboard.pages import show
from bench.plugins.metric import Direction, Family
from bench.results.records import ScoreRow


@final
@dataclass(frozen=True)
class Line:
    """One number."""

    metric: str
    arrow: str
    better: str
    value: str
    interval: str
    limit: str
    accepted: bool | None
    """Against the paper's threshold; None where there is none."""
    remark: str


@final
@dataclass(frozen=True)
class Block:
    """The numbers of one family: those that the leaderboard shows, and the others."""

    family: str
    first: tuple[Line, ...]
    others: tuple[Line, ...]


@final
@dataclass(frozen=True)
class Absence:
    """A reason with all the numbers that have it."""

    reason: str
    metrics: tuple[str, ...]


def blocks(scores: Sequence[ScoreRow]) -> tuple[Block, ...]:
    """All numbers with a value, by family."""
    known = [family.value for family in Family]
    names = [*known, *sorted({score.family for score in scores} - set(known))]
    found = []
    for name in names:
        own = sorted(
            (s for s in scores if s.family == name and s.value is not None), key=lambda s: s.metric
        )
        if own:
            first = tuple(_line(score) for score in own if score.shown)
            others = tuple(_line(score) for score in own if not score.shown)
            found.append(Block(name, first, others))
    return tuple(found)


def absences(scores: Sequence[ScoreRow]) -> tuple[Absence, ...]:
    """Numbers without a value, by reason."""
    missing = sorted((s for s in scores if s.value is None), key=lambda s: (s.reason, s.metric))
    return tuple(
        Absence(reason or "no reason given", tuple(score.metric for score in own))
        for reason, own in itertools.groupby(missing, key=lambda score: score.reason)
    )


def _line(score: ScoreRow) -> Line:
    interval = ""
    if score.low is not None and score.high is not None:
        interval = f"[{show.number(score.low)}, {show.number(score.high)}]"
    return Line(
        score.metric,
        show.arrow(score.direction),
        show.better(score.direction),
        show.number(score.value),
        interval,
        "" if score.limit is None else show.number(score.limit),
        _accepted(score),
        score.remark,
    )


def _accepted(score: ScoreRow) -> bool | None:
    if score.limit is None or score.value is None or score.direction == Direction.NEUTRAL.value:
        return None
    if score.direction == Direction.HIGHER.value:
        return score.value >= score.limit
    return score.value <= score.limit
