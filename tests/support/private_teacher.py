"""A table that is large enough for a private teacher, and a teacher by Bayes' rule."""

from __future__ import annotations

import numpy as np

from bench import PrivateData
from bench.data.dataset import Dataset
from bench.methods.private_teacher._bins import ClassCounts
from bench.methods.private_teacher._teachers import NaiveBayes
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

TABLE = build_dataset(ToyTable(negatives=3000, positives=2000))


def opened(data: Dataset = TABLE, seed: int = 0) -> PrivateData:
    """Open without a budget, so that tests may ask for next to no noise."""
    noise = SeededNoise(np.random.default_rng(seed))
    return open_private(data, None, noise, check_rows=True)[0]


def bayes(counts: ClassCounts, priors: np.ndarray) -> NaiveBayes:
    tables = tuple(counts.shares(column) for column in range(len(counts.grid.columns)))
    return NaiveBayes(counts.grid, tables, priors)
