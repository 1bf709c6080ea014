"""The method under check, run on small tables behind the privacy kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.conformance.tables import (
    ToyClasses,
    ToyConstant,
    ToyImages,
    ToyOneFeature,
    ToySurvival,
    ToyTable,
)
from bench.data.dataset import Dataset
from bench.engine.fit import Randomness, run_method
from bench.errors import NotApplicable
from bench.plugins.method import Method
from bench.plugins.release import Release
from bench.plugins.source import DatasetSource, build_dataset
from bench.privacy import Budget, Ledger
from bench.privacy.noise import NoiseSource, SeededNoise

DELTA = 1e-5

TASKS: Mapping[str, DatasetSource] = {
    "table": ToyTable(),
    "three classes": ToyClasses(),
    "survival": ToySurvival(),
    "images": ToyImages(),
}
"""One table of each kind: a method need not fit all of them."""

AWKWARD: Mapping[str, DatasetSource] = {
    "tiny classes": ToyTable(negatives=20, positives=5),
    "constant columns": ToyConstant(),
    "one feature": ToyOneFeature(),
}

LARGE = "large table"
_SOURCES = {**TASKS, **AWKWARD, LARGE: ToyTable(negatives=1800, positives=1200)}


@functools.cache
def table(name: str) -> Dataset:
    """One of the small tables, split."""
    return build_dataset(_SOURCES[name])


@final
class SplitStreams(NoiseSource):
    """Sampling and noise from two generators: how many rows there are does not move the noise."""

    reproducible = True

    def __init__(self, seed: int) -> None:
        self._noise = SeededNoise(np.random.default_rng([seed, 0]))
        self._sampling = SeededNoise(np.random.default_rng([seed, 1]))

    def normal(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        return self._noise.normal(size)

    def laplace(self, size: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
        return self._noise.laplace(size)

    def poisson_sample(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        return self._sampling.poisson_sample(rows, rate)

    def generator(self) -> np.random.Generator:
        return self._noise.generator()


@final
@dataclass(frozen=True)
class Run:
    """One release of the method, with what the kernel wrote down."""

    release: Release
    ledger: Ledger
    budget: Budget | None
    dataset: Dataset


@final
class Subject:
    """A method with its hyperparameters."""

    def __init__(self, kind: type[Method], parameters: Mapping[str, Any] | None = None) -> None:
        self.name = kind.name
        self.kind = kind
        self.method = kind(**{**kind.quick, **(parameters or {})})

    @functools.cached_property
    def tasks(self) -> Mapping[str, str]:
        """Every kind of table, with the reason why the method does not fit it, or nothing.

        A larger one is tried where it fits none: some methods need a thousand rows.
        """
        reasons = {name: self._refusal(name) for name in TASKS}
        if all(reasons.values()):
            reasons[LARGE] = self._refusal(LARGE)
        return reasons

    def _refusal(self, name: str) -> str:
        try:
            self.run(name)
        except NotApplicable as reason:
            return str(reason) or "(no reason)"
        return ""

    @property
    def fitting(self) -> tuple[str, ...]:
        """Kinds of tables that it fits."""
        return tuple(name for name, reason in self.tasks.items() if not reason)

    @functools.lru_cache(maxsize=64)  # noqa: B019 (a subject lives as long as the command)
    def run(self, name: str, epsilon: float = 1.0, ipc: int | None = 12, seed: int = 0) -> Run:
        """A release for one of the tables; row functions are checked row by row."""
        return self.again(name, epsilon, ipc, seed)

    def again(self, name: str, epsilon: float = 1.0, ipc: int | None = 12, seed: int = 0) -> Run:
        """The same, made anew."""
        noise = SeededNoise(np.random.default_rng([seed, 0]))
        return self.open(table(name), noise, epsilon, ipc, seed)

    def open(
        self,
        dataset: Dataset,
        noise: NoiseSource,
        epsilon: float = 1.0,
        ipc: int | None = 12,
        seed: int = 0,
        *,
        blind: bool = False,
    ) -> Run:
        """A release for any table; `blind` answers every noisy call as if there were no rows."""
        budget = Budget(epsilon, DELTA) if self.method.uses_budget else None
        randomness = Randomness(noise, seed, np.random.default_rng([seed, 1]))
        release = run_method(
            self.method,
            dataset,
            randomness,
            ipc=ipc,
            budget=budget,
            delta=DELTA,
            check_rows=not blind,
            blind=blind,
        )
        assert release.ledger is not None
        return Run(release, release.ledger, budget, dataset)
