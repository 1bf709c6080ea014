"""FDD without differential privacy: the "FDD (w/o DP)" of the paper's tables 4 and 5.

The loss of `fdd`, on all rows of a client in every step, without clipping and noise. There are more
probes and steps, because they cost time only: what equation 4 can give, not what noise alone takes
away. Rows are not protected by being generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import PrivateData, Release, Spec
from bench.methods.federated._characteristic import RawDescentSettings, RawDistiller
from bench.methods.federated._clients import DistilsAtClients


@final
@dataclass(frozen=True)
class FddNodp(DistilsAtClients, RawDescentSettings):
    """Generators at the clients that match characteristic functions, without noise."""

    name: ClassVar[str] = "fdd-nodp"
    title: ClassVar[str] = "Federated data distillation without privacy (FDD w/o DP)"
    paper: ClassVar[str] = (
        "Xu, Jin and Su, Privacy-Enhanced Federated Data Distillation for Efficient Distributed "
        "Training and Anomaly Detection in Multi-Center Healthcare"
    )
    family: ClassVar[str] = "federated distillation"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult",)
    uses_budget: ClassVar[bool] = False

    quick: ClassVar[Mapping[str, Any]] = {"clients": 3, "steps": 4, "probes": 2, "hidden": (16,)}

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        return self.released(self.settings_of(RawDistiller), private, spec, rng, claim=None)
