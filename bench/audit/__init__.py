"""Attacks methods on pairs of neighbouring tables: `bench audit`."""
