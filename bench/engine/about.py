"""Writes `about.json` of a run: the descriptions of its methods and datasets."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from bench.errors import StoreError
from bench.plugins import registry
from bench.plugins.description import (
    FILE,
    DatasetDescription,
    Descriptions,
    Identity,
    describe_dataset,
    describe_method,
)
from bench.results.reading import read_descriptions
from bench.results.records import Variant
from bench.results.writing import write_atomically, writing


def write_descriptions(
    directory: Path, methods: Iterable[Variant], datasets: Iterable[Variant]
) -> None:
    """Add the descriptions of these plugins to those that the run directory has already."""
    names = dict.fromkeys(variant.name for variant in methods)
    found = filter(None, map(_dataset, datasets))
    described = Descriptions(
        tuple(describe_method(registry.method_class(name)) for name in names),
        tuple({dataset.identity: dataset for dataset in found}.values()),
    )
    _write(directory, _existing(directory).joined(described))


def join_descriptions(directory: Path, sources: Mapping[Path, Collection[Identity]]) -> None:
    """Join the descriptions of several runs, given with the datasets of each run's cells.

    A run that does not describe one of its datasets does not say that anybody may have its rows:
    the joined run does not say so either.
    """
    joined, undescribed = Descriptions(), set[Identity]()
    for source, identities in sources.items():
        described = _existing(source)
        joined = joined.joined(described)
        undescribed |= set(identities) - {dataset.identity for dataset in described.datasets}
    datasets = tuple(
        dataclasses.replace(dataset, open=dataset.open and dataset.identity not in undescribed)
        for dataset in joined.datasets
    )
    if joined.methods or datasets:
        _write(directory, Descriptions(joined.methods, datasets))


def _dataset(variant: Variant) -> DatasetDescription | None:
    """Return None where the dataset cannot say what it is: its cells fail with the reason."""
    parameters = dict(variant.parameters)
    try:
        return describe_dataset(registry.build_source(variant.name, parameters), parameters)
    except Exception:
        # Of a plugin, anything. Without a description its rows count as nobody's but the owner's.
        return None


def _existing(directory: Path) -> Descriptions:
    """Read those of a run directory; a damaged file counts as none and is written anew."""
    try:
        return read_descriptions(directory) or Descriptions()
    except StoreError:
        return Descriptions()


def _write(directory: Path, descriptions: Descriptions) -> None:
    with writing(directory / FILE):
        write_atomically(directory / FILE, descriptions.to_json().encode())
