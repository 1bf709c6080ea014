"""Methods whose rows lie with several clients, mostly of the federated distillation paper.

Distillation at each client: `fdd` (DP-SGD), `fdd_cf` (one noisy characteristic function),
`fdd_nodp` (without privacy) and `random_subsampling_dp`, on `_characteristic`. Averaging of models:
`fedavg`, `fedavg_dp` (rows are protected), `fedavg_client_dp` (clients are protected) and
`fdd_fedavg` (distillation, then averaging), on `_averaging`. `_clients` is what all of them share:
the split into clients, distillers, payloads. `anomaly` detects anomalies. A method enters if its
rows are cut into clients and what they send is counted; releases leave with their traffic.
"""
