"""What the real rows alone decide is computed once for all releases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.data.dataset import Dataset
from bench.plugins import metric
from bench.plugins.metric import Evaluation
from bench.plugins.release import Release, Rows
from bench.plugins.source import build_dataset
from tests.support.tables import ToyImages, ToySurvival, ToyTable


@pytest.fixture
def dataset() -> Dataset:
    return build_dataset(ToyTable())


def evaluation(dataset: Dataset, seed: int = 0) -> Evaluation:
    rows = dataset.test.rows
    return Evaluation(dataset, Release(Rows(rows.values, rows.labels)), seed)


def test_it_is_built_once_for_equal_rows_whatever_the_seed(dataset: Dataset) -> None:
    drawn = [
        evaluation(data, seed).reference("test/once", lambda rng: rng.random())
        for seed, data in enumerate((dataset, build_dataset(ToyTable())))
    ]
    assert drawn[0] == drawn[1]
    other = evaluation(dataset).reference("test/other", lambda rng: rng.random())
    assert other != drawn[0]


def test_other_rows_have_other_references(dataset: Dataset) -> None:
    fewer = replace(
        dataset, control=replace(dataset.control, rows=dataset.control.rows.take(np.arange(3)))
    )
    sizes = [
        evaluation(data).reference("test/size", lambda rng, data=data: len(data.control.rows))
        for data in (dataset, fewer)
    ]
    assert sizes == [len(dataset.control), 3]


def test_only_the_latest_datasets_are_kept(dataset: Dataset) -> None:
    built = []

    def build(rng: np.random.Generator) -> int:
        built.append(1)
        return len(built)

    evaluation(dataset).reference("test/kept", build)
    for source in (ToySurvival(), ToyImages()):
        metric.references_of(build_dataset(source))
    evaluation(dataset).reference("test/kept", build)
    assert len(built) == 2
