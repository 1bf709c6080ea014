"""Random Subsampling + DP: the baseline of the federated distillation paper (section 5.1).

Each centre chooses rows at random and adds noise calibrated to the budget; see `_random_rows` for
the mechanism and its sensitivity. Numbers are cut to the public bounds and categories become their
largest entry afterwards, which is post-processing. At epsilon 1 the noise of one number is some 3.7
times the width of its range, times the root of the number of columns: the rows are noise, and that
is the point of the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench import PrivateData, Release, Spec
from bench.methods.federated._at_clients import DistilsAtCentres
from bench.methods.federated._random_rows import RandomRowsDistiller


@final
@dataclass(frozen=True)
class RandomSubsamplingDp(DistilsAtCentres):
    """Random rows of each centre with noise that hides any row."""

    name: ClassVar[str] = "random-subsampling-dp"
    title: ClassVar[str] = "Random rows of each centre, perturbed (Random Subsampling + DP)"
    paper: ClassVar[str] = (
        "Xu, Jin and Su, Privacy-Enhanced Federated Data Distillation, section 5.1 (baseline)"
    )

    noisy_labels: bool = False
    """True perturbs the label as well, and makes no promise about the size of a class."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        claim = "Gaussian noise on each chosen row, calibrated to the target"
        distiller = RandomRowsDistiller(self.noisy_labels)
        return self.released(distiller, private, spec, rng, claim)
