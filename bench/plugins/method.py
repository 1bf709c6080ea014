"""The contract of a method plugin, and what a method may need: packages, CPUs, memory, time.

Light: commands that only ask what a method needs load no accounting.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from bench.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from bench.data.dataset import Counts
    from bench.data.schema import Task
    from bench.plugins.release import Release
    from bench.privacy.accounting import Budget
    from bench.privacy.kernel import PrivateData


UNKNOWN = "unknown"
"""Word in `Method.tuned_on` where it is not on record which datasets were in view."""


@final
@dataclass(frozen=True)
class Environment:
    """Packages laid over the main environment, where they cannot be part of it.

    A method names one in `Method.environment`; its cells are then fitted by that environment's
    interpreter and scored by ours. What a method of an environment imports at its module's top
    level must be in the main environment too: the registry lists it from there.
    """

    name: str
    requirements: tuple[str, ...]
    """Pinned requirements for pip; what the main environment has need not be listed."""
    modules: tuple[str, ...]
    """Modules imported once after a build; an environment in which one fails is not used."""

    @property
    def digest(self) -> str:
        """Hash of what makes the environment: two with the same digest are the same."""
        content = json.dumps([self.requirements, self.modules])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


@final
@dataclass(frozen=True)
class Resources:
    """What a method needs of a machine. CPUs also cap the threads; time and memory are limits."""

    cpus: int = 1
    gpus: float = 0.0
    """Requested where the cluster has any; elsewhere the method runs on CPUs."""
    memory_mb: int | None = None
    """None derives it from the size of the dataset."""
    minutes: float | None = None
    """Time of a whole cell, its scores included; None derives it from the size of the dataset.
    Cells that may take long are started first."""

    def __post_init__(self) -> None:
        sizes = (self.cpus, self.memory_mb or 1, self.minutes or 1)
        if min(sizes) <= 0 or self.gpus < 0:
            raise InputError(f"{self}: CPUs, memory, minutes must be positive, GPUs not negative")


@final
@dataclass(frozen=True)
class Between:
    """Range of a hyperparameter that `bench tune` may choose from, both ends included."""

    low: float
    high: float
    log: bool = False
    """True where factors count rather than differences, as for learning rates."""
    whole: bool = False
    """True for whole numbers."""

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise InputError(f"{self}: expected low < high, and low above 0 with log=True")

    def at(self, place: float) -> float | int:
        """Return the value at a place in [0, 1), with four significant digits."""
        if self.whole:
            # Each whole number has an interval of its own, of the same length (or factor).
            low, high = self.low - 0.5, self.high + 0.5
            value = low * (high / low) ** place if self.log else low + (high - low) * place
            return int(min(max(round(value), self.low), self.high))
        factor = (self.high / self.low) ** place if self.log else 0.0
        value = self.low * factor if self.log else self.low + (self.high - self.low) * place
        return float(f"{value:.4g}")


@final
@dataclass(frozen=True)
class Spec:
    """What the grid asks of one cell."""

    task: Task
    ipc: int | None
    """Synthetic rows per class (for survival: per event status); None asks for full size."""
    budget: Budget | None

    def rows_per_class(self, counts: Counts) -> tuple[int, ...]:
        """Return how many rows to make of each class: IPC, or the declared count for full size."""
        return tuple(self.ipc if self.ipc is not None else count for count in counts.by_class)


class Method(ABC):
    """Makes a release. Subclasses are frozen dataclasses whose fields are hyperparameters.

    A method that does not fit a task raises `NotApplicable("why")`: the cell is skipped.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    """Authors, title, venue and year of the paper; "none: ..." says where there is none."""
    link: ClassVar[str] = ""
    """Address of the paper, beginning with https."""
    family: ClassVar[str] = ""
    """Kind of method in a word or two, such as "marginals" or "condensation"."""
    by_maintainers: ClassVar[bool] = False
    """True for a method that the maintainers of this benchmark designed or changed: pages mark it,
    because whoever writes a benchmark should not be taken for a neutral author."""
    uses_budget: ClassVar[bool] = True
    """False for a method without a privacy budget: it runs once, not once per epsilon."""
    uses_ipc: ClassVar[bool] = True
    """False for a method whose release has one size only: it runs once, not once per IPC."""
    quick: ClassVar[Mapping[str, Any]] = {}
    """Hyperparameters with which it takes a second on a toy table, where the defaults take longer.
    The contract tests use them: what they check holds for any setting."""

    tuned_on: ClassVar[tuple[str, ...]] = (UNKNOWN,)
    """Datasets whose rows, or scores on them, were in view when the defaults were chosen.

    Names of dataset plugins: those that its author looked at, those that the authors of the paper
    say they looked at, and those that hold some of the same people. "unknown" among them means that
    there may be others, which are not on record; an empty tuple, that no dataset was in view."""

    search: ClassVar[Mapping[str, Sequence[Any] | Between]] = {}
    """Hyperparameters that `bench tune` may choose, each from a few values or from a range.

    Everybody has the same number of trials, so that a wide space is no advantage. Parameters that
    change what is claimed or proven, such as a noise multiplier, do not belong here."""

    environment: ClassVar[Environment | None] = None
    """Packages that it needs beside or instead of ours; its cells are fitted there."""
    seeded: ClassVar[bool] = True
    """False where a wrapped library ignores seeds: its cells are marked as not reproducible."""

    resources: ClassVar[Resources] = Resources()
    """CPUs, GPU, memory and time; what is not declared is derived from the dataset's size."""
    unit: ClassVar[str] = ""
    """Whom the guarantee protects, where it is not the dataset's unit: "client" for a method that
    hides a whole client. Such methods are listed apart."""

    @abstractmethod
    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        """Make a release. `rng` is public randomness; private noise comes from the kernel."""

    def parameters(self) -> dict[str, Any]:
        """Return the hyperparameters, for keys and result tables."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]
