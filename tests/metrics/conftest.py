"""Datasets that the tests of all metrics share. They are frozen: no test can change them."""

from __future__ import annotations

import pytest

from bench.data.dataset import Dataset
from bench.plugins.source import build_dataset
from tests.support.exact_splits import exact_splits
from tests.support.tables import ToyImages, ToySurvival, ToyTable


@pytest.fixture(scope="session")
def table() -> Dataset:
    return build_dataset(ToyTable())


@pytest.fixture(scope="session")
def exact_table() -> Dataset:
    """300 training, 50 validation, 50 control and 100 test rows, 60% of each of the first class."""
    return exact_splits(ToyTable())


@pytest.fixture(scope="session")
def patients() -> Dataset:
    return build_dataset(ToySurvival(rows=1500))


@pytest.fixture(scope="session")
def images() -> Dataset:
    return build_dataset(ToyImages())
