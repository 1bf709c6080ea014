"""The command line: `main.py` is the group, one further file per group of commands.

`run.py`: run and score a grid; `runs.py`: commands over run directories; `pages.py`: leaderboard
and dossier; `plugins.py`: list, create and check plugins; `audit.py`, `data.py`, `environments.py`:
the commands of these names. `options.py` has the options and the parameter grammar that several
commands share, `session.py` the progress display of a run.

A command parses its options, calls one function of another room and prints the result: no
computation enters here. Libraries heavier than click are imported inside the commands, so that
`bench --help` takes 0.15 s at most.
"""
