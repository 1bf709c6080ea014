"""Danish National Diabetes Register: survival of a random sample of 10,000 people.

`DMlate` has people who entered the register from 1995 on, one row each, with dates in years. Time
runs from entry to death or the end of follow-up; an event is death.

Left out: the dates themselves beside the entry. Of the two dates of treatment only whether it had
started at entry is kept: later treatment is not known at the start. The publisher moved every date
by up to seven days at random, so that no row has the dates of a person; a time is therefore
uncertain by two weeks, and some are a little negative, which the bound sets to 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import DataError, FileSource, coerce_columns
from bench.datasets.survival._r_data import rda_table

_FILE = "DMlate.rda"
_COLUMNS = ("sex", "dobth", "dodm", "dodth", "dooad", "doins", "dox")


@final
@dataclass(frozen=True)
class Dmlate(FileSource):
    """10,000 people, 2,503 of whom died."""

    name: ClassVar[str] = "dmlate"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        published = rda_table(paths[_FILE], _FILE, "DMlate")
        missing = [column for column in _COLUMNS if column not in published]
        if missing:
            raise DataError(
                f"{paths[_FILE]}: the column {missing[0]!r} is missing; obtain the original file"
            )
        entry = published["dodm"]
        table = pd.DataFrame(
            {
                "sex": published["sex"].astype(str).map({"M": "male", "F": "female"}),
                "age": entry - published["dobth"],
                "entry": entry,
                "oral treatment": _started(published["dooad"], entry),
                "insulin": _started(published["doins"], entry),
                "time": published["dox"] - entry,
                "death": published["dodth"].notna().astype(int),
            }
        ).reset_index(drop=True)
        return coerce_columns(table, self.declare().schema)


def _started(date: pd.Series[float], entry: pd.Series[float]) -> pd.Series[str]:
    """Return whether a treatment had started at entry; a missing date is none."""
    return (date <= entry).map({True: "yes", False: "no"})
