"""Short ways to make an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.data.dataset import Dataset, Split
from bench.plugins.metric import Evaluation, Score, Scores
from bench.plugins.release import Release, ReleasedModel, Rows
from bench.plugins.source import build_dataset
from bench.results.records import Cell, Outcome, Variant
from tests.support.tables import ToyTable


def release_of(split: Split, **more: Any) -> Release:
    """The rows of a split, released as they are."""
    return Release(Rows(split.rows.values, split.rows.labels, **more))


def evaluate(dataset: Dataset, release: Release | Split, seed: int = 0) -> Evaluation:
    if isinstance(release, Split):
        release = release_of(release)
    return Evaluation(dataset, release, seed)


def without_control(dataset: Dataset) -> Dataset:
    """The dataset without control rows."""
    control = dataset.control
    nobody = Split(control.frame[:0], control.rows.take(np.arange(0)))
    return replace(dataset, control=nobody)


def toy_cell(metric: str) -> Outcome:
    """A metric of the real rows of the toy table, scored in a cell as `bench run` does."""
    from bench.engine import keys
    from bench.engine.cell import run_cell

    dataset = build_dataset(ToyTable())
    cell = Cell(
        method=Variant("real", "real"),
        dataset=Variant("toy-table", "toy-table"),
        ipc=20,
        full_size=False,
        epsilon=None,
        delta=1e-5,
        seed=0,
        split="default",
        split_seed=0,
    )
    outcome = run_cell(cell, keys.cell_key(cell, dataset.fingerprint), dataset, (metric,))
    assert outcome.row.status == "ok", outcome.row.log_tail
    return outcome


def named(scores: Scores, name: str) -> Score:
    """The one score of that name."""
    (score,) = [score for score in scores.scores if score.metric == name]
    return score


def only(scores: Scores) -> tuple[float, float, float]:
    """Value, low and high of the one score."""
    (score,) = scores.scores
    assert score.value is not None
    assert score.low is not None
    assert score.high is not None
    return score.value, score.low, score.high


@final
@dataclass(frozen=True)
class Answers(ReleasedModel):
    """A released model given as a function."""

    function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]

    def predict(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return self.function(values)
