"""German Breast Cancer Study Group 2: recurrence-free survival of women with positive lymph nodes.

The table ships with lifelines and is used as it is. `cens` is 1 for an event (recurrence or death)
and 0 for a censored time, whatever its name suggests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource


@final
@dataclass(frozen=True)
class Gbsg2(DatasetSource):
    """686 patients of a trial of hormonal treatment and the duration of chemotherapy."""

    name: ClassVar[str] = "gbsg2"

    def load(self) -> pd.DataFrame:
        from lifelines.datasets import load_gbsg2

        frame: pd.DataFrame = load_gbsg2()
        return frame
