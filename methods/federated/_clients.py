"""Clients of a federated method, distillation at each of them, and payloads.

Federated distillation paper, sections 3 and 4. Each client works on its own rows alone; what it
sends is a payload of bytes that is counted. Clients run one after the other in this process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench import (
    Categorical,
    Claim,
    Clients,
    Encoder,
    Federation,
    Floats,
    InputError,
    Method,
    NotApplicable,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    Traffic,
)

ClientData = Mapping[str, PrivateData]
"""Private rows of each client, by its name."""
Plans = Callable[[PrivateData, float], Sequence[PlannedEvents]]
"""What will be asked of a client at a noise multiplier."""
ClientSizes = npt.NDArray[np.int64]
"""(clients, classes): how many rows each client makes of each class."""


@dataclass(frozen=True)
class FederatedMethod(Method):
    """Abstract: a method whose rows lie with clients (table 2: 10 of them, alpha 0.5)."""

    by: str = "clients"
    """`clients`: with label skew; `site`: the sites that the dataset declares."""
    clients: int = 10
    alpha: float = 0.5
    """Concentration of the Dirichlet shares of each class: the smaller, the more skew."""
    split_seed: int = 0

    @property
    def client_split(self) -> Clients:
        """Return who holds which row."""
        if self.by not in ("clients", "site"):
            raise InputError(f"by {self.by!r}: rows lie with `clients` or by `site`")
        return Clients.of(self.by, self.clients, self.alpha, self.split_seed)

    def clients_of(self, private: PrivateData) -> ClientData:
        """Cut the private rows into those of each client."""
        split = self.client_split
        if split.split == "site" and private.schema.site is None:
            raise NotApplicable('the dataset declares no sites; use by="clients"')
        return split.parts(private)

    def federation(self, traffic: Traffic) -> Federation:
        """Return the clients and what they sent, for the release."""
        return Federation(self.client_split, traffic.transfers())


# Noise at each client ----------------------------------------------------------------------------


def calibrated(clients: ClientData, plans: Plans, epsilon: float | None = None) -> dict[str, float]:
    """Noise multiplier of each client by itself: a row pays at the client that holds it.

    `epsilon` asks for less than what the ledger leaves of the budget, for what comes after it. All
    clients are calibrated before any is reserved: a reserved client at its target would hide from
    the search that another is still below it.
    """
    return {
        name: client.calibrate(
            lambda noise, client=client: plans(client, noise),  # type: ignore[misc]
            epsilon,
        )
        for name, client in clients.items()
    }


def reserve(
    private: PrivateData, clients: ClientData, plans: Plans, noises: Mapping[str, float]
) -> None:
    """Charge what will be asked of every client, before the first answer."""
    private.reserve_all(
        plan for name, client in clients.items() for plan in plans(client, noises[name])
    )


# Distillation ------------------------------------------------------------------------------------


class Distiller(ABC):
    """How the rows of one client become synthetic rows."""

    @abstractmethod
    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        """Return what distillation will ask of one client at this noise multiplier."""

    @abstractmethod
    def distil(
        self,
        client: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        """Make `sizes[c]` rows of class c. Without noise the rows are read raw, with the reason."""


@dataclass(frozen=True)
class DistilsAtClients(FederatedMethod):
    """Abstract: a method that releases the union of what its clients distilled."""

    ratio: float | None = None
    """Share of its declared rows that a client releases (0.05: the paper's table 3). None: the IPC
    of the grid, split over the clients."""

    def released(
        self,
        distiller: Distiller,
        private: PrivateData,
        spec: Spec,
        rng: np.random.Generator,
        claim: str | None,
    ) -> Release:
        """Distil at every client; `claim` is None for a distiller without noise."""
        clients = self.clients_of(private)
        sizes = (
            allotted(clients, spec.rows_per_class(private.counts))
            if self.ratio is None
            else by_ratio(clients, self.ratio)
        )
        noises: Mapping[str, float] | None = None
        notes = {"clients": float(len(clients)), "rows": float(sizes.sum())}
        if claim is not None:
            noises = calibrated(clients, distiller.plans)
            reserve(private, clients, distiller.plans, noises)
            notes["smallest_noise_multiplier"] = min(noises.values())
            notes["largest_noise_multiplier"] = max(noises.values())
        traffic = Traffic()
        rows = distil_everywhere(distiller, clients, noises, sizes, traffic, rng)
        return Release(
            rows,
            claim=None if claim is None else Claim.of(spec.budget, claim),
            notes=notes,
            federation=self.federation(traffic),
        )


def distil_everywhere(
    distiller: Distiller,
    clients: ClientData,
    noises: Mapping[str, float] | None,
    sizes: ClientSizes,
    traffic: Traffic,
    rng: np.random.Generator,
) -> Rows:
    """Distil at every client and send: the union of what the server received (equation 5)."""
    sent: list[Rows] = []
    for (name, client), by_class in zip(clients.items(), sizes, strict=True):
        if not by_class.sum():
            continue
        noise = None if noises is None else noises[name]
        rows = distiller.distil(client, noise, by_class.tolist(), rng)
        traffic.send("release", "up", rows_payload(client.encoder, rows.values, rows.labels))
        sent.append(rows)
    return joined(sent)


def joined(pieces: Sequence[Rows]) -> Rows:
    """Values and labels of several pieces, one after the other."""
    return Rows(
        np.concatenate([rows.values for rows in pieces]),
        np.concatenate([rows.labels for rows in pieces]),
    )


def allotted(clients: ClientData, totals: Sequence[int]) -> ClientSizes:
    """Split the asked rows of each class over the clients, by their declared shares of it.

    Largest remainders, so that the sums are exactly what was asked. A class that no client
    declares is split evenly.
    """
    declared = _declared(clients)
    sizes = np.zeros(declared.shape, dtype=np.int64)
    for code, total in enumerate(totals):
        shares = declared[:, code] if declared[:, code].any() else np.ones(len(declared))
        exact = total * shares / shares.sum()
        whole = np.floor(exact).astype(np.int64)
        most = np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]
        whole[most] += 1
        sizes[:, code] = whole
    return sizes


def by_ratio(clients: ClientData, ratio: float) -> ClientSizes:
    """`ratio` of the declared rows of each class at each client, at least one where there are any.

    The paper's distillation ratio (table 3: 5%).
    """
    if not 0 < ratio <= 1:
        raise InputError(f"ratio {ratio}: the distillation ratio is above 0 and at most 1")
    declared = _declared(clients)
    return np.where(declared > 0, np.maximum(1, np.rint(ratio * declared)), 0).astype(np.int64)


def _declared(clients: ClientData) -> npt.NDArray[np.float64]:
    """(clients, classes) declared rows."""
    return np.array([client.counts.by_class for client in clients.values()], dtype=np.float64)


# Payloads ----------------------------------------------------------------------------------------


def rows_payload(encoder: Encoder, values: Floats, labels: npt.NDArray[np.integer]) -> bytes:
    """Released rows as sent: 4 bytes per number, 1 or 2 per category, no compression."""
    pieces: list[bytes] = []
    for block in encoder.blocks:
        column = block.column
        if isinstance(column, Categorical):
            codes = (
                (values[:, block.start] >= 0)
                if column.binary
                else values[:, block.slice].argmax(axis=1)
            )
            small = len(column.categories) <= 256
            pieces.append(codes.astype(np.uint8 if small else np.uint16).tobytes())
        else:
            pieces.append(values[:, block.start].astype(np.float32).tobytes())
    pieces.append(np.asarray(labels).astype(np.uint16).tobytes())
    return b"".join(pieces)


def numbers_payload(*arrays: npt.NDArray[np.floating]) -> bytes:
    """Weights of a model, or statistics, as sent: 4 bytes per number."""
    return b"".join(np.asarray(array).astype(np.float32).tobytes() for array in arrays)
