"""The privacy kernel: noise and record in one step, accounting apart from what happened."""

from bench.privacy.accounting import Budget, Proof
from bench.privacy.events import gaussian, laplace, sampled_gaussian
from bench.privacy.kernel import Plan, PrivateData
from bench.privacy.ledger import Ledger
from bench.privacy.trusted.table import TrustedMechanism

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
