"""Cards of methods and datasets that a run brought along in `about.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from bench.leaderboard.load import Results


@final
@dataclass(frozen=True)
class About:
    """What is known about the methods and datasets of the runs beside their results."""


def read_about(results: Results) -> About:
    """The cards of all runs."""
    return About()
