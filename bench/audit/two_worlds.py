"""The worst-case audit: a canary in the table or not, many refits of both.

Of N trials, half choose and half count, each half with as many trials with a canary as without:

1. pilot: some of the first half's trials with a canary go to every canary in turn; the one whose
   presence shows most gets the rest of them;
2. scorer and threshold are chosen on the first half's trials of that canary;
3. the bound comes from the second half, whose trials have chosen nothing;
4. if it speaks against claim or proof at 5%, as many fresh trials are run, with the same canary,
   scorer and threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.audit.choosing import CONFIDENCE, Chosen, choose_attacks, choose_canary
from bench.audit.evidence import Promise, planted_power, weigh
from bench.audit.finding import Finding
from bench.audit.laboratory import Laboratory
from bench.audit.trials import OUT, Stage, Trial, TrialId
from bench.stats.bounds import ceiling

_PILOT_SHARE = 0.4
"""Of the first half's trials with a canary, what is spent on finding the best one."""


def trial_ids(stage: Stage, canary: int, numbers: Sequence[int] | range) -> list[TrialId]:
    """Trials of one stage and world."""
    return [TrialId(stage, canary, number) for number in numbers]


def two_world_audit(laboratory: Laboratory, trials: int) -> Finding:
    """Run it, or what is missing of it."""
    subject = laboratory.subject
    quarter = trials // 4
    outside = laboratory.trials(trial_ids(Stage.CHOOSE, OUT, range(quarter)), "without a canary")
    canary, inside = _chosen_canary(laboratory, quarter, outside)
    chosen = choose_attacks(canary, inside, outside, subject.delta)
    counted = _both_worlds(laboratory, Stage.BOUND, canary, quarter, "for the bound")
    promise = Promise.of(laboratory, subject.canaries[canary])
    evidence = weigh(chosen, *counted, promise)
    planted, bug = planted_power(canary, (inside, outside), counted, promise, subject.seed_key)
    finding = Finding(
        eps_claimed=promise.claimed,
        eps_proven=promise.proven,
        trials=2 * quarter,
        refits=len(laboratory.kept),
        canary=subject.canaries[canary].name,
        scorer=_scorers(chosen),
        threshold=chosen.bound.threshold.value,
        false_positives=evidence.tally.false_positives,
        false_negatives=evidence.tally.false_negatives,
        eps_audited=evidence.bound,
        eps_gaussian=evidence.gaussian,
        eps_detectable=ceiling(quarter, quarter, subject.delta, CONFIDENCE),
        p_claim=evidence.p_claim,
        p_proof=evidence.p_proof,
        planted=planted,
        planted_bug=bug,
    )
    if not evidence.speaks_against:
        return finding
    fresh = _both_worlds(laboratory, Stage.REPLICATE, canary, quarter, "with fresh seeds")
    # Where ledgers differ from trial to trial, the fresh ones may prove less.
    promise = Promise.of(laboratory, subject.canaries[canary])
    again = weigh(chosen, *fresh, promise)
    return replace(
        finding,
        eps_claimed=promise.claimed,
        eps_proven=promise.proven,
        refits=len(laboratory.kept),
        replicated_eps=again.bound,
        replicated_p_claim=again.p_claim,
        replicated_p_proof=again.p_proof,
    )


def _chosen_canary(
    laboratory: Laboratory, quarter: int, outside: Sequence[Trial]
) -> tuple[int, list[Trial]]:
    """The best canary and all trials of the first half that had it in."""
    count = len(laboratory.subject.canaries)
    pilot = max(2, int(_PILOT_SHARE * quarter / count)) if count > 1 else 0
    canary = 0
    if pilot:
        wanted = [
            trial
            for number in range(count)
            for trial in trial_ids(Stage.CHOOSE, number, range(pilot))
        ]
        kept = laboratory.trials(wanted, "to find a canary")
        pilots = {number: kept[number * pilot : (number + 1) * pilot] for number in range(count)}
        canary = choose_canary(pilots, outside, laboratory.subject.delta)
    rest = max(quarter - pilot * count, 2) + pilot
    wanted = trial_ids(Stage.CHOOSE, canary, range(rest))
    return canary, laboratory.trials(wanted, "to find scorer and threshold")


def _both_worlds(
    laboratory: Laboratory, stage: Stage, canary: int, count: int, purpose: str
) -> tuple[list[Trial], list[Trial]]:
    """Trials with and without the canary, run together."""
    inside, outside = (trial_ids(stage, world, range(count)) for world in (canary, OUT))
    kept = laboratory.trials([*inside, *outside], purpose)
    return kept[:count], kept[count:]


def _scorers(chosen: Chosen) -> str:
    bound, curve = (
        attack.scorer if attack.threshold.above else f"{attack.scorer}, low"
        for attack in (chosen.bound, chosen.curve)
    )
    return f"{bound} (for the curve: {curve} at {chosen.curve.threshold.value:.4g})"
