"""Right heart catheterisation in intensive care: survival of 5,735 critically ill adults.

A study of the SUPPORT investigators; the table ships with SurvSet (GPL, hence an extra; `_shared`
says how its pickle is checked). Columns are those of the first day.

Left out:
- `pid`: an identifier;
- `surv2md1`: a probability of surviving two months that a prognostic model computed: an answer, not
  a measurement (as `surv2m` in SUPPORT2);
- `adld3p`: activities of daily living, known for a quarter of the patients, those who could be
  asked.

A weight of 0 kg (515 patients) is a missing one. It and urine (missing for 3,028) are filled with
normal values when the table is encoded; a second diagnosis that is missing is `none`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource
from bench.datasets._shared import recode, survset_table

_SHA256 = "8250a5f1d8d5aa3d6f1a4c2cd18c41facc70506d0c77c655fa4423582ac780e4"
_LEFT_OUT = ["pid", "surv2md1", "adld3p"]
_CODED_0_1 = (
    *("amihx", "cardiohx", "chfhx", "chrpulhx", "dementhx", "gibledhx", "immunhx", "liverhx"),
    *("malighx", "psychhx", "renalhx", "transhx"),
)
_CODED_NO_YES = (
    *("card", "dnr1", "gastr", "hema", "meta", "neuro", "ortho", "renal", "resp", "seps"),
    "trauma",
)
_SECOND_DIAGNOSES = (
    *("Cirrhosis", "Colon Cancer", "Coma", "Lung Cancer"),
    *("MOSF w/Malignancy", "MOSF w/Sepsis"),
)
_CODES: Mapping[str, Mapping[str, str]] = {
    **{name: {"0": "no", "1": "yes"} for name in _CODED_0_1},
    **{name: {"No": "no", "Yes": "yes"} for name in _CODED_NO_YES},
    "ca": {"No": "no", "Yes": "yes", "Metastatic": "metastatic"},
    "cat2": {"missing": "none", **{name: name for name in _SECOND_DIAGNOSES}},
    "sex": {"Male": "male", "Female": "female"},
    "swang1": {"No RHC": "no", "RHC": "yes"},
}


@final
@dataclass(frozen=True)
class Rhc(DatasetSource):
    """5,735 patients, 2,184 of them with a catheter on the first day."""

    name: ClassVar[str] = "rhc"
    package: ClassVar[str] = "SurvSet"

    def load(self) -> pd.DataFrame:
        frame = recode(survset_table("rhc", _SHA256).drop(columns=_LEFT_OUT), _CODES, "rhc")
        frame["wtkilo1"] = frame["wtkilo1"].mask(frame["wtkilo1"] == 0)
        return frame
