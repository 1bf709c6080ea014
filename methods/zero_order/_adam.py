"""Adam (Kingma and Ba, 2015, Algorithm 1) for one array of numbers."""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_FIRST_DECAY, _SECOND_DECAY, _SMALL = 0.9, 0.999, 1e-8


@final
class Adam:
    """Running moments of the gradient; every step is at most about `rate` a number."""

    def __init__(self, shape: tuple[int, ...], rate: float) -> None:
        self._rate = rate
        self._first = np.zeros(shape)
        self._second = np.zeros(shape)
        self._steps = 0

    def step(self, gradient: Array) -> Array:
        """What to add to the numbers, to descend."""
        self._steps += 1
        self._first += (1.0 - _FIRST_DECAY) * (gradient - self._first)
        self._second += (1.0 - _SECOND_DECAY) * (gradient**2 - self._second)
        first = self._first / (1.0 - _FIRST_DECAY**self._steps)
        second = self._second / (1.0 - _SECOND_DECAY**self._steps)
        update: Array = -self._rate * first / (np.sqrt(second) + _SMALL)
        return update
