"""What an attack got right and wrong in the two worlds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from bench.errors import InputError


@final
@dataclass(frozen=True)
class Tally:
    """Calls of an attack on trials that neither chose it nor depend on one another."""

    hits: int
    """Trials with the canary that were called `in`."""
    positives: int
    """Trials with the canary."""
    false_alarms: int
    """Trials without the canary that were called `in`."""
    negatives: int
    """Trials without the canary."""

    def __post_init__(self) -> None:
        if self.positives < 1 or self.negatives < 1:
            raise InputError(
                f"{self.positives} trials with the canary and {self.negatives} without: an audit "
                "needs at least one of each; ask for more trials"
            )
        if not (0 <= self.hits <= self.positives and 0 <= self.false_alarms <= self.negatives):
            raise InputError(f"{self}: more calls than trials, or fewer than none")

    @property
    def true_positives(self) -> float:
        """Share of trials with the canary that were called `in`."""
        return self.hits / self.positives

    @property
    def false_positives(self) -> float:
        """Share of trials without the canary that were called `in`."""
        return self.false_alarms / self.negatives

    @property
    def false_negatives(self) -> float:
        """Share of trials with the canary that were called `out`."""
        return 1.0 - self.true_positives
