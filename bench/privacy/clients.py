"""Federated clients with label skew, cut so that a row's client depends on that row alone.

The share of class c that client k holds is drawn once from Dirichlet(alpha) and public. A row of
class c goes to the client in whose piece of [0, 1) its fixed position falls. Small alpha means
strong skew: a client may lack a class. No row is with two clients, and no patient where a patient
is one row, as in every dataset whose unit is the patient. A client's rows are in several splits and
classes: where the unit of privacy is the client, the ledger composes all events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.data.dataset import Counts
from bench.errors import InputError


@final
@dataclass(frozen=True)
class SkewedClients:
    """A split over `count` clients with label skew Dirichlet(`alpha`)."""

    count: int = 10
    alpha: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or not self.alpha > 0:
            raise InputError(
                f"{self.count} clients with alpha {self.alpha}: both must be positive numbers"
            )

    @property
    def label(self) -> str:
        """Name of the partition in the ledger."""
        return f"client/{self.count} alpha={self.alpha:g} seed={self.seed}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the clients."""
        return tuple(str(number) for number in range(self.count))

    def shares(self, classes: int) -> npt.NDArray[np.float64]:
        """(classes, clients): which share of each class each client holds. Public."""
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, self.count]))
        return rng.dirichlet(np.full(self.count, self.alpha), size=classes)

    def assign(
        self,
        labels: npt.NDArray[np.integer],
        positions: npt.NDArray[np.float64],
        classes: int,
    ) -> npt.NDArray[np.int64]:
        """Client number of every row, from its label and its fixed uniform position."""
        ends = np.cumsum(self.shares(classes), axis=1)
        client = np.count_nonzero(positions[:, None] >= ends[labels], axis=1)
        return np.asarray(np.minimum(client, self.count - 1), dtype=np.int64)

    def part_counts(self, counts: Counts, client: int) -> Counts:
        """Expected rows of a client, from the declared counts and the public shares."""
        shares = self.shares(len(counts.by_class))[:, client]
        by_class = tuple(
            round(count * share) for count, share in zip(counts.by_class, shares, strict=True)
        )
        return Counts(max(1, sum(by_class)), by_class, paid=counts.paid)
