"""Simulated emergency patients at three hospital trusts, in place of the closed CURIAL data.

`_curial_model` holds the model and says where its numbers come from; here it becomes a dataset. The
table has 29 features (table S1 of the zero-order condensation paper), the outcome and the site. Its
size is a parameter, so that the declared counts follow from it and not from the TOML file, which
states those of the default size. No row belongs to a person.
"""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import DatasetSource, Declaration, InputError, Truth
from bench.datasets.simulators._curial_model import simulate, site_counts, true_log_odds


@final
@dataclass(frozen=True)
class CurialSim(DatasetSource):
    """A seeded simulation: the same parameters give the same table."""

    name: ClassVar[str] = "curial-sim"

    rows: int = 20_000
    seed: int = 0
    """Public: another seed is another simulated table, not another split."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"curial-sim: seed={self.seed} must be 0 or more")
        try:
            site_counts(operator.index(self.rows))
        except (TypeError, ValueError) as problem:
            raise InputError(f"curial-sim: {problem}") from None

    def declare(self) -> Declaration:
        by_site_class = site_counts(self.rows)
        by_class = tuple(sum(counts) for counts in zip(*by_site_class.values(), strict=True))
        return dataclasses.replace(
            super().declare(), by_class=by_class, by_site_class=by_site_class
        )

    def load(self) -> pd.DataFrame:
        return simulate(self.rows, np.random.default_rng(self.seed))

    def truth(self, frame: pd.DataFrame) -> Truth:
        """True log-odds of each row given its site; the best AUROC of each site is in the model."""
        return Truth(log_odds=true_log_odds(frame))
