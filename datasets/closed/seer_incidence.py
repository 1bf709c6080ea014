"""SEER incidence: survival of all breast cancer patients of the registries. Closed (agreement).

As used by the fidelity and privacy paper (section 5.1, dataset BREAST): 1,072,173 records with 117
variables of the SEER incidence database; it predicts the vital status and draws survival curves.

Open stand-in: `seer-breast` (4,024 of these patients, published at IEEE DataPort). No simulator.

File: `seer_incidence/seer_breast.csv` (our name), a case listing of SEER*Stat: database "Incidence
- SEER Research Data", selection "Site recode = Breast", the columns below, exported as text with
commas, quotes and variable names, with labels and not codes. Column names and labels are those of
the SEER*Stat dictionary. Their years in parentheses, such as in `Grade (thru 2017)`, change with
each submission and are ignored.

    Patient ID                              Age recode with ... (any of the age recodes)
    Sex                                     Race recode (W, B, AI, API)
    Year of diagnosis                       Marital status at diagnosis
    Primary Site - labeled                  Laterality
    Histologic Type ICD-O-3                 Behavior recode for analysis
    Grade or Grade Recode                   Summary stage 2000
    ER Status Recode Breast Cancer          PR Status Recode Breast Cancer
    Derived HER2 Recode                     CS tumor size
    Regional nodes examined                 Regional nodes positive
    Reason no cancer-directed surgery       Radiation recode
    Chemotherapy recode (yes, no/unk)       First malignant primary indicator
    Survival months                         Vital status recode (study cutoff used)

A row of the listing is a tumour. Each patient's first one (by year of diagnosis, then by place in
the file) is kept, so that a row is a patient. Tumours with unknown survival (found at autopsy or on
a death certificate) are dropped. `Age recode` is the lower end of the age group. Tumour sizes and
node counts lose the codes that are no numbers; 991 to 995 ("less than 1 cm" to "less than 5 cm")
become the middle of the last centimetre.

Left out: cause of death (`COD to site recode`, which the paper attacks as sensitive) and what
follows from it, because it gives the event away; the total numbers of tumours for a patient,
because they count tumours found later; county, income and registry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pandas as pd

from bench import FileSource
from bench.datasets.closed._closed import (
    UNKNOWN,
    TextTable,
    finish,
    first_row,
    first_rows,
    header,
)

_FILE = "seer_breast.csv"
_TIME = "Survival months"
_EVENT = "Vital status recode (study cutoff used)"
_AGE = "Age recode"
_YEARS = re.compile(r"\s*\((?:thru )?\d{4}[^)]*\)$")

_BLANK = {"Blank(s)": UNKNOWN, "Unknown": UNKNOWN}
_RECEPTOR: Mapping[str, str] = {
    "Positive": "positive",
    "Negative": "negative",
    **dict.fromkeys(("Borderline", "Borderline/Unknown", "Recode not available"), UNKNOWN),
    **_BLANK,
}
_CODES: Mapping[str, Mapping[str, str]] = {
    "Sex": {"Female": "female", "Male": "male"},
    "Race recode (W, B, AI, API)": {
        "White": "white",
        "Black": "black",
        "American Indian/Alaska Native": "american indian or alaska native",
        "Asian or Pacific Islander": "asian or pacific islander",
        **_BLANK,
    },
    "Marital status at diagnosis": {
        "Single (never married)": "single",
        "Married (including common law)": "married",
        "Separated": "separated",
        "Divorced": "divorced",
        "Widowed": "widowed",
        "Unmarried or Domestic Partner": "partner",
        **_BLANK,
    },
    "Laterality": {
        "Right - origin of primary": "right",
        "Left - origin of primary": "left",
        **dict.fromkeys(
            (
                "Bilateral, single primary",
                "Only one side - side unspecified",
                "Paired site, but no information concerning laterality",
                "Paired site: midline tumor",
                "Not a paired site",
            ),
            "other",
        ),
    },
    "Behavior recode for analysis": {"In situ": "in situ", "Malignant": "malignant"},
    "Grade": {
        "Well differentiated; Grade I": "I",
        "Moderately differentiated; Grade II": "II",
        "Poorly differentiated; Grade III": "III",
        "Undifferentiated; anaplastic; Grade IV": "IV",
        **_BLANK,
    },
    "Summary stage 2000": {
        "In situ": "in situ",
        "Localized": "localized",
        "Regional": "regional",
        "Distant": "distant",
        "Unknown/unstaged": UNKNOWN,
        **_BLANK,
    },
    "ER Status Recode Breast Cancer": _RECEPTOR,
    "PR Status Recode Breast Cancer": _RECEPTOR,
    "Derived HER2 Recode": _RECEPTOR,
    "Reason no cancer-directed surgery": {
        "Surgery performed": "performed",
        **dict.fromkeys(
            (
                "Not recommended",
                "Not recommended, contraindicated due to other cond; autopsy only (1973-2002)",
                "Not performed, patient died prior to recommended surgery",
                "Recommended but not performed, patient refused",
                "Recommended but not performed, unknown reason",
                "Recommended, unknown if performed",
                "Unknown; death certificate; or autopsy only (2003+)",
                *_BLANK,
            ),
            "not performed or unknown",
        ),
    },
    "Radiation recode": {
        **dict.fromkeys(
            (
                "Beam radiation",
                "Combination of beam with implants or isotopes",
                "Radioactive implants (includes brachytherapy) (1988+)",
                "Radioisotopes (1988+)",
                "Other than beam radiation (1973-1987 cases only)",
                "Radiation, NOS method or source not specified",
            ),
            "given",
        ),
        **dict.fromkeys(
            (
                "None/Unknown",
                "Refused (1988+)",
                "Recommended, unknown if administered",
                *_BLANK,
            ),
            "not given or unknown",
        ),
    },
    "Chemotherapy recode (yes, no/unk)": {"Yes": "given", "No/Unknown": "not given or unknown"},
    "First malignant primary indicator": {"Yes": "yes", "No": "no"},
}
_EVENTS: Mapping[str, str] = {"Alive": "0", "Dead": "1"}
_SITES: Mapping[str, str] = {
    f"C50.{place}": f"C50.{place}" for place in (0, 1, 2, 3, 4, 5, 6, 8, 9)
}
_HISTOLOGIES: Mapping[int, str] = {8500: "ductal", 8520: "lobular", 8522: "ductal and lobular"}
_SIZES: Mapping[int, float] = {990: 1, 991: 5, 992: 15, 993: 25, 994: 35, 995: 45}
"""CS tumor size: 990 is a microscopic focus; 996 to 999 and 0 say nothing about the size."""

_STEMS = (
    "Patient ID",
    "Year of diagnosis",
    "Primary Site - labeled",
    "Histologic Type ICD-O-3",
    "CS tumor size",
    "Regional nodes examined",
    "Regional nodes positive",
    _TIME,
    _EVENT,
    *_CODES,
)


@final
@dataclass(frozen=True)
class SeerIncidence(FileSource):
    """Breast cancer patients of the SEER registries, one row per patient."""

    name: ClassVar[str] = "seer-incidence"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path, schema = paths[_FILE], self.declare().schema
        names = _names(header(path, _FILE))
        listing = TextTable.read(path, _FILE, names.values())
        wanted_names = {name: wanted for wanted, name in names.items()}
        table = TextTable(path, listing.frame.rename(columns=wanted_names))
        known = table.text(_TIME).ne("Unknown").to_numpy() & table.text(_TIME).notna().to_numpy()
        if not known.any():
            raise table.problem(f"column {_TIME!r}: no survival time is known")
        table = table.take(known)
        year = table.numbers("Year of diagnosis")
        table = table.take(first_rows(table.text("Patient ID"), [year], path))
        columns = {name: table.categories(name, codes) for name, codes in _CODES.items()}
        columns["Year of diagnosis"] = table.numbers("Year of diagnosis")
        columns[_AGE] = _ages(table)
        columns["Primary Site - labeled"] = _sites(table)
        columns["Histologic Type ICD-O-3"] = (
            table.numbers("Histologic Type ICD-O-3").map(_HISTOLOGIES).fillna("other")
        )
        columns["CS tumor size"] = _sizes(table)
        for name in ("Regional nodes examined", "Regional nodes positive"):
            nodes = table.numbers(name, _BLANK)
            # 90 stands for 90 and more; 95 to 99 are not counts, except that 98 positive nodes
            # means that none was examined.
            none = nodes.eq(98) & (name == "Regional nodes positive")
            columns[name] = nodes.mask(none, 0).mask(nodes.gt(90) & ~none)
        columns[_TIME] = table.times(_TIME)
        columns[_EVENT] = table.categories(_EVENT, _EVENTS)
        return finish(columns, schema, path)


def stem(name: str) -> str:
    """Return the name of a SEER*Stat variable without the years that it covers."""
    return _YEARS.sub("", name.strip())


def _names(columns: Iterable[str]) -> dict[str, str]:
    """Return the file's name of each wanted column, in the order of `_STEMS`."""
    by_stem = {stem(name): name for name in reversed(list(columns))}
    by_stem.setdefault("Grade", by_stem.get("Grade Recode", "Grade"))
    names = {wanted: by_stem.get(wanted, wanted) for wanted in _STEMS}
    names[_AGE] = next(
        (name for name in by_stem.values() if name.startswith("Age recode with")), _AGE
    )
    return names


def _ages(table: TextTable) -> pd.Series:
    """`60-64 years`, `63 years` and `85+ years` become 60, 63 and 85."""
    text = table.text(_AGE)
    text = text.mask(text.isin(list(_BLANK)))
    ages = pd.to_numeric(text.str.extract(r"^(\d+)(?:-\d+|\+)? years$")[0], errors="coerce")
    wrong = ages.isna() & text.notna()
    if wrong.any():
        raise table.problem(
            f"column {_AGE!r}: {int(wrong.sum())} entries are no age group{first_row(wrong)}; "
            "expected for example '60-64 years'"
        )
    return ages


def _sites(table: TextTable) -> pd.Series:
    """`C50.4-Upper-outer quadrant of breast` becomes C50.4."""
    name = "Primary Site - labeled"
    codes = TextTable(table.path, pd.DataFrame({name: table.text(name).str.partition("-")[0]}))
    return codes.categories(name, _SITES)


def _sizes(table: TextTable) -> pd.Series:
    """Return the size of the tumour in millimetres."""
    code = table.numbers("CS tumor size", _BLANK)
    described = code.map(_SIZES)
    return described.where(described.notna(), code.where(code.between(1, 989)))
