"""The log-likelihood ratio of a library's measurements, with a canary against without it.

For audits only (`bench audit --attack transcript`). The trusted wrapper that runs a library's
private steps says at each of them what both tables would have given; the ratio adds up, since each
step depends on earlier answers only, which both tables share.
"""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@final
class LikelihoodRatio:
    """Adds up log p(answer | with the canary) - log p(answer | without)."""

    def __init__(self, inside: bool) -> None:
        self._sign = 1.0 if inside else -1.0
        self.total = 0.0

    def gaussian(self, noisy: Array, here: Array, other: Array, deviation: float) -> None:
        """Add counts with Gaussian noise, where this table and the other have these."""
        squares = np.square(noisy - other) - np.square(noisy - here)
        self.total += self._sign * float(squares.sum()) / (2.0 * deviation**2)

    def laplace(self, noisy: float, here: float, other: float, scale: float) -> None:
        """Add one count with Laplace noise."""
        self.total += self._sign * (abs(noisy - other) - abs(noisy - here)) / scale

    def choice(self, here: Array, other: Array, chosen: int) -> None:
        """Add a choice of the exponential mechanism, with log weights of both tables."""
        difference = _log_share(here, chosen) - _log_share(other, chosen)
        self.total += self._sign * difference


def _log_share(weights: Array, chosen: int) -> float:
    largest = float(weights.max())
    return float(weights[chosen] - largest - np.log(np.exp(weights - largest).sum()))
