"""The audit with one training run: many canaries, each in or out by a fair coin.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run". m canaries are
included independently with probability 1/2, the method runs once, and the auditor says `in` or
`out` for r of them and abstains on the rest; c guesses are right. If the method is (epsilon,
delta)-DP then (Theorem 5.2 with inclusion probability 1/2; the procedure of Appendix D)

    P(right >= c) <= P(B >= c) + 2 m delta alpha,
    alpha = max over 1 <= i <= c of P(c > B >= c - i) / i,     B ~ Binomial(r, q),
    q = e^epsilon / (1 + e^epsilon).

With delta = 0 this is the binomial tail of randomised response, which attains it: r independent
canaries answered by randomised response are right with probability q each.

The guesses must not look at the coins, but may depend in any way on the release and on all
canaries together: ordering the scores and guessing at both ends is allowed. *How many* to guess
may not be picked by which number gives the best bound: fix it beforehand (`guesses`), or share the
error among the numbers tried.

The bound is far from tight for large delta m, and cannot exceed `one_run_max_detectable`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.errors import InputError
from bench.stats.bounds import bisected
from bench.stats.inference import CONFIDENCE


@final
@dataclass(frozen=True)
class Guesses:
    """What an auditor guessed about the canaries of one run."""

    canaries: int
    """Number m of canaries that had a coin, also those abstained on."""
    made: int
    """Number r of guesses."""
    right: int
    """Number c of right guesses."""

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.made <= self.canaries or self.canaries < 1:
            raise InputError(
                f"{self}: expected 0 <= right <= made <= canaries, and at least one canary"
            )


def guesses(
    scores: npt.ArrayLike, included: npt.ArrayLike, share: float, rng: np.random.Generator
) -> Guesses:
    """Guess `in` for the highest and `out` for the lowest scores, each `share` / 2 of all canaries.

    Ties are broken by chance: in the order of the canaries they could follow the coins.
    """
    values, coins = np.asarray(scores, dtype=np.float64), np.asarray(included, dtype=bool)
    if values.ndim != 1 or values.shape != coins.shape or np.isnan(values).any():
        raise InputError(
            f"scores of shape {values.shape} and coins of shape {coins.shape}: expected one score "
            "that is a number, and one coin, for each canary"
        )
    if not 0.0 < share <= 1.0:
        raise InputError(f"share {share} of canaries to guess is not in (0, 1]")
    order = np.lexsort((rng.random(len(values)), values))
    each = max(1, math.floor(share * len(values) / 2))
    if 2 * each > len(values):
        raise InputError("one canary is too few for a guess at both ends; use more canaries")
    right = int(coins[order[-each:]].sum() + (~coins[order[:each]]).sum())
    return Guesses(len(values), 2 * each, right)


def one_run_p_value(guessed: Guesses, epsilon: float, delta: float) -> float:
    """Return the p-value of "the method is (epsilon, delta)-DP" (Appendix D)."""
    from scipy.special import expit
    from scipy.stats import binom

    if epsilon < 0.0 or not 0.0 <= delta < 1.0:
        raise InputError(f"epsilon {epsilon}, delta {delta}: expected epsilon >= 0, 0 <= delta < 1")
    right, made = guessed.right, guessed.made
    if right == 0 or math.isinf(epsilon):
        return 1.0
    rate = float(expit(epsilon))
    tail = float(binom.sf(right - 1, made, rate))
    if delta == 0.0:
        return tail
    # P(c > B >= c - i) for i = 1 .. c, added from the nearest count downwards.
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), made, rate))
    steepest = float((below / np.arange(1, right + 1)).max())
    return min(1.0, tail + 2 * guessed.canaries * delta * steepest)


def one_run_bound(guessed: Guesses, delta: float, confidence: float = CONFIDENCE) -> float:
    """Lower bound of epsilon at delta that holds with probability `confidence`; never below 0."""
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence {confidence} is not between 0 and 1; 0.95 is usual")

    def rejected(epsilon: float) -> bool:
        return one_run_p_value(guessed, epsilon, delta) < 1.0 - confidence

    if not rejected(0.0):
        return 0.0
    high = 1.0
    while rejected(high):
        high *= 2.0
    return bisected(rejected, 0.0, high, steps=40)


def one_run_max_detectable(
    canaries: int, made: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """Maximum detectable epsilon: the bound of guesses that are all right."""
    return one_run_bound(Guesses(canaries, made, made), delta, confidence)
