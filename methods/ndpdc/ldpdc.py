"""LDPDC, linear differentially private dataset condensation (Zheng and Li, Algorithm 1).

For each class c and each j = 1..M: draw a Poisson sample of T_c with rate L / N_c and release

    s_j^c = (N(0, sigma^2 I) + sum of sampled x) / L,   sigma = noise_multiplier * |x|_max.

By Theorem III.1 one row of class c takes part in M sampled Gaussian mechanisms of rate L / N_c;
classes are disjoint, so epsilon is the largest class's. |x|_max is the largest norm that the
schema allows: sqrt(d) for images in [-1, 1]^d as in the paper, less for one-hot columns.

Deviations: one noise for all classes, calibrated to the budget (the paper fixes sigma = sqrt(d):
set `noise_multiplier=1` for that). N_c is the declared count. For
survival the classes are the event statuses, and the time is one more coordinate of x.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench import Claim, Method, PlannedEvents, PrivateData, Release, Rows, Spec, sampled_gaussian


@final
@dataclass(frozen=True)
class Ldpdc(Method):
    """Noisy sums of Poisson samples, one synthetic row each."""

    name: ClassVar[str] = "ldpdc"
    title: ClassVar[str] = "Linear DP dataset condensation"
    paper: ClassVar[str] = "Zheng and Li, Differentially Private Dataset Condensation, Algorithm 1"
    link: ClassVar[str] = "https://openreview.net/forum?id=H8XpqEkbua_"
    family: ClassVar[str] = "condensation"
    tuned_on: ClassVar[tuple[str, ...]] = ("unknown",)

    group_size: float = 50.0
    """Expected number of rows in a sum: L."""
    noise_multiplier: float | None = None
    """None calibrates the noise to the budget."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        parts = private.partition("class").values()
        sizes = spec.rows_per_class(private.counts)

        def plans(noise: float) -> list[PlannedEvents]:
            return [
                part.plan(sampled_gaussian(part.rate(self.group_size), noise), size)
                for part, size in zip(parts, sizes, strict=True)
            ]

        noise = self.noise_multiplier or private.calibrate(plans)
        private.reserve_all(plans(noise))
        clip = private.encoder.max_norm
        sums = [
            part.poisson_sum(lambda rows: rows.values, clip, noise, part.rate(self.group_size))
            for part, size in zip(parts, sizes, strict=True)
            for _ in range(size)
        ]
        rows = Rows(np.asarray(sums) / self.group_size, np.repeat(np.arange(len(sizes)), sizes))
        claim = Claim.of(spec.budget, "Theorem III.1, noise calibrated to the target")
        return Release(rows, claim=claim, notes={"noise_multiplier": noise})
