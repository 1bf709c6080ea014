"""FDD: federated data distillation with DP-SGD on generators (Xu, Jin and Su, sections 4.2, 4.3).

Each client trains a class-conditional generator so that the neural characteristic function of its
generated rows matches that of its own rows (equations 3 and 4), by DP-SGD: gradients of single rows
clipped to C, Gaussian noise on their sum over a Poisson sample, noise calibrated to the budget at
each client for itself. It sends generated rows; the release is the union of what the server gets
(equation 5). A row is with one client, so that epsilon is the largest client's.

Choices where the paper is silent, and deviations; the mathematics is in `_characteristic`:

* A row is compared with the generated rows of its class. Equation 3 ignores labels.
* Extractor and probes are public and drawn anew for each step (`probing="random"`); learned probes
  are chosen from a pool by multiplicative weights on the noisy answers, and have one extractor.
* The noise outside the span of all possible gradients is left out, which is post-processing.
* C is in units of a gradient's usual norm at the present generator, which is public.
* Adam's step falls linearly. Table 3's batch of 32 and Adam at 0.001 are those of the classifier;
  the paper does not give the generator's.
* Clients follow public Dirichlet shares, see `bench.privacy.clients`; a client may lack a
  class, and then has none of its rows to make.
* Survival: the classes are the event statuses, and the time is one more number of a row. Images are
  flat rows for the extractor and the generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import Between, PrivateData, Release, Spec
from bench.methods.federated._characteristic import FddDistiller, NoisyDescentSettings
from bench.methods.federated._clients import DistilsAtClients


@final
@dataclass(frozen=True)
class Fdd(DistilsAtClients, NoisyDescentSettings):
    """Generators at the clients that match characteristic functions by DP-SGD."""

    name: ClassVar[str] = "fdd"
    title: ClassVar[str] = "Federated data distillation with DP-SGD (FDD)"
    paper: ClassVar[str] = (
        "Xu, Jin and Su, Privacy-Enhanced Federated Data Distillation for Efficient Distributed "
        "Training and Anomaly Detection in Multi-Center Healthcare"
    )
    family: ClassVar[str] = "federated distillation"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult",)

    search: ClassVar[Mapping[str, Any]] = {
        "probes": (4, 8, 16),
        "scale": Between(0.3, 3.0, log=True),
        "steps": (50, 100, 200),
        "learning_rate": Between(0.003, 0.03, log=True),
    }
    quick: ClassVar[Mapping[str, Any]] = {"clients": 3, "steps": 4, "probes": 2, "hidden": (16,)}

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        claim = "section 4.3: DP-SGD at each client, noise calibrated to the target"
        return self.released(self.settings_of(FddDistiller), private, spec, rng, claim)
