"""Paired tests over the test rows of one dataset, as `bench compare` computes them.

With one dataset there is nothing to say about other datasets, and hardly anything about blocks of
it: what can be tested is whether another choice of test rows would turn two methods round. Both are
scored on the same resamples of the same test rows. `bench compare` computes the tests, since they
need the metrics; the pages show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class PairedDifference:
    """First minus second on the same test rows, at one IPC and target epsilon."""

    ipc: str
    target: float | None
    metric: str
    first: str
    second: str
    seeds: int
    difference: float
    low: float
    high: float
    p_holm: float
    """Over test rows, corrected for all differences of `PairedTests`."""
    p_seeds: float | None = None
    """Paired t-test over seeds, not corrected; None for fewer than two seeds."""

    def better(self, alpha: float) -> str:
        """Return the better method if the difference is significant; otherwise empty."""
        if self.p_holm >= alpha or self.difference == 0:
            return ""
        return self.first if self.difference > 0 else self.second


@final
@dataclass(frozen=True)
class Rival:
    """One method against another over all their groups."""

    label: str
    won: int
    lost: int
    """Groups in which the other is significantly better."""
    groups: int
    largest_p: float
    """Largest corrected p-value of these groups."""


@final
@dataclass(frozen=True)
class PairedTests:
    """All pairs of sound methods of one dataset, or the reason why there are none."""

    alpha: float
    differences: tuple[PairedDifference, ...]
    problem: str = ""

    def rivals(self, label: str) -> tuple[Rival, ...]:
        """Return all methods that one was compared with."""
        gathered: dict[str, list[PairedDifference]] = {}
        for one in self.differences:
            if label in (one.first, one.second):
                other = one.second if one.first == label else one.first
                gathered.setdefault(other, []).append(one)
        return tuple(
            Rival(
                other,
                sum(one.better(self.alpha) == label for one in members),
                sum(one.better(self.alpha) == other for one in members),
                len(members),
                max(one.p_holm for one in members),
            )
            for other, members in gathered.items()
        )

    def finding(self, leaders: Sequence[str]) -> str:
        """Return in one sentence what the tests say about the best method."""
        if not self.differences or not leaders:
            return ""
        best = leaders[0]
        rivals = self.rivals(best)
        won = sum(rival.won for rival in rivals)
        tested = sum(rival.groups for rival in rivals)
        if not tested:
            return ""
        return (
            f"{best} is significantly better in {won} of its {tested} comparisons (level "
            f"{self.alpha:g}, Holm's correction over all {len(self.differences)})."
        )
