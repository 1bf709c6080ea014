"""Helpers that several families of methods share; nothing here is a plugin.

- `cox`: Cox's model by Newton's method (zero_order, private_teacher).
- `extractors`: random feature extractors (ndpdc, federated).
- `generator`: a conditional generator of rows (generative, federated).
- `parameters`: checks of hyperparameters.
- `smartnoise`: environment and errors of methods that wrap smartnoise-synth (pate, marginal).
"""
