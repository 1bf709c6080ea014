"""Survival cohorts: a time and an event indicator to predict, read from packages or public files.

`_deepsurv.py` reads the HDF5 files of the DeepSurv repository, of which there are several.
"""
