"""Dataset plugins: one module per dataset, with its public declaration in a TOML file beside it.

The folders are `tables` (classification), `survival`, `images`, `simulators` and `closed` (files
that only authorised people can obtain). A module is a plugin, named like its dataset, unless its
name starts with an underscore. Datasets import from `bench` and from this package only, and no data
belongs here: a loader reads an installed package, a simulator, or the user's data folder.
"""
