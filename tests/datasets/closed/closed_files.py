"""Hand-made files of the closed datasets, in the form that their loaders document.

Nobody here has the real files: every row is invented after the publishers' documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.data.schema import Numeric
from bench.plugins.registry import build_source

ROWS = 40
Files = dict[str, pd.DataFrame]


def cycle(*values: Any) -> list[Any]:
    """Return values in turn, one per row."""
    return [values[row % len(values)] for row in range(ROWS)]


def spread(low: float, high: float) -> list[float]:
    """Return numbers from low to high, one per row."""
    return [round(float(value), 2) for value in np.linspace(low, high, ROWS)]


def curial() -> Files:
    from bench.datasets.simulators._curial_parameters import BOUNDS, DEVICES

    site = pd.DataFrame({name: spread(b.low, b.high) for name, b in BOUNDS.items()})
    site["systolic_blood_pressure"] = site["diastolic_blood_pressure"] + 40
    site["white_cell_count"] = site["neutrophil_count"] + site["lymphocyte_count"]
    site["delivery_device"] = cycle(*DEVICES, "")
    site["sex"] = cycle("female", "male")
    site["covid"] = cycle(0, 0, 0, 1)
    site.loc[3, ["urea", "albumin", "white_cell_count"]] = np.nan
    return {f"{name}.csv": site for name in ("puh", "ouh", "uhb", "bh")}


def ukb_diabetes() -> Files:
    columns = {
        "eid": range(1, ROWS + 1),
        "p31": cycle(0, 1, "Female", "Male"),
        "p21022": cycle(40, 55, 69),
        "p21000_i0": cycle(1001, 3001, 4002, "Chinese", "Prefer not to answer", "", "Mixed"),
        "p20116_i0": cycle(0, 1, 2, "Current", -3, ""),
        "p21001_i0": cycle(22.5, 27.4, "", 35.1),
        "p22189": spread(-6, 10),
        "p30730_i0": spread(10, 300),
        "p30780_i0": spread(1, 6),
        "p30870_i0": spread(0.5, 5),
        "p30770_i0": spread(5, 40),
        "p30700_i0": spread(40, 200),
        "hypertension": cycle(0, 1),
        "diabetes": cycle(0, 0, 0, 1),
        "days": cycle(0, 1500, 4000),
    }
    return {"ukb_diabetes.csv": pd.DataFrame(columns)}


def ukb_proteomics() -> Files:
    names = ["acta2", "cd27", "cd5l", "il10rb", "tnfrsf13b", "ptn", "hla_dra"]
    proteins = pd.DataFrame({f"olink_instance_0.{name}": spread(-2, 3) for name in names})
    proteins.insert(0, "olink_instance_0.eid", range(101, 101 + ROWS))
    proteins.iloc[4, 3] = np.nan
    outcome = pd.DataFrame({"eid": range(101, 101 + ROWS), "myeloma": cycle(0, 0, 0, 1)})
    return {"olink_instance_0.csv": proteins, "myeloma.csv": outcome}


def mimic3_ihm() -> Files:
    schema = build_source("mimic3-ihm").declare().schema
    columns: dict[str, Any] = {
        "subject_id": [row // 2 for row in range(ROWS)],
        "icustay_id": range(200, 200 + ROWS),
        "intime": [f"2101-0{2 - row % 2}-01 10:00:00" for row in range(ROWS)],
    }
    for column in schema.features:
        columns[column.name] = (
            spread(column.low, column.high)
            if isinstance(column, Numeric)
            else cycle(*column.categories)
        )
    columns |= {
        "admission_age": cycle(18, 65, 89, 300),
        "vent": cycle(0, 1),
        "sysbp_mean": spread(90, 180),
        "diasbp_mean": cycle(40, "", 80),
        "hospital_expire_flag": cycle(0, 0, 0, 0, 0, 1),
    }
    return {"mimic3_ihm.csv": pd.DataFrame(columns)}


def dig() -> Files:
    schema = build_source("dig").declare().schema
    columns: dict[str, Any] = {"ID": range(1, ROWS + 1)}
    for column in schema.features:
        columns[column.name] = (
            spread(column.low, column.high)
            if isinstance(column, Numeric)
            else cycle(*range(len(column.categories)))
        )
    columns |= {
        "SEX": cycle(1, 2),
        "RACE": cycle(1, 2),
        "EJFMETH": cycle(1, 2, 3, ""),
        "CHFETIOL": cycle(1, 2, 3, 4, 5, 6),
        "FUNCTCLS": cycle(1, 2, 3, 4, ""),
        "KLEVEL": cycle("", 3.1, 5.1),
        "SYSBP": spread(100, 180),
        "DIABP": spread(50, 95),
        "DEATHDAY": cycle(1400, 30, 900),
        "DEATH": cycle(0, 1),
        "WHFDAYS": cycle(1400, 20, 500),
        "WHF": cycle(0, 1, 0, 0),
    }
    return {"DIG.csv": pd.DataFrame(columns)}


def texas_discharge() -> Files:
    year = pd.DataFrame(
        {
            "RECORD_ID": range(ROWS),
            "DISCHARGE": cycle("2013Q1", "2012Q4"),
            "TYPE_OF_ADMISSION": cycle("1", "4", "`", ""),
            "PAT_STATE": cycle("TX", "ZZ", "`"),
            "PAT_STATUS": cycle("01", "20", "63"),
            "SEX_CODE": cycle("F", "M", ""),
            "RACE": cycle("4", "3", "5"),
            "ETHNICITY": cycle("2", "1"),
            "ADMIT_WEEKDAY": cycle(*range(1, 8)),
            "PAT_AGE": cycle("00", "01", "13", "26"),
            "ILLNESS_SEVERITY": cycle("0", "1", "2", "3", "4"),
            "RISK_MORTALITY": cycle("0", "1", "2", "3", "4"),
            "LENGTH_OF_STAY": cycle("0001", "0012"),
            "TOTAL_CHARGES": spread(1000, 90_000),
            "TOTAL_CHARGES_ACCOMM": spread(200, 30_000),
            "TOTAL_CHARGES_ANCIL": spread(800, 60_000),
            "TOTAL_NON_COV_CHARGES": cycle("0.00", "31.50"),
            "TOTAL_NON_COV_CHARGES_ACCOMM": cycle("0.00"),
            "TOTAL_NON_COV_CHARGES_ANCIL": cycle("0.00", "31.50"),
        }
    )
    return {f"PUDF_base1_{quarter}q2013_tab.txt": year for quarter in (1, 2, 3, 4)}


def nis() -> Files:
    schema = build_source("nis").declare().schema
    columns: dict[str, Any] = {"KEY_NIS": range(ROWS)}
    columns |= {c.name: cycle(0, 1, -9) for c in schema if c.name.startswith("CM_")}
    columns |= {f"DX{number}": cycle("") for number in range(1, 26)}
    columns |= {f"PR{number}": cycle("") for number in range(1, 16)}
    columns |= {
        "CM_DM": cycle(1, 0, 0),
        "DX1": cycle("44022", "44024", "44023", "44024", "4019"),
        "DX7": cycle("3051", "V1582", ""),
        "DX25": cycle("V4975", ""),
        "PR3": cycle("8417", "8411", "3950"),
        "AGE": cycle(45, 90, -99, 71),
        "LOS": cycle(3, 0, -9999, ".A"),
        "FEMALE": cycle(0, 1, "."),
        "RACE": cycle(1, 2, 3, 4, 5, 6, -9),
        "ZIPINC_QRTL": cycle(1, 2, 3, 4, ""),
        "PAY1": cycle(1, 2, 3, 4, 5, 6),
        "PL_NCHS2006": cycle(1, 6, -99),
        "ELECTIVE": cycle(0, 1),
        "AWEEKEND": cycle(0, 1, -9),
        "HOSP_DIVISION": cycle(*range(1, 10)),
        "DIED": cycle(0, 0, 1),
    }
    return {"nis_cli.csv": pd.DataFrame(columns)}


def seer_incidence() -> Files:
    columns = {
        "Patient ID": [1, 1, *range(2, ROWS)],
        "Age recode with <1 year olds": cycle("60-64 years", "85+ years", "00 years", "Unknown"),
        "Sex": cycle("Female", "Female", "Male"),
        "Year of diagnosis": [2012, 2005, *[1998 + row % 20 for row in range(2, ROWS)]],
        "Race recode (W, B, AI, API)": cycle("White", "Black", "Unknown"),
        "Marital status at diagnosis": cycle("Single (never married)", "Widowed", "Blank(s)"),
        "Primary Site - labeled": cycle(
            "C50.4-Upper-outer quadrant of breast", "C50.9-Breast, NOS"
        ),
        "Laterality": cycle("Right - origin of primary", "Not a paired  site"),
        "Histologic Type ICD-O-3": cycle(8500, 8520, 8522, 8480),
        "Behavior recode for analysis": cycle("Malignant", "In situ"),
        "Grade (thru 2017)": cycle("Well differentiated; Grade I", "Unknown"),
        "Summary stage 2000 (1998-2017)": cycle("Distant", "In situ", "Regional", "Localized"),
        "ER Status Recode Breast Cancer (1990+)": cycle("Positive", "Borderline/Unknown"),
        "PR Status Recode Breast Cancer (1990+)": cycle("Negative", "Recode not available"),
        "Derived HER2 Recode (2010+)": cycle("Positive", "Recode not available"),
        "CS tumor size (2004-2015)": cycle("015", "999", "991", "Blank(s)", "000"),
        "Regional nodes examined (1988+)": cycle("12", "98", "90", "00"),
        "Regional nodes positive (1988+)": cycle("03", "97", "01", "98"),
        "Reason no cancer-directed surgery": cycle("Surgery performed", "Not recommended"),
        "Radiation recode (2003+)": cycle(
            "Beam radiation", "None/Unknown", "Radiation, NOS  method or source not specified"
        ),
        "Chemotherapy recode (yes, no/unk)": cycle("Yes", "No/Unknown"),
        "First malignant primary indicator": cycle("Yes", "No"),
        "Survival months": cycle("0012", "0", "250", "Unknown", "7"),
        "Vital status recode (study cutoff used)": cycle("Alive", "Dead", "Dead"),
    }
    return {"seer_breast.csv": pd.DataFrame(columns)}


@dataclass(frozen=True)
class Case:
    """One dataset: its files, and where to damage them."""

    name: str
    files: Callable[[], Files]
    label: str
    one_class: Any
    coded: str
    separator: str = ","
    time: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def put(self, folder: Path, files: Files | None = None, separator: str = "") -> Path:
        """Write the files; the path of the one that holds the label."""
        source = build_source(self.name, self.parameters)
        place = folder / source.obtain().folder
        place.mkdir(exist_ok=True)
        for name, frame in (files or self.files()).items():
            frame.to_csv(place / name, sep=separator or self.separator, index=False)
        return place / self.target

    @property
    def target(self) -> str:
        return next(name for name, frame in self.files().items() if self.label in frame)


CASES = (
    Case("curial", curial, "covid", 0, "sex"),
    Case("dig", dig, "DEATH", 1, "EJFMETH", time="DEATHDAY"),
    Case("dig", dig, "WHF", 0, "SEX", time="WHFDAYS", parameters={"endpoint": "whf"}),
    Case("mimic3-ihm", mimic3_ihm, "hospital_expire_flag", 0, "first_careunit"),
    Case("nis", nis, "PR3", "3950", "RACE"),
    Case(
        "seer-incidence",
        seer_incidence,
        "Vital status recode (study cutoff used)",
        "Dead",
        "Laterality",
        time="Survival months",
    ),
    Case("texas-discharge", texas_discharge, "ILLNESS_SEVERITY", "1", "RACE", separator="\t"),
    Case("ukb-diabetes", ukb_diabetes, "diabetes", 0, "p21000_i0", time="days"),
    Case("ukb-proteomics", ukb_proteomics, "myeloma", 0, "myeloma"),
)
