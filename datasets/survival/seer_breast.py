"""SEER breast cancer: survival of 4,024 women with infiltrating duct and lobular carcinoma.

The subset of the SEER registry that J. Teng published at IEEE DataPort: diagnosed 2006 to 2010,
tumour size and lymph nodes known, alive for at least one month. The columns are those that the
zero-order paper lists in its supplementary note 1. Two of the publisher's column names and some
values end in spaces, which are removed; `Reginol Node Positive` becomes `Regional Node Positive`.

An event is death (`Status` Dead) of any cause; `Survival Months` is the time. Used as a feature of
a classification of `Status` it would leak.

Altered copies circulate: one has 7,108 rows, others have edited values. More rows than were
published are refused when the file is read, because the declared counts, on which every privacy
guarantee rests, would be wrong; other changes show in the fingerprint (`bench data check`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import DataError, FileSource, coerce_columns, read_csv

_FILE = "SEER_Breast_Cancer_IEEE.csv"
_PUBLISHED_NAMES: Mapping[str, str] = {
    "Race": "Race ",
    "T Stage": "T Stage ",
    "Regional Node Positive": "Reginol Node Positive",
}
_EVENTS: Mapping[str, int] = {"Alive": 0, "Dead": 1}


@final
@dataclass(frozen=True)
class SeerBreast(FileSource):
    """4,024 women, 616 of whom died."""

    name: ClassVar[str] = "seer-breast"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path, declared = paths[_FILE], self.declare()
        published = {
            _PUBLISHED_NAMES.get(column.name, column.name): column.name
            for column in declared.schema
        }
        table = read_csv(path, _FILE, columns=published, usecols=list(published))
        if len(table) > sum(declared.by_class):
            raise DataError(
                f"{path}: {len(table):,} rows, but {sum(declared.by_class):,} were published: an "
                f"altered copy; obtain the original ({self.obtain().page})"
            )
        table = table.rename(columns=published)
        status = table["Status"].astype(str).str.strip()
        strange = sorted(set(status) - set(_EVENTS))
        if strange:
            raise DataError(
                f"{path}: the status {strange[0]!r} is neither of {', '.join(_EVENTS)}; obtain the "
                "original file"
            )
        table["Status"] = status.map(_EVENTS)
        return coerce_columns(table[list(published.values())], declared.schema)
