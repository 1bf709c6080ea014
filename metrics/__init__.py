"""Metric plugins: scores of a release on real rows.

One folder per question: `utility` (how useful), `survival` (how useful for survival analysis),
`fidelity` (how faithful), `privacy` (how attackable, in `membership` and `disclosure`) and
`federated`. A metric is a class with a name, a family, a definition that cites paper and equation,
and declared outputs; it raises `NotComputable` with a reason where it has no value. Metrics import
from `bench`, `_shared` and their own folder only; result tables are all that leaves.
"""
