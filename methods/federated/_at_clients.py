"""What the methods that distil at centres share: the same run for every distiller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench import Claim, Method, NotApplicable, PrivateData, Release, Spec, Traffic
from bench.methods.federated._clients import (
    Distiller,
    Setting,
    allotted,
    by_ratio,
    calibrated,
    distil_everywhere,
)


@dataclass(frozen=True)
class DistilsAtCentres(Method):
    """A method with centres: who holds which rows, and how many each releases."""

    by: str = "clients"
    """`clients`: with label skew; `site`: the sites that the dataset declares."""
    clients: int = 10
    alpha: float = 0.5
    """Of the Dirichlet shares of each class: the smaller, the more skew."""
    split_seed: int = 0
    ratio: float | None = None
    """Share of its declared rows that a centre releases (0.05: the paper's table 3). None: the IPC
    of the grid, split over the centres."""

    def released(
        self,
        distiller: Distiller,
        private: PrivateData,
        spec: Spec,
        rng: np.random.Generator,
        claim: str | None,
    ) -> Release:
        """Distil at every centre; `claim` is None for a distiller without noise."""
        if self.by == "site" and private.schema.site is None:
            raise NotApplicable("rows lie with sites, and the dataset has none; use by=clients")
        setting = Setting(self.by, self.clients, self.alpha, self.split_seed)
        centres = setting.centres.parts(private)
        sizes = (
            allotted(centres, spec.rows_per_class(private.counts))
            if self.ratio is None
            else by_ratio(centres, self.ratio)
        )
        noises: Mapping[str, float] | None = None
        notes = {"centres": float(len(centres)), "rows": float(sizes.sum())}
        if claim is not None:
            noises = calibrated(distiller, centres)
            private.reserve_all(
                plan
                for name, centre in centres.items()
                for plan in distiller.plans(centre, noises[name])
            )
            notes["smallest_noise_multiplier"] = min(noises.values())
            notes["largest_noise_multiplier"] = max(noises.values())
        traffic = Traffic()
        rows = distil_everywhere(distiller, centres, noises, sizes, traffic, rng)
        return Release(
            rows,
            claim=None if claim is None else Claim.of(spec.budget, claim),
            notes=notes,
            federation=setting.federation(traffic),
        )
