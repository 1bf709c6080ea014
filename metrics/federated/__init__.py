"""Metrics of releases made by several clients, and of detectors of anomalies.

`federated` scores what was sent, how training in rounds went and how each client is served;
`anomaly` scores the detection of the rarer class, `injected_anomalies` that of injected rows.
"""
