"""Audits: attacks on a method that give a lower bound of its epsilon (`bench audit`).

An audit is a kind of cell. What enters is a cell with an attack; what leaves is its outcome, for
the run directory, and a report. `canaries` are planted in the table, `trials` fits the method with
and without them, `scorers` turns releases into numbers, `attacks` chooses canary, scorer and
threshold, `two_worlds` and `one_run` compute bounds, `tradeoff` tests them against what a ledger
proves, `audits` plans audits and asks for their trials, `report` words the verdict, and
`self_test` audits known answers. `transcript_attack` attacks the kernel's noisy answers instead of
releases: `transcripts` records what a canary moves, `replays` draws the noise again. `foreign`
compares with the auditor of another project. `libraries` attacks calls of libraries without our
wrappers; they are no cells.
"""
