"""Rotterdam tumour bank: overall survival of 2,982 women with primary breast cancer.

The table ships with SurvSet under the name rott2 (GPL, hence an extra; `_shared` says how its
pickle is checked). The event is death from any cause, the time is in months. DeepSurv's GBSG file
(`rotterdam-gbsg`) holds the 1,546 women with positive nodes of the same bank, with the time to
recurrence or death.

Left out: `pid`, and `recent`, which is `year` in two groups. The spelling `>20-50mmm` is corrected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource
from bench.datasets._shared import recode, survset_table

_SHA256 = "66e20f825fe5b5c6fec83a86e2e4f6cde4b4e6257937d5275ab52c2daa149ea6"
_CODES: Mapping[str, Mapping[str, str]] = {
    "meno": {"pre": "pre", "post": "post"},
    "tsize": {"<=20mm": "<=20mm", ">20-50mmm": ">20-50mm", ">50mm": ">50mm"},
    "grade": {"2": "2", "3": "3"},
    "hormon": {"no": "no", "yes": "yes"},
    "chemo": {"no": "no", "yes": "yes"},
}


@final
@dataclass(frozen=True)
class Rotterdam(DatasetSource):
    """2,982 women operated from 1978 to 1993."""

    name: ClassVar[str] = "rotterdam"
    package: ClassVar[str] = "SurvSet"

    def load(self) -> pd.DataFrame:
        table = survset_table("rott2", _SHA256).drop(columns=["pid", "recent"])
        return recode(table, _CODES, "rott2")
