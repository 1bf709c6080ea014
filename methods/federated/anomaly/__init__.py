"""Federated detection of anomalies: `federated_anomaly` is the method with its ways of training,
`_autoencoder` the network, `_secure_aggregation` the protocol by which the server learns sums only.
"""
