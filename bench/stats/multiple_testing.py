"""Corrections for many tests at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def holm(p_values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Adjusted p-values that keep the chance of any false finding (Holm 1979).

    The k-th smallest of m is multiplied by m + 1 - k, made monotone and capped at 1.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
