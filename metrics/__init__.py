"""Metric plugins, grouped by what they speak about."""
