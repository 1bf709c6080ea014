"""Simulated gene expression in three subtypes of breast cancer, in place of TCGA-BRCA.

`_tcga_model` holds the model and says where its numbers come from; here it becomes a dataset. Rows
and genes are parameters; the default has the 1,100 tumours of the federated distillation paper. The
genes are declared alike, once, in the TOML file, which states the counts of the default size. No
row belongs to a person.
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
from bench.datasets.simulators import _tcga_model as model
from bench.datasets.simulators._factor_model import log_odds
from bench.datasets.simulators._simulation import whole_number


@final
@dataclass(frozen=True)
class TcgaSim(DatasetSource):
    """A seeded simulation: the same parameters give the same table."""

    name: ClassVar[str] = "tcga-sim"

    rows: int = model.PAPER_ROWS
    genes: int = 200
    """The named markers come first."""
    seed: int = 0
    """Public: another seed is another simulated table, not another split."""

    def __post_init__(self) -> None:
        whole_number(self.name, "rows", self.rows, model.MINIMUM_ROWS)
        whole_number(self.name, "genes", self.genes, len(model.MARKERS), model.MAXIMUM_GENES)
        whole_number(self.name, "seed", self.seed, 0)

    def declare(self) -> Declaration:
        declared = _declaration(self.toml_path(), self.genes)
        return dataclasses.replace(declared, by_class=model.class_counts(self.rows))

    def load(self) -> pd.DataFrame:
        return model.simulate(self.rows, self.genes, np.random.default_rng(self.seed))

    def truth(self, frame: pd.DataFrame) -> Truth:
        """Exact log-odds of each subtype against the others, one column per subtype."""
        best = model.bayes_scores(self.genes)
        likelihoods = model.panel(self.genes).log_likelihoods(frame)
        return Truth(
            log_odds=log_odds(likelihoods, model.class_counts(self.rows)),
            bayes_auroc=best.auroc,
            bayes_accuracy=best.accuracy,
            error=best.error,
        )


@cache
def _declaration(path: Path, genes: int) -> Declaration:
    # Thousands of columns take a while to check, and a run asks for them several times.
    return declare_alike(path, model.gene_names(genes), "gene")
