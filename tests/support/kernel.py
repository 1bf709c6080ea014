"""A toy table behind the kernel."""

from __future__ import annotations

import numpy as np

from bench import Budget, PrivateData
from bench.data.encoder import EncodedRows
from bench.plugins.source import build_dataset
from bench.privacy.ledger import Ledger
from bench.privacy.noise import NoiseSource, SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())
BUDGET = Budget(1.0, 1e-5)


def opened(
    budget: Budget | None = None, seed: int = 0, noise: NoiseSource | None = None, **options: bool
) -> tuple[PrivateData, Ledger]:
    return open_private(
        DATASET, budget, noise or SeededNoise(np.random.default_rng(seed)), **options
    )


def ones(rows: EncodedRows) -> np.ndarray:
    return np.ones((len(rows), 1))
