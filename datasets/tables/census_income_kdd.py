"""Census-Income KDD: who had an income of 50,000 dollars or more, in the surveys of 1994 and 1995?

Both files are read as published: no header, a space before each value, `?` for a missing answer.
`census-income.data` is split; `census-income.test` is the test set that the field uses.

Left out:
- `instance weight`: how many people a record stands for; the publisher says not to use it;
- `industry code`, `occupation code`, `detailed household and family stat` and `state of previous
  residence`: finer versions of columns that are kept.

The unit of privacy is the row. The files have no identifier, and the survey returns to a part of
its households in the next year: a person can be in both years, which nothing in the files tells.
The class `-50000` is spelled `- 50000.` in the files, and `50000+` is `50000+.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import DataError, FileSource, coerce_columns, open_data, read_csv

_COLUMNS = (
    "age",
    "class of worker",
    "industry code",
    "occupation code",
    "education",
    "wage per hour",
    "enroll in edu inst last wk",
    "marital stat",
    "major industry code",
    "major occupation code",
    "race",
    "hispanic origin",
    "sex",
    "member of a labor union",
    "reason for unemployment",
    "full or part time employment stat",
    "capital gains",
    "capital losses",
    "dividends from stocks",
    "tax filer stat",
    "region of previous residence",
    "state of previous residence",
    "detailed household and family stat",
    "detailed household summary in household",
    "instance weight",
    "migration code-change in msa",
    "migration code-change in reg",
    "migration code-move within reg",
    "live in this house 1 year ago",
    "migration prev res in sunbelt",
    "num persons worked for employer",
    "family members under 18",
    "country of birth father",
    "country of birth mother",
    "country of birth self",
    "citizenship",
    "own business or self employed",
    "fill inc questionnaire for veteran's admin",
    "veterans benefits",
    "weeks worked in year",
    "year",
    "income",
)
"""The order of `census-income.names`."""

_CLASSES: Mapping[str, str] = {"- 50000.": "-50000", "50000+.": "50000+"}


@final
@dataclass(frozen=True)
class CensusIncomeKdd(FileSource):
    """199,523 people in `census-income.data`, 99,762 more in `census-income.test`."""

    name: ClassVar[str] = "census-income-kdd"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        return self._read(paths["census-income.data"], "census-income.data")

    def load_official_test(self) -> pd.DataFrame:
        return self._read(self.paths()["census-income.test"], "census-income.test")

    def _read(self, path: Path, name: str) -> pd.DataFrame:
        _check_width(path, name)
        schema = self.declare().schema
        table = read_csv(
            path,
            name,
            names=_COLUMNS,
            usecols=[column.name for column in schema],
            skipinitialspace=True,
            keep_default_na=False,
            na_values="?",
        )
        income = table["income"].astype(str).str.strip()
        strange = int((~income.isin(_CLASSES)).sum())
        if strange:
            raise DataError(
                f"{path}: {strange} entries of the last column are neither of "
                f"{', '.join(map(repr, _CLASSES))}; obtain the original {name}"
            )
        table["income"] = income.map(_CLASSES)
        return coerce_columns(table[[column.name for column in schema]], schema)


def _check_width(path: Path, name: str) -> None:
    """Refuse a wrong separator or another layout, which no header reveals."""
    with open_data(path, name) as file:
        first = next((line for line in file if line.strip()), b"")
    if not first:
        raise DataError(f"{path}: the file is empty")
    width = first.count(b",") + 1
    if width != len(_COLUMNS):
        raise DataError(
            f"{path}: the first row has {width} comma-separated values, expected the "
            f"{len(_COLUMNS)} of the original {name}; obtain that file"
        )
