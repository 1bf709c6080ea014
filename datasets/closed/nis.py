"""National Inpatient Sample: major amputation in patients with critical limb ischaemia. Closed.

The fidelity and privacy paper uses "a version" of the sample with 116,009 records and 31 variables
and predicts major amputation (sections 5.1 and 6.2). Its numbers (116,008 with the outcome known,
10,757 amputated) and the people it thanks identify the cohort: G. J. Zahner et al., Association of
comorbid depression with inpatient outcomes in critical limb ischemia, Vascular Medicine 25:25-32,
2020: discharges of 2012 and 2013 with critical limb ischaemia by ICD-9-CM.

Open stand-in: `diabetes130` (hospital encounters of the same country). There is no simulator.

File: `nis/nis_cli.csv`, rows of the Core files joined with the Disease Severity Measures files. The
publisher delivers fixed-width text and load programmes for SAS, SPSS and Stata; export what they
load as CSV. Except for the file name, all names and codes are the publisher's (HCUP data elements
of the 2012 and 2013 NIS):

    SELECT core.KEY_NIS, AGE, FEMALE, RACE, ZIPINC_QRTL, PAY1, PL_NCHS2006, ELECTIVE, AWEEKEND,
           HOSP_DIVISION, LOS, DIED, DX1, ..., DX25, PR1, ..., PR15, CM_ALCOHOL, CM_ANEMDEF,
           CM_CHF, CM_CHRNLUNG, CM_COAG, CM_DEPRESS, CM_DM, CM_DMCX, CM_DRUG, CM_HTN_C,
           CM_HYPOTHY, CM_LIVER, CM_LYTES, CM_NEURO, CM_OBESE, CM_RENLFAIL, CM_VALVE
    FROM core JOIN severity USING (KEY_NIS)
    WHERE '44022' IN (DX1, ..., DX25) OR '44023' IN (...) OR '44024' IN (...);

The loader keeps rows with one of these diagnoses, so that a wider extract does no harm; whole Core
files work, but take minutes. Missing entries may be empty, SAS missing values, or the negative
codes of the text files (-9, -8, ...). The paper does not list its variables; ours are the ones it
names (age, sex, race, income quartile, length of stay, death, depression, smoking, amputation),
facts of the admission and seventeen AHRQ comorbidities: 31 with these, derived from codes (our
names):

    SMOKER             305.1 or V15.82 among the diagnoses
    PRIOR_AMPUTATION   V49.70 to V49.77 among the diagnoses
    MAJOR_AMPUTATION   84.14 to 84.19 among the procedures (below or above the knee, by the levels
                       of the Centers for Disease Control and Prevention); the target

LOS and DIED are known only at discharge, as the target is: the paper attacks both as sensitive, and
they are kept for that. Left out: APRDRG, DRG, charges and disposition, which follow from the
procedures and so give the target away. Unit: a discharge, as the sample has no key for patients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import FileSource
from bench.datasets.closed._closed import UNKNOWN, TextTable, finish

_FILE = "nis_cli.csv"
_TARGET = "MAJOR_AMPUTATION"

_DIAGNOSES = tuple(f"DX{number}" for number in range(1, 26))
_PROCEDURES = tuple(f"PR{number}" for number in range(1, 16))
_CRITICAL_LIMB_ISCHAEMIA = ("44022", "44023", "44024")
_SMOKER = ("3051", "V1582")
_PRIOR_AMPUTATION = tuple(f"V497{level}" for level in range(8))
_MAJOR_AMPUTATION = tuple(f"841{level}" for level in range(4, 10))

_ABSENT = dict.fromkeys(("-9", "-8", "-6", "-5"), UNKNOWN)
_FLAG: Mapping[str, str] = {"0": "no", "1": "yes", **_ABSENT}
_CODES: Mapping[str, Mapping[str, str]] = {
    "FEMALE": {"0": "male", "1": "female", **_ABSENT},
    "RACE": {
        "1": "white",
        "2": "black",
        "3": "hispanic",
        "4": "asian or pacific islander",
        "5": "native american",
        "6": "other",
        **_ABSENT,
    },
    "ZIPINC_QRTL": {"1": "1", "2": "2", "3": "3", "4": "4", **_ABSENT},
    "PAY1": {
        "1": "medicare",
        "2": "medicaid",
        "3": "private",
        "4": "self-pay",
        "5": "no charge",
        "6": "other",
        **_ABSENT,
    },
    "PL_NCHS2006": {**{str(code): str(code) for code in range(1, 7)}, **_ABSENT, "-99": UNKNOWN},
    "ELECTIVE": _FLAG,
    "AWEEKEND": _FLAG,
    "HOSP_DIVISION": {str(code): str(code) for code in range(1, 10)},
    "DIED": _FLAG,
}
_MISSING_NUMBERS = ("-99", "-88", "-66", "-9999", "-8888", "-6666")


@final
@dataclass(frozen=True)
class Nis(FileSource):
    """Discharges with critical limb ischaemia."""

    name: ClassVar[str] = "nis"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        path, schema = paths[_FILE], self.declare().schema
        comorbidities = [column.name for column in schema if column.name.startswith("CM_")]
        wanted = [*_CODES, "AGE", "LOS", *comorbidities, *_DIAGNOSES, *_PROCEDURES]
        table = TextTable.read(path, _FILE, wanted)
        cohort = _any(table, _DIAGNOSES, _CRITICAL_LIMB_ISCHAEMIA)
        if not cohort.any():
            raise table.problem(
                "no row has a diagnosis 440.22, 440.23 or 440.24; expected ICD-9-CM codes without "
                "the point in DX1 to DX25"
            )
        table = table.take(cohort)
        columns = {
            "AGE": table.numbers("AGE", _MISSING_NUMBERS),
            "LOS": table.numbers("LOS", _MISSING_NUMBERS),
            "SMOKER": _yes(_any(table, _DIAGNOSES, _SMOKER)),
            "PRIOR_AMPUTATION": _yes(_any(table, _DIAGNOSES, _PRIOR_AMPUTATION)),
            _TARGET: pd.Series(_any(table, _PROCEDURES, _MAJOR_AMPUTATION).astype(np.int64)),
        }
        for name in [*_CODES, *comorbidities]:
            values = table.categories(name, _CODES.get(name, _FLAG))
            # Columns without a place for `unknown` have a public fill for empty entries.
            columns[name] = values.mask(values == UNKNOWN)
        return finish(columns, schema, path)


def _any(table: TextTable, names: tuple[str, ...], codes: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Return True for rows with one of the codes in one of the columns."""
    matches = np.zeros(len(table), dtype=bool)
    for name in names:
        matches |= table.frame[name].str.strip().isin(codes).to_numpy()
    return matches


def _yes(rows: npt.NDArray[np.bool_]) -> pd.Series:
    return pd.Series(np.where(rows, "yes", "no"))
