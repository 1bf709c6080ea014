"""The real training rows, released as they are: the real-data reference (ceiling)."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench import Method, PrivateData, Release, Rows, Spec


@final
@dataclass(frozen=True)
class Real(Method):
    """No privacy at all: what a release could reach at best."""

    name: ClassVar[str] = "real"
    title: ClassVar[str] = "Real training rows (ceiling)"
    paper: ClassVar[str] = "none: a baseline of this benchmark"
    family: ClassVar[str] = "real rows"
    tuned_on: ClassVar[tuple[str, ...]] = ()
    uses_budget: ClassVar[bool] = False
    uses_ipc: ClassVar[bool] = False

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        rows = private.raw("the release is the real training rows")
        return Release(Rows(rows.values, rows.labels))
