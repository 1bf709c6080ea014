"""The conformance kit: checks that the author of a method runs before a review (`bench check`).

What enters is a method class with its hyperparameters; what leaves is a report of checks, each with
what was observed and how to fix it. `subject` runs the method on the toys of `tables`, `contract`
and `privacy` hold the checks, and `kit` runs them all.
"""
