"""What an audit allows to be said: the verdict and a sentence that says no more than was seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import final

from bench.audit.audit_store import folder_of
from bench.plugins.release import Claim
from bench.privacy.accounting import Budget, Proof
from bench.privacy.ledger import Ledger
from bench.results.records import AuditRow, Status
from bench.results.refutation import Refutation
from bench.results.verdicts import judge


@final
@dataclass(frozen=True)
class Conclusion:
    """Verdict and sentence."""

    verdict: str
    sentence: str
    refuted: bool = False


def conclude(row: AuditRow, refutation: Refutation | None, directory: Path) -> Conclusion:
    """The verdict of a finished audit, among all audits that the correction was over."""
    if row.status != Status.OK.value or row.eps_audited is None:
        verdict = "not audited" if row.status == Status.SKIPPED.value else "audit failed"
        return Conclusion(verdict, row.reason)
    target = None if row.eps_target is None else Budget(row.eps_target, row.delta)
    claim = None if row.eps_claimed is None else Claim(row.eps_claimed, row.delta, "its claim")
    audited = None if refutation is None else refutation.audited
    judgement = judge(target, claim, _proof(row, directory), audited)
    if refutation is not None and (refutation.claim or refutation.proof):
        sentence = (
            f"Refuted, with {row.trials} {_counted(row)} and again with fresh seeds (p "
            f"{min(refutation.p_claim, refutation.p_proof):.2g} after correction for "
            f"{_methods(refutation.methods)}). It holds for this code and these parameters, on "
            "every dataset."
        )
        return Conclusion(judgement.text, sentence, refuted=True)
    return Conclusion(judgement.text, _passed(row))


def _passed(row: AuditRow) -> str:
    proves = "A passed audit proves nothing, and says nothing about other data or parameters."
    if row.eps_claimed is None and not math.isfinite(row.eps_proven or math.inf):
        found = row.eps_audited or 0.0
        return (
            f"Nothing is claimed or proven, so that nothing can be refuted; the attack shows "
            f"epsilon {found:.3g} or more."
        )
    if min(row.p_claim, row.p_proof) < 0.05:
        return (
            "The first trials spoke against it, the replication with fresh seeds did not, or not "
            f"enough after correction for all methods audited: not refuted. {proves}"
        )
    return f"The attack found nothing against what is claimed or proven. {proves}"


def _counted(row: AuditRow) -> str:
    return "canaries" if row.kind == "one-run" else "trials"


def _methods(count: int) -> str:
    return "one method" if count == 1 else f"{count} methods"


def _proof(row: AuditRow, directory: Path) -> Proof:
    """From the stored ledger; where it is not there, from the number alone."""
    path = folder_of(directory, row.key) / "ledger.json"
    proven = math.inf if row.eps_proven is None else row.eps_proven
    if not path.is_file():
        return Proof(proven, row.delta, "the audit's ledger")
    proof = Ledger.from_json(path.read_text(encoding="utf-8")).proof()
    return Proof(proven, row.delta, proof.accountant, proof.reasons, proof.trust)
