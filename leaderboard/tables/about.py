"""What the runs say about their methods and datasets, joined for the pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from bench.errors import StoreError
from bench.leaderboard.tables.load import TUNED, Results
from bench.plugins.description import (
    DatasetDescription,
    Identity,
    MethodDescription,
)
from bench.results.opening import in_the_run
from bench.results.reading import read_descriptions


@final
@dataclass(frozen=True)
class About:
    """What is known about the methods and datasets of the runs beside their results."""

    methods: Mapping[str, MethodDescription] = field(default_factory=dict)
    """By the plugin's name."""
    datasets: Mapping[Identity, DatasetDescription] = field(default_factory=dict)
    open: frozenset[tuple[Path, Identity]] = frozenset()
    """Datasets that a run says anybody may have, with the directory of that run."""
    notes: tuple[str, ...] = ()
    """What could not be read."""

    def is_open(self, directory: Path | None, identity: Identity) -> bool:
        """Return True where the run of a cell says that anybody may have the rows."""
        return directory is not None and (directory, identity) in self.open


def identity_of(cell: Mapping[str, Any]) -> Identity:
    """Return the dataset of a cell; earlier versions kept no name beside the label."""
    return cell["dataset_name"] or cell["dataset"], cell["dataset_parameters"]


def read_about(results: Results) -> About:
    """Read the descriptions of all runs; the latest run wins where several describe one plugin."""
    methods: dict[str, MethodDescription] = {}
    datasets: dict[Identity, DatasetDescription] = {}
    opened: set[tuple[Path, Identity]] = set()
    notes = []
    for name, directory in zip(results.runs, results.directories, strict=True):
        try:
            described = read_descriptions(directory)
        except StoreError as problem:
            notes.append(
                f"the descriptions of run {name} are left out: {in_the_run(problem, directory)}"
            )
            continue
        if described is None:
            continue
        methods |= {method.name: method for method in described.methods}
        datasets |= {dataset.identity: dataset for dataset in described.datasets}
        opened |= {(directory, dataset.identity) for dataset in described.datasets if dataset.open}
    return About(methods, datasets, frozenset(opened), tuple(notes))


def mark_tuned(results: Results, about: About) -> Results:
    """Add the column `TUNED`: True where a method's defaults were chosen with the dataset in view.

    A method without a card is not known to be tuned anywhere.
    """
    chosen = {name: frozenset(card.tuned_on) for name, card in about.methods.items()}
    cells = results.cells
    names = cells["dataset_name"].where(cells["dataset_name"] != "", cells["dataset"])
    tuned = [
        dataset in chosen.get(method, ())
        for method, dataset in zip(cells["method"], names, strict=True)
    ]
    return replace(results, cells=cells.assign(**{TUNED: tuned}))
