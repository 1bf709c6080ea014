"""Dataset plugins: one file a dataset, its schema in a TOML file beside it."""
