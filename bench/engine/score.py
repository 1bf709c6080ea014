"""Scores one release by metrics, which may fit the method again on other tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd

from bench.data.dataset import Dataset, Split
from bench.data.splits import ALL
from bench.engine import keys, phases
from bench.engine.failures import failure_of
from bench.engine.fit import Fits
from bench.environments import overlays
from bench.errors import BenchError, NotComputable, text_of
from bench.plugins import registry
from bench.plugins.method import Environment
from bench.plugins.metric import Evaluation, Metric, Refit, Score
from bench.plugins.release import Release
from bench.plugins.returned import check_scores
from bench.results.records import Cell, Outcome, ScoreRow, TimingRow
from bench.results.timings import Stopwatch

NO_ROWS_LEFT = "every row was used for training (--train-on all): none is left to evaluate with"


@final
@dataclass(frozen=True)
class Scored:
    """What the metrics gave."""

    scores: tuple[ScoreRow, ...]
    details: Mapping[str, pd.DataFrame]
    problems: Mapping[str, str]
    """Metrics that failed, and how."""
    stack: str
    """Places in the code where the last of them failed."""
    log: str
    """Whole texts of their exceptions: for the internal log only."""
    timings: tuple[TimingRow, ...]
    """What each metric took. Work that several share stands with the first of them."""

    @property
    def reference_seconds(self) -> float:
        """Processor time for what depends on the real rows alone."""
        return sum(timing.reference_seconds for timing in self.timings)


def score_release(
    cell: Cell,
    key: str,
    dataset: Dataset,
    release: Release,
    metrics: Sequence[str],
    threads: int,
    fits: Fits,
    environment: Environment | None,
) -> Scored:
    """Compute the metrics of a release. One that fails costs its own scores only.

    Metrics that fit the method again do so through `fits`; `environment` is the method's own.
    """
    # The evaluator's randomness is the cell's seed alone: two methods with the same seed
    # are compared on the same bootstrap resamples.
    evaluation = Evaluation(dataset, release, cell.seed, threads)
    scores: list[ScoreRow] = []
    details: dict[str, pd.DataFrame] = {}
    problems: dict[str, str] = {}
    logs: list[str] = []
    timings: list[TimingRow] = []
    stack = ""

    def refit_for(metric: str) -> Refit:
        if environment is not None and not overlays.inside(environment):
            raise NotComputable(
                f"it fits the method again, whose environment {environment.name} is not the one "
                "that scores"
            )

        def refit(train: pd.DataFrame, repetition: int) -> Release:
            changed, digest = _changed(dataset, train, keys.seed_of(cell))
            # Other noise for every metric, repetition and table: two neighbours refitted with the
            # same noise would differ by exactly one row.
            purpose = f"/{metric}/{repetition}/{digest}"
            return fits.refit(cell, changed, purpose)

        return refit

    for name in metrics:
        metric = registry.metric(name)
        if dataset.task not in metric.tasks:
            continue
        if dataset.preset == ALL:
            scores += [_score_row(key, score) for score in metric.all_absent(NO_ROWS_LEFT).scores]
            continue
        phases.enter("score", name)
        watch, before = Stopwatch(), evaluation.reference_seconds
        try:
            computed = check_scores(
                metric.compute(evaluation)
                if isinstance(metric, Metric)
                else metric.compute(evaluation, refit_for(name)),
                metric,
            )
        except NotComputable as reason:
            computed = metric.all_absent(text_of(reason))
        except KeyboardInterrupt:
            raise
        except BaseException as problem:
            # The release is kept and the other metrics count, but the cell has failed.
            failure = failure_of(problem)
            problems[name], stack = failure.reason, failure.stack
            logs.append(f"metric {name}:\n{failure.log}")
            computed = metric.all_absent(f"failed: {failure.reason}")
        reference = evaluation.reference_seconds - before
        timings.append(watch.lap(key, "score", name, reference))
        scores += [_score_row(key, score) for score in computed.scores]
        details.update(computed.details)
    return Scored(tuple(scores), details, problems, stack, "\n".join(logs), tuple(timings))


def _changed(dataset: Dataset, train: pd.DataFrame, seed: str) -> tuple[Dataset, str]:
    """The dataset with another training table. Rows keep their fixed position by their index.

    A metric that adds rows gives them new index values.
    """
    index = train.index.to_numpy()
    if len(set(index)) != len(index):
        raise BenchError("a training table for a refit needs a unique index")
    known = dataset.train.rows.positions
    positions = np.array(
        [
            known[label] if 0 <= label < len(known) else _position(seed, label)
            for label in index.tolist()
        ]
    )
    rows, _ = dataset.encoder.encode(train.reset_index(drop=True), positions)
    digest = hashlib.sha256(pd.util.hash_pandas_object(train).to_numpy().tobytes()).hexdigest()
    return replace(dataset, train=Split(train, rows)), digest


def _position(seed: str, label: object) -> float:
    return float(keys.generator(seed, f"position/{label}").random())


def _score_row(key: str, score: Score) -> ScoreRow:
    return ScoreRow(
        key,
        score.metric,
        score.value,
        score.low,
        score.high,
        score.direction.value,
        score.family.value,
        score.reason,
        score.limit,
        score.remark,
        score.shown,
    )


def kept_scores(stored: Outcome | None, metrics: Sequence[str]) -> tuple[ScoreRow, ...]:
    """Return earlier scores that these metrics do not give anew."""
    if stored is None:
        return ()
    given = {output.name for name in metrics for output in registry.metric(name).declared()}
    return tuple(score for score in stored.scores if score.metric not in given)
