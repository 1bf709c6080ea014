"""Fits one cell, in our environment or in the method's own. Any exception becomes a status.

Code of a method runs where `run_method` is called. In a run that is a process of its own
(`bench.engine.isolation`), through which cells are fitted and metrics fit again: see `Fits`.

What comes back holds rows, a claim, notes and a ledger: events, not an epsilon. Proof and verdict
are computed from them in the main environment, whatever the method's own has installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar, final

import numpy as np
import pandas as pd

from bench.data.dataset import Dataset, Split
from bench.engine import keys
from bench.engine.failures import failure_of
from bench.engine.limits import peak_memory_mb, reset_peak_memory
from bench.environments.overlays import required_versions
from bench.errors import InvalidReleaseError, NotApplicable
from bench.plugins import registry
from bench.plugins.method import Environment, Method, Spec
from bench.plugins.release import Release
from bench.plugins.returned import check_ledger, check_release
from bench.privacy.accounting import Budget
from bench.privacy.interception import Interceptor
from bench.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from bench.privacy.opening import open_private
from bench.results.records import Cell, Status
from bench.results.timings import Stopwatch

Result = TypeVar("Result")


@final
@dataclass(frozen=True)
class FitResult:
    """Result of fitting: a release with its ledger, or why there is none."""

    status: Status
    release: Release | None = None
    reason: str = ""
    stack: str = ""
    """Places in the code where it failed, without any values."""
    log: str = ""
    """What it printed and the whole text of its exception: for the internal log only."""
    seconds: float | None = None
    peak_memory_mb: float | None = None
    processor_seconds: float | None = None
    """Of the fit, also of one that failed; `seconds` is known then too."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that the method's own environment brings."""

    @classmethod
    def failed(cls, problem: BaseException) -> FitResult:
        """Return the result of a fit that raised."""
        failure = failure_of(problem)
        return cls(failure.status, reason=failure.reason, stack=failure.stack, log=failure.log)


@final
@dataclass(frozen=True)
class MethodFacts:
    """What results say about a method beside its name.

    Importing a method runs its code: processes that prove and score are told these facts instead.
    """

    seeded: bool
    unit: str
    """Its own unit of privacy; empty for that of the dataset."""
    source_hash: str
    environment: Environment | None

    @classmethod
    def of(cls, kind: type[Method]) -> MethodFacts:
        """Return the facts of a class."""
        return cls(kind.seeded, kind.unit, keys.method_hash(kind), kind.environment)

    @classmethod
    def named(cls, name: str) -> MethodFacts:
        """Return the facts of a plugin, which is imported in this process."""
        return cls.of(registry.method_class(name))


class Fits(Protocol):
    """Where methods run: in this process, or each fit in a process of its own."""

    def fit(self, cell: Cell, dataset: Dataset) -> FitResult:
        """Fit one cell. Never raises."""

    def refit(self, cell: Cell, dataset: Dataset, purpose: str) -> Release:
        """Fit the method of a cell once more, for a metric; raise what it raised."""


@final
class InThisProcess:
    """Runs methods in this process, which they can change: for a caller who trusts them."""

    def fit(self, cell: Cell, dataset: Dataset) -> FitResult:
        """Fit one cell. Never raises."""
        return fit_cell(cell, dataset)

    def refit(self, cell: Cell, dataset: Dataset, purpose: str) -> Release:
        """Fit the method of a cell once more, for a metric."""
        return synthesize(cell, dataset, purpose)


def fit_cell(cell: Cell, dataset: Dataset) -> FitResult:
    """Fit one cell in this process. Never raises."""
    reset_peak_memory()
    watch = Stopwatch()
    release = guarded(lambda: synthesize(cell, dataset))
    took = watch.lap("", "fit")
    result = release if isinstance(release, FitResult) else FitResult(Status.OK, release)
    return replace(
        result,
        seconds=took.wall_seconds,
        processor_seconds=took.processor_seconds,
        peak_memory_mb=peak_memory_mb(),
    )


def guarded(work: Callable[[], Result]) -> Result | FitResult:
    """Return what the work gives; any exception as the status of the cell that it belongs to.

    Ctrl-C passes: in a process of the user it is meant for all cells.
    """
    try:
        return work()
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        # Also what is no `Exception`: Ray would take it for the end of the worker.
        return FitResult.failed(problem)


def fit_isolated(cell: Cell, dataset: Dataset) -> FitResult:
    """`fit_cell` for a process of the method's own environment: what it gives crosses to ours."""
    fitted = fit_cell(cell, dataset)
    environment = registry.method_class(cell.method.name).environment
    if fitted.release is None or environment is None:
        return fitted
    if fitted.release.model is not None:
        problem = InvalidReleaseError(
            "a method with its own environment must release rows: a model cannot leave it"
        )
        return FitResult(Status.ERROR, reason=str(problem))
    versions = {
        f"{environment.name}/{name}": version
        for name, version in required_versions(environment).items()
    }
    return replace(fitted, versions=versions)


def for_fitting(dataset: Dataset) -> Dataset:
    """Return the dataset without the rows that no method sees, and without tables in units.

    Less to share with another environment, whose pandas may be another.
    """

    def bare(split: Split, keep: bool) -> Split:
        rows = split.rows if keep else split.rows.take(np.zeros(0, dtype=np.intp))
        return Split(pd.DataFrame(), rows)

    return replace(
        dataset,
        train=bare(dataset.train, True),
        validation=bare(dataset.validation, True),
        control=bare(dataset.control, False),
        test=bare(dataset.test, False),
        clipped={},
        differs="",
    )


@final
@dataclass(frozen=True)
class Randomness:
    """Where the random numbers of one fit come from.

    The guarantee holds for every value of the public ones, whatever an attacker knows of them: no
    length of their seeds matters to it.
    """

    noise: NoiseSource
    """Noise and sampling of the kernel."""
    parts: int
    """Entropy of random parts, which is public."""
    public: np.random.Generator
    """What the method gets as `rng`."""

    @classmethod
    def of(
        cls, generator: Callable[[str], np.random.Generator], noise: NoiseSource | None = None
    ) -> Randomness:
        """Draw from one generator per purpose; noise from there too unless a source is given."""
        return cls(
            noise or SeededNoise(generator("noise")),
            int(generator("parts").integers(2**63)),
            generator("public"),
        )


def run_method(
    method: Method,
    dataset: Dataset,
    randomness: Randomness,
    *,
    ipc: int | None,
    budget: Budget | None,
    delta: float,
    private_counts: bool = False,
    check_rows: bool = False,
    interceptor: Interceptor | None = None,
) -> Release:
    """Run a method behind the privacy kernel; the release carries its ledger.

    Cells, trials of audits and conformance checks all fit by this function. `check_rows` and
    `interceptor` are options of the kernel for the conformance kit.
    """
    if method.unit and private_counts:
        raise NotApplicable(
            f"its unit of privacy is the {method.unit}; counts are bought with noise that hides a "
            "row (leave out --private-counts)"
        )
    private, ledger = open_private(
        dataset,
        budget,
        randomness.noise,
        delta=delta,
        private_counts=private_counts,
        check_rows=check_rows,
        interceptor=interceptor,
        public_entropy=randomness.parts,
        unit=method.unit,
    )
    release = method.synthesize(private, Spec(dataset.task, ipc, budget), randomness.public)
    release = check_release(release, dataset.encoder)
    check_ledger(ledger)
    return replace(release, ledger=ledger)


def synthesize(cell: Cell, dataset: Dataset, purpose: str = "") -> Release:
    """Run the method of a cell behind the privacy kernel; the release carries its ledger.

    `purpose` names another fit of the same cell, which draws other numbers.
    """
    seed = keys.seed_of(cell)

    def generator(what: str) -> np.random.Generator:
        """Return randomness that depends on no row.

        With secure noise it comes from the operating system as well: two secure releases of one
        cell are independent. Seeded noise protects nobody, which `study only` says.
        """
        if cell.secure_noise:
            return np.random.default_rng()
        return keys.generator(seed, f"{what}{purpose}")

    return run_method(
        registry.build_method(cell.method.name, dict(cell.method.parameters)),
        dataset,
        Randomness.of(generator, SystemNoise() if cell.secure_noise else None),
        ipc=cell.ipc,
        budget=None if cell.epsilon is None else Budget(cell.epsilon, cell.delta),
        delta=cell.delta,
        private_counts=cell.private_counts,
    )
