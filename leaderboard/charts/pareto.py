"""The Pareto front: what nothing else beats in both respects."""

from __future__ import annotations

import math
from collections.abc import Sequence


def pareto(costs: Sequence[float], gains: Sequence[float]) -> tuple[int, ...]:
    """Places of the points that no other dominates, by rising cost.

    A point dominates another if it costs no more, gains no less, and is better in one of the two.
    Equal points do not dominate each other: all of them are on the front. What is not a number is
    never on it.
    """
    known = [
        place
        for place, (cost, gain) in enumerate(zip(costs, gains, strict=True))
        if not (math.isnan(cost) or math.isnan(gain))
    ]
    front: list[int] = []
    best = -math.inf
    for place in sorted(known, key=lambda place: (costs[place], -gains[place])):
        last = front[-1] if front else None
        equal = last is not None and (costs[place], gains[place]) == (costs[last], gains[last])
        if equal or gains[place] > best:
            front.append(place)
            best = gains[place]
    return tuple(front)
