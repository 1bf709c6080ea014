"""What the methods with centres share: how rows are distilled at each centre, and sent.

Federated distillation paper, sections 3 and 4. Each centre works on its own rows alone; what it
sends is a payload of bytes that is counted. Clients run one after the other in this process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import (
    Categorical,
    Clients,
    Encoder,
    Federation,
    Floats,
    InputError,
    PlannedEvents,
    PrivateData,
    Rows,
    Traffic,
)

Sizes = npt.NDArray[np.int64]
"""(centres, classes): how many rows each centre makes of each class."""


class Distiller(ABC):
    """How one centre's rows become synthetic rows."""

    @abstractmethod
    def plans(self, centre: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        """What it will ask of one centre's rows at this noise multiplier."""

    @abstractmethod
    def distil(
        self,
        centre: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        """`sizes[c]` rows of class c. Without noise the rows are read raw, with the reason."""


def calibrated(
    distiller: Distiller,
    centres: Mapping[str, PrivateData],
    epsilon: float | None = None,
) -> dict[str, float]:
    """Noise multiplier of each centre, each for itself: a row pays at its own centre only.

    `epsilon` asks for less than the whole budget, to leave room for training after it.
    """
    return {
        name: centre.calibrate(
            lambda noise, centre=centre: distiller.plans(centre, noise),  # type: ignore[misc]
            epsilon,
        )
        for name, centre in centres.items()
    }


def distil_everywhere(
    distiller: Distiller,
    centres: Mapping[str, PrivateData],
    noises: Mapping[str, float] | None,
    sizes: Sizes,
    traffic: Traffic,
    rng: np.random.Generator,
) -> Rows:
    """Distil at every centre and send: the union of what the server received (equation 5)."""
    sent: list[Rows] = []
    for (name, centre), own in zip(centres.items(), sizes, strict=True):
        if not own.sum():
            continue
        noise = None if noises is None else noises[name]
        rows = distiller.distil(centre, noise, own.tolist(), rng)
        traffic.send("release", "up", rows_payload(centre.encoder, rows.values, rows.labels))
        sent.append(rows)
    return Rows(
        np.concatenate([rows.values for rows in sent]),
        np.concatenate([rows.labels for rows in sent]),
    )


def allotted(centres: Mapping[str, PrivateData], totals: Sequence[int]) -> Sizes:
    """Split the asked rows of each class over the centres, by their declared shares of it.

    Largest remainders, so that the sums are exactly what was asked. A class that no centre
    declares is split evenly.
    """
    declared = np.array([centre.counts.by_class for centre in centres.values()], dtype=np.float64)
    sizes = np.zeros(declared.shape, dtype=np.int64)
    for code, total in enumerate(totals):
        shares = declared[:, code] if declared[:, code].any() else np.ones(len(declared))
        exact = total * shares / shares.sum()
        whole = np.floor(exact).astype(np.int64)
        most = np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]
        whole[most] += 1
        sizes[:, code] = whole
    return sizes


def by_ratio(centres: Mapping[str, PrivateData], ratio: float) -> Sizes:
    """`ratio` of the declared rows of each class at each centre, at least one where there are any.

    The paper's distillation ratio (table 3: 5%).
    """
    if not 0 < ratio <= 1:
        raise InputError(f"ratio {ratio}: the distillation ratio is above 0 and at most 1")
    declared = np.array([centre.counts.by_class for centre in centres.values()], dtype=np.float64)
    return np.where(declared > 0, np.maximum(1, np.rint(ratio * declared)), 0).astype(np.int64)


def rows_payload(encoder: Encoder, values: Floats, labels: npt.NDArray[np.integer]) -> bytes:
    """Released rows as they would be sent: 4 bytes a number, 1 or 2 a category, no compression."""
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


def numbers_payload(*arrays: Floats) -> bytes:
    """Weights of a model, or statistics, as they would be sent: 4 bytes a number."""
    return b"".join(np.asarray(array).astype(np.float32).tobytes() for array in arrays)


@final
@dataclass(frozen=True)
class Setting:
    """The centres of a method, by its parameters (table 2 of the paper: 10 clients, alpha 0.5)."""

    by: str = "clients"
    clients: int = 10
    alpha: float = 0.5
    split_seed: int = 0

    @property
    def centres(self) -> Clients:
        """Who holds which row."""
        if self.by not in ("clients", "site"):
            raise InputError(f"by {self.by!r}: rows lie with `clients` or by `site`")
        return Clients.of(self.by, self.clients, self.alpha, self.split_seed)

    def federation(self, traffic: Traffic) -> Federation:
        """For the release."""
        return Federation(self.centres, traffic.transfers())
