"""Per-row functions: evaluate, check and clip their vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.data.encoder import EncodedRows
from bench.errors import PrivacyContractError

RowFunction = Callable[[EncodedRows], Any]
"""Maps n rows to an (n, k) array, row by row: entry i may depend on row i alone."""


def positive(value: float) -> float:
    """Return a positive finite Python float, or refuse the value."""
    number = float(value)
    if not (number > 0 and math.isfinite(number)):
        raise PrivacyContractError(
            f"clip, noise multiplier and rate must be positive finite numbers, got {value}"
        )
    return number


def evaluate(function: RowFunction, rows: EncodedRows, check_rows: bool) -> npt.NDArray[np.float64]:
    """Return one vector per row; `check_rows` also evaluates the first and last row alone."""
    answer = function(rows)
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu()
    vectors = np.asarray(answer, dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(rows):
        # The message has no number of rows: how many were sampled is private.
        raise PrivacyContractError(
            f"the row function returned an array of {vectors.ndim} dimensions, or not one vector "
            "per row; expected (rows, k), also for no rows at all"
        )
    if check_rows and len(rows) > 1:
        _check_row_by_row(function, rows, vectors)
    return vectors


def _check_row_by_row(
    function: RowFunction, rows: EncodedRows, vectors: npt.NDArray[np.float64]
) -> None:
    try:
        nothing = evaluate(function, rows.take(np.array([], dtype=np.intp)), check_rows=False)
    except (ValueError, IndexError, TypeError, RuntimeError) as problem:
        raise PrivacyContractError(
            f"the row function fails when there are no rows ({problem}). A class, a site or a "
            "sample can be empty: (0, k) is expected then. An error would reveal that; write "
            "lengths out in `reshape` instead of -1"
        ) from problem
    if nothing.shape[1] != vectors.shape[1]:
        raise PrivacyContractError("the length of the row function's vectors depends on the rows")
    for index in (0, len(rows) - 1):
        alone = evaluate(function, rows.take(np.array([index])), check_rows=False)[0]
        if not np.allclose(alone, vectors[index], rtol=1e-3, atol=1e-4, equal_nan=True):
            raise PrivacyContractError(
                "the row function does not act row by row: a row's vector changes with the other "
                "rows in the batch (batch normalisation, centring, ranking?)"
            )
