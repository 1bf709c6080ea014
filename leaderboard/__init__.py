"""Compiles result tables into a leaderboard. Knows the result schema and nothing else."""
