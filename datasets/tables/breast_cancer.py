"""Wisconsin diagnostic breast cancer: nuclei in a fine needle aspirate, malignant or benign.

The table ships with scikit-learn. Columns keep their names with underscores for spaces; the target
is spelled out, with `malignant` second and therefore the positive class (scikit-learn codes it 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource


@final
@dataclass(frozen=True)
class BreastCancer(DatasetSource):
    """569 patients, 30 measurements of cell nuclei."""

    name: ClassVar[str] = "breast-cancer"

    def load(self) -> pd.DataFrame:
        from sklearn.datasets import load_breast_cancer

        table = load_breast_cancer(as_frame=True)
        frame: pd.DataFrame = table.data.rename(columns=lambda name: name.replace(" ", "_"))
        frame["diagnosis"] = table.target_names[table.target]
        return frame
