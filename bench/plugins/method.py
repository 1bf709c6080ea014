"""The contract of a method plugin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench.data.counts import Counts
from bench.data.schema import Task
from bench.plugins.environment import Environment
from bench.plugins.release import Release
from bench.plugins.resources import Resources
from bench.privacy.accounting import Budget
from bench.privacy.kernel import PrivateData


@final
@dataclass(frozen=True)
class Spec:
    """What the grid asks of one cell."""

    task: Task
    ipc: int | None
    """Synthetic rows per class (for survival: per event status); None asks for full size."""
    budget: Budget | None

    def rows_per_class(self, counts: Counts) -> tuple[int, ...]:
        """How many rows to make of each class: IPC, or as many as declared for full size."""
        return tuple(self.ipc if self.ipc is not None else count for count in counts.by_class)


class Method(ABC):
    """A way to make a release. Subclasses are frozen dataclasses whose fields are hyperparameters.

    A method that does not fit a task raises `NotApplicable("why")`: the cell is skipped.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    uses_budget: ClassVar[bool] = True
    """False for a method without a privacy budget: it runs once, not once per epsilon."""
    uses_ipc: ClassVar[bool] = True
    """False for a method whose release has one size only: it runs once, not once per IPC."""
    quick: ClassVar[Mapping[str, Any]] = {}
    """Hyperparameters with which it takes a second on a toy table, where the usual ones take
    longer. The contract tests use them: what they check holds for any setting."""

    environment: ClassVar[Environment | None] = None
    """Packages that it needs beside or instead of ours: its cells are fitted there."""
    seeded: ClassVar[bool] = True
    """False where a wrapped library ignores seeds: its cells are marked as not reproducible."""

    resources: ClassVar[Resources] = Resources()
    """CPUs, GPU, memory and time that it needs; what is not declared goes by the dataset's size."""
    unit: ClassVar[str] = ""
    """Whom the guarantee protects, where it is not the dataset's unit: "client" for a method that
    hides a whole centre. Such methods are listed apart."""

    @abstractmethod
    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        """Make a release. `rng` is public randomness; private noise comes from the kernel."""

    def parameters(self) -> dict[str, Any]:
        """Hyperparameters, for keys and result tables."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]
