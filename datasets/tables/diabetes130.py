"""Diabetes in 130 hospitals of the United States, 1999-2008: readmission within 30 days.

Prepared as its publishers did (B. Strack et al., BioMed Research International 2014:781670):
- 71,518 patients have 101,766 rows. Each patient's first encounter (the lowest `encounter_id`) is
  kept, so that a row is a patient; the later ones would make row-level privacy a weaker promise.
- First encounters that ended in death or a hospice (dispositions 11, 13, 14, 19, 20, 21) are
  dropped: these patients cannot be readmitted. 69,973 patients remain (they count 69,984).
- ICD-9 codes are grouped as in their table 2, and specialties in their six groups.
- Of the codes of `payer_code` only the three that their table 1 explains are distinguished.

Type, disposition and source of the admission are grouped by their descriptions in the publisher's
`IDs_mapping.csv`. `?` and the descriptions that say nothing (NULL, not mapped, not available)
become one category. The word `None` in `max_glu_serum` and `A1Cresult` means: not measured.

Left out: `encounter_id` and `patient_nbr` (identifiers), `weight` (97% missing), `examide`,
`citoglipton` and `glimepiride-pioglitazone` (the same for everybody who is kept).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import MISSING_CATEGORY, DataError, FileSource, coerce_columns, read_csv

FILE = "diabetic_data.csv"
LABEL = "readmitted"
OTHERWISE = "NO or >30"

_DIAGNOSES = ("diag_1", "diag_2", "diag_3")
_DEAD_OR_HOSPICE = (11, 13, 14, 19, 20, 21)

_CHAPTERS: tuple[tuple[int, int, str], ...] = (
    (140, 239, "neoplasms"),
    (250, 250, "diabetes"),
    (390, 459, "circulatory"),
    (460, 519, "respiratory"),
    (520, 579, "digestive"),
    (580, 629, "genitourinary"),
    (710, 739, "musculoskeletal"),
    (785, 785, "circulatory"),
    (786, 786, "respiratory"),
    (787, 787, "digestive"),
    (788, 788, "genitourinary"),
    (800, 999, "injury"),
)
"""First and last ICD-9 number of each group, Strack et al., table 2; everything else is `other`."""

_SPECIALTIES: Mapping[str, str] = {
    "InternalMedicine": "internal medicine",
    "Cardiology": "cardiology",
    "Family/GeneralPractice": "family or general practice",
    "PhysicianNotFound": MISSING_CATEGORY,
}

_PAYERS: Mapping[str, str] = {"BC": "Blue Cross/Blue Shield", "MC": "Medicare", "SP": "self-pay"}

_ADMISSION_TYPES: Mapping[int, str] = {
    1: "emergency",
    2: "urgent",
    3: "elective",
    4: "newborn",
    7: "trauma center",
    **dict.fromkeys((5, 6, 8), MISSING_CATEGORY),
}
_DISPOSITIONS: Mapping[int, str] = {
    1: "home",
    **dict.fromkeys((6, 8), "home with care"),
    **dict.fromkeys((3, 4, 15, 24), "nursing facility"),
    22: "rehabilitation",
    **dict.fromkeys((2, 5, 9, 10, 23, 27, 28, 29), "another hospital"),
    7: "left against advice",
    **dict.fromkeys((12, 16, 17, 30), "other"),
    **dict.fromkeys((18, 25, 26), MISSING_CATEGORY),
}
_SOURCES: Mapping[int, str] = {
    **dict.fromkeys((1, 2, 3), "referral"),
    **dict.fromkeys((4, 5, 6, 10, 18, 19, 22, 25, 26), "transfer"),
    7: "emergency room",
    **dict.fromkeys((8, 11, 12, 13, 14, 23, 24), "other"),
    **dict.fromkeys((9, 15, 17, 20, 21), MISSING_CATEGORY),
}
_CODES: Mapping[str, Mapping[int, str]] = {
    "admission_type_id": _ADMISSION_TYPES,
    "discharge_disposition_id": _DISPOSITIONS,
    "admission_source_id": _SOURCES,
}


@final
@dataclass(frozen=True)
class Diabetes130(FileSource):
    """69,973 patients with diabetes, 6,277 of whom were readmitted within 30 days."""

    name: ClassVar[str] = "diabetes130"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        schema = self.declare().schema
        names = [column.name for column in schema]
        encounters = read_encounters(paths[FILE], names)
        first = encounters.sort_values("encounter_id").drop_duplicates("patient_nbr")
        patients = first[~first["discharge_disposition_id"].isin(_DEAD_OR_HOSPICE)].copy()
        for name in _DIAGNOSES:
            patients[name] = patients[name].map(chapter, na_action="ignore")
        patients["medical_specialty"] = patients["medical_specialty"].map(
            specialty, na_action="ignore"
        )
        patients["payer_code"] = patients["payer_code"].map(payer, na_action="ignore")
        for name, meanings in _CODES.items():
            patients[name] = _meaning(patients[name], meanings)
        readmitted = patients[LABEL]
        patients[LABEL] = readmitted.mask(readmitted.isin(("NO", ">30")), OTHERWISE)
        return coerce_columns(patients[names].reset_index(drop=True), schema)


def read_encounters(path: Path, names: list[str]) -> pd.DataFrame:
    """Read all encounters of the published file, `?` as missing and the word `None` as it is."""
    keys = ["encounter_id", "patient_nbr"]
    wanted = [*keys, *names]
    table = read_csv(
        path,
        FILE,
        columns=wanted,
        usecols=wanted,
        keep_default_na=False,
        na_values="?",
        dtype=dict.fromkeys(_DIAGNOSES, "string"),
        low_memory=False,
    )
    for name in (*keys, *_CODES):
        if not pd.api.types.is_integer_dtype(table[name]):
            raise DataError(f"{path}: {name!r} holds entries that are not whole numbers")
    return table


def chapter(code: str) -> str:
    """Return the group of an ICD-9 code such as `250.83`, `428` or `V27`."""
    if code[:1] in ("E", "V"):
        return "other"
    try:
        number = int(float(code))
    except ValueError:
        raise DataError(f"diagnosis {code!r} is not an ICD-9 code; obtain {FILE} again") from None
    return next((group for low, high, group in _CHAPTERS if low <= number <= high), "other")


def specialty(name: str) -> str:
    """Return the group of a specialty, by its name."""
    return _SPECIALTIES.get(name, "surgery" if name.startswith("Surg") else "other")


def payer(code: str) -> str:
    """Who pays, where the publishers say what the code means."""
    return _PAYERS.get(code, "other")


def _meaning(codes: pd.Series, meanings: Mapping[int, str]) -> pd.Series:
    strange = sorted(set(codes) - set(meanings))
    if strange:
        raise DataError(
            f"{codes.name}: the code {strange[0]} is not in the publisher's IDs_mapping.csv; "
            f"obtain {FILE} again"
        )
    return codes.map(meanings)
