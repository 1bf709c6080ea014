"""What an audit has found, before it becomes a row of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Finding:
    """Named as in `AuditRow`."""

    eps_claimed: float | None
    eps_proven: float
    trials: int
    refits: int
    canary: str
    scorer: str
    threshold: float | None
    false_positives: float | None
    false_negatives: float | None
    eps_audited: float
    eps_gaussian: float | None
    eps_detectable: float
    p_claim: float
    p_proof: float
    replicated_eps: float | None = None
    replicated_p_claim: float = 1.0
    replicated_p_proof: float = 1.0
    planted: float | None = None
    planted_bug: str = ""
