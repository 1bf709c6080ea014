"""Simulated death in hospital of adults in intensive care, in place of the closed MIMIC-III.

`_mimic_model` holds the model and says where its numbers come from; here it becomes a dataset.
Columns that `mimic3-ihm` has too are named as there. The size is a parameter: by default that of
the MIMIC-III benchmark; the federated distillation paper states 42,000. The declared counts follow
from it and not from the TOML file, which states those of the default size. No row belongs to a
person.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import DatasetSource, Declaration, Truth
from bench.datasets.simulators import _mimic_model as model
from bench.datasets.simulators._simulation import whole_number


@final
@dataclass(frozen=True)
class MimicSim(DatasetSource):
    """A seeded simulation: the same parameters give the same table."""

    name: ClassVar[str] = "mimic-sim"

    rows: int = model.FULL_ROWS
    seed: int = 0
    """Public: another seed is another simulated table, not another split."""

    def __post_init__(self) -> None:
        whole_number(self.name, "rows", self.rows, model.MINIMUM_ROWS)
        whole_number(self.name, "seed", self.seed, 0)

    def declare(self) -> Declaration:
        return dataclasses.replace(super().declare(), by_class=model.class_counts(self.rows))

    def load(self) -> pd.DataFrame:
        return model.simulate(self.rows, np.random.default_rng(self.seed))

    def truth(self, frame: pd.DataFrame) -> Truth:
        """True log-odds of death of each row."""
        return Truth(
            log_odds=model.log_odds(frame),
            bayes_auroc=model.BAYES_AUROC,
            error=model.BAYES_AUROC_ERROR,
        )
