"""Runs on Ray: the only room that imports it.

`driver` plans a grid and carries the plan out, `execute` keeps cells in flight, `tasks` turns them
into Ray tasks (the refits of an audit into many), `watcher` stops cells that exceed their limits,
`processes` knows what belongs to a cell, `ray_cluster` starts or joins Ray, `private_folders` are
where they keep files, `shipping` sends code to the workers of a cluster. Code enters that needs
Ray; what a cell computes is decided in `bench.engine`.
"""
