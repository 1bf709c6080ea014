"""What may be shown to everybody."""

from __future__ import annotations

from bench.leaderboard.about import About
from bench.leaderboard.load import Results


def redact(results: Results, about: About) -> tuple[Results, tuple[str, ...]]:
    """The results without what speaks about private rows, and what was left out in words."""
    raise NotImplementedError
