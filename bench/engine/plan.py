"""What is left to do: which cells must be fitted, which only scored, and by which metrics.

A plan is a value that follows from the cells asked for, the datasets, what is stored and what was
charged. Nothing is written here: the driver carries a plan out. A plan also says why cells that are
stored have to be done again. A key is a hash, which does not show what went into it; stored rows
do: those of the same method label, dataset label, size, epsilon and seed under another key are
compared with what is planned.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, final

from bench.data.conform import describe_briefly
from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.cell import Remake
from bench.engine.failures import in_words, is_ours
from bench.engine.limits import expected_seconds
from bench.engine.procedure import Procedure
from bench.errors import BenchError, EnvironmentUnavailable
from bench.plugins import registry
from bench.plugins.method import Environment, Method
from bench.plugins.source import build_dataset
from bench.results import private_rows
from bench.results.journal import Finished
from bench.results.records import Cell, CellRow, Outcome, Status, Variant
from bench.results.run_directory import RunStore
from bench.results.timings import Stopwatch, added_to

Datasets = Mapping[Variant, Dataset | BenchError]
"""What could be loaded, and why the others could not."""

_EXAMPLE = re.compile(r"[,;] for example .*", re.DOTALL)
"""End of an error about a file: a value of its rows, which `bench data check` shows."""
_SETTINGS = ("delta", "split", "split_seed", "private_counts", "secure_noise")
_SPLIT = ("split", "split_seed")
_NAMED = 5


class Stored(Protocol):
    """What planning reads of a run directory; `RunStore` is one."""

    @property
    def finished(self) -> Mapping[str, Finished]:
        """Cells that have ended, by key."""

    def all(self) -> Iterator[Finished]:
        """Return all cells that have ended, in the order in which they were stored."""

    def release_intact(self, key: str) -> bool:
        """Return True when the files of a release are whole."""

    def rows_not_stored(self, key: str) -> str:
        """Return the digest of released rows that are not stored; empty where they are."""

    def charged(self) -> set[str]:
        """Return keys and identities of cells with secure noise that were started."""


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
    remake: str = ""
    """Digest of the rows that scoring needs and that are not stored: they are made again."""
    procedure: Procedure | None = field(default=None, compare=False)
    """How an audit is run; None for a cell that is one fit with its scores."""

    @property
    def kind(self) -> type[Method]:
        """Class of the method."""
        if self.procedure is not None:
            return self.procedure.kind
        return registry.method_class(self.cell.method.name)

    @property
    def environment(self) -> Environment | None:
        """The method's own environment, where this job needs it: scoring alone does not."""
        return self.kind.environment if self.fits else None

    @property
    def fits(self) -> bool:
        """True where the method is run, for a release or to make its rows again."""
        return not self.scoring or self.remake != ""

    @property
    def charges(self) -> bool:
        """True where starting it spends a budget for good: it may not be run twice."""
        return self.cell.secure_noise and self.cell.epsilon is not None and not self.scoring


@final
@dataclass(frozen=True)
class Refusal:
    """A cell that fails without being run."""

    cell: Cell
    key: str
    reason: str


@final
@dataclass(frozen=True)
class RunPlan:
    """What a run will do."""

    jobs: tuple[Job, ...] = ()
    """Cells to fit or score, long ones first."""
    wanted: tuple[tuple[Cell, str], ...] = ()
    """All cells of the run, done or not, with their keys."""
    refused: tuple[Refusal, ...] = ()
    cached: int = 0
    """Cells that need nothing."""
    published: int = 0
    """Cells that are left out because they are published already."""
    notices: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why cells that could have been stored are not, in words."""


class Action(enum.Enum):
    """What happens to a cell."""

    KEEP = enum.auto()
    SCORE = enum.auto()
    FIT = enum.auto()
    REFUSE = enum.auto()


@final
@dataclass(frozen=True)
class Decision:
    """What happens to a cell, and what is said about it."""

    action: Action
    metrics: tuple[str, ...] = ()
    """Metrics that are computed."""
    text: str = ""
    """Reason of a refusal, or a notice about a cell that is kept."""


_KEPT = Decision(Action.KEEP)


def decide(
    cell: Cell,
    row: CellRow | None,
    intact: Callable[[], bool],
    metrics: Sequence[str],
    charged_by: str = "",
    rows_not_stored: Callable[[], bool] = lambda: False,
) -> Decision:
    """Decide about one cell from what is stored of it.

    `charged_by` says that its budget is spent: by this `key`, or by the cell with `other code`.
    Rows that are not stored are made again to be scored; where a cell has not ended well, it is
    fitted anew with all its metrics. An audit that failed or was skipped is run again: it may have
    been given more time.
    """
    if cell.audit is not None:
        done = row is not None and row.status == Status.OK.value and intact()
        return _KEPT if done else Decision(Action.FIT)
    if row is not None and row.status == Status.SKIPPED.value and not _try_again(cell, row):
        return _KEPT
    if row is not None and row.verdict != "" and intact():
        missing = _missing(row, metrics)
        done = row.status == Status.OK.value
        if row.rows_released is not None and (missing or not done):
            if not rows_not_stored():
                return Decision(Action.SCORE, missing)
            why = not_remakable(cell)
            if done and why:
                listed = ", ".join(missing)
                return Decision(Action.KEEP, text=f"{cell.describe()}: no {listed}: {why}")
            if done:
                return Decision(Action.SCORE, missing)
            known = set(registry.metric_names())
            metrics = (*metrics, *(name for name in _extra(row, metrics) if name in known))
        elif done:
            return _KEPT  # a model release is not stored and so cannot be scored again
    if not (charged_by and cell.secure_noise and cell.epsilon is not None):
        return Decision(Action.FIT, tuple(metrics))
    if row is not None and row.verdict != "":
        # It was released, so that its row with the spent epsilon stays.
        why = "a released model is not stored"
        if row.rows_released is not None:
            why = "its rows are not stored, or the files of its release damaged,"
        return Decision(
            Action.KEEP,
            text=f"{cell.describe()}: not scored again, {why} and its budget is spent",
        )
    spent = (
        "an earlier attempt with secure noise was charged and did not finish; its budget is spent"
        if charged_by == "key"
        else "its budget was spent with secure noise by another version of the method or its "
        "libraries"
    )
    return Decision(Action.REFUSE, text=f"{spent}. To spend it again knowingly, use a new --out")


def plan_cells(
    cells: Sequence[Cell],
    datasets: Datasets,
    stored: Stored,
    metrics: Sequence[str],
    split_seeds: Sequence[int] = (),
    published: Mapping[str, CellRow] = MappingProxyType({}),
    skip_failed: bool = False,
) -> RunPlan:
    """Plan a grid: what must be fitted, what only scored, and what is done already.

    `split_seeds` are those of the whole grid, of which `cells` may be one split. What is neither
    stored here nor `published` with the same key is computed. Those that are published as failed
    are tried again, unless `skip_failed` is set.
    """
    charged = stored.charged()
    guess = _Guess(stored)
    wanted: list[tuple[Cell, str]] = []
    jobs: list[Job] = []
    refused: list[Refusal] = []
    cached = elsewhere = 0
    notices = [
        f"{entry.label}: {dataset.differs}"
        for entry, dataset in datasets.items()
        if isinstance(dataset, Dataset) and dataset.differs
    ]
    # For who runs the grid, as the line above: nothing of it is stored or logged.
    notices += [
        f"{entry.label}: {describe_briefly(dataset.adjusted)}"
        for entry, dataset in datasets.items()
        if isinstance(dataset, Dataset) and dataset.adjusted
    ]
    for cell in cells:
        dataset = datasets[cell.dataset]
        if isinstance(dataset, BenchError):
            key = keys.cell_key(cell, str(dataset))
            wanted.append((cell, key))
            refused.append(Refusal(cell, key, str(dataset)))
            continue
        key = keys.cell_key(cell, dataset.fingerprint)
        row, _ = stored.finished.get(key, (None, ()))
        if row is None and _is_published(cell, published.get(key), metrics, skip_failed):
            elsewhere += 1
            continue
        wanted.append((cell, key))
        charge = keys.charge_identity(cell, dataset.fingerprint)
        charged_by = "key" if key in charged else "other code" if charge in charged else ""

        def intact(key: str = key) -> bool:
            return stored.release_intact(key)

        def rows_not_stored(key: str = key) -> bool:
            return stored.rows_not_stored(key) != ""

        decision = decide(cell, row, intact, metrics, charged_by, rows_not_stored)
        if decision.action is Action.KEEP:
            cached += 1
            notices += [decision.text] if decision.text else []
        elif decision.action is Action.REFUSE:
            refused.append(Refusal(cell, key, decision.text))
        else:
            scoring = decision.action is Action.SCORE
            remake = stored.rows_not_stored(key) if scoring else ""
            seconds = guess.seconds(cell, dataset, 0.1 if scoring and not remake else 1.0)
            jobs.append(Job(cell, key, scoring, decision.metrics, seconds, remake))
    return RunPlan(
        jobs=tuple(_in_order(jobs)),
        wanted=tuple(wanted),
        refused=tuple(refused),
        cached=cached,
        published=elsewhere,
        notices=tuple(notices),
        reasons=tuple(explain(((job.cell, job.key) for job in jobs), stored, metrics, split_seeds)),
    )


def _is_published(
    cell: Cell, row: CellRow | None, metrics: Sequence[str], skip_failed: bool
) -> bool:
    """Return whether a published cell of the same key is all that computing it would give."""
    if row is None:
        return False
    if row.status == Status.OK.value:
        return not _missing(row, metrics)
    if row.status == Status.SKIPPED.value:
        return not _try_again(cell, row)
    return skip_failed


def _in_order(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs dataset by dataset, the one with most work first; in each, long ones first.

    Workers keep what they have computed from the rows of the last datasets: models, distances,
    data for fits. And no machine waits at the end for a long job that started last: the longest
    that is left then is one of the smallest dataset. Sorting is stable, so that cells of one kind
    keep the order of the grid.
    """
    totals: dict[Variant, float] = {}
    places: dict[Variant, int] = {}
    for job in jobs:
        known = totals.get(job.cell.dataset, 0.0)
        totals[job.cell.dataset] = known + job.expected_seconds
        places.setdefault(job.cell.dataset, len(places))

    def rank(job: Job) -> tuple[float, int, float]:
        dataset = job.cell.dataset
        return -totals[dataset], places[dataset], -job.expected_seconds

    return sorted(jobs, key=rank)


def plan_stored(stored: Stored, datasets: Datasets, metrics: Sequence[str]) -> RunPlan:
    """Plan the scoring of all releases for which these metrics are missing or outdated."""
    wanted: list[tuple[Cell, str]] = []
    jobs: list[Job] = []
    notices: list[str] = []
    for row, _ in stored.all():
        if not _released(row):
            continue
        cell = row.cell
        entry = _entry(row)
        dataset = datasets[entry]
        missing = _missing(row, metrics)
        refitting = [name for name in missing if registry.refits(name)]
        problem = ""
        if isinstance(dataset, BenchError):
            problem = str(dataset)
        elif dataset.fingerprint != row.fingerprint:
            problem = "the dataset has changed since it was made"
        elif row.rows_released is None:
            problem = "a released model is not stored"
        elif refitting and keys.cell_key(cell, dataset.fingerprint) != row.key:
            notices.append(
                f"{_name(row)}: not scored by {', '.join(refitting)}, the method has changed since"
            )
            missing = tuple(name for name in missing if name not in refitting)
        if not problem and missing and not stored.release_intact(row.key):
            problem = "its release is missing or damaged"
        remake = "" if problem or not missing else stored.rows_not_stored(row.key)
        if remake:
            problem = not_remakable(cell)
            if not problem and keys.cell_key(cell, row.fingerprint) != row.key:
                problem = f"{_NOT_STORED}, and the method or a library that it imports has changed"
        if problem:
            notices.append(f"{_name(row)}: not scored, {problem}")
            continue
        wanted.append((cell, row.key))
        if missing:
            again = replace(cell, dataset=entry)
            jobs.append(Job(again, row.key, True, missing, remake=remake))
    return RunPlan(
        jobs=tuple(jobs),
        wanted=tuple(wanted),
        cached=len(wanted) - len(jobs),
        notices=tuple(notices),
    )


_NOT_STORED = "its rows, which have no proven epsilon, are not stored"


def not_remakable(cell: Cell) -> str:
    """Return why the rows of a cell cannot be made again by its seed; empty where they can."""
    if cell.secure_noise:
        why = "secure noise cannot be drawn again"
    elif not registry.method_class(cell.method.name).seeded:
        why = f"method {cell.method.name} cannot be seeded"
    else:
        return ""
    return f"{_NOT_STORED}, and {why}; {private_rows.KEEP}"


def load_dataset(entry: Variant, split: str, split_seed: int) -> Dataset | BenchError:
    """Return a dataset, or why it cannot be had: that fails its own cells and no others."""
    try:
        source = registry.build_source(entry.name, dict(entry.parameters))
        return build_dataset(source, split, split_seed)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        words = in_words(problem)
        told = _EXAMPLE.sub("", words)
        lost = BenchError(f"dataset {entry.label}: {told}")
        # What is not told here, the driver writes to the internal log of each cell.
        lost.__cause__ = None if is_ours(problem) and told == words else problem
        return lost


def load_stored(stored: Stored) -> Datasets:
    """Load the datasets of all stored releases."""
    datasets: dict[Variant, Dataset | BenchError] = {}
    for row, _ in stored.all():
        entry = _entry(row)
        if _released(row) and entry not in datasets:
            datasets[entry] = load_dataset(row.cell.dataset, row.split, row.split_seed)
    return datasets


def stored_outcome(job: Job, store: RunStore, dataset: Dataset) -> Outcome | Remake | None:
    """Return what is stored of a job that scores; None where it cannot be read any more."""
    watch = Stopwatch()
    outcome = store.journal.outcome(job.key)
    if job.remake:
        return Remake(outcome, job.remake)
    release = store.read_release(job.key, dataset.encoder)
    if release is None:
        return None
    timings = added_to(outcome.timings, watch.lap(job.key, "load"))
    return Outcome(outcome.row, outcome.scores, release, timings=timings)


def _released(row: CellRow) -> bool:
    return row.verdict != "" and row.status != Status.SKIPPED.value and not row.attack


def _entry(row: CellRow) -> Variant:
    """The dataset of a row, under a label of its split: rows of two splits are two datasets."""
    entry = row.cell.dataset
    if (row.split, row.split_seed) == ("default", 0):
        return entry
    return replace(entry, label=f"{entry.label} {row.split} {row.split_seed}")


def _name(row: CellRow) -> str:
    return f"{row.label} on {row.dataset}, seed {row.seed}"


def _missing(row: CellRow, metrics: Sequence[str]) -> tuple[str, ...]:
    """Metrics that have not scored the release, or did when their source was another."""
    recorded = json.loads(row.metrics)
    return tuple(name for name in metrics if recorded.get(name) != keys.metric_hash(name))


def _extra(row: CellRow, metrics: Sequence[str]) -> tuple[str, ...]:
    """Metrics that have scored the release and are not asked for now."""
    return tuple(name for name in json.loads(row.metrics) if name not in metrics)


def _try_again(cell: Cell, row: CellRow) -> bool:
    """True for a cell that was skipped for lack of its environment: that may be there by now."""
    environment = registry.method_class(cell.method.name).environment
    return environment is not None and row.reason.startswith(
        str(EnvironmentUnavailable(environment.name, ""))
    )


@final
class _Guess:
    """How long cells of a method took on a dataset in this run directory."""

    def __init__(self, stored: Stored) -> None:
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        for row, _ in stored.all():
            if row.fit_seconds is not None and not row.attack:
                total, count = self._seen.get((row.label, row.dataset), (0.0, 0))
                seconds = row.fit_seconds + (row.score_seconds or 0.0)
                self._seen[row.label, row.dataset] = (total + seconds, count + 1)

    def seconds(self, cell: Cell, dataset: Dataset, share: float = 1.0) -> float:
        total, count = self._seen.get((cell.method.label, cell.dataset.label), (0.0, 0))
        resources = registry.method_class(cell.method.name).resources
        return share * expected_seconds(resources, dataset, total / count if count else None)


# Why cells are done again -------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Circumstances:
    """Under what a cell was computed. Many cells share them, so that they are kept once."""

    status: str
    method: str
    parameters: str
    dataset: str
    dataset_parameters: str
    settings: tuple[object, ...]
    fingerprint: str
    source: str
    versions: str

    @property
    def split_seed(self) -> object:
        """Seed of the split, one of the settings."""
        return self.settings[_SETTINGS.index("split_seed")]

    @classmethod
    def of(cls, row: CellRow) -> Circumstances:
        """Return those of a stored cell."""
        secure = not row.study_only
        return cls(
            status=row.status,
            method=row.method,
            parameters=row.parameters,
            dataset=row.dataset_name or row.dataset,
            dataset_parameters=row.dataset_parameters,
            settings=(row.delta, row.split, row.split_seed, row.private_counts, secure),
            fingerprint=row.fingerprint,
            source=row.source_hash,
            versions=row.versions,
        )


@final
@dataclass(frozen=True)
class Index:
    """The stored cells of a run directory by what a person calls the same cell.

    About 200 bytes per cell: a hash of that name, and a reference to circumstances.
    """

    stored: Stored
    metrics: tuple[str, ...] = ()
    """Metrics that must have scored a cell for it to be done."""
    split_seeds: frozenset[int] = frozenset()
    """Seeds of the splits of the grid: its cells of one split are no earlier ones of another."""
    alike: dict[bytes, tuple[Circumstances, ...]] = field(default_factory=dict)
    """In the order in which they were stored."""

    @classmethod
    def of(
        cls, stored: Stored, metrics: Sequence[str] = (), split_seeds: Iterable[int] = ()
    ) -> Index:
        """Read the journal through once."""
        index = cls(stored, tuple(metrics), frozenset(split_seeds))
        shared: dict[Circumstances, tuple[Circumstances, ...]] = {}
        for row, _ in stored.all():
            if row.attack:
                continue
            now = Circumstances.of(row)
            alone = shared.setdefault(now, (now,))
            place = _place(row.label, row.dataset, row.ipc, row.full_size, row.eps_target, row.seed)
            index.alike[place] = (*index.alike[place], *alone) if place in index.alike else alone
        return index


def _place(
    label: str, dataset: str, ipc: int | None, full_size: bool, epsilon: float | None, seed: int
) -> bytes:
    # A grid may say 1 where another says 1.0.
    spend = None if epsilon is None else float(epsilon)
    name = repr((label, dataset, ipc, full_size, spend, seed))
    return hashlib.blake2b(name.encode(), digest_size=12).digest()


def why_not_cached(cell: Cell, key: str, index: Index) -> str:
    """Return the reason in a few words; the same words for the same reason."""
    row, _ = index.stored.finished.get(key, (None, ()))
    if row is not None:
        return _why_again(row, index)
    place = _place(
        cell.method.label, cell.dataset.label, cell.ipc, cell.full_size, cell.epsilon, cell.seed
    )
    others = index.split_seeds - {cell.split_seed}
    earlier = (then for then in index.alike.get(place, ()) if then.split_seed not in others)
    changes = [list(_changes(cell, key, then)) for then in earlier]
    # The nearest one; among equals the last.
    nearest = min(reversed(changes), key=len, default=["never run"])
    return "; ".join(nearest)


def _why_again(row: CellRow, index: Index) -> str:
    """The reason for a cell that is stored under its key and still has to be done."""
    if row.verdict == "":
        return f"failed before ({row.status})"
    if not index.stored.release_intact(row.key):
        return "release damaged"
    recorded = json.loads(row.metrics)
    missing = [name for name in index.metrics if name not in recorded]
    changed = [
        name
        for name in index.metrics
        if name in recorded and recorded[name] != keys.metric_hash(name)
    ]
    if missing or changed:
        said = [f"metrics missing: {_some(missing)}"] if missing else []
        said += [f"metrics changed: {_some(changed)}"] if changed else []
        # It then takes as long as a fit, which a reader would not expect of metrics alone.
        said += ["rows not stored, made again"] if index.stored.rows_not_stored(row.key) else []
        return "; ".join(said)
    if row.status != Status.OK.value:
        return f"failed before ({row.status})"
    return "release damaged"  # nothing else sends a good cell back: its rows cannot be read


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _changes(cell: Cell, key: str, then: Circumstances) -> Iterator[str]:
    """What distinguishes a planned cell from a stored one; never empty."""
    if not then.fingerprint:
        yield f"failed before ({then.status})"  # its dataset could not be loaded
        return
    count = 0
    for text in _known_changes(cell, key, then):
        count += 1
        yield text
    if not count:
        yield "harness changed (format of the key, or the method's environment)"


def _known_changes(cell: Cell, key: str, then: Circumstances) -> Iterator[str]:
    name = cell.method.name
    if then.method != name:
        yield f"method changed: {then.method} -> {name}"
    elif then.source != keys.method_source_hash(name):
        yield f"code changed ({name}, or a module that it imports)"
    if names := _different(dict(cell.method.parameters), then.parameters):
        yield f"parameters changed ({cell.method.label}: {', '.join(names)})"
    settings = [
        setting
        for setting, value in zip(_SETTINGS, then.settings, strict=True)
        if getattr(cell, setting) != value
    ]
    if settings:
        yield f"settings changed ({', '.join(settings)})"
    # The key of this cell with the stored fingerprint is its own key if that is its dataset's.
    # Another split has another fingerprint as well, which is no news.
    if (
        then.dataset != cell.dataset.name
        or _different(dict(cell.dataset.parameters), then.dataset_parameters)
        or (not set(settings) & set(_SPLIT) and keys.cell_key(cell, then.fingerprint) != key)
    ):
        yield f"dataset changed ({cell.dataset.label})"
    versions = json.loads(then.versions)
    for library, version in keys.method_libraries(name).items():
        if versions.get(library, version) != version:
            yield f"library changed: {library} {versions[library]} -> {version}"


def _different(now: dict[str, object], then: str) -> list[str]:
    """Names of parameters that are given otherwise."""
    # Through JSON, as stored: a tuple is a list there.
    given = json.loads(json.dumps(now))
    stored = json.loads(then)
    absent = object()
    return [
        name
        for name in sorted({*given, *stored})
        if given.get(name, absent) != stored.get(name, absent)
    ]


def summary(reasons: Iterable[str]) -> list[str]:
    """Return lines such as `12 cells: never run`, the most frequent first."""
    return [
        f"{count} {'cell' if count == 1 else 'cells'}: {reason}"
        for reason, count in Counter(reasons).most_common()
    ]


def explain(
    planned: Iterable[tuple[Cell, str]],
    stored: Stored,
    metrics: Sequence[str],
    split_seeds: Iterable[int] = (),
) -> list[str]:
    """Return the summary for cells that have to be done; nothing where nothing is stored yet."""
    if not len(stored.finished):
        return []
    index = Index.of(stored, metrics, split_seeds)
    return summary(why_not_cached(cell, key, index) for cell, key in planned)
