"""Randomness from a global generator. In a module by itself, as the source is read by files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from bench.conformance.mistakes.sound import Example, around_class_means
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.privacy.kernel import PrivateData


@final
@dataclass(frozen=True)
class GlobalGenerator(Example):
    """Scatters the released rows by NumPy's global generator instead of the one passed in.

    The release cannot be reproduced, and whoever seeds the generator shares its numbers.
    """

    name: ClassVar[str] = "global-generator"
    title: ClassVar[str] = "a global generator"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        release = around_class_means(private, spec, rng)
        assert release.rows is not None
        scatter = np.random.normal(0.0, 0.05, release.rows.values.shape)  # noqa: NPY002
        values = np.clip(release.rows.values + scatter, -1.0, 1.0)
        return replace(release, rows=replace(release.rows, values=values))
