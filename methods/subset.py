"""A random sample of real training rows: the baseline of condensation to the same size."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench import Method, NotApplicable, PrivateData, Release, Rows, Spec


@final
@dataclass(frozen=True)
class Subset(Method):
    """A random sample of each class. No privacy at all.

    Rows are drawn without replacement; the rows of a class that is too small are repeated.
    """

    name: ClassVar[str] = "subset"
    title: ClassVar[str] = "Random real rows of each class"
    paper: ClassVar[str] = "none: a baseline of this benchmark"
    family: ClassVar[str] = "real rows"
    tuned_on: ClassVar[tuple[str, ...]] = ()
    uses_budget: ClassVar[bool] = False

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        sizes = spec.rows_per_class(private.counts)
        rows = private.raw("the release is a random subset of the real training rows")
        if not len(rows):
            raise NotApplicable("it draws from the real rows, and there are none")
        chosen = np.concatenate(
            [
                np.resize(rng.permutation(np.flatnonzero(rows.labels == label)), size)
                for label, size in enumerate(sizes)
                if (rows.labels == label).any()
            ]
        )
        return Release(Rows(rows.values[chosen], rows.labels[chosen]))
