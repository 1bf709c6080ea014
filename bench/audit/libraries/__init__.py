"""Libraries audited as shipped: its own call on a data frame, as documented.

The ledger proves our wrappers of a library; people use the library itself. What enters here is a
call of a library in an environment of its own and a canary that only one of two worlds has; what
leaves are counts, kept in `docs/audits/libraries/`, and the pages about them. `target` says what an
audit is, `tables` makes tables and canaries, `calls` holds the calls, `targets` lists them with
their causes, `worker` runs trials inside an environment, `campaign` asks for trials and concludes,
`page` writes. `python -m bench.audit.libraries` runs all of it (`make libraries`).
"""
