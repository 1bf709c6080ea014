"""From calls on the second half to the numbers of an audit, and the power to find a planted bug."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.audit.attacks import scorer_names
from bench.audit.canaries import Canary
from bench.audit.choosing import CONFIDENCE, Chosen, best_plain, scores_of
from bench.audit.laboratory import Laboratory
from bench.audit.tradeoff import (
    Curve,
    is_full_batch_gaussian,
    tradeoff_curve,
    tradeoff_p_value,
)
from bench.audit.trials import Trial
from bench.engine import keys
from bench.stats.bounds import Tally, epsilon_bound, gaussian_bound, p_value

Array = npt.NDArray[np.float64]

ALPHA = 0.05
"""A p-value below this asks for a replication."""
PLANTED = 0.05
"""Share of releases that the planted bug copies the canary into."""
_REPETITIONS = 40


@final
@dataclass(frozen=True)
class Promise:
    """What the trials are held against."""

    claimed: float | None
    proven: float
    delta: float
    curve: Curve | None = None
    """What the ledger of every trial proves about the canary's own part; None where trials had
    different ledgers, or nothing is proven."""
    gaussian: bool = False
    """True where that ledger holds full-batch Gaussians only."""

    @classmethod
    def of(cls, laboratory: Laboratory, canary: Canary) -> Promise:
        """What the trials so far were promised."""
        claimed, proven = laboratory.claimed(), laboratory.proven()
        delta = laboratory.subject.delta
        if not laboratory.one_ledger():
            return cls(claimed, proven, delta)
        ledger = laboratory.ledger()
        schema = laboratory.subject.dataset.schema
        parts = {"split": "train", "class": schema.classes[canary.label]}
        if schema.site is not None:
            parts["site"] = schema.site.categories[canary.site]
        curve = tradeoff_curve(ledger, parts)
        return cls(claimed, proven, delta, curve, is_full_batch_gaussian(ledger))

    @property
    def smallest(self) -> float | None:
        """The stronger of claim and proof; None where neither says anything."""
        numbers = [self.proven, math.inf if self.claimed is None else self.claimed]
        return min(numbers) if math.isfinite(min(numbers)) else None


@final
@dataclass(frozen=True)
class Evidence:
    """What one set of trials says."""

    tally: Tally
    bound: float
    gaussian: float | None
    p_claim: float
    p_proof: float

    @property
    def speaks_against(self) -> bool:
        """True where a replication is due."""
        return min(self.p_claim, self.p_proof) < ALPHA


def weigh(
    chosen: Chosen, inside: Sequence[Trial], outside: Sequence[Trial], promise: Promise
) -> Evidence:
    """Bounds and p-values of one set of trials, none of which chose the attacks."""
    delta = promise.delta
    tally, curve = chosen.bound.tally(inside, outside), chosen.curve.tally(inside, outside)
    claimed = math.inf if promise.claimed is None else promise.claimed
    return Evidence(
        tally,
        epsilon_bound(tally, delta, CONFIDENCE),
        gaussian_bound(curve, delta, CONFIDENCE) if promise.gaussian else None,
        p_value(tally, claimed, delta),
        _proof_p_value(tally, curve, promise),
    )


def _proof_p_value(tally: Tally, curve: Tally, promise: Promise) -> float:
    """Against the whole curve, in a tail and in the middle: the smaller p-value, doubled.

    Trials with different ledgers have no common curve: then against the largest epsilon.
    """
    if promise.curve is None:
        return p_value(tally, promise.proven, promise.delta)
    found = min(tradeoff_p_value(one, promise.curve) for one in (tally, curve))
    return min(1.0, 2.0 * found)


def planted_power(
    canary: int,
    first: tuple[Sequence[Trial], Sequence[Trial]],
    second: tuple[Sequence[Trial], Sequence[Trial]],
    promise: Promise,
    seed_key: str,
) -> tuple[float | None, str]:
    """Share of planted bugs that the same attack finds, and the bug in words.

    The bug: the method copies the canary into its release with probability PLANTED. No refits: in a
    repetition the trials of each half are drawn again with replacement, a coin replaces the scores
    of a trial by those of its release with the canary in it, and scorer and threshold are chosen
    anew (plain scorers only, so that the share is rather too small). Found means that the second
    half speaks against the smaller of claim and proof at 5%.
    """
    bug = f"the canary copied into the release with probability {PLANTED:g}"
    promised = promise.smallest
    if promised is None:
        return None, f"{bug}: nothing is claimed or proven that it could break"
    halves = [
        (scores_of(inside, canary), _planted_scores(inside), scores_of(outside, canary))
        for inside, outside in (first, second)
    ]
    rng = keys.generator(seed_key, "planted")
    found = 0
    for _ in range(_REPETITIONS):
        (inside, outside), (fresh, fresh_outside) = (_drawn(half, rng) for half in halves)
        attack = best_plain(canary, inside, outside, promise.delta)
        column = scorer_names(inside.shape[1]).index(attack.scorer)
        tally = attack.threshold.tally(fresh[:, column], fresh_outside[:, column])
        found += p_value(tally, promised, promise.delta) < ALPHA
    return found / _REPETITIONS, bug


def _planted_scores(trials: Sequence[Trial]) -> Array:
    return np.array([trial.planted for trial in trials])


def _drawn(half: tuple[Array, Array, Array], rng: np.random.Generator) -> tuple[Array, Array]:
    """A half drawn again with the bug planted, and without the canary."""
    plain, planted, outside = half
    chosen = rng.integers(len(plain), size=len(plain))
    bugged = rng.random(len(plain)) < PLANTED
    inside = np.where(bugged[:, None], planted[chosen], plain[chosen])
    return inside, outside[rng.integers(len(outside), size=len(outside))]
