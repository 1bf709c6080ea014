"""The privacy mechanism of zero-order dataset condensation, as published (section 4.4).

Each synthetic row's gradient is clipped to norm C (equation 12) and gets Gaussian noise of standard
deviation sigma C (equation 13), sigma from {0.25, 0.5, ..., 2} sigma_base so that the signal to
noise ratio stays at least 1. The RDP of a Poisson-sampled Gaussian of rate q = m / N and multiplier
sigma is charged for each step. None of this bounds what a patient can change (see the reasons that
`zero_order_dc` records); it is computed here because it is what the paper claims.

Two ways to count, both offered:

* `all-steps`: every step that was run.
* `published`: the first step alone. The authors' demo wraps its accountant in a counter that lets a
  step pass while its number does not exceed that of the best step so far. The best step is updated
  after the counter has gone past it, so that nothing but the first step is ever charged.

The text's "up to the best early-stopped iteration" lies between the two, and is reported as a note.
It is no bound either: later steps decide which one is the best.

Epsilons are computed by the accountant of Opacus, as in the demo: a claim is made by the claimant's
own means. (dp-accounting's RDP agrees to 1e-3 at the rates of the paper's tables; at rates of a
half, where epsilon is above 10, it is up to 2% higher.)

The text's set of levels is read as an arithmetic sequence; the demo leaves out 1.25 and 1.75. The
ratio is that of the mean clipped norm to sigma C, one number for all rows of a step, because the
accountant gets one sigma per step. The largest level with a ratio of at least 1 is taken, and the
smallest level where none has: that is the text. The demo takes the smallest level with a ratio of
at most 1, its reverse.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from bench import Budget, calibrate_noise

Array = npt.NDArray[np.float64]

Accounting = Literal["all-steps", "published"]

LEVELS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
"""Shares of sigma_base that the noise of a step is chosen from."""


def clipped(gradients: Array, clip: float) -> Array:
    """Equation 12: rows longer than `clip` are shortened to it."""
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    result: Array = gradients * np.minimum(1.0, clip / np.maximum(norms, 1e-300))
    return result


def noise_level(clipped_gradients: Array, clip: float, base: float) -> float:
    """The largest level whose noise leaves a signal to noise ratio of at least 1, or the least."""
    signal = float(np.linalg.norm(clipped_gradients, axis=1).mean())
    return max((level for level in LEVELS if level * base * clip <= signal), default=LEVELS[0])


def steps_epsilon(steps: Mapping[float, int], rate: float, delta: float) -> float:
    """Epsilon by RDP of the number of steps at each noise multiplier, at the rate q = m / N."""
    from opacus.accountants import RDPAccountant

    if not steps:
        return 0.0
    accountant = RDPAccountant()
    accountant.history = [(noise, rate, count) for noise, count in steps.items()]
    with warnings.catch_warnings():
        # The best order is the first or the last that Opacus tries: its bound is loose, and valid.
        warnings.filterwarnings("ignore", message="Optimal order is the")
        return float(accountant.get_epsilon(delta))


def base_noise(budget: Budget, rate: float, counted: int) -> float:
    """sigma_base for which `counted` steps cost the budget's epsilon at the smallest level.

    Levels are chosen during the run. Whichever they are, the claim is within the target.
    """
    smallest = calibrate_noise(
        lambda noise: steps_epsilon({noise: counted}, rate, budget.delta), budget.epsilon
    )
    return smallest / LEVELS[0]
