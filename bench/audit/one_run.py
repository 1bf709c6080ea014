"""The one-run audit: many canaries, each in or out by a fair coin (Steinke et al. 2023).

For methods that are slow to refit. A few fits are used for choosing the scorer, the share of
canaries to guess, and the score of each canary when it is out, which is subtracted. The bound is
computed from one more fit, with independent coins. Guesses follow from its release alone.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

from bench.audit.scorers import scorer_names
from bench.audit.tradeoff import Promise
from bench.audit.trials import (
    OUT,
    AuditSteps,
    AuditTarget,
    History,
    Stage,
    Trial,
    TrialId,
    Wanted,
    trial_ids,
)
from bench.audit.two_worlds import ALPHA
from bench.engine import keys
from bench.errors import NotApplicable
from bench.results.records import FEWEST_TRIALS, ONE_RUN, AuditRow, CellRow, Outcome
from bench.stats.one_run import (
    Guesses,
    guesses,
    one_run_bound,
    one_run_max_detectable,
    one_run_p_value,
)

Array = npt.NDArray[np.float64]
Coins = npt.NDArray[np.bool_]

PLANTED = 0.5
"""Share of rows that the planted bug copies."""
_REFERENCES = 4
"""Number of fits that are used for choosing."""
_SHARES = (0.1, 0.25, 0.5, 1.0)
"""Shares of canaries to guess that are tried."""
_REPETITIONS = 20


@final
@dataclass(frozen=True)
class _Strategy:
    """What the first fits were used to choose."""

    scorer: int
    sign: float
    share: float
    base: Array
    """(canaries, scorers): scores of canaries that are out."""

    def guessed(self, scores: Array, coins: Coins, rng: np.random.Generator) -> Guesses:
        """Return guesses on a fit that was not used for choosing."""
        relative = self.sign * (scores - self.base)[:, self.scorer]
        return guesses(relative, coins, self.share, rng)


def one_run_audit(target: AuditTarget, blank: CellRow) -> AuditSteps:
    """Ask for the trials of the audit and complete its rows."""
    history = History()
    count, delta = len(target.canaries), target.delta
    fewest = FEWEST_TRIALS[ONE_RUN]
    if count < fewest:
        raise NotApplicable(
            f"the schema allows {count} different canaries only; a one-run audit needs at least "
            f"{fewest}"
        )
    references = yield from history.ask(trial_ids(Stage.CHOOSE, OUT, _REFERENCES), "to choose")
    coins = [target.coins(trial.id) for trial in references]
    strategy = _chosen([trial.scores for trial in references], coins, delta, target.seed_key)

    def run(stage: Stage) -> Generator[Wanted, list[Trial], tuple[Trial, Guesses]]:
        (trial,) = yield from history.ask([TrialId(stage, OUT, 0)], stage.value)
        rng = keys.generator(target.seed_key, f"{stage.value}/ties")
        return trial, strategy.guessed(trial.scores, target.coins(trial.id), rng)

    counted, guessed = yield from run(Stage.BOUND)
    # The canaries are in many parts: only the epsilon of the whole holds for all of them.
    promise = Promise.of(target, history)
    p_claim, p_proof = _p_values(guessed, promise)
    name = scorer_names(counted.scores.shape[1])[strategy.scorer]
    power, bug = _planted_power([*references, counted], target, promise)
    row = promise.stated(replace(blank, eps_audited=one_run_bound(guessed, delta)))
    audit = AuditRow(
        key=blank.key,
        trials=count,
        refits=history.refits,
        canary=f"{count} corners of the schema",
        scorer=f"{name}{'' if strategy.sign > 0 else ', low'}; {guessed.right} of {guessed.made} "
        "guesses right",
        threshold=None,
        false_positives=None,
        false_negatives=None,
        eps_gaussian=None,
        eps_detectable=one_run_max_detectable(count, guessed.made, delta),
        p_claim=p_claim,
        p_proof=p_proof,
        planted=power,
        planted_bug=bug,
    )
    if min(p_claim, p_proof) >= ALPHA:
        return Outcome(row, audit=audit)
    _, again = yield from run(Stage.REPLICATE)
    promise = Promise.of(target, history)
    p_claim, p_proof = _p_values(again, promise)
    audit = replace(
        audit,
        refits=history.refits,
        replicated_eps=one_run_bound(again, delta),
        replicated_p_claim=p_claim,
        replicated_p_proof=p_proof,
    )
    return Outcome(promise.stated(row), audit=audit)


def _p_values(guessed: Guesses, promise: Promise) -> tuple[float, float]:
    return (
        one_run_p_value(guessed, promise.claimed_or_infinite, promise.delta),
        one_run_p_value(guessed, promise.proven, promise.delta),
    )


def _planted_power(
    trials: Sequence[Trial], target: AuditTarget, promise: Promise
) -> tuple[float | None, str]:
    """Return the share of planted bugs that the same procedure finds, and a description of the bug.

    The bug: every canary that is in is copied into the release with probability PLANTED. No fits:
    a coin for each replaces its scores by those of the same release with that canary in it, and
    scorer and share are chosen anew. The last fit counts.
    """
    bug = f"every row copied into the release with probability {PLANTED:g}"
    promised = promise.smallest
    if promised is None:
        return None, f"{bug}: nothing is claimed or proven that it could break"
    coins = [target.coins(trial.id) for trial in trials]
    rng = keys.generator(target.seed_key, "planted")
    detected = 0
    for _ in range(_REPETITIONS):
        scores = []
        for trial, inside in zip(trials, coins, strict=True):
            copied = inside & (rng.random(len(inside)) < PLANTED)
            planted = trial.planted.reshape(trial.scores.shape)
            scores.append(np.where(copied[:, None], planted, trial.scores))
        strategy = _chosen(scores[:-1], coins[:-1], promise.delta, target.seed_key)
        guessed = strategy.guessed(scores[-1], coins[-1], rng)
        detected += one_run_p_value(guessed, promised, promise.delta) < ALPHA
    return detected / _REPETITIONS, bug


def _baseline(references: Sequence[Array], coins: Sequence[Coins]) -> Array:
    """Return (canaries, scorers): the mean score of each canary when it was out.

    A canary that is far from all rows scores low in or out: only the difference is informative. One
    that was never out gets its mean minus what being in added for the others.
    """
    scores = np.stack(references)
    inside = np.stack(coins).astype(np.float64)
    times_in, times_out = inside.sum(axis=0)[:, None], (1.0 - inside).sum(axis=0)[:, None]
    mean_in = np.einsum("rk,rks->ks", inside, scores) / np.maximum(times_in, 1.0)
    mean_out = np.einsum("rk,rks->ks", 1.0 - inside, scores) / np.maximum(times_out, 1.0)
    both = (times_in > 0.0) & (times_out > 0.0)
    added = ((mean_in - mean_out) * both).sum(axis=0) / max(1, int(both.sum()))
    return np.asarray(np.where(times_out > 0.0, mean_out, mean_in - added))


def _chosen(
    references: Sequence[Array], coins: Sequence[Coins], delta: float, seed_key: str
) -> _Strategy:
    """Return the strategy with the best pooled guesses, with baselines from the other fits."""
    relative = []
    for number, scores in enumerate(references):
        others = [at for at in range(len(references)) if at != number]
        base = _baseline([references[at] for at in others], [coins[at] for at in others])
        relative.append(scores - base)
    base_of_all = _baseline(references, coins)
    best: tuple[float, float, _Strategy] | None = None
    for scorer in range(relative[0].shape[1]):
        for sign in (1.0, -1.0):
            for share in _SHARES:
                rng = keys.generator(seed_key, "choose/ties")
                pooled = [
                    guesses(sign * scores[:, scorer], inside, share, rng)
                    for scores, inside in zip(relative, coins, strict=True)
                ]
                together = Guesses(
                    sum(one.canaries for one in pooled),
                    sum(one.made for one in pooled),
                    sum(one.right for one in pooled),
                )
                merit = _merit(together, delta)
                if best is None or merit > best[:2]:
                    best = (*merit, _Strategy(scorer, sign, share, base_of_all))
    assert best is not None
    return best[2]


@functools.lru_cache(maxsize=4096)
def _merit(together: Guesses, delta: float) -> tuple[float, float]:
    return one_run_bound(together, delta), -one_run_p_value(together, 0.0, 0.0)
