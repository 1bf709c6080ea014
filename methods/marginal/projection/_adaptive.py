"""The loop of adaptive projections (Aydore et al. 2021, Algorithm 3; Liu, Vietri and Wu 2021).

Single columns are counted first. Each of `rounds` rounds chooses `per_round` marginals of two or
three columns by the exponential mechanism, where the score of a marginal is how far the current
rows are from it,

    |N_S - n p_S|_1 - sqrt(2 / pi) s c_S,

counts them with Gaussian noise of deviation s, and fits the rows to everything counted so far. c_S
is the number of cells: the second term is the expected error of the noisy counts, without which
marginals with the most cells would win (AIM's score; the papers score single cells instead).

All events are fixed in advance: one Gaussian for the columns, and rounds * per_round choices and
Gaussians. The label is a column of the workload, but it is not fitted: every projection has rows of
each class, weighted by the declared class counts, so that a class is drawn in any size.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import (
    Claim,
    CodedRows,
    Distance,
    InputError,
    PlannedEvents,
    PrivateData,
    Release,
    Spec,
    exponential,
    gaussian,
)
from bench.methods._shared.codes import Codes
from bench.methods.marginal._discretise import BinnedMethod
from bench.methods.marginal._graphical_model import CellTable, check_columns

Columns = tuple[int, ...]


@final
@dataclass(frozen=True)
class Measured:
    """A noisy marginal as shares of the rows."""

    columns: Columns
    shares: CellTable
    deviation: float
    """Of one share."""


class Projection(ABC):
    """Rows of every class that are fitted to noisy marginals."""

    @abstractmethod
    def fit(self, measured: Sequence[Measured]) -> None:
        """Move the rows towards these marginals."""

    @abstractmethod
    def shares(self, columns: Columns) -> CellTable:
        """Return the marginal of the rows; its sum is 1."""

    @abstractmethod
    def draw(self, label: int, count: int, rng: np.random.Generator) -> Codes:
        """Return the features of rows of one class."""


@dataclass(frozen=True)
class AdaptiveProjection(BinnedMethod):
    """A method of this loop; subclasses say on what is projected."""

    rounds: int = 10
    per_round: int = 5
    """Marginals that are chosen and counted in each round."""
    degree: int = 3
    """Columns of the largest marginals."""
    marginal_cells: int = 4000
    """Larger marginals are not candidates."""
    candidates: int = 500
    """Candidates of one round at most; more are sampled by public chance."""
    columns_share: float = 0.1
    """Share of rho for the single columns."""
    choice_share: float = 0.5
    """Share of the rest for the choices (RAP's half)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = (self.columns_share, self.choice_share)
        numbers = (self.rounds, self.per_round, self.marginal_cells, self.candidates)
        if not all(0.0 < share < 1.0 for share in shares) or min(numbers) < 1 or self.degree < 2:
            raise InputError(
                f"{self.name}: rounds {self.rounds}, per_round {self.per_round}, marginal_cells "
                f"{self.marginal_cells}, candidates {self.candidates}, degree {self.degree}, "
                f"shares {shares}: expected positive numbers, a degree of at least 2, and shares "
                "between 0 and 1"
            )

    @abstractmethod
    def start(
        self, sizes: Sequence[int], classes: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> Projection:
        """Return rows before anything was counted.

        `sizes` are those of all columns, the label's last; `classes` the declared class shares.
        """

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        check_columns(private.schema)
        cuts, noise = self.reserved(private, lambda noise: self.plans(private, noise))
        binning = cuts.binning(self.bins)
        rows = private.coded(binning.codes, binning.sizes)
        declared = np.maximum(1.0, np.asarray(private.counts.by_class, dtype=np.float64))
        projection = self.start(binning.sizes, declared / declared.sum(), rng)
        measured = self.measure(private, rows, projection, noise, rng)
        tables = []
        for label, count in enumerate(spec.rows_per_class(private.counts)):
            features = projection.draw(label, count, rng)
            tables.append(np.column_stack([features, np.full(count, label)]))
        claim = Claim.of(spec.budget, "zCDP of all choices and counts")
        notes = {
            "noise_multiplier": noise,
            "measured_marginals": len(measured),
            "discretiser": self.discretiser,
        }
        return Release(binning.rows(np.concatenate(tables), rng), claim=claim, notes=notes)

    def plans(self, private: PrivateData, noise: float) -> list[PlannedEvents]:
        """Return all events but those of the bins, for one noise multiplier."""
        steps = self.rounds * self.per_round
        single, epsilon, counts = self._noise(noise)
        return [
            private.plan(gaussian(single)),
            private.plan(exponential(epsilon), steps),
            private.plan(gaussian(counts), steps),
        ]

    def _noise(self, noise: float) -> tuple[float, float, float]:
        """Return noise of the columns, epsilon of a choice and noise of a marginal.

        rho is 1 / (2 noise^2) in all; a choice has epsilon^2 / 8 of it.
        """
        steps = self.rounds * self.per_round
        rho = 0.5 / noise**2
        rest = (1.0 - self.columns_share) * rho / steps
        single = noise / math.sqrt(self.columns_share)
        epsilon = math.sqrt(8.0 * self.choice_share * rest)
        return single, epsilon, math.sqrt(0.5 / ((1.0 - self.choice_share) * rest))

    def measure(
        self,
        private: PrivateData,
        rows: CodedRows,
        projection: Projection,
        noise: float,
        rng: np.random.Generator,
    ) -> list[Measured]:
        """Count columns, then chosen marginals in rounds; fit the projection to them."""
        single, epsilon, deviation = self._noise(noise)
        total = float(max(1, private.counts.total))
        columns: list[Columns] = [(column,) for column in range(len(rows.sizes))]
        workload = self._workload(rows.sizes) or columns
        measured = [
            Measured(one, counts / total, single * math.sqrt(len(columns)) / total)
            for one, counts in zip(columns, private.marginals(rows, columns, single), strict=True)
        ]
        projection.fit(measured)
        for _ in range(self.rounds):
            known = {one.columns for one in measured}
            # A small table has fewer marginals than rounds: they are counted again.
            sets = [one for one in workload if one not in known] or workload
            if len(sets) > self.candidates:
                places = rng.choice(len(sets), self.candidates, replace=False)
                sets = [sets[place] for place in sorted(places)]
            candidates = {}
            for one in sets:
                shares = projection.shares(one)
                offset = math.sqrt(2.0 / math.pi) * deviation * shares.size
                candidates[one] = Distance(one, total * shares, 1.0, offset)
            left: list[Columns] = []
            for _ in range(self.per_round):
                left = left or list(candidates)
                chosen = left[private.select(rows, [candidates[one] for one in left], epsilon)]
                left.remove(chosen)
                (counts,) = private.marginals(rows, [chosen], deviation)
                measured.append(Measured(chosen, counts / total, deviation / total))
            projection.fit(measured)
        return measured

    def _workload(self, sizes: Sequence[int]) -> list[Columns]:
        """Return all sets of two to `degree` columns with few enough cells."""
        return [
            one
            for length in range(2, self.degree + 1)
            for one in itertools.combinations(range(len(sizes)), length)
            if self._small(sizes, one)
        ]

    def _small(self, sizes: Sequence[int], columns: Columns) -> bool:
        """Return whether a marginal has few enough cells."""
        return math.prod(sizes[column] for column in columns) <= self.marginal_cells
