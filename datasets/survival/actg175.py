"""AIDS Clinical Trials Group study 175: four treatments of HIV, time to progression.

The table ships with lifelines, which has no loader for it, so that the file is read from the
installed package. An event (`cens` = 1) is the first of: a fall of the CD4 count by at least 50%,
AIDS, or death; `days` counts from randomisation.

Only what was known at randomisation is kept. Left out:
- measured or decided later: `cd420` and `cd820` (counts at 20 weeks), `cd496` (96 weeks) and `r`
  (whether it was measured), `offtrt` (treatment stopped before 96 weeks);
- `pidnum` and the row number: identifiers;
- `zprior`: the same for everybody;
- `treat`, which is `arms` in two groups; `str2` and `strat`, which are `preanti` in two and three.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource

_NO_YES = ("no", "yes")
_NUMBERS = ("age", "wtkg", "karnof", "preanti", "cd40", "cd80", "days", "cens")
_CODES: Mapping[str, tuple[str, ...]] = {
    "hemo": _NO_YES,
    "homo": _NO_YES,
    "drugs": _NO_YES,
    "oprior": _NO_YES,
    "z30": _NO_YES,
    "race": ("white", "non-white"),
    "gender": ("female", "male"),
    "symptom": ("asymptomatic", "symptomatic"),
    "arms": (
        "zidovudine",
        "zidovudine and didanosine",
        "zidovudine and zalcitabine",
        "didanosine",
    ),
}
"""What the codes 0, 1, ... stand for, by the documentation of the R package speff2trial."""


@final
@dataclass(frozen=True)
class Actg175(DatasetSource):
    """2,139 patients with HIV and CD4 counts of 200 to 500 per cubic millimetre at screening."""

    name: ClassVar[str] = "actg175"

    def load(self) -> pd.DataFrame:
        path = importlib.resources.files("lifelines.datasets") / "ACTG175.csv"
        with path.open(encoding="utf-8") as file:
            table = pd.read_csv(file)
        frame = table[[*_NUMBERS]].copy()
        for name, meanings in _CODES.items():
            frame[name] = table[name].map(dict(enumerate(meanings)))
        return frame
