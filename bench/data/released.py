"""A released table as its owner wrote the original: same order of columns, types and gaps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from bench.data.encoder import MISSING_CATEGORY
from bench.data.schema import Categorical, Numeric, Schema

_DIGITS = 6
"""Digits of a number, as shares of its range: more were lost when it was encoded."""


def as_its_owner_wrote(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return decoded rows with the columns in the schema's order and the types of the original.

    Whole numbers are integers, and so are categories that are all whole numbers (codes), unless
    the original writes them as 1.0. The category of missing entries is a missing entry again. A
    site is not part of a release.
    """
    return pd.DataFrame(
        {
            column.name: _written(frame[column.name], column)
            for column in schema
            if column.name in frame.columns
        }
    )


def _written(series: pd.Series[Any], column: object) -> Any:
    if isinstance(column, Numeric):
        numbers = series.to_numpy(dtype=np.float64)
        if column.integer:
            return numbers if column.decimal else _whole(numbers)
        digits = _DIGITS - math.floor(math.log10(column.high - column.low))
        return np.clip(np.round(numbers, min(max(digits, 0), 15)), column.low, column.high)
    if isinstance(column, Categorical):
        texts = series.astype(object).where(series != MISSING_CATEGORY, None)
        named = [one for one in column.categories if one != MISSING_CATEGORY]
        if all(map(_is_whole, named)):
            codes = np.asarray(texts.astype(np.float64), dtype=np.float64)
            return codes if column.decimal else _whole(codes)
        return pd.Categorical(texts, categories=named, ordered=column.ordered)
    return series


def _is_whole(text: str) -> bool:
    """Return True for 7 and -7, not for 07, which a number would spell otherwise."""
    try:
        return str(int(text)) == text and abs(int(text)) < 2**53
    except ValueError:
        return False


def _whole(numbers: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    present = ~np.isnan(numbers)
    whole = pd.array(np.where(present, numbers, 0.0).astype(np.int64), dtype="Int64")
    if present.all():
        return whole.to_numpy(dtype=np.int64)
    whole[~present] = pd.NA
    return whole
