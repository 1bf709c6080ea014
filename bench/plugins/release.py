"""What a method hands back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from bench.data.encoder import Encoder, Floats, Integers
from bench.errors import InvalidReleaseError
from bench.privacy.accounting import Budget
from bench.privacy.ledger import Ledger

if TYPE_CHECKING:
    from bench.plugins.federation import Federation


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
        """(rows, classes) probabilities, or one risk score a row, from encoded feature values."""


@final
@dataclass(frozen=True)
class Claim:
    """What the paper, or the wrapped library, says was spent: recorded, never trusted."""

    epsilon: float
    delta: float
    source: str

    @classmethod
    def of(cls, budget: Budget | None, source: str) -> Claim | None:
        """The claim of a method that spends the budget it was given; None without one."""
        return None if budget is None else cls(budget.epsilon, budget.delta, source)


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
    """Of a method with centres: who holds which rows, and what was sent."""


def check_release(release: Release, encoder: Encoder) -> None:
    """Refuse what is not a release of this schema, with the reason."""
    if not isinstance(release, Release):
        raise InvalidReleaseError(f"the method gave a {type(release).__name__}, not a Release")
    if (release.rows is None) == (release.model is None):
        raise InvalidReleaseError("a release holds either rows or a model, exactly one of them")
    rows = release.rows
    if rows is None:
        return
    classes = len(encoder.schema.classes)
    values, labels = np.asarray(rows.values), np.asarray(rows.labels)
    if values.ndim != 2 or values.shape[1] != encoder.width:
        raise InvalidReleaseError(
            f"rows have shape {values.shape}; expected {encoder.width} encoded columns"
        )
    if not len(values):
        raise InvalidReleaseError("the release holds no rows")
    if not np.isfinite(values).all():
        raise InvalidReleaseError(
            f"{int((~np.isfinite(values)).any(axis=1).sum())} rows hold NaN or infinite values"
        )
    if labels.shape != (len(values),) or labels.dtype.kind not in "iu":
        raise InvalidReleaseError("labels must be one integer class code a row")
    if labels.min() < 0 or labels.max() >= classes:
        raise InvalidReleaseError(f"labels lie outside 0..{classes - 1}")
    if rows.weights is not None and (
        np.shape(rows.weights) != (len(values),)
        or not np.isfinite(rows.weights).all()
        or (np.asarray(rows.weights) < 0).any()
    ):
        raise InvalidReleaseError("weights must be one finite non-negative number a row")
    if rows.soft_labels is not None and np.shape(rows.soft_labels) != (len(values), classes):
        raise InvalidReleaseError(f"soft labels must have shape ({len(values)}, {classes})")
