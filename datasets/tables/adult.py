"""Adult, the census income table of the UCI repository: who earns more than 50,000 dollars a year?

Both files are read as published: no header, a space before each value, `?` for a missing answer
and `|` before a comment (the C4.5 format); `adult.test` starts with such a comment, and its labels
end in a full stop. `adult.data` is split; `adult.test` is the test set that the field uses.

Left out:
- `education`: `education-num` is the same in numbers;
- `fnlwgt`: how many people a record stands for in the survey, not a fact about the person.
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
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
"""The order of `adult.names`."""


@final
@dataclass(frozen=True)
class Adult(FileSource):
    """32,561 people of the census of 1994 in `adult.data`, 16,281 more in `adult.test`."""

    name: ClassVar[str] = "adult"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        return self._read(paths["adult.data"], "adult.data")

    def load_official_test(self) -> pd.DataFrame:
        return self._read(self.paths()["adult.test"], "adult.test")

    def _read(self, path: Path, name: str) -> pd.DataFrame:
        _check_width(path, name)
        table = read_csv(
            path,
            name,
            names=_COLUMNS,
            comment="|",
            skipinitialspace=True,
            keep_default_na=False,
            na_values="?",
        )
        table["income"] = table["income"].astype("string").str.removesuffix(".").astype(object)
        schema = self.declare().schema
        return coerce_columns(table[[column.name for column in schema]], schema)


def _check_width(path: Path, name: str) -> None:
    """Refuse a wrong separator or another layout, which no header reveals."""
    with open_data(path, name) as file:
        first = next((line for line in file if line.strip() and not line.startswith(b"|")), b"")
    if not first:
        raise DataError(f"{path}: the file is empty")
    width = first.count(b",") + 1
    if width != len(_COLUMNS):
        raise DataError(
            f"{path}: the first row has {width} comma-separated values, expected the "
            f"{len(_COLUMNS)} of the original {name}; obtain that file"
        )
