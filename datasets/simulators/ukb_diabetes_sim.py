"""Simulated onset of diabetes, in place of the closed UK Biobank cohort of the zero-order paper.

`_ukb_diabetes_model` holds the model and says where its numbers come from; here it becomes a
dataset. The paper's 20 covariates are 12 columns: nine numbers and hypertension as they are, and
the dummies of sex, ethnicity and smoking as one column each. Its size is a parameter (the paper's
is 474,886), so that the declared counts follow from it and not from the TOML file, which states
those of the default size. No row belongs to a person.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import DatasetSource, Declaration, Truth
from bench.datasets.simulators import _ukb_diabetes_model as model
from bench.datasets.simulators._simulation import whole_number


@final
@dataclass(frozen=True)
class UkbDiabetesSim(DatasetSource):
    """A seeded simulation: the same parameters give the same table."""

    name: ClassVar[str] = "ukb-diabetes-sim"

    rows: int = 20_000
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
        """True hazard ratios per standard deviation, and the true log hazard of each row."""
        effects = model.log_hazard_ratios()
        return Truth(
            hazard_ratios={name: math.exp(effect) for name, effect in effects.items()},
            log_hazards=model.log_hazards(frame),
            concordance=model.CONCORDANCE,
            error=model.CONCORDANCE_ERROR,
        )
