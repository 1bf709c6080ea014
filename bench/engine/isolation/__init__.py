"""A process of its own for every fit, so that no cell can change what another one computes.

`server` is a process with the libraries loaded in which no plugin ever runs; it forks one process
for each fit. `processes` is its other end: it starts the server, asks for fits, and reads what they
return. `wire` is the language between them. A method runs in a forked process only; proofs,
verdicts and metrics are computed where no code of a method has run. Code enters that starts, feeds
or reads such a process; what a fit does is `bench.engine.fit`.
"""
