"""The rows of the leaderboard as files for other programs: CSV, Parquet, Markdown and LaTeX.

Rows and comparisons enter; text or bytes leave.
"""
