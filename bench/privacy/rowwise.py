"""Per-row functions: evaluate and check their vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.data.encoder import EncodedRows
from bench.errors import PrivacyContractError

RowFunction = Callable[[EncodedRows], Any]
"""Maps n rows to an (n, k) array, row by row: entry i may depend on row i alone."""

Array = npt.NDArray[np.float64]

_LEAST, _MOST = 1e-100, 1e100
"""Between these the products of clip, noise and grid are ordinary doubles."""


def positive(value: float) -> float:
    """Return a Python float of an ordinary size, or refuse the value."""
    number = float(value)
    if not _LEAST <= number <= _MOST:
        raise PrivacyContractError(
            "clip, noise multiplier and rate must be positive finite numbers, between "
            f"{_LEAST:g} and {_MOST:g}; got {value}"
        )
    return number


def as_numbers(answer: Any, of: str) -> Array:
    """Return what a method's function answered as an array, or refuse it without quoting it."""
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu()
    try:
        return np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        # The library's text can hold the value, which may be that of a row.
        raise PrivacyContractError(
            f"the {of} returned something that is not an array of numbers; expected a NumPy array "
            "or a torch tensor of numbers, all of its rows of one length"
        ) from None


def counted(codes: Array, size: int) -> npt.NDArray[np.int64]:
    """Return how often each of the bins 0 .. size - 1 occurs.

    A code counts in bin k if k <= code < k + 1; NaN, infinite and other codes out of range count
    nowhere.
    """
    # Compared before it is converted: a conversion of NaN or 1e300 is not defined.
    inside = (codes >= 0.0) & (codes < size)
    return np.bincount(codes[inside].astype(np.int64), minlength=size)


def codes_within(codes: Array, sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return whole codes below the number of each column; others become the nearest, NaN zero."""
    highest = np.asarray(sizes, dtype=np.float64) - 1.0
    return np.clip(np.nan_to_num(codes, nan=0.0), 0.0, highest).astype(np.int64)


def evaluate(
    function: RowFunction, rows: EncodedRows, check_rows: bool, copied: bool = False
) -> Array:
    """Return one vector per row; `check_rows` also evaluates the first and last row alone.

    The function gets a copy of the rows, so that it cannot change them; `copied` says that these
    rows are a copy that nothing else reads.
    """
    handed = rows if copied and not check_rows else rows.copy()
    vectors = as_numbers(function(handed), "row function")
    if vectors.ndim != 2 or len(vectors) != len(rows):
        # The message has no number of rows: how many were sampled is private.
        raise PrivacyContractError(
            f"the row function returned an array of {vectors.ndim} dimensions, or not one vector "
            "per row; expected (rows, k), also for no rows at all"
        )
    if check_rows and len(rows) > 1:
        _check_row_by_row(function, rows, vectors)
    return vectors


def _check_row_by_row(function: RowFunction, rows: EncodedRows, vectors: Array) -> None:
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
