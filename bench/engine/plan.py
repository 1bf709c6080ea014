"""What is left to do: which cells must be fitted, which only scored, and by which metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.cache_reasons import explain
from bench.engine.cell import failed_row
from bench.engine.limits import expected_seconds
from bench.errors import BenchError, EnvironmentUnavailable, InputError
from bench.plugins import registry
from bench.plugins.method import Environment
from bench.plugins.source import build_dataset
from bench.results.records import Cell, CellRow, Outcome, Status, Variant
from bench.results.run_directory import RunStore

Datasets = Mapping[Variant, Dataset | BenchError]
"""What could be loaded, and why the others could not."""


@final
@dataclass(frozen=True)
class Job:
    """A cell that is not done."""

    cell: Cell
    key: str
    scoring: bool
    """True where a stored release is scored again, not fitted again."""
    metrics: tuple[str, ...]
    expected_seconds: float = 0.0
    """A guess, to start long ones first."""

    @property
    def environment(self) -> Environment | None:
        """The method's own environment, where this job needs it: scoring alone does not."""
        kind = registry.method_class(self.cell.method.name)
        return None if self.scoring else kind.environment

    @property
    def charges(self) -> bool:
        """True where starting it spends a budget for good: it may not be run twice."""
        return self.cell.secure_noise and self.cell.epsilon is not None and not self.scoring


@final
@dataclass
class Plan:
    """What a run will do."""

    jobs: list[Job] = field(default_factory=list)
    wanted: list[tuple[Cell, str]] = field(default_factory=list)
    """All cells of the run, done or not, with their keys."""
    cached: int = 0
    notices: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Why cells that could have been stored are not, in words."""


def load_dataset(entry: Variant, split: str, split_seed: int) -> Dataset | BenchError:
    """A dataset, or why it cannot be had: that fails its own cells and no others."""
    try:
        source = registry.build_source(entry.name, dict(entry.parameters))
        return build_dataset(source, split, split_seed)
    except InputError as problem:
        return BenchError(f"dataset {entry.label}: {problem}")


def plan_cells(
    cells: Sequence[Cell], datasets: Datasets, store: RunStore, metrics: Sequence[str]
) -> Plan:
    """What must be fitted, what only scored, and what is done already."""
    plan = Plan(
        notices=[
            f"{entry.label}: {dataset.differs}"
            for entry, dataset in datasets.items()
            if isinstance(dataset, Dataset) and dataset.differs
        ]
    )
    charged = store.charged()
    guess = _Guess(store)
    for cell in cells:
        dataset = datasets[cell.dataset]
        fingerprint = dataset.fingerprint if isinstance(dataset, Dataset) else str(dataset)
        key = keys.cell_key(cell, fingerprint)
        plan.wanted.append((cell, key))
        if not isinstance(dataset, Dataset):
            store.finished.pop(key, None)
            continue
        row, _ = store.finished.get(key, (None, ()))
        if row is not None and row.status == Status.SKIPPED.value and not _try_again(cell, row):
            plan.cached += 1
            continue
        if row is not None and row.verdict != "" and store.release_intact(key):
            missing = _missing(row, metrics)
            if row.status == Status.OK.value and not missing:
                plan.cached += 1
                continue
            if row.rows_released is not None:
                plan.jobs.append(Job(cell, key, True, missing, guess.seconds(cell, dataset, 0.1)))
                continue
            if row.status == Status.OK.value:
                plan.cached += 1  # a model release is not stored and so cannot be scored again
                continue
        charge = keys.charge_identity(cell, fingerprint)
        if cell.secure_noise and cell.epsilon is not None and charged & {key, charge}:
            if row is not None and row.verdict != "":
                # A model: it was released, so that its row with the spent epsilon stays.
                plan.notices.append(
                    f"{cell.describe()}: not scored again, a released model is not stored and its "
                    "budget is spent"
                )
                plan.cached += 1
                continue
            reason = (
                "an earlier attempt with secure noise was charged and did not finish; its budget "
                "is spent. To spend it again knowingly, use a new --out"
                if key in charged
                else "its budget was spent with secure noise by another version of the method or "
                "its libraries. To spend it again knowingly, use a new --out"
            )
            store.record(Outcome(failed_row(cell, key, dataset, Status.ERROR, reason)), None)
            continue
        plan.jobs.append(Job(cell, key, False, tuple(metrics), guess.seconds(cell, dataset)))
    # Long ones first: at the end no machine waits for a long one that started last. Sorting is
    # stable, so that cells of one kind keep the order of the grid.
    plan.jobs.sort(key=lambda job: -job.expected_seconds)
    plan.reasons += explain(((job.cell, job.key) for job in plan.jobs), store, metrics)
    return plan


@final
class _Guess:
    """How long cells of a method took on a dataset in this run directory."""

    def __init__(self, store: RunStore) -> None:
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        for row, _ in store.all():
            if row.fit_seconds is not None:
                total, count = self._seen.get((row.label, row.dataset), (0.0, 0))
                seconds = row.fit_seconds + (row.score_seconds or 0.0)
                self._seen[row.label, row.dataset] = (total + seconds, count + 1)

    def seconds(self, cell: Cell, dataset: Dataset, share: float = 1.0) -> float:
        total, count = self._seen.get((cell.method.label, cell.dataset.label), (0.0, 0))
        resources = registry.method_class(cell.method.name).resources
        return share * expected_seconds(resources, dataset, total / count if count else None)


def _try_again(cell: Cell, row: CellRow) -> bool:
    """True for a cell that was skipped for lack of its environment: that may be there by now."""
    environment = registry.method_class(cell.method.name).environment
    return environment is not None and row.reason.startswith(
        str(EnvironmentUnavailable(environment.name, ""))
    )


def plan_stored(store: RunStore, metrics: Sequence[str]) -> tuple[Plan, Datasets]:
    """All releases of a run directory whose scores by these metrics are missing or outdated."""
    plan = Plan()
    datasets: dict[Variant, Dataset | BenchError] = {}
    for row, _ in store.all():
        key = row.key
        if row.verdict == "" or row.status == Status.SKIPPED.value:
            continue
        cell = stored_cell(row)
        entry = cell.dataset
        # One entry stands for one split here: rows of two splits are not the same dataset.
        if (row.split, row.split_seed) != ("default", 0):
            entry = replace(entry, label=f"{entry.label} {row.split} {row.split_seed}")
        if entry not in datasets:
            datasets[entry] = load_dataset(cell.dataset, row.split, row.split_seed)
        dataset, name = datasets[entry], f"{row.label} on {row.dataset}, seed {row.seed}"
        if isinstance(dataset, BenchError):
            plan.notices.append(f"{name}: not scored, {dataset}")
            continue
        if dataset.fingerprint != row.fingerprint:
            plan.notices.append(f"{name}: not scored, the dataset has changed since it was made")
            continue
        if row.rows_released is None:
            plan.notices.append(f"{name}: not scored, a released model is not stored")
            continue
        missing = _missing(row, metrics)
        refitting = [name for name in missing if registry.refits(name)]
        if refitting and keys.cell_key(cell, dataset.fingerprint) != key:
            plan.notices.append(
                f"{name}: not scored by {', '.join(refitting)}, the method has changed since"
            )
            missing = tuple(name for name in missing if name not in refitting)
        plan.wanted.append((cell, key))
        if not missing:
            plan.cached += 1
            continue
        if store.release_intact(key):
            plan.jobs.append(Job(replace(cell, dataset=entry), key, True, missing))
        else:
            plan.notices.append(f"{name}: not scored, its release is missing or damaged")
            plan.wanted.pop()
    return plan, datasets


def stored_cell(row: CellRow) -> Cell:
    """The cell behind a row of the results."""
    return Cell(
        method=Variant(row.method, row.label, _parameters(row.parameters)),
        dataset=Variant(
            row.dataset_name or row.dataset, row.dataset, _parameters(row.dataset_parameters)
        ),
        ipc=row.ipc,
        full_size=row.full_size,
        epsilon=row.eps_target,
        delta=row.delta,
        seed=row.seed,
        split=row.split,
        split_seed=row.split_seed,
        private_counts=row.private_counts,
        secure_noise=not row.study_only,
    )


def _parameters(text: str) -> tuple[tuple[str, object], ...]:
    return tuple(json.loads(text).items())


def _missing(row: CellRow, metrics: Sequence[str]) -> tuple[str, ...]:
    """Metrics that have not scored the release, or did when their source was another."""
    recorded = json.loads(row.metrics)
    return tuple(name for name in metrics if recorded.get(name) != keys.metric_hash(name))


def stored_outcome(job: Job, store: RunStore, dataset: Dataset) -> Outcome | None:
    """What is there already of a job that scores; None where it cannot be read any more."""
    row, scores = store.finished[job.key]
    release = store.read_release(job.key, dataset.encoder)
    return None if release is None else Outcome(row, scores, release)
