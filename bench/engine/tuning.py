"""One way to tune all methods: the same datasets, rows, trials and rule (docs/tuning.md).

A method declares what may be chosen (`Method.search`). Its trials follow from that alone: the first
is the defaults, the others are points of a scrambled Halton sequence, the same in every run. All
are known before the first one is fitted, so that a tuning run is a grid like any other: cells on
Ray, stored at once, resumed, failures kept. More trials add cells and change none.

Halton points cover a space evenly, at any number of trials. An optimiser that goes one trial after
the other would have to wait for its scores, and has little to learn from in twenty trials, half of
which it draws at random.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, final

from bench.engine import keys
from bench.engine.grid import Grid, load_grid
from bench.errors import GridError, StoreError
from bench.plugins import registry
from bench.plugins.method import Between, Method
from bench.results.reading import read_tables
from bench.results.records import Status, Variant
from bench.results.writing import FOR_ALL, write_atomically, writing

PROTOCOL: Final = "tuning"
"""Grid that says on which datasets, at which size and budget, and by which scores."""
TRIALS: Final = 20
"""Trials of every method, the defaults among them."""
DEFAULTS: Final = "defaults"
"""Label of the first trial."""
RESULT: Final = "trials.json"
"""File in the run directory: what was tried, and what was chosen."""

_POINTS_PER_TRIAL = 20
"""Points among which to look for another combination, where there are only a few."""


def tuning_grid(
    method: str, trials: int = TRIALS, datasets: Sequence[str] = (), seeds: Sequence[int] = ()
) -> Grid:
    """Return the grid whose entries are the trials of a method."""
    kind = registry.method_class(method)
    if not kind.search:
        raise GridError(
            f"method {method} declares nothing to tune; expected `search` with values or ranges of "
            "its hyperparameters, see docs/tuning.md"
        )
    entries = tuple(
        Variant(method, label, tuple(sorted(parameters.items())))
        for label, parameters in combinations(kind, trials).items()
    )
    protocol = load_grid(PROTOCOL).narrowed(datasets=datasets, seeds=seeds)
    grid = replace(protocol, name=f"tune-{method}", methods=entries)
    grid.check_plugins()
    return grid


def combinations(kind: type[Method], trials: int) -> dict[str, dict[str, Any]]:
    """Return the parameters of every trial by its label; fewer where the space has no more."""
    from scipy.stats import qmc

    if trials < 1:
        raise GridError(f"{trials} trials; expected 1 or more")
    found: dict[str, dict[str, Any]] = {DEFAULTS: {}}
    usual = kind().parameters()
    known = {_text({name: usual.get(name) for name in kind.search})}
    points = qmc.Halton(len(kind.search), scramble=True, seed=0)
    for _ in range(_POINTS_PER_TRIAL * trials):
        if len(found) == trials:
            break
        (point,) = points.random(1)
        parameters = {
            name: _chosen(values, float(place))
            for (name, values), place in zip(sorted(kind.search.items()), point, strict=True)
        }
        if _text(parameters) not in known:
            known.add(_text(parameters))
            found[f"trial {len(found):02d}"] = parameters
    return found


def _chosen(values: Sequence[Any] | Between, place: float) -> Any:
    if isinstance(values, Between):
        return values.at(place)
    return values[min(int(place * len(values)), len(values) - 1)]


def _text(parameters: Mapping[str, Any]) -> str:
    return json.dumps(parameters, sort_keys=True)


# What came of it ----------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Trial:
    """One combination of hyperparameters, and what it scored."""

    label: str
    parameters: dict[str, Any]
    """Those that differ from the defaults' entry in the grid; none for the defaults."""
    scores: dict[str, float]
    """Mean over the seeds for each dataset."""
    complete: bool
    """False where a cell failed that the defaults have: such a trial cannot be chosen."""
    gain: float
    """Mean difference from the defaults over all pairs of one dataset and seed."""
    error: float
    """Standard error of that mean; NaN for a single pair."""


@final
@dataclass(frozen=True)
class Tuned:
    """All trials of a method, and the choice between them."""

    method: str
    source_hash: str
    trials: tuple[Trial, ...]
    chosen: str
    """Label of the trial with the largest gain, if that exceeds its standard error; otherwise the
    defaults, since twenty trials by chance have a best one, too."""
    protocol: dict[str, Any]

    @property
    def choice(self) -> Trial:
        """The chosen trial."""
        return next(trial for trial in self.trials if trial.label == self.chosen)


def outcome(directory: Path, grid: Grid) -> Tuned:
    """Read the trials of a tuning run and choose one."""
    scored = _scored(directory, grid)
    usual = scored.get(DEFAULTS, {})
    if not usual:
        raise StoreError(
            f"{directory}: the defaults have no score, so that nothing can be compared; `bench "
            f"status {directory}` says why"
        )
    trials = tuple(_trial(entry, scored.get(entry.label, {}), usual) for entry in grid.methods)
    best = max((trial for trial in trials if trial.complete), key=lambda trial: trial.gain)
    sure = best.gain > best.error  # False without an error: of one pair nothing is known
    method = grid.methods[0].name
    protocol = {
        "datasets": [entry.label for entry in grid.datasets],
        "ipc": list(grid.ipc),
        "epsilon": list(grid.epsilon),
        "seeds": list(grid.seeds),
        "split": grid.split,
        "metrics": list(grid.metrics),
        "trials": len(grid.methods),
    }
    source = keys.method_source_hash(method)
    return Tuned(method, source, trials, best.label if sure else DEFAULTS, protocol)


def write(tuned: Tuned, directory: Path) -> Path:
    """Write the trials as JSON beside the run's tables; return the file."""
    content = {**asdict(tuned), "choice": asdict(tuned.choice)}
    target = directory / RESULT
    with writing(target):
        write_atomically(target, json.dumps(_plain(content), indent=1).encode(), FOR_ALL)
    return target


def _plain(value: Any) -> Any:
    """Return a value without NaN, which JSON does not know."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _scored(directory: Path, grid: Grid) -> dict[str, dict[tuple[str, int], float]]:
    """Return the score of every finished cell, by label, then by dataset and seed."""
    tables = read_tables(directory)
    cells = tables.cells[tables.cells["status"] == Status.OK]
    scores = tables.scores[tables.scores["value"].notna()]
    wanted = scores[scores["metric"].isin(grid.metrics)]
    merged = cells[["key", "label", "dataset", "seed", "parameters"]].merge(
        wanted[["key", "metric", "value"]], on="key"
    )
    planned = {entry.label: _text(dict(entry.parameters)) for entry in grid.methods}
    found: dict[str, dict[tuple[str, int], float]] = {}
    columns = ("label", "dataset", "seed", "parameters", "value")
    for label, dataset, seed, parameters, value in zip(
        *(merged[name].tolist() for name in columns), strict=True
    ):
        # A directory may hold trials of another search space, under the same labels.
        if planned.get(label) == _text(json.loads(parameters)):
            found.setdefault(label, {})[dataset, seed] = value
    return found


def _trial(
    entry: Variant,
    scores: Mapping[tuple[str, int], float],
    usual: Mapping[tuple[str, int], float],
) -> Trial:
    differences = [scores[pair] - value for pair, value in usual.items() if pair in scores]
    datasets = sorted({dataset for dataset, _ in scores})
    error = math.nan
    if len(differences) > 1:
        error = statistics.stdev(differences) / math.sqrt(len(differences))
    return Trial(
        label=entry.label,
        parameters=dict(entry.parameters),
        scores={
            dataset: statistics.fmean(v for (name, _), v in scores.items() if name == dataset)
            for dataset in datasets
        },
        complete=set(usual) <= set(scores),
        gain=statistics.fmean(differences) if differences else math.nan,
        error=error,
    )
