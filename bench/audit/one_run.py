"""The one-run audit: many canaries, each in or out by a fair coin (Steinke et al. 2023).

For methods that are slow to refit. A few fits choose: they say which scorer and which share of
guesses do best, and what each canary scores when it is out, which is taken off. The bound comes
from one fit more, with coins of its own. Guesses follow from its release alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

from bench.audit.attacks import scorer_names
from bench.audit.choosing import CONFIDENCE
from bench.audit.evidence import ALPHA, Promise
from bench.audit.finding import Finding
from bench.audit.laboratory import Laboratory
from bench.audit.request import FEWEST_CANARIES
from bench.audit.trials import OUT, Stage, Trial, TrialId
from bench.engine import keys
from bench.errors import NotApplicable
from bench.stats.one_run import (
    Guesses,
    guesses,
    one_run_bound,
    one_run_ceiling,
    one_run_p_value,
)

Array = npt.NDArray[np.float64]
Coins = npt.NDArray[np.bool_]

_REFERENCES = 4
"""Fits that choose."""
_SHARES = (0.1, 0.25, 0.5, 1.0)
"""Of canaries that are guessed."""
PLANTED = 0.5
"""Share of rows that the planted bug copies."""
_REPETITIONS = 20


@final
@dataclass(frozen=True)
class _Plan:
    """What the fits that choose have decided."""

    scorer: int
    sign: float
    share: float
    base: Array
    """(canaries, scorers)."""

    def guessed(self, scores: Array, coins: Coins, rng: np.random.Generator) -> Guesses:
        """Guesses about a fit that has chosen nothing."""
        relative = self.sign * (scores - self.base)[:, self.scorer]
        return guesses(relative, coins, self.share, rng)


def one_run_audit(laboratory: Laboratory) -> Finding:
    """Run it, or what is missing of it."""
    subject = laboratory.subject
    count = len(subject.canaries)
    if count < FEWEST_CANARIES:
        raise NotApplicable(
            f"the schema allows {count} different canaries only; a one-run audit needs at least "
            f"{FEWEST_CANARIES}"
        )
    wanted = [TrialId(Stage.CHOOSE, OUT, number) for number in range(_REFERENCES)]
    references = laboratory.trials(wanted, "to choose")
    coins = [subject.coins(trial.id) for trial in references]
    plan = _chosen([trial.scores for trial in references], coins, subject.delta, subject.seed_key)

    def fitted(stage: Stage) -> Trial:
        return laboratory.trials([TrialId(stage, OUT, 0)], stage.value)[0]

    def guessed(trial: Trial) -> Guesses:
        rng = keys.generator(subject.seed_key, f"{trial.id.stage.value}/ties")
        return plan.guessed(trial.scores, subject.coins(trial.id), rng)

    counted = guessed(fitted(Stage.BOUND))
    # All canaries together lie in many parts: only the epsilon of the whole holds for all.
    promise = Promise(laboratory.claimed(), laboratory.proven(), subject.delta)
    p_claim, p_proof = _p_values(counted, promise)
    names = scorer_names(references[0].scores.shape[1])
    planted, bug = _planted_power([*references, fitted(Stage.BOUND)], laboratory, promise)
    finding = Finding(
        eps_claimed=promise.claimed,
        eps_proven=promise.proven,
        trials=count,
        refits=len(laboratory.kept),
        canary=f"{count} corners of the schema",
        scorer=f"{names[plan.scorer]}{'' if plan.sign > 0 else ', low'}; {counted.right} of "
        f"{counted.made} guesses right",
        threshold=None,
        false_positives=None,
        false_negatives=None,
        eps_audited=one_run_bound(counted, subject.delta, CONFIDENCE),
        eps_gaussian=None,
        eps_detectable=one_run_ceiling(count, counted.made, subject.delta, CONFIDENCE),
        p_claim=p_claim,
        p_proof=p_proof,
        planted=planted,
        planted_bug=bug,
    )
    if min(p_claim, p_proof) >= ALPHA:
        return finding
    again = guessed(fitted(Stage.REPLICATE))
    promise = Promise(laboratory.claimed(), laboratory.proven(), subject.delta)
    p_claim, p_proof = _p_values(again, promise)
    return replace(
        finding,
        eps_claimed=promise.claimed,
        eps_proven=promise.proven,
        refits=len(laboratory.kept),
        replicated_eps=one_run_bound(again, subject.delta, CONFIDENCE),
        replicated_p_claim=p_claim,
        replicated_p_proof=p_proof,
    )


def _p_values(counted: Guesses, promise: Promise) -> tuple[float, float]:
    claimed = float("inf") if promise.claimed is None else promise.claimed
    return (
        one_run_p_value(counted, claimed, promise.delta),
        one_run_p_value(counted, promise.proven, promise.delta),
    )


def _planted_power(
    trials: Sequence[Trial], laboratory: Laboratory, promise: Promise
) -> tuple[float | None, str]:
    """Share of planted bugs that the same course finds, and the bug in words; the last fit counts.

    The bug: every canary that is in is copied into the release with probability PLANTED. No fits:
    a coin for each replaces its scores by those of the same release with that canary in it, and
    scorer and share are chosen anew.
    """
    bug = f"every row copied into the release with probability {PLANTED:g}"
    promised = promise.smallest
    if promised is None:
        return None, f"{bug}: nothing is claimed or proven that it could break"
    subject = laboratory.subject
    coins = [subject.coins(trial.id) for trial in trials]
    rng = keys.generator(subject.seed_key, "planted")
    found = 0
    for _ in range(_REPETITIONS):
        scores = []
        for trial, own in zip(trials, coins, strict=True):
            copied = own & (rng.random(len(own)) < PLANTED)
            planted = trial.planted.reshape(trial.scores.shape)
            scores.append(np.where(copied[:, None], planted, trial.scores))
        plan = _chosen(scores[:-1], coins[:-1], promise.delta, subject.seed_key)
        counted = plan.guessed(scores[-1], coins[-1], rng)
        found += one_run_p_value(counted, promised, promise.delta) < ALPHA
    return found / _REPETITIONS, bug


def _baseline(references: Sequence[Array], coins: Sequence[Coins]) -> Array:
    """(canaries, scorers): the mean score of each canary when it was out.

    Where a canary is far from all rows, it scores low in or out: only the difference tells. One
    that was never out has its mean less what being in has added for the others.
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
) -> _Plan:
    """The plan with the best pooled guesses, each fit judged with the baseline of the others."""
    relative = []
    for number, scores in enumerate(references):
        others = [at for at in range(len(references)) if at != number]
        base = _baseline([references[at] for at in others], [coins[at] for at in others])
        relative.append(scores - base)
    own_base = _baseline(references, coins)
    best: tuple[float, float, _Plan] | None = None
    for scorer in range(relative[0].shape[1]):
        for sign in (1.0, -1.0):
            for share in _SHARES:
                rng = keys.generator(seed_key, "choose/ties")
                pooled = [
                    guesses(sign * scores[:, scorer], own, share, rng)
                    for scores, own in zip(relative, coins, strict=True)
                ]
                together = Guesses(
                    sum(one.canaries for one in pooled),
                    sum(one.made for one in pooled),
                    sum(one.right for one in pooled),
                )
                merit = _merit(together, delta)
                if best is None or merit > best[:2]:
                    best = (*merit, _Plan(scorer, sign, share, own_base))
    assert best is not None
    return best[2]


@functools.lru_cache(maxsize=4096)
def _merit(together: Guesses, delta: float) -> tuple[float, float]:
    return one_run_bound(together, delta, CONFIDENCE), -one_run_p_value(together, 0.0, 0.0)
