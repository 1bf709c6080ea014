"""Worcester Heart Attack Study, the 500 patients of a textbook: survival after a heart attack.

The table ships with scikit-survival (GPL, hence an extra), whose file is read here without
importing the package. Each row is another patient, unlike in DeepSurv's file (`whas`).

Left out: `los`, the length of the hospital stay, known only at its end; for a death in hospital it
is the survival time itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource
from bench.datasets._shared import arff_table, package_bytes, recode

_FILE = "datasets/data/whas500.arff"
_SHA256 = "f64040c91398875137822eca306a927208df6896808cd9764af7065722fa53d6"
_NO_YES = {"0": "no", "1": "yes"}
_CODES: Mapping[str, Mapping[str, str]] = {
    "gender": {"0": "male", "1": "female"},
    "cvd": _NO_YES,
    "afb": _NO_YES,
    "sho": _NO_YES,
    "chf": _NO_YES,
    "av3": _NO_YES,
    "miord": {"0": "first", "1": "recurrent"},
    "mitype": {"0": "non-Q-wave", "1": "Q-wave"},
}
"""Code sheet of D. W. Hosmer, S. Lemeshow and S. May, Applied Survival Analysis (2nd edition)."""


@final
@dataclass(frozen=True)
class Whas500(DatasetSource):
    """500 patients admitted with a heart attack."""

    name: ClassVar[str] = "whas500"
    package: ClassVar[str] = "sksurv"

    def load(self) -> pd.DataFrame:
        table = arff_table(package_bytes("sksurv", "survival", _FILE, _SHA256))
        return recode(table, _CODES, _FILE).drop(columns="los")
