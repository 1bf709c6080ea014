"""Cells without Ray: which there are, what they are keyed by, how one is fitted, judged and scored.

`grid` lists cells and `tuning` those of one method's trials, `keys` and `code` hash what a result
depends on, `plan` decides what is left to do, `fit`, `score` and `cell` compute one cell under
`limits`, `procedure` one of many items (an audit); `isolation` gives each fit a process of its own;
`merge`, `verify` and `compare` work on finished run directories. Code enters that handles one cell
or one directory; whatever starts workers or machines belongs to `bench.cluster`.
"""
