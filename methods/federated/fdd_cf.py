"""FDD with one noisy query: generators trained on privatised characteristic functions.

As `fdd`, but each client adds noise once to the characteristic function of each of its classes
(equation 3) instead of to every gradient: exp(j <t, g(x)>) / sqrt(k) over k probes has norm 1, so
that this is one Gaussian mechanism of sensitivity 1 on disjoint classes. The generator is then
trained on equation 4 with the noisy function for as long as one likes. Not in the paper, whose
section 4.3 has DP-SGD alone; it shows what the same budget and the same loss allow.

The extractor and the probes are drawn once for each client. With `probing="learned"` the weights of
the probes in the loss are learned, from the noisy function: see `_characteristic`. With a linear
extractor this is DP-MERF's mean embedding at each client, for one Gaussian kernel over all columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import Between, PrivateData, Release, Spec
from bench.methods.federated._characteristic import CfDistiller, SingleQuerySettings
from bench.methods.federated._clients import DistilsAtClients


@final
@dataclass(frozen=True)
class FddCf(DistilsAtClients, SingleQuerySettings):
    """Generators at the clients that match noisy characteristic functions."""

    name: ClassVar[str] = "fdd-cf"
    title: ClassVar[str] = "Federated distillation of noisy characteristic functions"
    paper: ClassVar[str] = (
        "After Xu, Jin and Su, Privacy-Enhanced Federated Data Distillation for Efficient "
        "Distributed Training and Anomaly Detection in Multi-Center Healthcare"
    )
    family: ClassVar[str] = "federated distillation"
    by_maintainers: ClassVar[bool] = True
    tuned_on: ClassVar[tuple[str, ...]] = ("adult",)

    search: ClassVar[Mapping[str, Any]] = {
        "probes": (32, 64, 128, 256),
        "scale": Between(0.3, 3.0, log=True),
        "steps": (150, 300, 600),
        "learning_rate": Between(0.003, 0.03, log=True),
    }
    quick: ClassVar[Mapping[str, Any]] = {"clients": 3, "steps": 10, "probes": 50}

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        claim = "one Gaussian mechanism on the characteristic function at each client"
        return self.released(self.settings_of(CfDistiller), private, spec, rng, claim)
