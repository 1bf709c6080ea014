"""Audits: attacks on a method that give a lower bound of its epsilon (`bench audit`).

What enters is a method, a dataset and a number of trials; what leaves is a row of `audits.parquet`
and its report. `canaries` are planted in the table, `trials` fits the method with and without them,
`scorers` turns releases into numbers, `attacks` chooses canary, scorer and threshold, `two_worlds`
and `one_run` compute bounds, `tradeoff` tests them against what a ledger proves, `audits` runs an
audit from request to row, `report` words its verdict, and `self_test` audits known answers.
"""
