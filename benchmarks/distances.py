"""All distance-based metrics against one metric each of two known suites, as ratios of one run.

* SynthEval 1.7.3, `dcr` alone (Gower distance): 10,000 training and 10,000 released rows.
* SDMetrics 0.32, `DCROverfittingProtection` alone: 5,000 training, released and validation rows.
  It takes minutes, so it is run with 1,000 rows and its time multiplied by 25, the ratio of the
  numbers of pairs that it compares; `--full` runs it with all rows.

This side computes `dcr`, `dcr-distribution`, `dcr-hamming`, `high-risk` and `nndr`, with their
intervals and everything that depends on real rows alone, on tables of 15 columns (8 numeric) with
a sixth as many control rows as training rows. Time to compile the loops is shown separately: it is
spent once in each process.

    python benchmarks/distances.py [--full] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench.data.dataset import Declaration
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.metrics.privacy.disclosure.closest_record import (
    BinnedDistance,
    ClosestRecord,
    DistanceDistribution,
)
from bench.metrics.privacy.disclosure.copies import HighRiskRows, NeighbourRatio
from bench.plugins.metric import Evaluation, Metric
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource, build_dataset

NUMBERS, CATEGORIES = 8, 6
METRICS: tuple[Metric, ...] = (
    ClosestRecord(),
    DistanceDistribution(),
    BinnedDistance(),
    HighRiskRows(),
    NeighbourRatio(),
)
SYNTHEVAL_ROWS, SDMETRICS_ROWS, SDMETRICS_SHORT = 10_000, 5_000, 1_000
ROUNDS = 3


@final
@dataclass(frozen=True)
class Simulated(DatasetSource):
    """Random numbers and categories."""

    name: ClassVar[str] = "simulated"
    rows: int
    seed: int

    def declare(self) -> Declaration:
        columns = (
            *(Numeric(name=f"n{k}", low=0, high=500) for k in range(NUMBERS)),
            *(Categorical(name=f"c{k}", categories=tuple("abcd")) for k in range(CATEGORIES)),
            Categorical(name="y", categories=("0", "1"), role=Role.TARGET),
        )
        counts = (self.rows - self.rows // 2, self.rows // 2)
        schema = Schema(columns, Task.CLASSIFICATION)
        return Declaration("Simulated", schema, counts, {}, "CC0", "", "", simulated=True)

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(self.seed)
        data: dict[str, object] = {
            f"n{k}": np.minimum(rng.exponential(40, self.rows), 500) for k in range(NUMBERS)
        }
        for k in range(CATEGORIES):
            data[f"c{k}"] = rng.choice(list("abcd"), self.rows, p=[0.5, 0.3, 0.15, 0.05])
        data["y"] = (np.arange(self.rows) % 2).astype(str)
        return pd.DataFrame(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="SDMetrics with all rows: minutes")
    parser.add_argument("--threads", type=int, default=2, help="of this side")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    # The second table has the same size and other rows: no cached result of the first is used.
    first, second = (_ours(200, seed, options.threads) for seed in (-1, -2))
    print(f"compiling, once per process: {first - second:.2f} s")
    for rows, other, times, name in (
        (SYNTHEVAL_ROWS, _syntheval, 1, "SynthEval dcr"),
        (
            SDMETRICS_ROWS,
            _sdmetrics,
            1 if options.full else (SDMETRICS_ROWS // SDMETRICS_SHORT) ** 2,
            "SDMetrics DCROverfittingProtection",
        ),
    ):
        ours = statistics.median(_ours(rows, seed, options.threads) for seed in range(ROUNDS))
        theirs = times * other(rows if times == 1 else SDMETRICS_SHORT)
        how = "" if times == 1 else f" ({times} x the time of {SDMETRICS_SHORT:,} rows)"
        print(f"{rows:,} training and {rows:,} released rows, {NUMBERS + CATEGORIES + 1} columns:")
        print(f"  all {len(METRICS)} metrics {ours:.2f} s (median of {ROUNDS})", end=", ")
        print(f"{name} {theirs:.1f} s{how}, ratio {theirs / ours:.0f}")


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _ours(rows: int, seed: int, threads: int) -> float:
    dataset = build_dataset(Simulated(rows * 10 // 6, 10 + seed))
    fresh, _ = dataset.encoder.encode(Simulated(rows, seed + 1000).load())
    evaluation = Evaluation(dataset, Release(Rows(fresh.values, fresh.labels)), 0, threads)
    return _timed(lambda: [metric.compute(evaluation) for metric in METRICS])


def _frames(rows: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    return (Simulated(rows, 0).load(), Simulated(rows, 1000).load(), Simulated(rows, 2000).load())


def _syntheval(rows: int) -> float:
    from syntheval.metrics.privacy.metric_distance_closest_record import (
        MedianDistanceToClosestRecord,
    )

    real, released, _ = _frames(rows)
    categories = [name for name in real if not name.startswith("n")]
    numbers = [name for name in real if name.startswith("n")]
    metric = MedianDistanceToClosestRecord(
        real, released, cat_cols=categories, num_cols=numbers, nn_dist="gower", verbose=False
    )
    return _timed(metric.evaluate)


def _sdmetrics(rows: int) -> float:
    from sdmetrics.single_table import DCROverfittingProtection

    train, released, validation = _frames(rows)
    kinds = {
        name: {"sdtype": "numerical" if name.startswith("n") else "categorical"} for name in train
    }
    return _timed(
        lambda: DCROverfittingProtection.compute_breakdown(
            train, released, validation, {"columns": kinds}, "table"
        )
    )


if __name__ == "__main__":
    main()
