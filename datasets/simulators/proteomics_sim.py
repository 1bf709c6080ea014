"""Simulated plasma proteins before myeloma, in place of closed UK Biobank data.

`_proteomics_model` holds the model and says where its numbers come from; here it becomes a dataset.
Rows and proteins are parameters: the paper's table is rows=52999, proteins=2932. A smaller table
keeps the 98 positives unless `positives` says otherwise, as a case-cohort study would: with the
paper's 0.2% there would be nothing to learn from. The columns of proteins are alike, so that they
are declared once in the TOML file, which states the counts of the default size. No row belongs to a
person.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import DatasetSource, Declaration, Truth
from bench.datasets._shared import declare_alike
from bench.datasets.simulators import _proteomics_model as model
from bench.datasets.simulators._factor_model import log_odds
from bench.datasets.simulators._simulation import whole_number

MINIMUM_POSITIVES = 10
"""Enough for each of four splits (60/10/10/20) to hold one."""


@final
@dataclass(frozen=True)
class ProteomicsSim(DatasetSource):
    """A seeded simulation: the same parameters give the same table."""

    name: ClassVar[str] = "proteomics-sim"

    rows: int = 5_000
    proteins: int = 200
    """The ten named ones come first."""
    positives: int = model.FULL_POSITIVES
    seed: int = 0
    """Public: another seed is another simulated table, not another split."""

    def __post_init__(self) -> None:
        whole_number(self.name, "positives", self.positives, MINIMUM_POSITIVES)
        whole_number(self.name, "rows", self.rows, 2 * self.positives)
        whole_number(self.name, "proteins", self.proteins, len(model.NAMED), model.FULL_PROTEINS)
        whole_number(self.name, "seed", self.seed, 0)

    def declare(self) -> Declaration:
        declared = _declaration(self.toml_path(), self.proteins)
        return dataclasses.replace(declared, by_class=self._counts())

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(self.seed)
        return model.simulate(self.rows, self.proteins, self.positives, rng)

    def truth(self, frame: pd.DataFrame) -> Truth:
        """Exact log-odds of each row at this table's share of positives."""
        best = model.bayes_scores(self.proteins)
        likelihoods = model.panel(self.proteins).log_likelihoods(frame)
        return Truth(
            log_odds=log_odds(likelihoods, self._counts())[:, 1],
            bayes_auroc=best.auroc,
            error=best.error,
        )

    def _counts(self) -> tuple[int, int]:
        return self.rows - self.positives, self.positives


@cache
def _declaration(path: Path, proteins: int) -> Declaration:
    # Thousands of columns take a while to check, and a run asks for them several times.
    return declare_alike(path, model.protein_names(proteins), "protein")
