"""One word for four numbers."""

import math

import pytest

from bench.plugins.release import Claim
from bench.privacy.accounting import Budget, Proof
from bench.results.verdicts import Verdict, judge

BUDGET = Budget(1.0, 1e-5)
CLAIM = Claim(1.0, 1e-5, "the paper")
NOTHING = Proof(math.inf, 1e-5, "none", ("rows were read",))


def proven(epsilon: float, *trust: str) -> Proof:
    return Proof(epsilon, 1e-5, "PLD", (), trust)


@pytest.mark.parametrize(
    ("budget", "claim", "proof", "audited", "expected"),
    [
        (BUDGET, CLAIM, proven(0.99), None, Verdict.SOUND),
        (BUDGET, None, proven(0.99), None, Verdict.SOUND),
        (None, None, proven(0.99), None, Verdict.SOUND),
        (BUDGET, CLAIM, proven(0.99, "lib 1.0"), None, Verdict.SOUND_TRUSTING),
        (BUDGET, CLAIM, proven(1.01), None, Verdict.UNPROVEN),
        (BUDGET, CLAIM, NOTHING, None, Verdict.UNPROVEN),
        (None, None, NOTHING, None, Verdict.NON_PRIVATE),
        (BUDGET, None, NOTHING, None, Verdict.NON_PRIVATE),
        (BUDGET, CLAIM, NOTHING, 0.4, Verdict.UNPROVEN),
        (BUDGET, CLAIM, NOTHING, 1.4, Verdict.CLAIM_REFUTED),
        (BUDGET, CLAIM, proven(0.99), 1.4, Verdict.PROOF_REFUTED),
        (BUDGET, Claim(0.5, 1e-5, "x"), proven(0.99), 0.7, Verdict.CLAIM_REFUTED),
        (BUDGET, CLAIM, proven(0.99), 0.5, Verdict.SOUND),
    ],
)
def test_verdicts(
    budget: Budget | None,
    claim: Claim | None,
    proof: Proof,
    audited: float | None,
    expected: Verdict,
) -> None:
    judged = judge(budget, claim, proof, audited)
    assert judged.verdict is expected
    assert judged.reason


def test_trust_is_named() -> None:
    assert judge(BUDGET, CLAIM, proven(0.5, "lib 1.0")).text == "sound, trusting lib 1.0"
