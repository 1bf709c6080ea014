"""Methods that release noisy marginals and draw rows from a model of them.

`marginals` is the floor: independent columns. `noisy_tree`, `mst_kernel`, `aim_kernel`, `privbayes`
and `privsyn` measure and choose by the kernel alone. `mst`, `aim` and `mwem` let smartnoise-synth
choose and measure marginals in its own environment. `_bins` cuts columns by the public schema, or
at noisy places that the kernel released (`_discretise`); `_graphical_model` fits a junction tree to
the measured marginals and draws rows of any class. `projection/` fits rows, instead of a model, to
marginals chosen in rounds.
"""
