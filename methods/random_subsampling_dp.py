"""Random Subsampling + DP: the baseline of the federated distillation paper (section 5.1).

Each centre chooses rows at random and adds noise calibrated to the budget; see `_random_rows` for
the mechanism and its sensitivity. Numbers are cut to the public bounds and categories become their
largest entry afterwards, which is post-processing. At epsilon 1 the noise of one number is some
seven times the width of its range times the root of the number of columns: the rows are noise, and
that is the point of the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np

from bench.core.federation import Traffic
from bench.core.method import Method, Spec
from bench.core.privacy import PrivateData
from bench.core.release import Claim, Release
from bench.methods._federated import Setting, allotted, by_ratio, calibrated, distil_everywhere
from bench.methods._random_rows import RandomRowsDistiller


@final
@dataclass(frozen=True)
class RandomSubsamplingDp(Method):
    """Random rows of each centre with noise that hides any row."""

    name: ClassVar[str] = "random-subsampling-dp"
    title: ClassVar[str] = "Random rows of each centre, perturbed (Random Subsampling + DP)"
    paper: ClassVar[str] = (
        "Xu, Jin and Su, Privacy-Enhanced Federated Data Distillation, section 5.1 (baseline)"
    )

    by: Literal["clients", "site"] = "clients"
    clients: int = 10
    alpha: float = 0.5
    split_seed: int = 0
    ratio: float | None = None
    """Share of each centre's rows to make (5% in the paper); None takes the IPC of the grid."""
    noisy_labels: bool = False
    """True perturbs the label as well, and makes no promise about the size of a class."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        setting = Setting(self.by, self.clients, self.alpha, self.split_seed)
        centres = setting.centres.parts(private)
        distiller = RandomRowsDistiller(self.noisy_labels)
        sizes = (
            allotted(centres, spec.rows_per_class(private.counts))
            if self.ratio is None
            else by_ratio(centres, self.ratio)
        )
        noises = calibrated(distiller, centres)
        private.reserve_all(
            plan
            for name, centre in centres.items()
            for plan in distiller.plans(centre, noises[name])
        )
        traffic = Traffic()
        rows = distil_everywhere(distiller, centres, noises, sizes, traffic, rng)
        claim = Claim.of(spec.budget, "Gaussian noise on each chosen row, calibrated to the target")
        notes = {"noise_multiplier": max(noises.values())}
        return Release(rows, claim=claim, notes=notes, federation=setting.federation(traffic))
