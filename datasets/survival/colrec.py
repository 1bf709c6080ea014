"""Colon and rectal cancer: survival of patients of the Slovene Cancer Registry.

`colrec` has one row per patient who was diagnosed from 1994 to 2000, with age and follow-up in
days. The date of diagnosis counts days from the beginning of 1960; here it is a year. An event is
death of any cause. No column is left out.

The publisher perturbed age, date and follow-up at random, so that no row has those of a patient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import DataError, FileSource, coerce_columns
from bench.datasets.survival._r_data import lazy_tables

_INDEX, _DATABASE = "Rdata.rdx", "Rdata.rdb"
_COLUMNS = ("sex", "age", "diag", "time", "stat", "stage", "site")
_DAYS = 365.25
"""Days of a year."""


@final
@dataclass(frozen=True)
class Colrec(FileSource):
    """5,971 patients, 4,979 of whom died."""

    name: ClassVar[str] = "colrec"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        (published,) = lazy_tables(paths[_INDEX], paths[_DATABASE], "colrec")
        missing = [column for column in _COLUMNS if column not in published]
        if missing:
            raise DataError(
                f"{paths[_DATABASE]}: the column {missing[0]!r} is missing; obtain the original "
                "file"
            )
        table = pd.DataFrame(
            {
                "sex": published["sex"].map({1: "male", 2: "female"}),
                "age": published["age"].astype(float) / _DAYS,
                "diagnosis": 1960.0 + published["diag"].astype(float) / _DAYS,
                "stage": published["stage"].astype(str).replace("99", "unknown"),
                "site": published["site"].astype(str),
                "time": published["time"].astype(float),
                "death": published["stat"].astype(int),
            }
        ).reset_index(drop=True)
        return coerce_columns(table, self.declare().schema)
