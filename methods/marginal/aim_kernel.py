"""AIM through the privacy kernel: marginals chosen where the model is worst, trusting no library.

McKenna, Mullins, Sheldon and Miklau 2022, Algorithm 2. After a noisy count of each column, each
round chooses the marginal that the model misses most, by the exponential mechanism with the scores

    w_r (|M_r(D) - M_r(p)|_1 - sqrt(2 / pi) s n_r)            (their equation 1),

counts it with noise, and fits the model again; where a round moved the model by less than its
noise, the noise is halved and the epsilon of the choice doubled. Candidates are all sets of up to
`degree` columns (the downward closure of that workload), with the weights w_r = sum over the
workload's sets of the columns in common; a candidate must fit a model whose size grows with the
budget spent.

`aim` runs the private steps of smartnoise-synth 1.0.8; here the kernel counts (`marginals`) and
selects (`select`), so that the verdict trusts nobody. Noise and epsilons are chosen from earlier
answers, so that the ledger accounts the run as adaptive, by an RDP filter of one order. That order
is the best one for zCDP, so that hardly anything is lost.

Choices: the declared number of rows is used where the paper estimates it; the model is fitted by
`_graphical_model` and starts from that of the round before. The published limit is 80 MB of
cliques (10 million cells); here `model_cells`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import (
    Claim,
    CodedRows,
    Distance,
    PrivateData,
    Release,
    Spec,
)
from bench.methods.marginal._bins import Binning
from bench.methods.marginal._discretise import BinnedMethod, Cuts
from bench.methods.marginal._graphical_model import (
    Estimation,
    GraphicalModel,
    check_columns,
    draw_rows,
    largest_rho,
)
from bench.privacy.trusted.smartnoise import Columns, NoisyMarginal, NoisyMarginals

_MEASURED = 0.9
"""Share of the budget for counts; the choices have the rest (the paper's alpha)."""


@final
@dataclass(frozen=True)
class AimKernel(BinnedMethod):
    """A graphical model of marginals that were chosen where it was worst, by the kernel."""

    name: ClassVar[str] = "aim-kernel"
    title: ClassVar[str] = "Adaptive and iterative mechanism (AIM), by the kernel"
    paper: ClassVar[str] = (
        "McKenna, Mullins, Sheldon and Miklau, AIM: An Adaptive and Iterative Mechanism for "
        "Differentially Private Synthetic Data, VLDB 2022"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2201.12677"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "seer-breast", "seer-incidence")
    quick: ClassVar[Mapping[str, Any]] = {"bins": 4, "steps": 20, "rounds": 2.0, "last_steps": 50}

    degree: int = 2
    """Columns of the largest sets of the workload; the paper's experiments have 3."""
    rounds: float = 16.0
    """Rounds that the first noise level would allow, for each column (the paper's 16)."""
    marginal_cells: int = 10_000
    """Larger marginals are not measured."""
    model_cells: int = 200_000
    """Cells of all cliques of a model at the end of the budget."""
    steps: int = 100
    """Steps of the estimation after each round."""
    last_steps: int = 1000
    """Steps of the estimation after the last round."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        check_columns(private.schema)
        binning = self._binning(private)
        rows = private.coded(binning.codes, binning.sizes)
        total = float(max(1, private.counts.total))
        estimation = Estimation(binning.sizes, total, self.steps, self.model_cells)
        measured = self._measure(private, rows, estimation)
        model = estimation.last(measured, self.last_steps)
        kept = tuple(np.ones(size, dtype=bool) for size in binning.sizes)
        released = [NoisyMarginals(tuple(measured), kept)]
        codes = draw_rows([model], released, spec.rows_per_class(private.counts), rng)
        claim = Claim.of(spec.budget, "McKenna et al. 2022, Theorem 2")
        notes = {
            "measured_marginals": len(measured),
            "last_deviation": _deviation(measured[-1]),
            "discretiser": self.discretiser,
        }
        return Release(binning.rows(codes, rng), claim=claim, notes=notes)

    def _binning(self, private: PrivateData) -> Binning:
        """Cut the numbers, with their share of the zCDP that the budget allows."""
        discretisation = self.discretisation()
        if not discretisation.plans(private, self.bins, 1.0):
            return Cuts(private.encoder).binning(self.bins)
        noise = math.sqrt(0.5 / largest_rho(private))
        private.reserve_all(discretisation.plans(private, self.bins, noise))
        return discretisation.cuts(private, self.bins, noise).binning(self.bins)

    def _measure(
        self, private: PrivateData, rows: CodedRows, estimation: Estimation
    ) -> list[NoisyMarginal]:
        sizes = rows.sizes
        weights = self._workload(sizes)
        rho = largest_rho(private)
        planned = self.rounds * len(sizes)
        deviation = math.sqrt(planned / (2.0 * _MEASURED * rho))
        epsilon = math.sqrt(8.0 * (1.0 - _MEASURED) * rho / planned)
        measured: list[NoisyMarginal] = []

        def count(columns: Columns) -> None:
            counts = private.marginals(rows, [columns], deviation)[0]
            measured.append(NoisyMarginal(columns, counts, np.full(counts.shape, deviation)))

        for column in range(len(sizes)):
            count((column,))
        model = estimation.fit(measured)
        # What the accountant leaves from here on, in zCDP: at one order of RDP, to which the ledger
        # keeps now, all events of this method are proportional to it.
        left = (1.0 - 1e-6) * largest_rho(private)
        while True:
            cost = 0.5 / deviation**2 + epsilon**2 / 8.0
            last = left < 2.0 * cost
            if last:
                deviation = math.sqrt(1.0 / (2.0 * _MEASURED * left))
                epsilon = math.sqrt(8.0 * (1.0 - _MEASURED) * left)
                cost = left
            left -= cost
            candidates = self._affordable(weights, measured, estimation, 1.0 - left / rho)
            chosen = self._choose(private, rows, candidates, model, deviation, epsilon)
            before = model.counts(chosen)
            count(chosen)
            if last:
                return measured
            model = estimation.fit(measured)
            moved = float(np.abs(model.counts(chosen) - before).sum())
            if moved <= math.sqrt(2.0 / math.pi) * deviation * before.size:
                deviation, epsilon = deviation / 2.0, 2.0 * epsilon

    def _workload(self, sizes: Sequence[int]) -> dict[Columns, float]:
        """Return the weight of every candidate: columns that it shares with the workload's sets."""
        columns = range(len(sizes))
        degree = min(self.degree, len(sizes))
        workload = [set(one) for one in itertools.combinations(columns, degree)]
        weights: dict[Columns, float] = {}
        for length in range(1, degree + 1):
            for one in itertools.combinations(columns, length):
                cells = math.prod(sizes[column] for column in one)
                if length == 1 or cells <= self.marginal_cells:
                    weights[one] = float(sum(len(wanted & set(one)) for wanted in workload))
        return weights

    def _affordable(
        self,
        weights: Mapping[Columns, float],
        measured: Sequence[NoisyMarginal],
        estimation: Estimation,
        spent: float,
    ) -> dict[Columns, float]:
        """Return candidates that a model of the size that the spent budget allows can hold."""
        sets = [one.columns for one in measured]
        known = set(sets)
        limit = max(spent, 0.05) * self.model_cells
        return {
            one: weight
            for one, weight in weights.items()
            if one in known or estimation.cells_with([*sets, one]) <= limit
        }

    def _choose(
        self,
        private: PrivateData,
        rows: CodedRows,
        weights: Mapping[Columns, float],
        model: GraphicalModel,
        deviation: float,
        epsilon: float,
    ) -> Columns:
        sets = list(weights)
        candidates = []
        for one in sets:
            estimate = model.counts(one)
            noise = math.sqrt(2.0 / math.pi) * deviation * estimate.size
            candidates.append(Distance(one, estimate, weights[one], noise))
        return sets[private.select(rows, candidates, epsilon)]


def _deviation(marginal: NoisyMarginal) -> float:
    return float(marginal.deviations.flat[0])
