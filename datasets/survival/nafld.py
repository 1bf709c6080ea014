"""Non-alcoholic fatty liver disease: survival of cases and matched controls of Olmsted County.

`nafld1` has one row per person. `nafld3` has diagnoses with their day: those made on or before the
index date (day 0) become columns, those made later are not known at the start and are left out.

Left out: `id` and `case.id` (identifiers: of a person, and of the case that a control was matched
to), `weight` (it follows from `bmi` and `height`), and the laboratory values of `nafld2` (most
people have none before the index date). One row is one person. The matching is not part of the
guarantee: that a control is in the table tells that somebody of the same age and sex was a case.
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
_DIAGNOSES: Mapping[str, str] = {
    "nafld": "nafld",
    "htn": "hypertension",
    "dyslipidemia": "dyslipidemia",
    "diabetes": "diabetes",
    "ang/isc": "angina or ischemia",
    "MI": "myocardial infarction",
    "heart failure": "heart failure",
    "afib": "atrial fibrillation",
    "stroke": "stroke",
    "cardiac arrest": "cardiac arrest",
}
"""Events of `nafld3` and the columns that they become."""


@final
@dataclass(frozen=True)
class Nafld(FileSource):
    """17,549 people, 1,364 of whom died."""

    name: ClassVar[str] = "nafld"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        people, events = lazy_tables(paths[_INDEX], paths[_DATABASE], "nafld1", "nafld3")
        path, schema = paths[_DATABASE], self.declare().schema
        _check(path, people, ("id", "age", "male", "height", "bmi", "futime", "status"))
        _check(path, events, ("id", "days", "event"))
        diagnosis = events["event"].astype(str)
        strange = sorted(set(diagnosis) - set(_DIAGNOSES))
        if strange:
            raise DataError(f"{path}: the event {strange[0]!r} is unknown; obtain the original")
        table = pd.DataFrame(
            {name: people[name].to_numpy() for name in ("age", "height", "bmi", "futime", "status")}
        )
        table["sex"] = people["male"].map({0: "female", 1: "male"}).to_numpy()
        before = events["days"] <= 0
        for event, column in _DIAGNOSES.items():
            known = events.loc[before & (diagnosis == event), "id"]
            table[column] = people["id"].isin(known).map({False: "no", True: "yes"}).to_numpy()
        return coerce_columns(table[[column.name for column in schema]], schema)


def _check(path: Path, table: pd.DataFrame, columns: tuple[str, ...]) -> None:
    missing = [column for column in columns if column not in table]
    if missing:
        raise DataError(f"{path}: the column {missing[0]!r} is missing; obtain the original file")
