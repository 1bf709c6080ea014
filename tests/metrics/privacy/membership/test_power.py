"""What the privacy numbers see together: all training rows, a hundred of them, and fresh ones."""

from __future__ import annotations

import numpy as np
import pytest

from bench.data.dataset import Dataset
from bench.plugins import registry
from bench.plugins.method import Spec
from bench.plugins.metric import Evaluation, Metric, Score
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.metrics.helpers import release_of

NAMES = ("dcr", "high-risk", "mia", "domias", "mia-threshold", "singling-out")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return build_dataset(registry.build_source("breast-cancer"))


def attacked(dataset: Dataset, release: Release) -> dict[str, Score]:
    evaluation = Evaluation(dataset, release, 0)
    scores = {}
    for name in NAMES:
        metric = registry.metric(name)
        assert isinstance(metric, Metric)
        scores |= {score.metric: score for score in metric.compute(evaluation).scores}
    return scores


def test_the_training_rows_are_caught_by_every_attack(dataset: Dataset) -> None:
    scores = attacked(dataset, release_of(dataset.train))
    assert scores["dcr/copies"].value == 1.0
    for name in ("mia/auroc", "domias/auroc", "mia-threshold/auroc"):
        assert scores[name].value > 0.9, name
    assert scores["mia-threshold/risk"].value > scores["mia-threshold/risk"].limit
    assert scores["high-risk/train"].value > scores["high-risk/train"].limit
    assert scores["singling-out/univariate"].low > 0.5


def test_a_hundred_raw_rows_are_flagged(dataset: Dataset) -> None:
    """The method `subset` at IPC 50: averages may miss it, some number must not."""
    private, _ = open_private(dataset, None, SeededNoise(np.random.default_rng(0)))
    spec = Spec(dataset.task, 50, None)
    release = registry.build_method("subset").synthesize(private, spec, np.random.default_rng(1))
    scores = attacked(dataset, release)
    assert len(release.rows) == 100
    assert scores["dcr/copies"].value == 1.0
    assert scores["high-risk/released"].low > 0.9
    assert scores["domias/precision"].low > 0.5


def test_fresh_rows_are_not_caught() -> None:
    """Over 8 splits: an interval of 95% excludes guessing from above in one of 40 by chance."""
    guessing = {
        "mia/auroc": 0.5,
        "domias/auroc": 0.5,
        "mia-threshold/auroc": 0.5,
        "domias/precision": 0.5,
        "singling-out/univariate": 0.0,
        "singling-out/multivariate": 0.0,
        "dcr/gap": 0.0,
    }
    caught = dict.fromkeys(guessing, 0)
    for split_seed in range(8):
        dataset = build_dataset(registry.build_source("breast-cancer"), split_seed=split_seed)
        scores = attacked(dataset, release_of(dataset.test))
        assert scores["dcr/copies"].value == 0.0
        for name, expected in guessing.items():
            low = scores[name].low
            assert low is not None, scores[name].reason
            caught[name] += low > expected
    assert max(caught.values()) <= 1, caught
    assert sum(caught.values()) <= 4, caught  # 56 intervals: more than 4 in one of 70 cases
