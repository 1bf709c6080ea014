"""The privacy kernel, what it records, and the accounting that follows from the record.

* `kernel.py`: `PrivateData`, the calls that a method makes. Each docstring states the mechanism,
  its sensitivity and its event: `poisson_sum`, `gaussian_sum`, `histograms`, `partition`,
  `partition_sum` and `part_vectors` (sensitivity 2 clip), `delegate`, `raw`; the budget
  (`calibrate`, `reserve_all`). `rowwise.py` evaluates and checks the vectors of rows; `grid.py`
  clips them, rounds them to a public grid and sums them exactly.
* `partition.py`: which part a row belongs to, and models that stay inside the kernel;
  `clients.py`: federated clients with label skew.
* `opening.py`: `open_private` puts a dataset behind the kernel; `noise.py`: random
  bits, and the integer noise that is sampled from them exactly; `compiled.py`: compiles the loops.
* `events.py`: DP events as data; `ledger.py`: all events of a release, and the compositions that
  one row can take part in; `accounting.py`: epsilon of a composition (RDP, PLD), and the smallest
  noise for a target.
* `trusted/`: mechanisms of other libraries whose code was read; `third_party.py`: seeds and
  silences such libraries.

Enter: code that reads private rows, adds noise, or turns events into an epsilon. It imports
`bench.data`, `bench.stats` and `bench.errors`, no method and no results. What leaves is a noisy
answer or a `Ledger`; plugins import the public names from `bench`.
"""
