"""Logging of run directories to MLflow, which is imported in this room only.

`tracker.py` logs the cells of a run during the run, or later (`bench sync`); `fields.py` maps a
cell to tags, parameters and metrics; `own_database.py` adds many cells at once to the
database of a run directory; `server.py` runs the interface of `bench ui`.
The room reads run directories (`bench.results`) and writes none of their tables; what leaves is a
`Tracker`, which the command line hands to the driver as an observer.
"""
