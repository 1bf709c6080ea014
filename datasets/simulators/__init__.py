"""Simulated tables that stand in for closed datasets, with the truth behind every row.

A plugin `<name>_sim.py` turns a model, `_<name>_model.py`, into a dataset. `_simulation.py` and
`_factor_model.py` are shared. The numbers of a model come from publications, never from rows.
`worst_case.py` stands for nothing: it is a table for audits.
"""
