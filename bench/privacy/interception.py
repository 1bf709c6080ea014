"""Interceptors see the kernel's noisy calls, and may replace what these compute.

They are for checks of methods (`bench check`), which compare a method's behaviour on two tables,
and for audits of the kernel's answers (`bench audit --attack transcript`). A release is always made
with `PassThrough`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.data.encoder import EncodedRows, Encoder
from bench.privacy.grid import Grid
from bench.privacy.ledger import PartPath
from bench.privacy.trusted.table import TrustedMechanism

Vectors = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]


@final
@dataclass(frozen=True)
class Call:
    """One call of the kernel: everything but the rows that decides its answer."""

    kind: str
    """Name of the method of `PrivateData`."""
    path: PartPath
    noise_multiplier: float = 0.0
    clip: float = math.inf
    rate: float = 1.0
    bins: tuple[int, ...] = ()
    mechanism: str = "gaussian"
    """Distribution of the noise; for `delegate`, the trusted mechanism with its parameters."""

    def __str__(self) -> str:
        where = "/".join(f"{key}={part}" for key, part in self.path)
        numbers = (
            ("clip", self.clip, math.inf),
            ("noise multiplier", self.noise_multiplier, 0.0),
            ("rate", self.rate, 1.0),
        )
        said = [f"{name} {value:.4g}" for name, value, usual in numbers if value != usual]
        said += [f"bins {self.bins}"] * bool(self.bins)
        said += [self.mechanism] * (self.mechanism != "gaussian")
        return f"{self.kind} on {where} ({', '.join(said)})"


@final
@dataclass(frozen=True)
class AnsweringPart:
    """One part of a partition with the model that was fitted on it."""

    name: str
    rows: EncodedRows
    model: Any


class Interceptor(ABC):
    """Sees what a call computes at each step, and returns what the kernel uses instead.

    Every call creates one `Call`, whose identity distinguishes it from another one with the same
    parameters.
    """

    @abstractmethod
    def sample(self, call: Call, rows: EncodedRows, drawn: Indices) -> Indices:
        """Return which of the rows are sampled, where `drawn` were."""

    @abstractmethod
    def vectors(self, call: Call, rows: EncodedRows, vectors: Vectors) -> Vectors:
        """Return the vectors to be clipped and summed (or counted), where the rows have these."""

    @abstractmethod
    def parts(self, call: Call, parts: Sequence[AnsweringPart], vectors: Vectors) -> Vectors:
        """Return one vector per part, where the models of these parts gave some."""

    def exact(self, call: Call, grid: Grid, integers: Integers) -> None:  # noqa: B027
        """See the exact integers of an answer and the grid of its noise, before noise is added.

        Called once for each answer, just before `answer`. By default nothing is done.
        """

    def choosing(self, call: Call, exponents: Sequence[Fraction]) -> None:  # noqa: B027
        """See minus the log of each candidate's relative weight, before one is drawn.

        Called once for each selection, just before `answer`. By default nothing is done.
        """

    @abstractmethod
    def answer(self, call: Call, answer: Vectors) -> Vectors:
        """Return a noisy answer; `histograms` has one for each binning."""

    def delegating(  # noqa: B027
        self,
        call: Call,
        entry: TrustedMechanism,
        rows: EncodedRows,
        encoder: Encoder,
        parameters: Mapping[str, Any],
    ) -> None:
        """See a trusted mechanism before it runs. By default nothing is done."""

    @abstractmethod
    def delegated(self, call: Call, result: object) -> object:
        """Return the result of a trusted mechanism."""


@final
class PassThrough(Interceptor):
    """Changes nothing."""

    def sample(self, call: Call, rows: EncodedRows, drawn: Indices) -> Indices:
        return drawn

    def vectors(self, call: Call, rows: EncodedRows, vectors: Vectors) -> Vectors:
        return vectors

    def parts(self, call: Call, parts: Sequence[AnsweringPart], vectors: Vectors) -> Vectors:
        return vectors

    def answer(self, call: Call, answer: Vectors) -> Vectors:
        return answer

    def delegated(self, call: Call, result: object) -> object:
        return result


@final
class Blind(Interceptor):
    """Evaluates the rows, and lets every noisy call answer as if there were none.

    A release that still changes with the rows read them outside the kernel. Trusted mechanisms
    see the rows.
    """

    def sample(self, call: Call, rows: EncodedRows, drawn: Indices) -> Indices:
        return drawn

    def vectors(self, call: Call, rows: EncodedRows, vectors: Vectors) -> Vectors:
        return vectors[:0]

    def parts(self, call: Call, parts: Sequence[AnsweringPart], vectors: Vectors) -> Vectors:
        return np.zeros_like(vectors)

    def answer(self, call: Call, answer: Vectors) -> Vectors:
        return answer

    def delegated(self, call: Call, result: object) -> object:
        return result
