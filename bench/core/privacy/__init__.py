"""The privacy kernel: noise and record in one step, accounting apart from what happened."""

from bench.core.privacy.accountant import Budget, Proof
from bench.core.privacy.events import gaussian, laplace, sampled_gaussian
from bench.core.privacy.kernel import Plan, PrivateData
from bench.core.privacy.ledger import Ledger
from bench.core.privacy.trusted import TrustedMechanism

__all__ = [
    "Budget",
    "Ledger",
    "Plan",
    "PrivateData",
    "Proof",
    "TrustedMechanism",
    "gaussian",
    "laplace",
    "sampled_gaussian",
]
