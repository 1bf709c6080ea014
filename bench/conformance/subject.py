"""The method under check, run on small tables behind the privacy kernel, and results of checks."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from bench.conformance.tables import LARGE, TASKS, toy_dataset
from bench.data.dataset import Dataset
from bench.engine.fit import Randomness, run_method
from bench.errors import NotApplicable
from bench.plugins.method import Method
from bench.plugins.release import Release
from bench.privacy.accounting import Budget
from bench.privacy.interception import Interceptor
from bench.privacy.ledger import Ledger
from bench.privacy.noise import NoiseSource, SeededNoise

DELTA = 1e-5


class CheckStatus(enum.StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "FAILED"
    WARNING = "warning"
    NOT_CHECKED = "not checked"


@final
@dataclass(frozen=True)
class CheckResult:
    """One check of one method."""

    check: str
    status: CheckStatus
    detail: str = ""
    """What was observed."""
    fix: str = ""
    """What the author of the method can do."""


def passed_unless(problems: object) -> CheckStatus:
    """Return FAILED where there are problems, else PASSED."""
    return CheckStatus.FAILED if problems else CheckStatus.PASSED


@final
@dataclass(frozen=True)
class Run:
    """One release of the method, with its ledger."""

    release: Release
    ledger: Ledger
    budget: Budget | None
    dataset: Dataset


@final
class Subject:
    """A method with its hyperparameters."""

    def __init__(
        self,
        kind: type[Method],
        parameters: Mapping[str, Any] | None = None,
        tables: Sequence[str] = tuple(TASKS),
    ) -> None:
        self.name = kind.name
        self.kind = kind
        self.tables = tables
        self.method = kind(**{**kind.quick, **(parameters or {})})

    @functools.cached_property
    def tasks(self) -> Mapping[str, str]:
        """Kinds of tables, each with the reason why the method does not fit it, or empty.

        A larger table is tried where it fits none: some methods need a thousand rows.
        """
        reasons = {name: self._refusal(name) for name in self.tables}
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
        """Kinds of tables that the method fits."""
        return tuple(name for name, reason in self.tasks.items() if not reason)

    @functools.lru_cache(maxsize=64)  # noqa: B019 (a subject lives as long as the command)
    def run(self, name: str, epsilon: float = 1.0, ipc: int | None = 12, seed: int = 0) -> Run:
        """Return a release for one of the tables, cached; row functions are checked row by row."""
        return self.again(name, epsilon, ipc, seed)

    def again(self, name: str, epsilon: float = 1.0, ipc: int | None = 12, seed: int = 0) -> Run:
        """Return the same release, made anew."""
        noise = SeededNoise(np.random.default_rng([seed, 0]))
        return self.open(toy_dataset(name), noise, epsilon, ipc, seed)

    def open(
        self,
        dataset: Dataset,
        noise: NoiseSource,
        epsilon: float = 1.0,
        ipc: int | None = 12,
        seed: int = 0,
        *,
        interceptor: Interceptor | None = None,
    ) -> Run:
        """Fit any table. An interceptor sees each row function called once, as in a release."""
        budget = Budget(epsilon, DELTA) if self.method.uses_budget else None
        randomness = Randomness(noise, seed, np.random.default_rng([seed, 1]))
        release = run_method(
            self.method,
            dataset,
            randomness,
            ipc=ipc,
            budget=budget,
            delta=DELTA,
            check_rows=interceptor is None,
            interceptor=interceptor,
        )
        assert release.ledger is not None
        return Run(release, release.ledger, budget, dataset)
