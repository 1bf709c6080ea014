"""Statistics of audits and comparisons: Holm's correction, exact intervals and tests, bounds.

What enters is counts, scores and p-values; what leaves is bounds and p-values. Nothing here knows
of datasets, methods or ledgers, and nothing is imported but numpy, SciPy and the errors.
"""
