"""From cells to rows of the leaderboard: averages over seeds, ranks, tests, changes between runs.

Pure functions over the tables of `tables`; nothing is read or written. What leaves are `rows.Row`,
the placements of `rank`, the comparisons of `significance`, and the changes of `changes`.
"""
