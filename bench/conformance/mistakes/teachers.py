"""Models of the parts of a partition that are not separate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench.conformance.mistakes.sound import Array, Example, fit_teacher, teachers_vote
from bench.data.encoder import EncodedRows
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.privacy.kernel import PrivateData


@final
@dataclass(frozen=True)
class SharedTeachers(Example):
    """Starts each teacher from the one before, to save time.

    A row changes the votes of its own teacher and of all later ones, while the noise hides one.
    """

    name: ClassVar[str] = "shared-teachers"
    title: ClassVar[str] = "teachers that share state"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        classes = len(private.schema.classes)
        last: list[Array] = []

        def fit(rows: EncodedRows, _: np.random.Generator) -> Array:
            last.append(fit_teacher(rows, classes, last[-1] if last else None))
            return last[-1]

        return teachers_vote(private, spec, rng, fit)
