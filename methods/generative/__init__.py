"""Generators trained against noisy summaries of the rows, one file per method.

`dp_merf` matches noisy means of random Fourier features, `dp_hp` those of Hermite features,
`dp_ntk` those of gradients of a random network, `dp_kernel` new Fourier features of a new sample in
each step, and `dp_sinkhorn` follows noisy gradients of an optimal transport loss. The generator
itself is `methods/_shared/generator`.
"""
