"""Projects what a grid costs, in core-hours, from stored timings. No row is read, nothing is run.

A cell costs its fit (with the proof) and its scores; what depends on the real rows of a dataset
alone comes once per dataset. All times are processor times of one thread on the machine where the
timings were measured. For a cell that was not measured like this (`basis` says which applies):

- *measured*: the same method, dataset, IPC and epsilon were; the mean.
- *interpolated*: the method was measured on the dataset at other sizes or epsilons, and
- *extrapolated*: on other datasets. Seconds are taken to be in proportion to
  `released**a * (rows * columns)**b * epsilon**c`. The exponents are fitted to the timings of the
  method by least squares on logarithms, with a pull of one observation per exponent towards
  a = 0.3, b = 0.5 and c = 0 (most methods do not depend on epsilon); the factor is that of the
  dataset, or of all datasets that were measured.
- *guessed*: the method was never measured: the same from all methods together.

Scores follow the same rules with datasets in the place of methods and tasks in the place of
datasets: what scores a release depends on its size and its dataset, hardly on its method.

The range of a measured cell is that of four of five cells like it. Where cells differ less than by
a tenth, or one cell alone was measured, it is a tenth either way; interpolation widens it to a
third, extrapolation to a factor of two, a guess to a factor of five. Ranges of cells are added up,
as if all of them erred the same way.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from bench.engine.timing_table import DatasetSize, TimingLine, lines_of, shipped, size_of
from bench.errors import InputError
from bench.plugins import registry
from bench.results.records import Cell

BASES: Final = ("measured", "interpolated", "extrapolated", "guessed")
_WIDTH: Final = {"measured": 1.1, "interpolated": 1.33, "extrapolated": 2.0, "guessed": 5.0}
_PRIOR: Final = np.array([0.3, 0.5, 0.0])
_STEEPEST: Final = 1.5
_LEAST: Final = 1e-3
"""Seconds; what is quicker costs nothing, and its logarithm is noise."""
_HOUR: Final = 3600.0
_SHOWN: Final = 15


@final
@dataclass(frozen=True)
class Amount:
    """Seconds of processor time, with a range and where they come from."""

    seconds: float
    low: float
    high: float
    basis: str

    def times(self, factor: float) -> Amount:
        """Return a part of it."""
        return Amount(factor * self.seconds, factor * self.low, factor * self.high, self.basis)


_NOTHING: Final = Amount(0.0, 0.0, 0.0, "measured")


@final
@dataclass(frozen=True)
class PairCost:
    """Cost of all cells of one method on one dataset."""

    method: str
    dataset: str
    cells: int
    fit_seconds: float
    seconds: float
    """Of fits and scores."""
    low: float
    high: float
    basis: Mapping[str, int]
    """How many cells were measured, interpolated, extrapolated, guessed."""


@final
@dataclass(frozen=True)
class Projection:
    """Cost of a grid."""

    pairs: tuple[PairCost, ...]
    references: Mapping[str, float]
    """Seconds per dataset for what depends on its real rows alone; once per process that scores."""
    not_counted: tuple[str, ...]
    """Metrics that were never timed."""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return sum(pair.cells for pair in self.pairs)

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(pair.seconds for pair in self.pairs) + sum(self.references.values())

    @property
    def fit_seconds(self) -> float:
        """Part of it for fits."""
        return sum(pair.fit_seconds for pair in self.pairs)

    @property
    def low(self) -> float:
        """Lower end of the range."""
        return sum(pair.low for pair in self.pairs) + sum(self.references.values())

    @property
    def high(self) -> float:
        """Upper end of the range."""
        return sum(pair.high for pair in self.pairs) + sum(self.references.values())

    def to_json(self) -> str:
        """Return all numbers, in seconds."""
        facts = {
            "cells": self.cells,
            "seconds": self.seconds,
            "low": self.low,
            "high": self.high,
            "fit_seconds": self.fit_seconds,
        }
        pairs = [asdict(pair) for pair in self.pairs]
        more = {"references": dict(self.references), "not_counted": list(self.not_counted)}
        return json.dumps({**facts, "pairs": pairs, **more}, indent=1)


def stored_timings(directories: Sequence[Path], *, shipped_too: bool = True) -> list[TimingLine]:
    """Return the timings of run directories, and those of the package for what they lack.

    A method on a dataset, and the scores of a dataset, come from the directories alone where these
    have them: two machines are not mixed.
    """
    own = [line for directory in directories for line in lines_of(directory)]
    if directories and not own:
        names = ", ".join(map(str, directories))
        raise InputError(
            f"{names}: no timings; they are recorded by `bench run` of this version, and not in "
            "directories of earlier ones"
        )
    known = {_subject(line) for line in own}
    return own + [
        line for line in (shipped() if shipped_too else ()) if _subject(line) not in known
    ]


def _subject(line: TimingLine) -> tuple[str, str, str]:
    kind = "fit" if line.kind == "skip" else line.kind
    return kind, line.method, line.dataset


def project(
    cells: Sequence[Cell], metrics: Sequence[str], timings: Sequence[TimingLine]
) -> Projection:
    """Return what cells cost; no metrics stand for those that are computed by default."""
    if not timings:
        raise InputError("no timings are stored; name run directories with --timings")
    fits = _Fits([line for line in timings if line.kind == "fit"])
    skipped = {(line.method, line.dataset) for line in timings if line.kind == "skip"}
    scores = _Scores(timings, metrics)
    sizes = {
        entry: size_of(entry.name, dict(entry.parameters))
        for entry in dict.fromkeys(cell.dataset for cell in cells)
    }
    totals: dict[tuple[str, str], list[tuple[Amount, Amount]]] = {}
    for cell in cells:
        size, pair = sizes[cell.dataset], (cell.method.label, cell.dataset.label)
        costs = totals.setdefault(pair, [])
        if pair in skipped:
            costs.append((_NOTHING, _NOTHING))
        else:
            costs.append((fits.cost(cell, size), scores.cost(cell, size, fits.result(cell))))
    return Projection(
        tuple(_pair(*pair, costs) for pair, costs in totals.items()),
        {entry.label: scores.reference(entry.label, size) for entry, size in sizes.items()},
        scores.unknown,
    )


def _pair(method: str, dataset: str, costs: Sequence[tuple[Amount, Amount]]) -> PairCost:
    both = [amount for cost in costs for amount in cost]
    worst = [max(cost, key=lambda amount: BASES.index(amount.basis)).basis for cost in costs]
    return PairCost(
        method=method,
        dataset=dataset,
        cells=len(costs),
        fit_seconds=sum(fit.seconds for fit, _ in costs),
        seconds=sum(amount.seconds for amount in both),
        low=sum(amount.low for amount in both),
        high=sum(amount.high for amount in both),
        basis=dict(Counter(worst)),
    )


def released_rows(cell: Cell, size: DatasetSize) -> int:
    """Return how many rows a release has, as far as that was asked for."""
    return size.rows if cell.ipc is None else cell.ipc * max(1, size.classes)


# Power laws ---------------------------------------------------------------------------------------


def _features(released: float, numbers: float, epsilon: float | None) -> list[float]:
    return [math.log(max(1.0, released)), math.log(max(1.0, numbers)), math.log(epsilon or 1.0)]


def _features_of(line: TimingLine) -> list[float]:
    return _features(line.released or line.rows, line.rows * line.columns, line.epsilon)


@final
class PowerLaw:
    """Seconds as a product of powers, fitted to the logarithms of what was measured."""

    def __init__(self, lines: Sequence[TimingLine]) -> None:
        """Fit; ridge regression around the prior exponents, with a free factor."""
        x = np.array([_features_of(line) for line in lines])
        y = np.log([max(_LEAST, line.seconds) for line in lines])
        self._centre, self._level = x.mean(axis=0), float(y.mean())
        centred = x - self._centre
        left = centred.T @ centred + np.eye(3)
        right = centred.T @ (y - self._level - centred @ _PRIOR)
        fitted = _PRIOR + np.linalg.solve(left, right)
        self.exponents = np.clip(fitted, [0.0, 0.0, -_STEEPEST], _STEEPEST)
        residuals = y - self._level - centred @ self.exponents
        self._level += float(residuals.mean())
        residuals = residuals - residuals.mean()
        self._of_dataset: dict[str, list[float]] = {}
        for line, residual in zip(lines, residuals, strict=True):
            self._of_dataset.setdefault(line.dataset, []).append(float(residual))

    def seconds(self, features: Sequence[float], dataset: str) -> tuple[float, bool]:
        """Return seconds, and whether the dataset was among those measured."""
        own = self._of_dataset.get(dataset)
        offset = sum(own) / len(own) if own else 0.0
        logarithm = self._level + (np.array(features) - self._centre) @ self.exponents + offset
        return float(np.exp(logarithm)), own is not None


def _amount(
    seconds: float, basis: str, low: float | None = None, high: float | None = None
) -> Amount:
    width = _WIDTH[basis]
    lower = seconds / width if low is None else min(low, seconds / width)
    upper = seconds * width if high is None else max(high, seconds * width)
    return Amount(seconds, lower, upper, basis)


def _mean(lines: Sequence[TimingLine]) -> Amount:
    """Return the mean over all cells of some lines."""
    cells = sum(line.cells for line in lines)
    seconds = sum(line.cells * line.seconds for line in lines) / cells
    low, high = min(line.low for line in lines), max(line.high for line in lines)
    return _amount(seconds, "measured", low, high)


def _by(
    lines: Iterable[TimingLine], name: Callable[[TimingLine], object]
) -> dict[object, list[TimingLine]]:
    groups: dict[object, list[TimingLine]] = {}
    for line in lines:
        groups.setdefault(name(line), []).append(line)
    return groups


@final
class _Fits:
    """What fits cost, by method."""

    def __init__(self, lines: Sequence[TimingLine]) -> None:
        self._exact = _by(lines, lambda line: (line.method, line.dataset, line.ipc, line.epsilon))
        self._by_method = _by(lines, lambda line: line.method)
        self._laws: dict[object, PowerLaw] = {}
        self._all = PowerLaw(lines) if lines else None

    def cost(self, cell: Cell, size: DatasetSize) -> Amount:
        """Return the cost of the fit of a cell."""
        label, dataset = self._name(cell), cell.dataset.label
        exact = self._exact.get((label, dataset, cell.ipc_text, cell.epsilon))
        if exact:
            return _mean(exact)
        numbers = size.rows * size.columns
        features = _features(released_rows(cell, size), numbers, cell.epsilon)
        if label in self._by_method:
            if label not in self._laws:
                self._laws[label] = PowerLaw(self._by_method[label])
            seconds, known = self._laws[label].seconds(features, dataset)
            return _amount(seconds, "interpolated" if known else "extrapolated")
        if self._all is None:
            raise InputError("the stored timings hold no fit; name other run directories")
        # Datasets have no factor here: the methods that were measured on one are not alike.
        seconds, _ = self._all.seconds(features, "")
        return _amount(seconds, "guessed")

    def result(self, cell: Cell) -> str:
        """Return whether a method releases rows or a model."""
        lines = self._by_method.get(self._name(cell), [])
        counts = Counter(line.result for line in lines)
        return counts.most_common(1)[0][0] if counts else "rows"

    def _name(self, cell: Cell) -> str:
        """The label, or the method with other parameters where the label was never measured."""
        return cell.method.label if cell.method.label in self._by_method else cell.method.name


@final
class _Scores:
    """What scores cost, by dataset and kind of release."""

    def __init__(self, timings: Sequence[TimingLine], metrics: Sequence[str]) -> None:
        lines = [line for line in timings if line.kind == "score"]
        self._exact = _by(lines, lambda line: (line.dataset, line.ipc, line.result))
        self._by_task = _by(lines, lambda line: (line.task, line.result))
        self._by_result = _by(lines, lambda line: line.result)
        self._laws: dict[object, PowerLaw] = {}
        self._references = {line.dataset: line for line in timings if line.kind == "reference"}
        shares = [line for line in timings if line.kind == "share"]
        self._shares = _by(shares, lambda line: (line.dataset, line.result))
        self._shares_of_task = _by(shares, lambda line: (line.task, line.result))
        default = set(registry.select_metrics(()))
        asked = set(metrics) or default
        self._asked = None if asked == default else asked
        timed = {line.metric for line in shares}
        self.unknown = tuple(sorted(asked - timed)) if self._asked is not None else ()

    def cost(self, cell: Cell, size: DatasetSize, result: str) -> Amount:
        """Return the cost of the scores of a cell."""
        return self._whole(cell, size, result).times(self._share(cell, size, result))

    def _whole(self, cell: Cell, size: DatasetSize, result: str) -> Amount:
        dataset = cell.dataset.label
        exact = self._exact.get((dataset, cell.ipc_text, result))
        if exact:
            return _mean(exact)
        features = _features(released_rows(cell, size), size.rows * size.columns, None)
        for name, lines in (
            ((size.task, result), self._by_task.get((size.task, result))),
            (result, self._by_result.get(result)),
        ):
            if lines:
                if name not in self._laws:
                    self._laws[name] = PowerLaw(lines)
                seconds, known = self._laws[name].seconds(features, dataset)
                basis = "interpolated" if known else "extrapolated"
                return _amount(seconds, basis if name != result else "guessed")
        return _NOTHING

    def _share(self, cell: Cell, size: DatasetSize, result: str) -> float:
        """Part of the default metrics that the asked ones are, by what they took."""
        if self._asked is None:
            return 1.0
        lines = self._shares.get((cell.dataset.label, result)) or self._shares_of_task.get(
            (size.task, result), []
        )
        total = sum(line.seconds for line in lines)
        wanted = sum(line.seconds for line in lines if line.metric in self._asked)
        return wanted / total if total else 1.0

    def reference(self, dataset: str, size: DatasetSize) -> float:
        """Return the cost of what is done once for a dataset."""
        line = self._references.get(dataset)
        if line is not None:
            return line.seconds
        numbers = [known.rows * known.columns for known in self._references.values()]
        if not numbers:
            return 0.0
        per_number = sum(known.seconds for known in self._references.values()) / sum(numbers)
        return per_number * size.rows * size.columns


# For people ---------------------------------------------------------------------------------------


def to_text(projection: Projection, origin: str) -> str:
    """Return the projection for a terminal."""
    pairs = sorted(projection.pairs, key=lambda pair: -pair.seconds)
    lines = [
        f"{_hours(projection.seconds)} core-hours (range {_hours(projection.low)} to "
        f"{_hours(projection.high)}) for {projection.cells:,} cells, of which fits "
        f"{_hours(projection.fit_seconds)}",
        f"  on one thread of the machine of the timings: {origin}",
        "",
    ]
    lines += _table("by method", _summed(pairs, lambda pair: pair.method))
    lines += _table("by dataset", _summed(pairs, lambda pair: pair.dataset))
    shown = [(f"{pair.method} on {pair.dataset}", [pair]) for pair in pairs[:_SHOWN]]
    lines += _table(f"{len(shown)} most expensive of {len(pairs)} pairs", shown)
    once = sum(projection.references.values())
    lines.append(
        f"once per dataset and process, for its real rows alone: {_hours(once)} core-hours"
    )
    counts = Counter[str]()
    for pair in pairs:
        counts.update(pair.basis)
    lines.append(
        "cells by basis: " + ", ".join(f"{counts[name]:,} {name}" for name in BASES if counts[name])
    )
    if projection.not_counted:
        names = ", ".join(projection.not_counted)
        lines.append(f"not counted, since they were never timed: {names}")
    return "\n".join(lines)


def _summed(
    pairs: Sequence[PairCost], name: Callable[[PairCost], str]
) -> list[tuple[str, list[PairCost]]]:
    groups: dict[str, list[PairCost]] = {}
    for pair in pairs:
        groups.setdefault(name(pair), []).append(pair)
    return sorted(groups.items(), key=lambda item: -sum(pair.seconds for pair in item[1]))


def _table(title: str, groups: Sequence[tuple[str, Sequence[PairCost]]]) -> list[str]:
    width = max([len(title), *(len(name) for name, _ in groups)], default=0)
    lines = [f"{title:<{width}}   cells  core-hours  range              basis"]
    for name, pairs in groups:
        cells = sum(pair.cells for pair in pairs)
        seconds, low, high = (
            sum(getattr(pair, part) for pair in pairs) for part in ("seconds", "low", "high")
        )
        span = f"{_hours(low)} to {_hours(high)}"
        counts = Counter[str]()
        for pair in pairs:
            counts.update(pair.basis)
        basis = max(BASES, key=lambda one: counts[one])
        mixed = "mostly " if len(counts) > 1 else ""
        lines.append(
            f"{name:<{width}}  {cells:6,}  {_hours(seconds):>10}  {span:<17}  {mixed}{basis}"
        )
    return [*lines, ""]


def _hours(seconds: float) -> str:
    hours = seconds / _HOUR
    return f"{hours:.3f}" if hours < 0.1 else f"{hours:.2f}" if hours < 10 else f"{hours:,.1f}"
