"""Pages about one cell or release, and the parts that they share.

`cell` holds what every page about a cell says; `material` gathers a release from a run directory,
`page` writes its dossier. No private row is read.
"""
