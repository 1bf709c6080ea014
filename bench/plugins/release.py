"""What a method returns: rows or a model, its claim, and, for a federation, what was sent.

`bench.plugins.returned` checks it.

A client (a hospital) is a part of the private rows. The server is the other end of every message.
Bytes are those of the payloads that were really made, never a formula.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from bench.data.encoder import EncodedRows, Floats, Integers
from bench.data.schema import Schema
from bench.privacy.accounting import Budget
from bench.privacy.clients import SkewedClients
from bench.privacy.kernel import PrivateData
from bench.privacy.ledger import Ledger
from bench.privacy.partition import part_names, row_parts


@final
@dataclass(frozen=True)
class Rows:
    """Synthetic rows in the encoder's layout; the harness decodes them."""

    values: Floats
    labels: Integers
    weights: Floats | None = None
    soft_labels: Floats | None = None
    """(rows, classes) probabilities, for downstream models that take them."""

    def __len__(self) -> int:
        return len(self.labels)


class ReleasedModel(ABC):
    """A released model instead of rows (federated averaging, detectors)."""

    @abstractmethod
    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        """Return (rows, classes) probabilities, or one risk score per row, from encoded values."""


@final
@dataclass(frozen=True)
class Claim:
    """What the paper, or the wrapped library, says was spent: recorded, never trusted."""

    epsilon: float
    delta: float
    source: str

    @classmethod
    def of(cls, budget: Budget | None, source: str) -> Claim | None:
        """Return the claim of a method that spends its budget; None without one."""
        return None if budget is None else cls(budget.epsilon, budget.delta, source)


class TrainedInRounds(ReleasedModel):
    """A model with all its states: before the first round, and after each."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Number of rounds."""

    @abstractmethod
    def after(self, round: int) -> ReleasedModel:
        """Return the model after that round; 0 is the start (pre-trained, or random)."""


class Detector(ReleasedModel):
    """A released detector of anomalies: `predict` returns one score per row, high for odd rows."""

    @property
    @abstractmethod
    def threshold(self) -> float:
        """Score above which a row is flagged."""


TransferDirection = Literal["up", "down"]
"""`up`: from a client to the server."""


@final
@dataclass(frozen=True)
class Clients:
    """Who holds which row: clients with label skew, or the sites of the dataset."""

    split: SkewedClients | Literal["site"]

    @classmethod
    def of(cls, by: str, clients: int, alpha: float, seed: int = 0) -> Clients:
        """Build from the parameters of a method: `by` is "site" or "clients"."""
        return cls("site") if by == "site" else cls(SkewedClients(clients, alpha, seed))

    def parts(self, private: PrivateData) -> Mapping[str, PrivateData]:
        """Cut private rows into those of each client: a partition, no row is with two of them."""
        return private.partition(self.split)

    def names(self, schema: Schema) -> tuple[str, ...]:
        """Names of the clients."""
        return part_names(schema, self.split, None, None)

    def of_rows(
        self, rows: EncodedRows, schema: Schema, split: str = "train"
    ) -> npt.NDArray[np.int64]:
        """Client number of each row, test rows included: the same rule as for training rows."""
        label = self.split if isinstance(self.split, str) else self.split.label
        # The name of the partition at the place where `parts` cuts it.
        where = f"split={split}/{label}="
        names = self.names(schema)
        return row_parts(rows, self.split, names, None, len(schema.classes), where)


@final
@dataclass(frozen=True)
class Transfer:
    """Messages in one direction, in one round of one phase."""

    phase: str
    """`release`, `model`, `anomaly statistics`, ..."""
    round: int
    """Number of the round, from 1; 0 in a phase without rounds."""
    direction: TransferDirection
    messages: int
    bytes: int


@final
@dataclass
class Traffic:
    """Counts real payloads while a method runs."""

    _sent: dict[tuple[str, int, TransferDirection], tuple[int, int]] = field(default_factory=dict)

    def send(
        self,
        phase: str,
        direction: TransferDirection,
        payload: bytes,
        round: int = 0,
        copies: int = 1,
    ) -> None:
        """Count one payload, or the same one sent to several clients."""
        messages, total = self._sent.get((phase, round, direction), (0, 0))
        self._sent[phase, round, direction] = (messages + copies, total + copies * len(payload))

    def transfers(self) -> tuple[Transfer, ...]:
        """Return everything sent, in order of first use."""
        return tuple(
            Transfer(phase, number, direction, messages, total)
            for (phase, number, direction), (messages, total) in self._sent.items()
        )


@final
@dataclass(frozen=True)
class Federation:
    """The clients behind a release, and what they exchanged with the server."""

    clients: Clients
    transfers: tuple[Transfer, ...]

    def to_record(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        split = self.clients.split
        return {
            "split": split
            if isinstance(split, str)
            else {"count": split.count, "alpha": split.alpha, "seed": split.seed},
            "transfers": [vars(transfer) for transfer in self.transfers],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Federation:
        """Read what `to_record` wrote."""
        split = record["split"]
        return cls(
            Clients("site" if isinstance(split, str) else SkewedClients(**split)),
            tuple(Transfer(**transfer) for transfer in record["transfers"]),
        )


@final
@dataclass(frozen=True)
class Release:
    """Rows or a model, what the method claims, and (set by the harness) the ledger."""

    rows: Rows | None = None
    model: ReleasedModel | None = None
    claim: Claim | None = None
    notes: Mapping[str, float | str] = field(default_factory=dict)
    """Facts about the run that a reader wants, such as an acceptance rate."""
    ledger: Ledger | None = None
    federation: Federation | None = None
    """Who holds which rows and what was sent, for a federated method."""
