"""AIM over smartnoise-synth 1.0.8: marginals chosen one after the other, where the model is worst.

McKenna, Mullins, Sheldon and Miklau 2022, Algorithm 2: after a noisy count of each column, each
round chooses the pair of columns whose marginal the model misses most (beyond what noise explains)
by the exponential mechanism, counts it with noise, and fits the model again; where a round teaches
less than its noise, the noise is halved. rho-zCDP in all, by their Theorem 2.

The private steps are the library's code, called by `bench.privacy.trusted.smartnoise`, which
names what had to be worked around there (domain from the rows, own rho, size of the junction tree).
Further choices:

* Columns are cut by the schema (see `_bins`), so that no budget goes into guessing bounds; label
  and, for survival, the event are categories, and the time is a binned column.
* One model holds the label as a column, as published, and a class is drawn by conditioning on it.
  `by_class` measures every class as a separate table instead, with the whole rho.
* The declared number of rows is used where the library estimates it from noisy answers.
* The model is fitted, and rows are drawn, by `_graphical_model` instead of mbi 1.1.0, whose
  `synthetic_data(method="round")` makes spurious correlations. Each fit starts from the last model.
* A model has `model_cells` cells at most, in all cliques together; the library's limit is 80 MB of
  measured marginals (10 million cells), reached in proportion to the budget spent.
* OpenDP's noise takes no seed: two runs differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import Between, Claim, Environment, Method, PrivateData, Release, Spec
from bench.methods._shared.smartnoise import SMARTNOISE
from bench.methods.marginal._bins import Binning
from bench.methods.marginal._graphical_model import (
    Estimation,
    check_columns,
    draw_rows,
    largest_rho,
    noisy_marginals,
    totals,
)


@final
@dataclass(frozen=True)
class Aim(Method):
    """A graphical model of marginals that were chosen where it was worst."""

    name: ClassVar[str] = "aim"
    title: ClassVar[str] = "Adaptive and iterative mechanism (AIM)"
    paper: ClassVar[str] = (
        "McKenna, Mullins, Sheldon and Miklau, AIM: An Adaptive and Iterative Mechanism for "
        "Differentially Private Synthetic Data, VLDB 2022"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2201.12677"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "seer-breast", "seer-incidence")
    environment: ClassVar[Environment | None] = SMARTNOISE
    seeded: ClassVar[bool] = False
    search: ClassVar[Mapping[str, Any]] = {
        "bins": (8, 16, 32),
        "by_class": (False, True),
        "rounds": Between(4.0, 64.0, log=True),
    }
    quick: ClassVar[Mapping[str, Any]] = {"bins": 4, "steps": 20, "rounds": 2.0}

    bins: int = 16
    """Bins of a numeric column, beside the one of its lower bound."""
    by_class: bool = False
    rounds: float = 16.0
    """Rounds that the first noise level would allow, for each column (the paper's 16)."""
    marginal_cells: int = 10_000
    """Larger marginals are not measured."""
    model_cells: int = 200_000
    steps: int = 100
    """Steps of the estimation after each round."""
    last_steps: int = 1000
    """Steps of the estimation after the last round."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        check_columns(private.schema)
        binning = Binning(private.encoder, self.bins)
        rho = largest_rho(private)
        estimations: list[Estimation] = []

        def estimator(sizes: Sequence[int], total: float) -> Estimation:
            estimations.append(Estimation(sizes, total, self.steps, self.model_cells))
            return estimations[-1]

        released = noisy_marginals(
            private.delegate(
                "smartnoise-aim",
                rho=rho,
                codes=binning.codes,
                sizes=binning.sizes,
                totals=totals(private, self.by_class),
                rounds=self.rounds,
                cells=self.marginal_cells,
                estimator=estimator,
            )
        )
        models = [
            estimation.last(noisy.marginals, self.last_steps)
            for estimation, noisy in zip(estimations, released, strict=True)
        ]
        codes = draw_rows(models, released, spec.rows_per_class(private.counts), rng)
        claim = Claim.of(spec.budget, "McKenna et al. 2022, Theorem 2")
        measured = sum(len(noisy.marginals) for noisy in released)
        notes = {"rho": rho, "measured_marginals": measured}
        return Release(binning.rows(codes, rng), claim=claim, notes=notes)
