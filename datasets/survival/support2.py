"""SUPPORT2: survival of 9,105 seriously ill patients in five hospitals of the United States.

The Study to Understand Prognoses and Preferences for Outcomes and Risks of Treatments enrolled
from 1989 to 1994. Features are what was known on the third day of the study. Laboratory values that
were not measured are filled with the normal values that the publisher recommends for this table
(hbiostat.org/data/repo/supportdesc), other physiology with textbook normal values: public numbers,
never a mean of the rows. A missing race or income is a category.

Left out:
- outcomes: `hospdead`, `slos` (the days in hospital end with death), `sfdm2` (function at two
  months), `charges`, `totcst` and `totmcst` (costs of the whole stay), `avtisst` (treatment
  intensity up to day 25), `dnr` and `dnrday` (orders given up to the end of the stay);
- prognoses: `surv2m` and `surv6m` (of the study's own model), `prg2m` and `prg6m` (of the doctor);
- computed from other patients' rows, so that a row would not be its patient's own: `sps` (a score
  whose weights were fitted to the survival of the study's first patients) and `adlsc` (imputed);
- `dzclass`: `dzgroup` in four groups; `sno`: the row number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import FileSource, coerce_columns, read_csv


@final
@dataclass(frozen=True)
class Support2(FileSource):
    """9,105 patients, 6,201 of whom had died by the end of 1994."""

    name: ClassVar[str] = "support2"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        schema = self.declare().schema
        names = [column.name for column in schema]
        table = read_csv(
            paths["support2.csv"],
            "support2.csv",
            columns=names,
            usecols=names,
            skipinitialspace=True,
            keep_default_na=False,
            na_values="",
        )
        # A copy whose header does not name its first column, the row number, has it as the index.
        return coerce_columns(table[names].reset_index(drop=True), schema)
