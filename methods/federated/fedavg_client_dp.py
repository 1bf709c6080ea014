"""Federated averaging that hides whole clients (Geyer, Klein and Nabi 2017).

The reference that the federated distillation paper gives for FedAvg+DP (its [31]). In each round
client i trains the weights w_t on its own rows; its update u_i = w_{i,t+1} - w_t is cut to norm S
as a whole, and the server adds noise to the sum over the M clients:

    w_{t+1} = w_t + (1 / M) (sum_i u_i min(1, S / |u_i|) + N(0, (2 S sigma)^2 I)).

**What is proven, for whom.** The kernel records T Gaussian mechanisms of multiplier sigma for noise
of standard deviation 2 S sigma. Let D and D' differ in the rows of one client, all of them and in
any way. Given w_t only that client's vector changes, from one of norm at most S to another of norm
at most S: the sum moves by at most 2 S, and the noise is sigma times that. Hence

* replacing all rows of a client by any others costs at most the proven epsilon;
* adding or removing a client moves the sum by S only, M being public: that is a multiplier of
  2 sigma, hence less than the proven epsilon;
* adding or removing one row changes the rows of one client, and is covered by the first case. There
  is no better bound for it: one row may turn a network that was trained for five epochs around.

w_t is an output of earlier rounds; Gaussian mechanisms compose for queries chosen from earlier
outputs as long as sigma is fixed in advance, which it is. Clients weigh 1 / M each, as in the
source: with n_i / n the largest would have to be hidden by noise in proportion to its share.

The server sees the updates before the noise: it is trusted here, unlike in `fedavg-dp`, where each
client adds its own.

Deviations: Geyer et al. clip to the median norm of the round, which is read from private numbers
without noise; here S is fixed. They also draw a random subset of clients each round, which pays
with thousands of them: every client takes part here, and with ten the noise at epsilon 1 leaves
nothing to learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import Claim, EncodedRows, PrivateData, Release, Spec, Traffic, gaussian
from bench.methods.federated._averaging import (
    PHASE,
    LocalTraining,
    RoundsModel,
    TrainsNetwork,
    Weights,
)
from bench.methods.federated._clients import numbers_payload


@final
@dataclass(frozen=True)
class FedAvgClientDp(TrainsNetwork):
    """Releases a model, not rows."""

    name: ClassVar[str] = "fedavg-client-dp"
    title: ClassVar[str] = "Federated averaging that hides whole clients"
    paper: ClassVar[str] = (
        "Geyer, Klein and Nabi, Differentially Private Federated Learning: A Client Level "
        "Perspective, 2017"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/1712.07557"
    family: ClassVar[str] = "federated model"
    tuned_on: ClassVar[tuple[str, ...]] = ("unknown",)
    unit: ClassVar[str] = "client"
    uses_ipc: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"rounds": 2, "epochs": 1, "clients": 3}

    hidden: int = 0
    rounds: int = 1
    epochs: int = 5
    """Local epochs in each round."""
    batch: int = 32
    learning_rate: float = 0.001
    clip: float = 1.0
    """S: the largest norm of a client's update."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        network, clients = self.network(private, self.hidden), self.clients_of(private)
        training = LocalTraining(self.epochs, self.batch, self.learning_rate)
        noise = private.calibrate(lambda noise: [private.plan(gaussian(noise), self.rounds)])
        private.reserve(gaussian(noise), self.rounds)
        size = network.size
        models = private.fit_parts(clients, lambda *_: np.zeros(size, dtype=np.float32))
        traffic, states = Traffic(), [network.initial(rng)]
        for number in range(1, self.rounds + 1):
            current = states[-1]

            def step(
                _: Weights, rows: EncodedRows, part_rng: np.random.Generator, at: Weights = current
            ) -> Weights:
                return training.run(network, at, rows.values, rows.labels, part_rng) - at

            traffic.send(PHASE, "down", numbers_payload(current), number, copies=len(clients))
            models.update(step)
            total = private.partition_sum(models, lambda update: update, self.clip, noise)
            # The updates stay in the kernel; each is sent in as many bytes as their sum has.
            traffic.send(PHASE, "up", numbers_payload(total), number, copies=len(clients))
            states.append((current + total / len(clients)).astype(np.float32))
        return Release(
            model=RoundsModel(network, np.stack(states)),
            claim=Claim.of(spec.budget, "Gaussian noise on the sum of clipped updates"),
            notes={"noise_multiplier": noise, "weights": float(size)},
            federation=self.federation(traffic),
        )
