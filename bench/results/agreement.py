"""When two results are the same: numbers up to rounding, scores by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.results.records import ScoreRow

TOLERANCE = 1e-9
"""Scores closer than this (relative, or absolute near zero) are the same."""

_NAMED = 5


def score_differences(one: Sequence[ScoreRow], two: Sequence[ScoreRow]) -> Iterator[str]:
    """Numbers that both have and that are not the same; the worst first, a few by name."""
    theirs = {score.metric: score for score in two}
    found = []
    for score in one:
        other = theirs.get(score.metric)
        if other is None:
            continue
        for name in ("value", "low", "high"):
            a, b = getattr(score, name), getattr(other, name)
            if not close(a, b):
                known = a is not None and b is not None
                label = score.metric if name == "value" else f"{score.metric} ({name})"
                gap = abs(a - b) if known else math.inf
                found.append((gap, f"{label} {_short(a)} and {_short(b)}"))
    found.sort(key=lambda item: -item[0])
    yield from (text for _, text in found[:_NAMED])
    if len(found) > _NAMED:
        yield f"{len(found) - _NAMED} more numbers"


def close(one: float | None, two: float | None) -> bool:
    """The same number up to rounding; an absent one equals an absent one."""
    if one is None or two is None:
        return one is two
    return math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _short(value: float | None) -> str:
    return "absent" if value is None else f"{value:.10g}"
