"""SUPPORT as in DeepSurv: survival of seriously ill patients in hospital, complete cases.

8,873 of the 9,105 patients of SUPPORT2, with 14 covariates. The file has no names; columns and
codes were found by matching its rows with `support2.csv` on age, sex, number of comorbidities and
time: `sex` is 1 for women, and `cancer` 0 is metastatic, 1 none and 2 not metastatic. Column 2 is
the number of comorbidities and column 3 the race, column 11 sodium and column 12 the white cells:
not the order in which the paper lists them.

The patients are those of the dataset `support2`: a release of both is two releases of one dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench.datasets.survival._deepsurv import DeepSurvFile, pooled

_NO_YES = ("no", "yes")


@final
@dataclass(frozen=True)
class SupportDeepsurv(DeepSurvFile):
    """8,873 patients of the Study to Understand Prognoses Preferences Outcomes and Risks."""

    name: ClassVar[str] = "support-deepsurv"
    file: ClassVar[str] = "support_train_test.h5"
    columns: ClassVar[tuple[str, ...]] = (
        "age",
        "sex",
        "num.co",
        "race",
        "diabetes",
        "dementia",
        "ca",
        "meanbp",
        "hrt",
        "resp",
        "temp",
        "sod",
        "wblc",
        "crea",
    )
    codes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "sex": ("male", "female"),
        "race": ("other", "white", "black", "hispanic", "asian", "missing"),
        "diabetes": _NO_YES,
        "dementia": _NO_YES,
        "ca": ("metastatic", "no", "yes"),
    }

    def table(self, groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        return pooled(groups)
