"""How faithful a release is: its distributions beside those of the training rows.

`columns` (single columns), `column_pairs` (correlations and associations), `discriminator_and_pmse`
(all columns together), `embedding` (neighbours and t-SNE) and `consistency` (declared rules). They
share `_pooled`: both tables decoded, released rows weighted to the real class shares. Distances
between samples are biased upwards; their intervals come from `Estimate.distance_interval`.
"""
