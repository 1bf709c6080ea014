"""One page a method."""

from __future__ import annotations

from collections.abc import Iterator

from bench.leaderboard.board import Board
from bench.leaderboard.shell import Page


def pages(board: Board) -> Iterator[Page]:
    """One page a method."""
    yield from ()
