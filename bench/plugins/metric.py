"""The contract of a metric plugin, and the evaluation that metrics share."""

from __future__ import annotations

import enum
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, cast, final

import numpy as np
import pandas as pd

from bench.data.dataset import Dataset
from bench.data.schema import Task
from bench.errors import NotComputable
from bench.plugins.references import References, references_of
from bench.plugins.release import Detector, Release, ReleasedModel, Rows

T = TypeVar("T")


class Direction(enum.StrEnum):
    """Which way is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEUTRAL = "neutral"


class Family(enum.StrEnum):
    """What a score speaks about."""

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
    """On the leaderboard's page; the others are in its tables."""


@final
@dataclass(frozen=True)
class Output:
    """One number that a metric gives, declared before anything is computed."""

    name: str
    """As it stands in the result tables; unique among all metrics."""
    direction: Direction
    definition: str = ""
    """What this number is, where the metric's own definition speaks about several."""
    limit: float | None = None
    """The paper's acceptance threshold."""
    weak: str = ""
    """For an attack that failed its power check: what was measured."""
    shown: bool = False
    """On the leaderboard's page. Few are: a page of a hundred columns shows nothing."""


@final
@dataclass(frozen=True)
class Scores:
    """What a metric computed: scores, and tables that plots and paired tests need."""

    scores: tuple[Score, ...]
    details: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Written to `details/<key>/<name>.parquet`."""


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
        """The synthetic rows in the units of the schema, as a reader would open them."""
        return self.shared(
            "decoded",
            lambda: self.dataset.encoder.decode(self.rows.values, self.rows.labels),
        )

    def shared(self, key: Hashable, build: Callable[[], T]) -> T:
        """Build once, use in every metric."""
        if key not in self._shared:
            self._shared[key] = build()
        return cast(T, self._shared[key])

    def reference(self, purpose: str, build: Callable[[np.random.Generator], T]) -> T:
        """Build once for all releases of this dataset that this process scores.

        For what depends on the real rows alone: models trained on them, distances among them. The
        generator depends on the dataset and the purpose, not on the seed of the cell.
        """
        if self._references is None:
            self._references = references_of(self.dataset)
        return self._references.get(purpose, build)

    def generator(self, purpose: str) -> np.random.Generator:
        """A generator of its own for each purpose: metrics do not disturb each other."""
        digest = hashlib.sha256(purpose.encode()).digest()
        return np.random.default_rng(
            np.random.SeedSequence([self._seed, int.from_bytes(digest[:8], "big")])
        )


class _Plugin(ABC):
    """What every metric says about itself."""

    name: ClassVar[str]
    family: ClassVar[Family]
    direction: ClassVar[Direction] = Direction.NEUTRAL
    """Of a metric that gives one number; others declare `outputs`."""
    definition: ClassVar[str]
    """One or two sentences, with paper and equation."""
    outputs: ClassVar[tuple[Output, ...]] = ()
    """The numbers it gives; empty for one number under the metric's own name."""
    tasks: ClassVar[tuple[Task, ...]] = tuple(Task)
    cost: ClassVar[str] = "seconds"
    """In words, for 10,000 released rows of a table with some 15 columns."""
    shown: ClassVar[bool] = True
    """Of a metric that gives one number: on the leaderboard's page."""
    optional: ClassVar[bool] = False
    """Left out unless it is asked for: takes minutes, or fits the method again."""

    @classmethod
    def declared(cls) -> tuple[Output, ...]:
        """Every number that this metric gives."""
        return cls.outputs or (Output(cls.name, cls.direction, shown=cls.shown),)

    @classmethod
    def score(
        cls, output: str, value: float, low: float | None = None, high: float | None = None
    ) -> Score:
        """The value of a declared output."""
        return cls._score(output, value, low, high)

    @classmethod
    def absent(cls, output: str, reason: str) -> Score:
        """A declared output without a value."""
        return cls._score(output, None, None, None, reason)

    @classmethod
    def all_absent(cls, reason: str) -> Scores:
        """None of the outputs has a value."""
        return Scores(tuple(cls.absent(output.name, reason) for output in cls.declared()))

    @classmethod
    def _score(
        cls,
        name: str,
        value: float | None,
        low: float | None,
        high: float | None,
        reason: str = "",
    ) -> Score:
        (output,) = (output for output in cls.declared() if output.name == name)
        remark = f"weak: {output.weak}" if output.weak else ""
        return Score(
            name,
            value,
            low,
            high,
            output.direction,
            cls.family,
            reason,
            output.limit,
            remark,
            output.shown,
        )


class Metric(_Plugin):
    """A score of a stored release. Raises `NotComputable("why")` where it has no value."""

    @abstractmethod
    def compute(self, evaluation: Evaluation) -> Scores:
        """Score the release."""


class Refit(Protocol):
    """Runs the method again on a changed training table; `repetition` gives fresh randomness."""

    def __call__(self, train: pd.DataFrame, repetition: int) -> Release: ...


class RefitMetric(_Plugin):
    """A score that needs the method to be fitted again (file membership, exposure, audits)."""

    @abstractmethod
    def compute(self, evaluation: Evaluation, refit: Refit) -> Scores:
        """Score the method behind the release."""
