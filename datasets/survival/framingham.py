"""Framingham Heart Study: time to coronary heart disease, a teaching copy of 4,699 people.

The table ships with SurvSet (GPL, hence an extra; `_shared` says how its pickle is checked).

Left out: `pid`. Missing: cholesterol of 33 and body mass index of 9 people, filled with public
values when the table is encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource
from bench.datasets._shared import recode, survset_table

_SHA256 = "0ffff0e3622244f44002bcc971c8b47a75250450fd8e2cba4e292e22c74919b8"
_CODES: Mapping[str, Mapping[str, str]] = {
    "sex": {"1": "male", "2": "female"},
    "month": {str(month): str(month) for month in range(1, 13)},
}


@final
@dataclass(frozen=True)
class Framingham(DatasetSource):
    """4,699 people free of coronary heart disease at the examination."""

    name: ClassVar[str] = "framingham"
    package: ClassVar[str] = "SurvSet"

    def load(self) -> pd.DataFrame:
        table = survset_table("Framingham", _SHA256).drop(columns="pid")
        return recode(table, _CODES, "Framingham")
