"""METABRIC: overall survival with breast cancer, from four genes and five clinical facts.

DeepSurv's selection: 1,904 of the patients, with the expression of four genes, three treatments,
oestrogen-receptor status and age. The file has no names. The order of the genes in the paper
(MKI67, EGFR, PGR, ERBB2) is not that of the columns: by their biology the columns are EGFR (falls
with oestrogen receptors), PGR (rises with them), ERBB2 (far the highest, with a second mode of
amplified tumours) and MKI67 (the narrowest). This is an inference, not documentation. Treatments
and receptor status follow the paper's order. No receptor status is missing in the file; 0 may also
stand for one that was not measured.
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
class Metabric(DeepSurvFile):
    """1,904 patients of the Molecular Taxonomy of Breast Cancer International Consortium."""

    name: ClassVar[str] = "metabric"
    file: ClassVar[str] = "metabric_IHC4_clinical_train_test.h5"
    columns: ClassVar[tuple[str, ...]] = (
        "EGFR",
        "PGR",
        "ERBB2",
        "MKI67",
        "hormone_therapy",
        "radiotherapy",
        "chemotherapy",
        "ER_positive",
        "age",
    )
    codes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hormone_therapy": _NO_YES,
        "radiotherapy": _NO_YES,
        "chemotherapy": _NO_YES,
        "ER_positive": _NO_YES,
    }

    def table(self, groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        return pooled(groups)
