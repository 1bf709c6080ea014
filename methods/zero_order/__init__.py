"""Zero-order dataset condensation (Thakur et al.), as published: nothing here is proven private.

- `zero_order_dc`: the method, its hyperparameters and its claim.
- `_setup`: real rows as teachers take them, units of the columns, initial times.
- `_losses`: the losses of synthetic rows and their gradients by the teacher's predictions.
- `_teachers`: the models that are fitted and asked.
- `_differences`: symmetric finite differences of a fitted model.
- `_tree_kernels`: the same for sums of trees, compiled with numba.
- `_descent`: gradients, Adam's steps and the choice of the best step.
- `_privacy`: clipping, noise levels and accounting as the paper claims them.
"""
