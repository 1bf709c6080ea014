"""Private aggregation of teacher ensembles (PATE) and conditional GANs.

`pate_ctgan_sound` is written on the kernel and proven. `pate_gan`, `pate_ctgan`, `dp_ctgan` and
`quail` call smartnoise-synth in its own environment and stay unproven; `_smartnoise` holds the rows
that its networks are given and the rows of each class that come out of them.
"""
