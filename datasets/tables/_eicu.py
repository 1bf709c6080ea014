"""eICU-CRD: death in hospital from what is known after the first day in intensive care.

The full database and the open demo have the same tables; this is the loader of both. A row is a
patient: the first unit stay of each `uniquepid`. The tables hold no dates: hospital stays are
ordered by year of discharge, age and number of the hospital stay, and unit stays within one by
their visit number. Patients whose first stay has no recorded `hospitaldischargestatus` are left
out.

Features are the patient's facts at admission (table `patient`), the worst values of the first 24
hours (`apacheApsVar`) and the two APACHE IV scores made of them (`apachePatientResult`, version
IVa; the scores of version IV are the same). -1 stands for a missing value in the APACHE tables,
and `> 89`, which the publisher writes for all higher ages, is read as 90. A missing number is
replaced by the normal value of the APACHE score, as the score itself does; a missing category is
the category `missing`.

Left out:
- known only later: all discharge times, places, weights and states, `actual*`, `unabridged*`; and
  what the APACHE model made of the same inputs, `predicted*`;
- `apacheadmissiondx`, hundreds of texts; `hospitaladmitsource`, which is often missing and says
  what `unitadmitsource` says;
- identifiers: of patient, stays, ward and hospital.

The site is the region of the hospital (table `hospital`), with `missing` where it is not known:
the 208 hospitals are too small to declare counts for, and `hospitalid` would identify. Bed numbers
and teaching status describe the hospital too, and are left out with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bench import (
    Categorical,
    DataError,
    Declaration,
    FileSource,
    Obtain,
    Schema,
    coerce_columns,
    declaration_from_table,
    find_file,
    read_csv,
    read_toml,
)

PATIENT, APS, RESULT, HOSPITAL = (
    "patient.csv",
    "apacheapsvar.csv",
    "apachepatientresult.csv",
    "hospital.csv",
)
"""Names of the files in lower case; PhysioNet spells two of them with capitals."""

STAY = "patientunitstayid"
MISSING = "missing"

_ORDER = (
    "uniquepid",
    "hospitaldischargeyear",
    "age",
    "patienthealthsystemstayid",
    "unitvisitnumber",
)
_AT_ADMISSION = (
    "gender",
    "ethnicity",
    "unittype",
    "unitadmitsource",
    "admissionheight",
    "admissionweight",
    "hospitaladmitoffset",
    "hospitaldischargestatus",
)
_FIRST_DAY = (
    *("intubated", "vent", "dialysis", "meds", "eyes", "motor", "verbal", "urine", "wbc"),
    *("temperature", "respiratoryrate", "sodium", "heartrate", "meanbp", "ph", "hematocrit"),
    *("creatinine", "albumin", "pao2", "pco2", "bun", "glucose", "bilirubin", "fio2"),
)
_SCORES = ("acutephysiologyscore", "apachescore")


class Eicu(FileSource):
    """One of the two databases; columns and rules of both are in `_eicu.toml`."""

    def declare(self) -> Declaration:
        path = self.toml_path()
        shared = read_toml(Path(__file__).with_suffix(".toml"))
        return declaration_from_table({**shared, **read_toml(path)}, str(path))

    def obtain(self) -> Obtain:
        """Return how to obtain the files, also under the lower-case names of older releases."""
        obtain = super().obtain()
        folders = self._folders(obtain)
        files = []
        for file in obtain.files:
            lower = file.name.lower()
            if find_file(file.name, folders) is None and find_file(lower, folders) is not None:
                file = dataclasses.replace(file, name=lower)
            files.append(file)
        return dataclasses.replace(obtain, files=tuple(files))

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        schema = self.declare().schema
        files_by_name = {name.lower(): (path, name) for name, path in paths.items()}
        stays = first_stays(read_stays(*files_by_name[PATIENT]))
        aps = _read(*files_by_name[APS], (STAY, *_FIRST_DAY))
        results = _read(*files_by_name[RESULT], (STAY, "apacheversion", *_SCORES))
        scores = results.loc[results["apacheversion"] == "IVa", [STAY, *_SCORES]]
        hospitals = _read(*files_by_name[HOSPITAL], ("hospitalid", "region"))
        for table, key, (path, _) in (
            (aps, STAY, files_by_name[APS]),
            (scores, STAY, files_by_name[RESULT]),
            (hospitals, "hospitalid", files_by_name[HOSPITAL]),
        ):
            _check_key(table, key, path)
        frame = stays.merge(_without_minus_one(aps), on=STAY, how="left")
        frame = frame.merge(_without_minus_one(scores), on=STAY, how="left")
        frame = frame.merge(hospitals, on="hospitalid", how="left")
        frame = frame.dropna(subset="hospitaldischargestatus").reset_index(drop=True)
        return _categories(frame[[column.name for column in schema]], schema)


def read_stays(path: Path, name: str) -> pd.DataFrame:
    """Read the table `patient`: all unit stays, with the age as a number."""
    columns = [STAY, "hospitalid", *_ORDER, *_AT_ADMISSION]
    stays = read_csv(path, name, columns=columns, usecols=columns, dtype={"age": str})
    _check_key(stays, STAY, path)
    text = stays["age"].str.strip().replace("> 89", "90")
    age = pd.to_numeric(text, errors="coerce")
    wrong = (age.isna() & text.notna()).to_numpy()
    if wrong.any():
        raise DataError(
            f"{path}: the age in row {int(wrong.argmax()) + 1} is neither a number nor '> 89'; "
            "obtain the original table"
        )
    return stays.assign(age=age)


def first_stays(stays: pd.DataFrame) -> pd.DataFrame:
    """Return one stay per patient, chosen from that patient's rows alone."""
    return stays.sort_values(list(_ORDER), kind="stable").drop_duplicates("uniquepid")


def _read(path: Path, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    return read_csv(path, name, columns=columns, usecols=list(columns))


def _check_key(table: pd.DataFrame, key: str, path: Path) -> None:
    twice = table[key].duplicated().to_numpy()
    if twice.any():
        row = int(twice.argmax()) + 1
        raise DataError(f"{path}: the {key} of row {row} is there twice; obtain the original table")


def _without_minus_one(table: pd.DataFrame) -> pd.DataFrame:
    """-1 means missing, in every column but the key."""
    values = table.drop(columns=STAY)
    return pd.concat([table[STAY], values.mask(values == -1)], axis=1)


def _categories(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Name missing categories; a way of admission that is not listed counts as `Other`."""
    frame = coerce_columns(frame, schema)
    for column in schema:
        if isinstance(column, Categorical) and MISSING in column.categories:
            frame[column.name] = frame[column.name].fillna(MISSING)
    source = schema["unitadmitsource"]
    if isinstance(source, Categorical):
        listed = frame[source.name].isin(source.categories)
        frame[source.name] = frame[source.name].where(listed, "Other")
    return frame
