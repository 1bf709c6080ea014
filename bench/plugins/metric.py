"""The contract of a metric plugin, and what metrics share: the evaluation and its references."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, cast, final

import numpy as np
import pandas as pd

from bench.data.dataset import Dataset
from bench.data.schema import Task
from bench.errors import NotComputable
from bench.plugins.reference_values import put_together, taken_apart
from bench.plugins.release import Detector, Release, ReleasedModel, Rows

T = TypeVar("T")


class Direction(enum.StrEnum):
    """Which way is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEUTRAL = "neutral"


class Family(enum.StrEnum):
    """What a score is about."""

    UTILITY = "utility"
    FIDELITY = "fidelity"
    PRIVACY = "privacy"
    COST = "cost"


HEADLINES: Mapping[str, str] = {
    Task.CLASSIFICATION.value: "auroc",
    Task.SURVIVAL.value: "c-index/cox",
    Task.IMAGE.value: "accuracy/convnet",
}
"""The number by which releases for a task are ranked and compared."""


@final
@dataclass(frozen=True)
class Score:
    """One number about one release, with its 95% interval. Absent scores carry a reason instead."""

    metric: str
    value: float | None
    low: float | None
    high: float | None
    direction: Direction
    family: Family
    reason: str = ""
    limit: float | None = None
    """The paper's acceptance threshold, where it has one: a worse value is not acceptable."""
    remark: str = ""
    """What a reader must know beside the number: `weak: ...` for an attack without power."""
    shown: bool = True
    """True for a number on the leaderboard's page; the others are in its tables."""


@final
@dataclass(frozen=True)
class Output:
    """One number that a metric computes, declared beforehand."""

    name: str
    """As it stands in the result tables; unique among all metrics."""
    direction: Direction
    definition: str = ""
    """What this number is, where the metric's own definition is about several."""
    limit: float | None = None
    """The paper's acceptance threshold."""
    weak: str = ""
    """For an attack that failed its power check: what was measured."""
    shown: bool = False
    """True for a number on the leaderboard's page; too many of them make it unreadable."""

    @property
    def accepted(self) -> str:
        """The acceptance threshold in words, such as `< 0.1`; empty where there is none."""
        sign = ">=" if self.direction is Direction.HIGHER else "<"
        return "" if self.limit is None else f"{sign} {self.limit:g}"


@final
@dataclass(frozen=True)
class Scores:
    """What a metric computed: scores, and tables that plots and paired tests need."""

    scores: tuple[Score, ...]
    details: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Written to `details/<key>/<name>.parquet`."""


_DATASETS_KEPT = 2
"""A worker scores a grid dataset by dataset, or nearly so."""


class ReferenceKeeper(Protocol):
    """Keeps references beyond this process, for the others of the same run."""

    def __call__(
        self, dataset: bytes, purpose: str, build: Callable[..., T], make: Callable[[], T]
    ) -> T:
        """Return what is kept for this purpose, or what `make` gives by the code of `build`."""
        ...


_KEEPER: ContextVar[ReferenceKeeper | None] = ContextVar("keeper of references", default=None)


@contextlib.contextmanager
def keeping_references(keeper: ReferenceKeeper) -> Iterator[None]:
    """Let a keeper share the references of evaluations with other processes."""
    before = _KEEPER.set(keeper)
    try:
        yield
    finally:
        _KEEPER.reset(before)


@final
class References:
    """What was computed from the real rows of a dataset alone, kept for all its releases.

    A grid scores many releases of one dataset, and a worker process scores one after the other:
    models trained on the real rows and distances among them are computed once per process, and
    where a keeper shares them, once per run.
    """

    def __init__(self, digest: bytes) -> None:
        self._digest = digest
        self._built: dict[str, Any] = {}

    def get(self, purpose: str, build: Callable[[np.random.Generator], T]) -> T:
        """Return what was built for this purpose, building it if necessary."""
        if purpose not in self._built:

            def make() -> T:
                entropy = hashlib.sha256(self._digest + purpose.encode()).digest()
                seed = np.random.SeedSequence(int.from_bytes(entropy, "big"))
                value = build(np.random.default_rng(seed))
                parts = taken_apart(value)
                # As it would be read: arrays in another order of memory round otherwise.
                return value if parts is None else cast(T, put_together(parts))

            keeper = _KEEPER.get()
            kept = make() if keeper is None else keeper(self._digest, purpose, build, make)
            self._built[purpose] = kept
        return cast(T, self._built[purpose])


_KEPT: OrderedDict[bytes, References] = OrderedDict()


def references_of(dataset: Dataset) -> References:
    """Return those of this dataset, recognised by its rows and not by its name."""
    key = _digest(dataset)
    references = _KEPT.setdefault(key, References(key))
    _KEPT.move_to_end(key)
    while len(_KEPT) > _DATASETS_KEPT:
        _KEPT.popitem(last=False)
    return references


def _digest(dataset: Dataset) -> bytes:
    digest = hashlib.blake2b(dataset.fingerprint.encode(), digest_size=16)
    for split in (dataset.train, dataset.validation, dataset.control, dataset.test):
        for array in (split.rows.values, split.rows.labels, split.rows.sites):
            digest.update(str((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


@final
class Evaluation:
    """One release to be scored. Work that several metrics need is done once, through `shared`."""

    def __init__(self, dataset: Dataset, release: Release, seed: int, threads: int = 1) -> None:
        self.dataset = dataset
        self.release = release
        self.threads = threads
        self._seed = seed
        self._shared: dict[Hashable, Any] = {}
        self._references: References | None = None
        self._building = False
        self.reference_seconds = 0.0
        """Processor time that building references has taken so far, for the timings of a cell."""

    @property
    def rows(self) -> Rows:
        """The synthetic rows; a model release has none."""
        if self.release.rows is None:
            raise NotComputable("the release is a model, not rows")
        return self.release.rows

    @property
    def predictor(self) -> ReleasedModel | None:
        """The released model that answers the task's question; None for a release of rows."""
        if isinstance(self.release.model, Detector):
            raise NotComputable("the release is a detector of anomalies: it predicts no label")
        return self.release.model

    @property
    def decoded(self) -> pd.DataFrame:
        """The synthetic rows in the units of the schema, complete (see `Encoder.decode`)."""
        return self.shared(
            "decoded",
            lambda: self.dataset.encoder.decode(self.rows.values, self.rows.labels, complete=True),
        )

    def shared(self, key: Hashable, build: Callable[[], T]) -> T:
        """Build once, use in every metric."""
        if key not in self._shared:
            self._shared[key] = build()
        return cast(T, self._shared[key])

    def reference(self, purpose: str, build: Callable[[np.random.Generator], T]) -> T:
        """Build once for all releases of this dataset that are scored in a run.

        For what depends on the real rows alone: models trained on them, distances among them. The
        generator depends on the dataset and the purpose, not on the seed of the cell. All that the
        value depends on beside the dataset and the code is part of the purpose. Values of numbers,
        texts, arrays, boosters of XGBoost, and tuples, lists, dictionaries and dataclasses of these
        are shared by the processes of a run; others are built once per process.
        """
        if self._references is None:
            self._references = references_of(self.dataset)
        if self._building:  # a reference that needs another: the time is that of the outer one
            return self._references.get(purpose, build)
        self._building, started = True, time.process_time()
        try:
            return self._references.get(purpose, build)
        finally:
            self._building = False
            self.reference_seconds += time.process_time() - started

    def generator(self, purpose: str) -> np.random.Generator:
        """Return one generator per purpose, so that metrics do not disturb each other."""
        digest = hashlib.sha256(purpose.encode()).digest()
        return np.random.default_rng(
            np.random.SeedSequence([self._seed, int.from_bytes(digest[:8], "big")])
        )


class _Plugin(ABC):
    """What every metric declares about itself."""

    name: ClassVar[str]
    family: ClassVar[Family]
    direction: ClassVar[Direction] = Direction.NEUTRAL
    """Direction of a metric with one number; others declare `outputs`."""
    definition: ClassVar[str]
    """One or two sentences, with paper and equation."""
    outputs: ClassVar[tuple[Output, ...]] = ()
    """The numbers that it computes; empty for one number with the name of the metric."""
    tasks: ClassVar[tuple[Task, ...]] = tuple(Task)
    cost: ClassVar[str] = "seconds"
    """Time in words, for 10,000 released rows of a table with some 15 columns."""
    shown: ClassVar[bool] = True
    """True puts a metric with one number on the leaderboard's page."""
    optional: ClassVar[bool] = False
    """True for a metric that is computed on request only: it takes minutes, or refits."""

    @classmethod
    def declared(cls) -> tuple[Output, ...]:
        """Return every number that this metric computes."""
        return cls.outputs or (Output(cls.name, cls.direction, shown=cls.shown),)

    @classmethod
    def score(
        cls,
        name: str,
        value: float | None,
        low: float | None = None,
        high: float | None = None,
        reason: str = "",
    ) -> Score:
        """Return the score of a declared output."""
        (output,) = (output for output in cls.declared() if output.name == name)
        return Score(
            name,
            value,
            low,
            high,
            output.direction,
            cls.family,
            reason,
            output.limit,
            remark=f"weak: {output.weak}" if output.weak else "",
            shown=output.shown,
        )

    @classmethod
    def absent(cls, output: str, reason: str) -> Score:
        """Return the score of a declared output that has no value."""
        return cls.score(output, None, reason=reason)

    @classmethod
    def all_absent(cls, reason: str) -> Scores:
        """Return scores without a value for all outputs."""
        return Scores(tuple(cls.absent(output.name, reason) for output in cls.declared()))


class Metric(_Plugin):
    """A score of a stored release. Raises `NotComputable("why")` where it has no value."""

    @abstractmethod
    def compute(self, evaluation: Evaluation) -> Scores:
        """Score the release."""


class Refit(Protocol):
    """Fits the method again on a changed training table, with randomness by `repetition`."""

    def __call__(self, train: pd.DataFrame, repetition: int) -> Release: ...


class RefitMetric(_Plugin):
    """A score that needs the method to be fitted again (file membership, exposure, audits)."""

    @abstractmethod
    def compute(self, evaluation: Evaluation, refit: Refit) -> Scores:
        """Score the method behind the release."""
