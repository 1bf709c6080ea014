"""What run directories hold: loaded tables, audits, cards, files of a cell, and their redaction.

Only results and what is below them may be imported. What leaves are `load.Results` (cells and
scores of all runs), `public.redact`, `measures.Measure`, and `show`, which formats numbers.
"""
