"""Plots over all results."""

from __future__ import annotations

from collections.abc import Iterator

from bench.leaderboard.board import Board
from bench.leaderboard.shell import Page


def pages(board: Board) -> Iterator[Page]:
    """Plots over all results."""
    yield from ()
