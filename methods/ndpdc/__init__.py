"""Condensation by matching sums or means of real rows, with and without privacy.

- `ldpdc`: noisy sums of the rows themselves (Zheng and Li, Algorithm 1).
- `ndpdc`: noisy sums of random features (Zheng and Li, Algorithm 2).
- `ndpdc_dos`: all noisy sums bought first, then used again and again (Zheng et al. 2025).
- `dm`: distribution matching without privacy (Zhao and Bilen).
- `_matching`: the descents of `ndpdc`, `ndpdc_dos` and `dm`; imports torch.
- `_time_strata`: event status by time bin, which stand in for classes in survival datasets.
"""
