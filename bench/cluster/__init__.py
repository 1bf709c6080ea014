"""Runs on Ray: the only room that imports it.

`driver` plans a grid and carries the plan out, `execute` keeps cells in flight, `tasks` turns them
into Ray tasks, `watcher` stops cells that exceed their limits, `batches` runs many small items (the
refits of audits), `shipping` sends code to the workers of a cluster. Code enters that needs Ray;
what a cell computes is decided in `bench.engine`.
"""
