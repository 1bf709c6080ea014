"""Two cohorts of breast cancer with positive lymph nodes: Rotterdam and the German trial GBSG2.

DeepSurv's file trains on 1,546 patients of the Rotterdam tumour bank and tests on the 686 of GBSG2
(external validation, after Royston and Altman 2013). They are two populations, not a random split:
here both are split alike, and `cohort` is the site, for validation across sites.

Columns and codes were found by matching the 686 rows of `test` with GBSG2 as shipped in lifelines:
all agree, with times in months (days x 12 / 365.25), and column 1 is the tumour size in three
bands (up to 20, up to 50, above 50 mm), not the grade as some copies say. Rotterdam's times end at
84 months. Two pairs of Rotterdam patients are equal in everything; they are kept, being two
patients each.

GBSG2 is also the dataset `gbsg2`: a release of both is two releases of one dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench.datasets.survival._deepsurv import DeepSurvFile, pooled

_COHORTS = {"train": "Rotterdam", "test": "GBSG"}


@final
@dataclass(frozen=True)
class RotterdamGbsg(DeepSurvFile):
    """2,232 patients: 1,546 of Rotterdam, 686 of the German Breast Cancer Study Group."""

    name: ClassVar[str] = "rotterdam-gbsg"
    file: ClassVar[str] = "gbsg_cancer_train_test.h5"
    columns: ClassVar[tuple[str, ...]] = (
        "hormone_therapy",
        "size",
        "menopause",
        "age",
        "nodes",
        "pgr",
        "er",
    )
    codes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hormone_therapy": ("no", "yes"),
        "size": ("<=20", "20-50", ">50"),
        "menopause": ("pre", "post"),
    }

    def table(self, groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        return pooled({name: frame.assign(cohort=_COHORTS[name]) for name, frame in groups.items()})
