"""Noise that does not follow the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench.conformance.mistakes.sound import Example, around_class_means
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.privacy.kernel import PrivateData


@final
@dataclass(frozen=True)
class FixedNoise(Example):
    """Takes the noise multiplier of the paper's table for epsilon 1, whatever the budget is."""

    name: ClassVar[str] = "fixed-noise"
    title: ClassVar[str] = "noise that is not calibrated to the budget"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        return around_class_means(private, spec, rng, noise=4.0)
