"""Methods that project adaptively chosen noisy marginals on rows: one loop, several projections.

`_adaptive` holds what they share: the kernel chooses the marginals that the current rows miss most,
counts them with noise, and the rows are fitted again. `rap` fits relaxed rows and `gem` a generator
of them, both by gradients (`_mixture`); `private_gsd` searches for rows without any (`_genetic`).
Everything but the choices and the counts is post-processing.
"""
