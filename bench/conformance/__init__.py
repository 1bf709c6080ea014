"""The conformance kit: checks that the author of a method runs before a review (`bench check`).

What enters is a method class with its hyperparameters; what leaves is a report of checks, each with
what was observed and how to fix it. `subject` runs the method on the toys of `tables`; `contract`,
`privacy` and `coupling` hold the checks, which compare releases by `released` and models of parts
by `model_state`; `kit` runs them all. `self_test` runs the kit on the methods of `mistakes`.
"""
