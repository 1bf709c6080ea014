"""Contracts of the harness: data, privacy, release, result, registry, errors."""
