"""Datasets that the tests of all metrics share. They are frozen: no test can change them."""

from __future__ import annotations

import pytest

from bench.data.dataset import Dataset
from bench.plugins.source import build_dataset
from tests.support.tables import ToyImages, ToySurvival, ToyTable


@pytest.fixture(scope="session")
def table() -> Dataset:
    return build_dataset(ToyTable())


@pytest.fixture(scope="session")
def patients() -> Dataset:
    return build_dataset(ToySurvival(rows=1500))


@pytest.fixture(scope="session")
def images() -> Dataset:
    return build_dataset(ToyImages())
