"""The worst-case audit: a canary in the table or not, many refits of both.

Of N trials, half choose and half count, each half with as many trials with a canary as without:

1. pilot: some of the first half's trials with a canary are spent on every canary in turn; the most
   visible one gets the rest of them;
2. scorer and threshold are chosen on the first half's trials of that canary;
3. the bound is computed from the second half, whose trials were not used for choosing;
4. if it contradicts claim or proof at 5%, as many fresh trials are run, with the same canary,
   scorer and threshold.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

from bench.audit.attacks import (
    AttackPair,
    best_plain,
    choose_attacks,
    choose_canary,
    scores_of,
)
from bench.audit.scorers import scorer_names
from bench.audit.tradeoff import Promise, tradeoff_p_value
from bench.audit.trials import (
    OUT,
    AuditSteps,
    AuditTarget,
    History,
    Stage,
    Trial,
    Wanted,
    trial_ids,
)
from bench.engine import keys
from bench.results.records import AuditRow, CellRow, Outcome
from bench.stats.bounds import epsilon_bound, gaussian_bound, max_detectable, p_value
from bench.stats.exact_test import Tally

Array = npt.NDArray[np.float64]
Worlds = tuple[Sequence[Trial], Sequence[Trial]]
"""Trials with and without the canary."""

ALPHA = 0.05
"""A p-value below this triggers a replication."""
PLANTED = 0.05
"""Share of releases that the planted bug copies the canary into."""
_REPETITIONS = 40
_PILOT_SHARE = 0.4
"""Share of the first half's trials with a canary that is spent on choosing the canary."""


@final
@dataclass(frozen=True)
class Evidence:
    """Bounds and p-values of one set of trials."""

    tally: Tally
    bound: float
    gaussian: float | None
    p_claim: float
    p_proof: float


def two_world_audit(target: AuditTarget, trials: int, blank: CellRow) -> AuditSteps:
    """Ask for the trials of the audit and complete its rows."""
    history = History()
    quarter = trials // 4
    wanted = trial_ids(Stage.CHOOSE, OUT, quarter)
    outside = yield from history.ask(wanted, "without a canary")
    canary, inside = yield from _chosen_canary(target, history, quarter, outside)
    attacks = choose_attacks(canary, inside, outside, target.delta)
    counted = yield from _both_worlds(history, Stage.BOUND, canary, quarter, "for the bound")
    promise = Promise.of(target, history, target.canaries[canary])
    evidence = weigh(attacks, counted, promise)
    power, bug = planted_power(canary, (inside, outside), counted, promise, target.seed_key)
    row = promise.stated(replace(blank, eps_audited=evidence.bound))
    audit = AuditRow(
        key=blank.key,
        trials=2 * quarter,
        refits=history.refits,
        canary=target.canaries[canary].name,
        scorer=_scorers(attacks),
        threshold=attacks.bound.threshold.value,
        false_positives=evidence.tally.false_positives,
        false_negatives=evidence.tally.false_negatives,
        eps_gaussian=evidence.gaussian,
        eps_detectable=max_detectable(quarter, quarter, target.delta),
        p_claim=evidence.p_claim,
        p_proof=evidence.p_proof,
        planted=power,
        planted_bug=bug,
    )
    if min(evidence.p_claim, evidence.p_proof) >= ALPHA:
        return Outcome(row, audit=audit)
    fresh = yield from _both_worlds(history, Stage.REPLICATE, canary, quarter, "with fresh seeds")
    # Where ledgers differ from trial to trial, the fresh ones may prove less.
    promise = Promise.of(target, history, target.canaries[canary])
    again = weigh(attacks, fresh, promise)
    audit = replace(
        audit,
        refits=history.refits,
        replicated_eps=again.bound,
        replicated_p_claim=again.p_claim,
        replicated_p_proof=again.p_proof,
    )
    return Outcome(promise.stated(row), audit=audit)


def _chosen_canary(
    target: AuditTarget, history: History, quarter: int, outside: Sequence[Trial]
) -> Generator[Wanted, list[Trial], tuple[int, list[Trial]]]:
    """Return the best canary and all trials of the first half that had it in."""
    count = len(target.canaries)
    pilot = max(2, int(_PILOT_SHARE * quarter / count)) if count > 1 else 0
    canary = 0
    if pilot:
        wanted = [trial for k in range(count) for trial in trial_ids(Stage.CHOOSE, k, pilot)]
        trials = yield from history.ask(wanted, "to choose a canary")
        pilots = {k: trials[k * pilot : (k + 1) * pilot] for k in range(count)}
        canary = choose_canary(pilots, outside, target.delta)
    rest = max(quarter - pilot * count, 2) + pilot
    wanted = trial_ids(Stage.CHOOSE, canary, rest)
    inside = yield from history.ask(wanted, "to choose scorer and threshold")
    return canary, inside


def _both_worlds(
    history: History, stage: Stage, canary: int, count: int, purpose: str
) -> Generator[Wanted, list[Trial], Worlds]:
    """Ask for trials with and without the canary together."""
    wanted = [*trial_ids(stage, canary, count), *trial_ids(stage, OUT, count)]
    trials = yield from history.ask(wanted, purpose)
    return trials[:count], trials[count:]


def _scorers(attacks: AttackPair) -> str:
    bound, curve = (
        attack.scorer if attack.threshold.above else f"{attack.scorer}, low"
        for attack in (attacks.bound, attacks.curve)
    )
    return f"{bound} (for the curve: {curve} at {attacks.curve.threshold.value:.4g})"


def weigh(attacks: AttackPair, trials: Worlds, promise: Promise) -> Evidence:
    """Return bounds and p-values of trials that were not used to choose the attacks."""
    delta = promise.delta
    tally, curve = attacks.bound.tally(*trials), attacks.curve.tally(*trials)
    return Evidence(
        tally,
        epsilon_bound(tally, delta),
        gaussian_bound(curve, delta) if promise.gaussian else None,
        p_value(tally, promise.claimed_or_infinite, delta),
        _proof_p_value(tally, curve, promise),
    )


def _proof_p_value(tally: Tally, curve: Tally, promise: Promise) -> float:
    """Test the whole curve in a tail and in the middle: the smaller p-value, doubled.

    Trials with different ledgers have no common curve: the largest epsilon is tested then.
    """
    if promise.curve is None:
        return p_value(tally, promise.proven, promise.delta)
    smaller = min(tradeoff_p_value(counts, promise.curve) for counts in (tally, curve))
    return min(1.0, 2.0 * smaller)


def planted_power(
    canary: int, first: Worlds, second: Worlds, promise: Promise, seed_key: str
) -> tuple[float | None, str]:
    """Return the share of planted bugs that the same attack finds, and a description of the bug.

    The bug: the method copies the canary into its release with probability PLANTED. No refits: in a
    repetition the trials of each half are drawn again with replacement, a coin replaces the scores
    of a trial by those of its release with the canary in it, and scorer and threshold are chosen
    anew (plain scorers only, so that the share is rather too small). Found means that the second
    half contradicts the smaller of claim and proof at 5%.
    """
    bug = f"the canary copied into the release with probability {PLANTED:g}"
    promised = promise.smallest
    if promised is None:
        return None, f"{bug}: nothing is claimed or proven that it could break"
    halves = [
        (
            scores_of(inside, canary),
            np.array([trial.planted for trial in inside]),
            scores_of(outside, canary),
        )
        for inside, outside in (first, second)
    ]
    rng = keys.generator(seed_key, "planted")
    detected = 0
    for _ in range(_REPETITIONS):
        (inside, outside), (fresh, fresh_outside) = (_resampled(half, rng) for half in halves)
        attack = best_plain(canary, inside, outside, promise.delta)
        column = scorer_names(inside.shape[1]).index(attack.scorer)
        tally = attack.threshold.tally(fresh[:, column], fresh_outside[:, column])
        detected += p_value(tally, promised, promise.delta) < ALPHA
    return detected / _REPETITIONS, bug


def _resampled(half: tuple[Array, Array, Array], rng: np.random.Generator) -> tuple[Array, Array]:
    """Return a half drawn again: with the canary and the bug planted, and without the canary."""
    plain, planted, outside = half
    chosen = rng.integers(len(plain), size=len(plain))
    bugged = rng.random(len(plain)) < PLANTED
    inside = np.where(bugged[:, None], planted[chosen], plain[chosen])
    return inside, outside[rng.integers(len(outside), size=len(outside))]
