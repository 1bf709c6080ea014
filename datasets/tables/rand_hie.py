"""The RAND Health Insurance Experiment: does a person use medical services in a year?

Families were assigned at random to insurance plans from free care to 95% coinsurance. The file has
20,190 years of 5,912 people; each person's first year in the file is kept, so that a row is a
person: the later ones would make row-level privacy a weaker promise.

The target is any medical expense in the year (`binexp`, the first part of the experiment's own
two-part model), not the spending: regression is no task here, and a threshold on the spending
would be invented.

Left out:
- `plan` (its rate, deductible and maximum are kept), `zper` (identifier), `year`, `time` (known at
  the end of the year only);
- what the person used in the year: expenses, visits, admissions and their logarithms;
- functions of columns that are kept: `lfam`, `lnum`, `lpi`, `logc`, `linc`, `fmde`, `child`,
  `fchild`; and `ghindx`, which is `xghindx` without imputed values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import DataError, FileSource, coerce_columns, read_csv

_FILE = "randhie.csv"
_HEALTH: Mapping[str, str] = {"hlthg": "good", "hlthf": "fair", "hlthp": "poor"}


@final
@dataclass(frozen=True)
class RandHie(FileSource):
    """5,912 people in their first year."""

    name: ClassVar[str] = "rand-hie"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path, schema = paths[_FILE], self.declare().schema
        names = [column.name for column in schema]
        wanted = [*(name for name in names if name != "health"), *_HEALTH, "zper", "year"]
        table = read_csv(path, _FILE, columns=wanted, usecols=wanted)
        first = table.sort_values(["zper", "year"], kind="stable")
        first = first.drop_duplicates("zper").sort_index()
        answers = first[list(_HEALTH)].to_numpy()
        if not np.isin(answers, (0, 1)).all() or (answers.sum(axis=1) > 1).any():
            raise DataError(
                f"{path}: {', '.join(_HEALTH)} are not zeros with at most one 1 in a row; obtain "
                "the original file"
            )
        first["health"] = np.select(
            [first[column] == 1 for column in _HEALTH], list(_HEALTH.values()), "excellent"
        )
        return coerce_columns(first[names].reset_index(drop=True), schema)
