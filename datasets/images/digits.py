"""Handwritten digits of 8x8 pixels.

The images ship with scikit-learn: the test part of the UCI optical digits, written by 13 people who
do not occur in its training part. Which of the 13 wrote an image is not in the table, so that the
unit of privacy is the image, not its writer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import pandas as pd

from bench import DatasetSource


@final
@dataclass(frozen=True)
class Digits(DatasetSource):
    """1,797 grey-scale images in ten classes."""

    name: ClassVar[str] = "digits"

    def load(self) -> pd.DataFrame:
        from sklearn.datasets import load_digits

        frame: pd.DataFrame = load_digits(as_frame=True).frame
        return frame.rename(columns={"target": "digit"})
