"""Worcester Heart Attack Study: survival after a heart attack, one row per patient.

DeepSurv's file has 1,638 rows, but they are a nested case-control sample: 273 deaths, each with
five controls who were alive at that time. A patient can be a control many times, and a case
besides (reported by Kvamme, Borgan and Scheel, Journal of Machine Learning Research 20(129),
2019). Rows of one patient stand in DeepSurv's train and in its test group, and would stand on both
sides of any split.

The loader therefore
- leaves out column 0, which other users took for cardiogenic shock: it is 1 in exactly 273 rows,
  all of them deaths, one for each death, and marks the case of a risk set: the outcome itself;
- keeps one row for each different patient (all other columns, time and event): 557 rows, 273
  deaths.
The 557 are no random sample of the study: deaths are all there, survivors as often as they were
drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench.datasets.survival._deepsurv import DeepSurvFile, pooled

_CASE = "case"


@final
@dataclass(frozen=True)
class Whas(DeepSurvFile):
    """557 different patients among the 1,638 rows of DeepSurv's file."""

    name: ClassVar[str] = "whas"
    file: ClassVar[str] = "whas_train_test.h5"
    columns: ClassVar[tuple[str, ...]] = (_CASE, "age", "sex", "bmi", "chf", "miord")
    codes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "sex": ("male", "female"),
        "chf": ("no", "yes"),
        "miord": ("first", "recurrent"),
    }

    def table(self, groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        return pooled(groups).drop(columns=_CASE).drop_duplicates(ignore_index=True)
