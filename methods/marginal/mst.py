"""MST over smartnoise-synth 1.0.8: a tree of noisy pairwise marginals.

McKenna, Miklau and Sheldon 2021: all columns are counted with noise, a spanning tree of pairs is
chosen by the exponential mechanism, the pairs of the tree are counted with noise, and a graphical
model is fitted to all of it. Each of the three takes a third of rho; rho-zCDP by their Theorem 1.

The private steps are the library's code, called by `bench.privacy.trusted.smartnoise`, which
names what had to be worked around there (domain from the rows, exact number of rows, own rho, scale
of merged codes). Further choices:

* Columns are cut by the schema (see `_bins`), so that no budget goes into guessing bounds; label
  and, for survival, the event are categories, and the time is a binned column.
* Each class is measured as a separate table with the whole rho (`by_class`): classes are disjoint
  and their counts public. As published, the label is one column among others (`by_class = false`);
  then it depends on its few neighbours in the tree alone (Adult, epsilon 1: AUROC 0.84 against
  0.90).
* The model is fitted, and rows are drawn, by `_graphical_model` instead of mbi 1.1.0, whose
  `synthetic_data(method="round")` makes spurious correlations.
* OpenDP's noise takes no seed: two runs differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import Claim, Environment, Method, PrivateData, Release, Spec
from bench.methods._shared.smartnoise import SMARTNOISE
from bench.methods.marginal._bins import Binning
from bench.methods.marginal._graphical_model import (
    check_columns,
    draw_rows,
    fit,
    largest_rho,
    noisy_marginals,
    totals,
)


@final
@dataclass(frozen=True)
class Mst(Method):
    """A graphical model of a privately chosen tree of pairs."""

    name: ClassVar[str] = "mst"
    title: ClassVar[str] = "Maximum spanning tree of noisy marginals (MST)"
    paper: ClassVar[str] = (
        "McKenna, Miklau and Sheldon, Winning the NIST Contest: A scalable and general approach to "
        "differentially private synthetic data, Journal of Privacy and Confidentiality 2021"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2108.04978"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "seer-breast", "seer-incidence")
    environment: ClassVar[Environment | None] = SMARTNOISE
    seeded: ClassVar[bool] = False
    search: ClassVar[Mapping[str, Any]] = {
        "bins": (8, 16, 32),
        "by_class": (False, True),
        "steps": (500, 1000, 2000),
    }
    quick: ClassVar[Mapping[str, Any]] = {"bins": 4, "steps": 50}

    bins: int = 16
    """Bins of a numeric column, beside the one of its lower bound."""
    by_class: bool = True
    steps: int = 1000
    """Steps of the estimation."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        check_columns(private.schema)
        binning = Binning(private.encoder, self.bins)
        declared = totals(private, self.by_class)
        rho = largest_rho(private)
        released = noisy_marginals(
            private.delegate(
                "smartnoise-mst",
                rho=rho,
                codes=binning.codes,
                sizes=binning.sizes,
                totals=declared,
            )
        )
        models = [
            fit(noisy.sizes, noisy.marginals, total, self.steps)
            for noisy, total in zip(released, declared, strict=True)
        ]
        codes = draw_rows(models, released, spec.rows_per_class(private.counts), rng)
        claim = Claim.of(spec.budget, "McKenna, Miklau and Sheldon 2021, Theorem 1")
        return Release(binning.rows(codes, rng), claim=claim, notes={"rho": rho})
