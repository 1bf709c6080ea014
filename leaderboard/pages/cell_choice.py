"""Which cells get a page of their own: a site for 20,000 cells must stay small and quick."""

from __future__ import annotations

from bench.leaderboard.tables.load import GROUP, Results


def chosen_cells(results: Results, limit: int) -> tuple[str, ...]:
    """Keys of at most `limit` cells: one seed of every row first, then the next seed."""
    cells = results.cells
    turn = cells.groupby(["entrant", *GROUP], dropna=False, sort=False).cumcount()
    ordered = cells.assign(turn=turn).sort_values("turn", kind="stable")
    return tuple(ordered["key"].iloc[:limit])
