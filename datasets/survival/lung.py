"""Survival with advanced lung cancer: a trial group of the North Central Cancer Treatment Group.

The table ships with lifelines. `status` is 1 for death there (the R package survival codes it 2).
Missing entries stay missing in the table and are filled from public knowledge when it is encoded:
the values and their reasons are in the TOML file, none of them is computed from rows.

Left out: `inst`, the number of the hospital. Eighteen hospitals share 228 patients, some with two:
too few for a site column, and a number says nothing about risk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource

_NUMBERS = ("time", "status", "age", "ph.karno", "pat.karno", "meal.cal", "wt.loss")
_SEXES: Mapping[int, str] = {1: "male", 2: "female"}
_ECOG: Mapping[float, str] = {0.0: "0", 1.0: "1", 2.0: "2", 3.0: "3", 4.0: "4"}


@final
@dataclass(frozen=True)
class Lung(DatasetSource):
    """228 patients with advanced lung cancer."""

    name: ClassVar[str] = "lung"

    def load(self) -> pd.DataFrame:
        from lifelines.datasets import load_lung

        table: pd.DataFrame = load_lung()
        frame = table[[*_NUMBERS]].copy()
        frame["sex"] = table["sex"].map(_SEXES)
        frame["ph.ecog"] = table["ph.ecog"].map(_ECOG).fillna("unknown")
        return frame
