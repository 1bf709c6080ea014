"""One release of a user's table to give away: all rows, secret noise, charged before it is made.

The method runs by `fit.synthesize`, as every cell does; here is what comes around it. The run
directory beside the output holds the one cell, so that the dossier, `bench verify` and `bench
export` read it like any other run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from bench.data.dataset import Dataset, Declaration
from bench.data.splits import ALL
from bench.engine import keys
from bench.engine.about import write_descriptions
from bench.engine.cell import finish_cell
from bench.engine.fit import FitResult, fit_cell
from bench.engine.grid import Grid
from bench.engine.options import manifest
from bench.errors import BenchError, InputError
from bench.plugins import registry
from bench.plugins.release import Release, Rows
from bench.privacy.accounting import Budget
from bench.results.records import Cell, CellRow, Status, Variant
from bench.results.run_directory import RunStore
from bench.results.spending import RELEASED, HeldSpending

_LARGEST = 100_000_000
"""Rows of a release."""


@final
@dataclass(frozen=True)
class ReleaseOrder:
    """What is to be released."""

    table: str
    """Name of the user's table."""
    method: Variant
    budget: Budget
    rows: int | None = None
    """Number of rows; None asks for as many as the table declares."""
    private_counts: bool = False

    def __post_init__(self) -> None:
        if self.rows is not None and not 1 <= self.rows <= _LARGEST:
            raise InputError(f"--rows {self.rows}: expected a number from 1 to {_LARGEST:,}")

    def cell(self, dataset: Dataset) -> Cell:
        """Return the cell of the release."""
        per_class = None if self.rows is None else self.per_class(dataset)
        more = per_class is not None and any(
            asked > known for asked, known in zip(per_class, dataset.counts.by_class, strict=True)
        )
        return Cell(
            method=self.method,
            dataset=Variant(self.table, self.table),
            ipc=max(per_class) if per_class is not None and more else None,
            full_size=self.rows is None,
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            seed=0,
            split=ALL,
            split_seed=0,
            private_counts=self.private_counts,
            secure_noise=True,
        )

    def per_class(self, dataset: Dataset) -> tuple[int, ...]:
        """Return the rows of each class: the asked number in the declared proportions."""
        counts = np.array(dataset.counts.by_class, dtype=np.float64)
        total = sum(dataset.counts.by_class) if self.rows is None else self.rows
        exact = total * counts / counts.sum()
        whole = np.floor(exact).astype(int)
        # The largest remainders get what is left.
        for code in np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]:
            whole[code] += 1
        return tuple(whole.tolist())


def check_method(name: str) -> None:
    """Refuse a method that cannot make one table to give away in this process."""
    kind = registry.method_class(name)
    if not kind.uses_budget:
        raise InputError(
            f"--method {name} has no privacy budget: what it releases is not private. Choose one "
            "that `bench list methods` shows with a budget"
        )
    if not kind.uses_ipc:
        raise InputError(
            f"--method {name} releases a model or a table of another kind, not rows to give away"
        )
    if kind.unit:
        raise InputError(f"--method {name} protects a {kind.unit}, not a row or a patient")
    if kind.environment is not None:
        raise InputError(
            f"--method {name} runs in an environment of its own ({kind.environment.name}). Use "
            f"`bench run --methods {name} --secure-noise --train-on all --ipc full`, then `bench "
            "export`"
        )


def make_release(
    order: ReleaseOrder,
    dataset: Dataset,
    spending: HeldSpending,
    output: Path,
    directory: Path,
    charged: Callable[[], None] = lambda: None,
) -> CellRow:
    """Charge a release, make it, and keep it in a new run directory.

    The run directory is there before anything is charged, and the charge is written before the
    method sees a row; `charged` is called then. A release that fails stays charged: it may have
    seen answers about the rows.
    """
    cell = order.cell(dataset)
    unit = dataset.declaration.unit
    spent = spending.known.planned(order.budget, unit, order.method.label, output.name)
    grid = Grid(
        name="synthesize",
        datasets=(cell.dataset,),
        methods=(cell.method,),
        ipc=(cell.ipc,),
        epsilon=(order.budget.epsilon,),
        delta=order.budget.delta,
        split=ALL,
    )
    key = keys.cell_key(cell, dataset.fingerprint)
    with RunStore(directory) as store:
        store.write_manifest(manifest(grid, ()))
        write_descriptions(directory, grid.methods, grid.datasets)
        spending.write(spending.known.with_release(spent))
        store.charge(key, keys.charge_identity(cell, dataset.fingerprint))
        charged()
        fitted = _sized(fit_cell(cell, dataset), order, dataset)
        outcome = store.record(finish_cell(cell, key, dataset, (), fitted), dataset.encoder)
        store.compact()
    row = outcome.row
    if row.status != Status.OK or outcome.release is None:
        raise ReleaseFailed(
            f"the release was not made ({row.status}: {row.reason}). It stays charged with epsilon "
            f"{order.budget.epsilon:g} in {spending.path}, since it may have used the rows"
        )
    made = dataclasses.replace(spent, state=RELEASED, ledger=outcome.release.ledger)
    spending.write(spending.known.with_release(made))
    return row


@final
class ReleaseFailed(BenchError):
    """A release was charged and not made."""


def _sized(fitted: FitResult, order: ReleaseOrder, dataset: Dataset) -> FitResult:
    """Return the release with the asked number of rows, which are chosen by their order alone."""
    release = fitted.release
    if release is None or order.rows is None or release.rows is None:
        return fitted
    rows, wanted = release.rows, order.per_class(dataset)
    kept = np.concatenate(
        [np.flatnonzero(rows.labels == code)[:count] for code, count in enumerate(wanted)]
    )
    return dataclasses.replace(fitted, release=_taken(release, rows, np.sort(kept)))


def _taken(
    release: Release, rows: Rows, kept: np.ndarray[tuple[int], np.dtype[np.intp]]
) -> Release:
    chosen = Rows(
        rows.values[kept],
        rows.labels[kept],
        None if rows.weights is None else rows.weights[kept],
        None if rows.soft_labels is None else rows.soft_labels[kept],
    )
    return dataclasses.replace(release, rows=chosen)


_TREE_COLUMNS = 50
"""Columns that a method which compares all pairs of them can have."""


def choose_method(declaration: Declaration) -> tuple[str, str]:
    """Return the method that is used where none is named, and why. Follows from public facts."""
    schema = declaration.schema
    if len(schema.features) + (schema.time is not None) + 1 <= _TREE_COLUMNS:
        return (
            "noisy-tree",
            "the default. In each class it keeps every column and the strongest relations of "
            "columns, from noisy counts alone; no other library has to be trusted",
        )
    return (
        "marginals",
        f"the default for more than {_TREE_COLUMNS} columns. It keeps every column in each class, "
        "not relations between columns",
    )
