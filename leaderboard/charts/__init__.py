"""Figures as SVG text, without a plotting library or scripts.

Panels over all results are computed from rows of the leaderboard (`panels`, `tradeoffs`) and drawn
by `draw`; figures of one cell come from its files (`cell_panels`, `cell_figures`). What leaves is
markup in which every text is escaped.
"""
