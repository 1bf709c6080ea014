"""A worst-case table for audits: one row more fills cells that are empty without it.

All rows lie in one corner of the schema, in the first category of every column; a canary in the
opposite corner is alone in its bins, its categories and its pairs, and moves every sum by the whole
clip. Two clinics have many rows, the last one has one only: with a canary there, a part grows from
one row to two. Nothing can be learned from this table, and no row belongs to a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource

COUNTS = {("north", "no"): 150, ("south", "no"): 49, ("south", "yes"): 50, ("west", "yes"): 1}
"""Rows of each clinic and class."""


@final
@dataclass(frozen=True)
class WorstCase(DatasetSource):
    """The same row 250 times, but for clinic and class."""

    name: ClassVar[str] = "worst-case"

    def load(self) -> pd.DataFrame:
        lines = [key for key, count in COUNTS.items() for _ in range(count)]
        return pd.DataFrame(
            {
                "age": 0.0,
                "pressure": 0.0,
                "smoker": "never",
                "ward": "a",
                "clinic": [clinic for clinic, _ in lines],
                "event": [event for _, event in lines],
            }
        )
