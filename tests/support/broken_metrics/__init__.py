"""Metrics with one fault each, as a third-party package would bring them."""
