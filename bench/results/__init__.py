"""What a run leaves behind: the result schema, the run directory, its journal, tables and verdicts.

`records` defines the rows of all tables, `run_directory` is the only writer and `reading` the only
reader of run directories; `opening` opens all their files, which may be a stranger's. `verdicts`
and `audits` turn epsilons into one word, and `integrity` checks it against the stored ledger. Code
enters that describes, stores or judges results without running anything: no method is fitted here
and nothing is planned. The leaderboard, the engine and the command line depend on this room.
"""
