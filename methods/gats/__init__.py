"""Geometrically aggregated training samples (Yang et al.): convex combinations of real rows.

- `gats`: the method, its hyperparameters and the loop over attempts.
- `_rows`: constituents, coefficients and combinations.
- `_filter`: correlation of combined rows with real rows.
"""
