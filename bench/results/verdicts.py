"""From the four epsilons to one word, with its reason."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from bench.plugins.release import Claim
    from bench.privacy.accounting import Budget, Proof


class Verdict(enum.StrEnum):
    """What can be said about a release's privacy."""

    SOUND = "sound"
    SOUND_TRUSTING = "sound, trusting"
    UNPROVEN = "unproven"
    NON_PRIVATE = "non-private"
    CLAIM_REFUTED = "claim refuted"
    PROOF_REFUTED = "proof refuted"
    TAMPERED = "tampered"
    """What is stored contradicts itself; given by `bench.results.integrity`, never by `judge`."""


@final
@dataclass(frozen=True)
class Judgement:
    """A verdict and why."""

    verdict: Verdict
    text: str
    """The verdict as shown, with the trusted library where there is one."""
    reason: str


def judge(
    budget: Budget | None, claim: Claim | None, proof: Proof, audited: float | None = None
) -> Judgement:
    """Return the verdict on a release: see the design page.

    `audited` is a lower bound that has been replicated with fresh seeds and corrected for the
    number of methods audited; a refutation overrides everything else.
    """
    if audited is not None and math.isfinite(proof.epsilon) and audited > proof.epsilon:
        return _plain(
            Verdict.PROOF_REFUTED,
            f"audited epsilon {audited:.3g} exceeds the proven {proof.epsilon:.3g}: the proof or "
            "its code is wrong",
        )
    if audited is not None and claim is not None and audited > claim.epsilon:
        return _plain(
            Verdict.CLAIM_REFUTED,
            f"audited epsilon {audited:.3g} exceeds the claimed {claim.epsilon:.3g}",
        )
    if not math.isfinite(proof.epsilon):
        reason = "; ".join(proof.reasons) or "nothing is proven"
        if claim is None:
            return _plain(Verdict.NON_PRIVATE, reason)
        return _plain(
            Verdict.UNPROVEN, f"claims epsilon {claim.epsilon:.3g} ({claim.source}), but {reason}"
        )
    target = math.inf if budget is None else budget.epsilon
    if proof.epsilon > target * (1 + 1e-9):
        return _plain(
            Verdict.UNPROVEN,
            f"the ledger proves epsilon {proof.epsilon:.4g} only, over the target {target:g}",
        )
    spent = f"epsilon {proof.epsilon:.4g} at delta {proof.delta:g} by {proof.accountant}"
    if proof.trust:
        trusted = " and ".join(proof.trust)
        return Judgement(Verdict.SOUND_TRUSTING, f"sound, trusting {trusted}", spent)
    return _plain(Verdict.SOUND, spent)


def _plain(verdict: Verdict, reason: str) -> Judgement:
    return Judgement(verdict, verdict.value, reason)
