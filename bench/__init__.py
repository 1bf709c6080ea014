"""A benchmark of differentially private synthetic data and dataset condensation."""

__version__ = "0.1.0"
