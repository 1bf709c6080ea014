"""Every registered metric keeps the contract, on every kind of release. New plugins are found here.

A value or a reason for every declared number, nothing else; no NaN passed off as a score; the same
seed gives the same numbers for any number of threads; details can be stored.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from bench.data.dataset import Dataset, Split
from bench.errors import NotComputable
from bench.plugins import registry
from bench.plugins.metric import Evaluation, Metric, RefitMetric, Scores
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset
from tests.metrics.helpers import Answers
from tests.support.tables import ToyGaps, ToyImages, ToySurvival, ToyTable

SOURCES: dict[str, DatasetSource] = {
    "table": ToyTable(),
    "survival": ToySurvival(),
    "images": ToyImages(),
}
GAPS = "missing entries"
PAIRS = [
    (name, task)
    for name in registry.select_metrics()
    for task, source in SOURCES.items()
    if source.declare().schema.task in registry.metric(name).tasks
]


@functools.cache
def dataset(name: str) -> Dataset:
    return build_dataset(ToyGaps() if name == GAPS else SOURCES[name])


@pytest.fixture(autouse=True)
def _short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """How well networks learn is tested with them: the contract needs a few of their steps."""
    from bench.metrics.utility import _networks

    monkeypatch.setattr(_networks, "STEPS", 10)


def fresh(data: Dataset) -> Release:
    return Release(Rows(data.test.rows.values, data.test.rows.labels))


def soft(data: Dataset) -> Release:
    """Three rows per class with fractional one-hot columns, weights and soft labels."""
    rng = np.random.default_rng(0)
    classes = len(data.schema.classes)
    labels = np.repeat(np.arange(classes), 3)
    values = np.clip(rng.normal(0, 0.7, (len(labels), data.encoder.width)), -1.5, 1.5)
    soft_labels = 0.8 * np.eye(classes)[labels] + 0.2 / classes
    return Release(Rows(values, labels, rng.random(len(labels)) + 0.1, soft_labels))


def one_class(data: Dataset) -> Release:
    return Release(Rows(data.test.rows.values, np.zeros(len(data.test), dtype=np.int64)))


def constant(data: Dataset) -> Release:
    labels = np.repeat(np.arange(len(data.schema.classes)), 10)
    return Release(Rows(np.zeros((len(labels), data.encoder.width)), labels))


def one_row(data: Dataset) -> Release:
    return Release(Rows(data.test.rows.values[:1], data.test.rows.labels[:1]))


def weightless(data: Dataset) -> Release:
    rows = data.test.rows
    return Release(Rows(rows.values, rows.labels, np.zeros(len(rows))))


def model(data: Dataset) -> Release:
    classes = len(data.schema.classes)
    return Release(model=Answers(lambda v: np.full((len(v), classes), 1.0 / classes)))


RELEASES: tuple[Callable[[Dataset], Release], ...] = (
    fresh,
    soft,
    one_class,
    constant,
    one_row,
    weightless,
    model,
)


def computed(name: str, data: Dataset, release: Release, threads: int = 1) -> Scores | str:
    """The scores, or the reason why there are none."""
    metric = registry.metric(name)
    assert isinstance(metric, Metric)
    try:
        return metric.compute(Evaluation(data, release, 5, threads))
    except NotComputable as reason:
        return str(reason)


def kept(split: Split, chosen: npt.NDArray[np.bool_]) -> Split:
    return Split(split.frame[chosen].reset_index(drop=True), split.rows.take(chosen))


def nothing_between(data: Dataset) -> Dataset:
    """No validation and no control rows."""
    validation, control = (
        kept(split, np.zeros(len(split), dtype=bool)) for split in (data.validation, data.control)
    )
    return replace(data, validation=validation, control=control)


def nothing_to_test(data: Dataset) -> Dataset:
    return replace(data, test=kept(data.test, np.zeros(len(data.test), dtype=bool)))


def a_class_short(data: Dataset) -> Dataset:
    """No row of the last class among the training and the test rows."""
    last = len(data.schema.classes) - 1
    train, test = (kept(split, split.rows.labels < last) for split in (data.train, data.test))
    return replace(data, train=train, test=test)


@pytest.mark.parametrize("name", sorted({name for name, task in PAIRS if task == "table"}))
def test_missing_entries_leave_a_value_or_a_reason(name: str) -> None:
    check(name, computed(name, dataset(GAPS), soft(dataset(GAPS))))


UNLUCKY: tuple[Callable[[Dataset], Dataset], ...] = (
    nothing_between,
    nothing_to_test,
    a_class_short,
)
"""What can happen to a small table, since each row is assigned to a split by itself."""


@pytest.mark.parametrize("name, task", PAIRS)
@pytest.mark.parametrize("release", RELEASES, ids=lambda make: make.__name__)
def test_a_value_or_a_reason_for_every_number(
    name: str, task: str, release: Callable[[Dataset], Release]
) -> None:
    check(name, computed(name, dataset(task), release(dataset(task))))


@pytest.mark.parametrize("name, task", PAIRS)
@pytest.mark.parametrize("unlucky", UNLUCKY, ids=lambda make: make.__name__)
def test_splits_that_lack_rows_or_a_class_leave_a_value_or_a_reason(
    name: str, task: str, unlucky: Callable[[Dataset], Dataset]
) -> None:
    check(name, computed(name, unlucky(dataset(task)), soft(dataset(task))))


def check(name: str, found: Scores | str) -> None:
    """A value or a reason for every declared number, and details that can be stored."""
    if isinstance(found, str):
        assert len(found) > 10
        return
    declared = {output.name: output for output in registry.metric(name).declared()}
    assert sorted(score.metric for score in found.scores) == sorted(declared)
    for score in found.scores:
        assert score.direction is declared[score.metric].direction
        if score.value is None:
            assert len(score.reason) > 10, score
            assert score.low is score.high is None
            continue
        assert math.isfinite(score.value) and not score.reason, score
        assert (score.low is None) == (score.high is None), score
        if score.low is not None and score.high is not None:
            assert score.low <= score.high, score
    for table in found.details.values():
        pa.Table.from_pandas(table, preserve_index=False)
        assert len(table) < 100_000


@pytest.mark.parametrize("name, task", PAIRS)
def test_the_same_seed_gives_the_same_numbers_for_any_number_of_threads(
    name: str, task: str
) -> None:
    data = dataset(task)
    first, again = (computed(name, data, fresh(data), threads) for threads in (1, 2))
    if isinstance(first, str) or isinstance(again, str):
        assert first == again
        return
    assert first.scores == again.scores


@pytest.mark.parametrize("name", registry.metric_names())
def test_definitions_are_complete(name: str) -> None:
    metric = registry.metric(name)
    outputs = metric.declared()
    assert outputs and metric.cost
    if isinstance(metric, RefitMetric):
        assert metric.optional, "a metric that refits is computed when asked for"
    for output in outputs:
        assert len(output.definition or metric.definition) > 20
        assert output.name == output.name.lower() and " " not in output.name
