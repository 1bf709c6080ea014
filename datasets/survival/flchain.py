"""Free light chains in serum and survival of the residents of Olmsted County, Minnesota.

The table ships with scikit-survival (GPL, hence an extra), whose file is read here without
importing the package: SurvSet has the same table as a pickle, which is not needed.

Left out:
- `chapter`, the chapter of the cause of death: present for the dead only;
- `flc.grp`, the tenth of all participants that a person's light chains are in: computed from the
  other rows, and nothing but a coarse sum of `kappa` and `lambda`.
Creatinine is missing for 1,350 people and filled with a normal value when the table is encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource
from bench.datasets._shared import arff_table, package_bytes, recode

_FILE = "datasets/data/flchain.arff"
_SHA256 = "bf2600ec437dd19071f73bdad82de681780457d1141ec36ed551b0026e6e5773"
_CODES: Mapping[str, Mapping[str, str]] = {
    "sex": {"F": "female", "M": "male"},
    "death": {"alive": "0", "dead": "1"},
}


@final
@dataclass(frozen=True)
class Flchain(DatasetSource):
    """7,874 people of 50 years and older."""

    name: ClassVar[str] = "flchain"
    package: ClassVar[str] = "sksurv"

    def load(self) -> pd.DataFrame:
        table = arff_table(package_bytes("sksurv", "survival", _FILE, _SHA256))
        frame = recode(table, _CODES, _FILE).drop(columns=["chapter", "flc.grp"])
        frame["sample.yr"] = frame["sample.yr"].astype("int64")
        return frame
