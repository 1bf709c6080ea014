"""What several releases of one dataset spend together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from bench.leaderboard.dossier.privacy import verdict_of
from bench.results.records import CellRow, Status
from bench.results.verdicts import Verdict


@final
@dataclass(frozen=True)
class Releases:
    """Releases of one method with one size and one target."""

    method: str
    size: str
    target: float | None
    seeds: tuple[int, ...]
    epsilon: float
    """Their proven epsilons added up; infinite where one has no bound."""
    this: bool


@final
@dataclass(frozen=True)
class Composition:
    """What all releases of a dataset in this run spend together (basic composition)."""

    groups: tuple[Releases, ...]
    bounded: int
    epsilon: float
    """Sum of the proven epsilons that are finite, and of the targets of lost cells."""
    delta: float
    unbounded: int
    """Releases without any bound: none of them is in the sum."""
    other_unit: int
    """Releases that protect something else: their epsilons are of another kind."""
    lost: int
    """Cells with secure noise that were started and gave no release; charged with their target."""
    unknown: int
    """Cells that were started and of which nothing else is known."""
    repeats: int
    """Releases that differ from this one in the seed only, itself included."""


def compose(row: CellRow, cells: Sequence[CellRow], charged: frozenset[str]) -> Composition:
    """Add up the releases of the row's dataset that were made with the same kind of noise.

    Basic composition: epsilons and deltas add, whatever was chosen in the light of what (Dwork and
    Roth 2014, theorem 3.16). Other splits and parameters of the dataset count too: the people are
    the same. A release whose metrics failed afterwards exists and counts as well.
    """
    alike = [
        cell
        for cell in cells
        if _source(cell) == _source(row) and cell.study_only == row.study_only
    ]
    made = [cell for cell in alike if _made(cell)]
    own = [cell for cell in made if cell.unit == row.unit]
    bounded = [cell for cell in own if math.isfinite(_trusted_bound(cell))]
    # Started and not finished: the harness keeps it charged, whatever became of its output.
    lost = [
        cell
        for cell in alike
        if not _made(cell) and cell.key in charged and cell.eps_target is not None
    ]
    return Composition(
        groups=_groups(row, own),
        bounded=len(bounded),
        epsilon=math.fsum(
            [_trusted_bound(cell) for cell in bounded] + [cell.eps_target or 0.0 for cell in lost]
        ),
        delta=math.fsum(cell.delta for cell in [*bounded, *lost]),
        unbounded=len(own) - len(bounded),
        other_unit=len(made) - len(own),
        lost=len(lost),
        unknown=len(charged - {cell.key for cell in cells}),
        repeats=sum(_setting(cell) == _setting(row) for cell in made),
    )


def size_of(row: CellRow) -> str:
    """How large a release was asked for."""
    if row.full_size:
        return "as many rows as the training table"
    return "the method's own size" if row.ipc is None else f"{row.ipc:,} rows per class"


def _source(cell: CellRow) -> str:
    return cell.dataset_name or cell.dataset


def _made(cell: CellRow) -> bool:
    return cell.status == Status.OK or cell.eps_proven is not None


def _trusted_bound(cell: CellRow) -> float:
    """The proven epsilon; infinite where an attack has refuted it."""
    if cell.eps_proven is None or verdict_of(cell) is Verdict.PROOF_REFUTED:
        return math.inf
    return cell.eps_proven


def _setting(cell: CellRow) -> tuple[object, ...]:
    return (
        cell.method,
        cell.parameters,
        cell.dataset,
        cell.ipc,
        cell.full_size,
        cell.eps_target,
        cell.delta,
        cell.unit,
        cell.private_counts,
    )


def _groups(row: CellRow, cells: Sequence[CellRow]) -> tuple[Releases, ...]:
    found: dict[tuple[object, ...], list[CellRow]] = {}
    for cell in cells:
        found.setdefault((cell.label, *_setting(cell)), []).append(cell)
    return tuple(
        Releases(
            method=own[0].label,
            size=size_of(own[0]),
            target=own[0].eps_target,
            seeds=tuple(sorted({cell.seed for cell in own})),
            epsilon=math.fsum(_trusted_bound(cell) for cell in own),
            this=any(cell.key == row.key for cell in own),
        )
        for own in found.values()
    )
