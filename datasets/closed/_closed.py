"""Shared pieces of the loaders for closed data, which only authorised people can obtain.

The authors of these loaders have not seen the files, so that everything is checked: a file is read
as text, each column is turned into numbers or documented categories by name, and whatever does not
fit the publisher's documentation is refused in one line that names file, column and value.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Categorical, DataError, Schema, open_data, read_csv

UNKNOWN = "unknown"
"""Category of an entry that is missing, or that the publisher codes as not known."""

NO_YES: Mapping[str, str] = {"0": "no", "1": "yes"}

_MISSING = ("", "NA", "NaN", "nan", "NULL", "null", ".", ".A", ".B", ".C", ".N")
"""Empty entries as spreadsheets, databases, R and SAS (special missing values) export them."""


def header(path: Path, name: str, separator: str = ",") -> list[str]:
    """Return the column names of a file: public, as a data dictionary is; no row is read."""
    with open_data(path, name) as file:
        try:
            line = io.TextIOWrapper(file, encoding="utf-8", newline="").readline()
        except UnicodeDecodeError as problem:
            raise DataError(f"{path}: not UTF-8 text (byte {problem.start})") from None
    return next(csv.reader([line.lstrip("\ufeff").rstrip("\r\n")], delimiter=separator), [])


@final
@dataclass(frozen=True, eq=False)
class TextTable:
    """The wanted columns of one delimited file, as text."""

    path: Path
    frame: pd.DataFrame

    @classmethod
    def read(
        cls, path: Path, name: str, columns: Iterable[str], *, separator: str = ","
    ) -> TextTable:
        """Read columns that must all be there; the file may hold more."""
        wanted = list(columns)
        frame = read_csv(
            path,
            name,
            separator=separator,
            columns=wanted,
            usecols=wanted,
            dtype=str,
            keep_default_na=False,
            na_values=list(_MISSING),
            skipinitialspace=True,
        )
        return cls(path, frame)

    def __len__(self) -> int:
        return len(self.frame)

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> TextTable:
        """Return the rows of a mask, or at the given positions."""
        return TextTable(self.path, self.frame.iloc[rows].reset_index(drop=True))

    def text(self, name: str) -> pd.Series:
        """Return one column without surplus spaces; `1`, `01` and `1.0` are spelled alike."""
        return _each(self.frame[name], _canonical)

    def numbers(self, name: str, missing: Iterable[str] = ()) -> pd.Series:
        """Return one column as numbers; `missing` are codes that stand for no number."""
        text = self.text(name)
        text = text.mask(text.isin([_canonical(code) for code in missing]))
        numbers = pd.to_numeric(text, errors="coerce")
        wrong = numbers.isna() & text.notna()
        if wrong.any():
            raise self.problem(
                f"column {name!r}: {int(wrong.sum())} entries are not numbers{first_row(wrong)}"
            )
        return numbers

    def categories(self, name: str, meanings: Mapping[str, str]) -> pd.Series:
        """Decode one column by the publisher's codebook; an empty entry stays empty."""
        text = self.text(name)
        wrong = text.notna() & ~text.isin(list(meanings))
        if wrong.any():
            shown = ", ".join(list(meanings)[:12]) + (", ..." if len(meanings) > 12 else "")
            raise self.problem(
                f"column {name!r}: {int(wrong.sum())} entries are not documented codes"
                f"{first_row(wrong)}; expected {shown}"
            )
        return text.map(meanings)

    def labels(self, name: str) -> pd.Series:
        """Return one column of 0 and 1 without gaps: an event or a binary outcome."""
        text = self.text(name)
        wrong = ~text.isin(["0", "1"])
        if wrong.any():
            raise self.problem(
                f"column {name!r}: {int(wrong.sum())} entries are missing or neither 0 nor 1"
                f"{first_row(wrong)}"
            )
        return text.astype(np.int64)

    def times(self, name: str) -> pd.Series:
        """Return one column of times, none missing and none negative."""
        times = self.numbers(name)
        if times.isna().any():
            raise self.problem(f"column {name!r}: {int(times.isna().sum())} times are missing")
        if (times < 0).any():
            raise self.problem(
                f"column {name!r}: {int((times < 0).sum())} times are negative"
                f"{first_row(times < 0)}"
            )
        return times

    def problem(self, text: str) -> DataError:
        """Return an error that names the file."""
        return DataError(f"{self.path}: {text}")


def first_row(wrong: pd.Series) -> str:
    """Return where the first wrong entry is: closed rows are named by number, never by content.

    Rows are counted from 1, in the file or in what is left of it after rows were dropped.
    """
    return f" (the first in row {int(np.argmax(wrong.to_numpy(dtype=bool))) + 1})"


def finish(columns: Mapping[str, pd.Series], schema: Schema, where: Path) -> pd.DataFrame:
    """Return the table in the order of the schema; refuse one that holds a single class.

    An empty entry becomes the category `unknown` where the schema has it.
    """
    frame = pd.DataFrame({column.name: columns[column.name] for column in schema})
    for column in schema:
        if isinstance(column, Categorical) and UNKNOWN in column.categories:
            frame[column.name] = frame[column.name].fillna(UNKNOWN)
    label = schema.label
    absent = int(frame[label.name].isna().sum())
    if absent:
        raise DataError(f"{where}: column {label.name!r}: {absent} entries are missing")
    present = sorted(set(frame[label.name].map(str)))
    if len(present) < 2:
        raise DataError(
            f"{where}: {label.name!r} is the same in every row; both of "
            f"{' and '.join(map(repr, label.categories))} are needed to predict it"
        )
    return frame


def first_rows(keys: pd.Series, order: Sequence[pd.Series], where: Path) -> npt.NDArray[np.intp]:
    """Positions of each key's first row by `order` (then by place in the file), in file order."""
    if keys.isna().any():
        raise DataError(f"{where}: column {keys.name!r}: {int(keys.isna().sum())} are missing")
    table = pd.DataFrame({str(number): series for number, series in enumerate(order)})
    table["key"] = keys
    ordered = table.sort_values(list(table.columns[:-1]), kind="stable")
    return np.sort(ordered.drop_duplicates("key").index.to_numpy(dtype=np.intp))


def _canonical(text: str) -> str:
    text = " ".join(text.split())
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else text


def _each(series: pd.Series, change: Callable[[str], str]) -> pd.Series:
    """Change every text; as columns repeat few texts often, each is changed once."""
    return series.map({text: change(text) for text in series.dropna().unique()})
