"""Finite differences in all features through the trees, against 2d predictions, in one run.

A step of zero-order condensation needs f(x + h_j e_j) - f(x - h_j e_j) for every row and feature.
The naive side asks XGBoost for all 2d perturbed copies of the rows in one batch
(`inplace_predict`, which is faster than making a DMatrix), with as many threads. Sizes are those
of a clinical table: d = 27, m = 200, 100 trees of depth 5. Columns have a standard deviation of 1:
the longer the step, the more thresholds it crosses.

Then d = 2932 and m = 2000, a table of proteins, where the naive batch does not fit into memory.
Peak memory is that of the whole process, with libraries, rows and results.

    python benchmarks/finite_differences.py [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import xgboost

from bench.engine.limits import peak_memory_mb, reset_peak_memory
from bench.methods.zero_order._differences import BlackBox, FittedTeacher, Trees

Array = npt.NDArray[np.float64]

ROWS, COLUMNS, TRAINED = 200, 27, 20_000
WIDE_ROWS, WIDE_COLUMNS, WIDE_TRAINED, WIDE_BLACK_BOX = 2000, 2932, 1500, 5
TREES, DEPTH = 100, 5
STEPS = (0.01, 0.1, 0.5)
ROUNDS, CALLS = 15, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="of both sides")
    threads = parser.parse_args().threads
    narrow(threads)
    wide(threads)


def narrow(threads: int) -> None:
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(ROWS, COLUMNS)), rng.normal(size=(ROWS, 1))
    booster = _grown(TRAINED, COLUMNS, threads, rng)
    trees = Trees.of(booster, "probability", threads)
    first = _seconds(lambda: trees.slopes(rows, np.ones(COLUMNS), weights))
    print(f"first call, with compiling: {first:.1f} s")
    print(f"{ROWS} x {COLUMNS}, {TREES} trees of depth {DEPTH}, probabilities, {threads} threads")
    print(f"(medians of {ROUNDS} x {CALLS} calls, the two sides taking turns):")
    for step in STEPS:
        steps = np.full(COLUMNS, step)

        def fast(steps: Array = steps) -> Array:
            return trees.slopes(rows, steps, weights)

        def naive(steps: Array = steps) -> Array:
            return _naive(booster, rows, steps, weights)

        apart = float(np.abs((fast() - naive()) * 2 * step).max())
        turns = [(_seconds(fast, CALLS), _seconds(naive, CALLS)) for _ in range(ROUNDS)]
        ours, theirs = (statistics.median(side) for side in zip(*turns, strict=True))
        print(
            f"  step {step}: trees {ours * 1e3:.2f} ms, naive {theirs * 1e3:.1f} ms, "
            f"ratio {theirs / ours:.1f}; differences agree to {apart:.0e}"
        )


def wide(threads: int) -> None:
    rng = np.random.default_rng(1)
    booster = _grown(WIDE_TRAINED, WIDE_COLUMNS, threads, rng)
    trees = Trees.of(booster, "probability", threads)
    batch = 2 * WIDE_ROWS * WIDE_COLUMNS**2 * 4 / 2**30
    print(f"{WIDE_ROWS} x {WIDE_COLUMNS} (naive batch in single precision: {batch:.0f} GiB):")
    _wide("trees", trees, WIDE_ROWS)
    # Batches are of one size for any number of rows; all 2000 would only take longer.
    black_box = BlackBox(lambda asked: np.asarray(booster.inplace_predict(asked)))
    _wide("black box", black_box, WIDE_BLACK_BOX)


def _wide(name: str, teacher: FittedTeacher, count: int) -> None:
    rows = np.random.default_rng(2).normal(size=(count, WIDE_COLUMNS))
    steps, weights = np.full(WIDE_COLUMNS, STEPS[1]), np.ones((count, 1))
    reset_peak_memory()
    taken = _seconds(lambda: teacher.slopes(rows, steps, weights))
    peak = peak_memory_mb()
    memory = "unknown here" if peak is None else f"{peak:.0f} MiB"
    print(f"  {name}, {count} rows: {taken:.2f} s, peak memory {memory}")


def _grown(rows: int, columns: int, threads: int, rng: np.random.Generator) -> xgboost.Booster:
    features = rng.normal(size=(rows, columns))
    margin = features[:, 0] + features[:, 1] * features[:, 2] + np.sin(3 * features[:, 3])
    labels = margin + rng.normal(size=rows) > 0
    parameters = {"objective": "binary:logistic", "max_depth": DEPTH, "max_bin": 64}
    return xgboost.train(
        {**parameters, "nthread": threads},
        xgboost.DMatrix(features, labels, nthread=threads),
        TREES,
    )


def _naive(booster: xgboost.Booster, rows: Array, steps: Array, weights: Array) -> Array:
    """All 2d perturbed copies of the rows in one batch, without a loop in Python."""
    count, width = rows.shape
    batch = np.empty((2, width, count, width), dtype=np.float32)
    batch[:] = rows
    column = np.arange(width)
    batch[0, column, :, column] = (rows + steps).T
    batch[1, column, :, column] = (rows - steps).T
    above, below = booster.inplace_predict(batch.reshape(-1, width)).reshape(2, width, count)
    slopes: Array = weights * (above - below).T / (2 * steps)
    return slopes


def _seconds(work: Callable[[], object], calls: int = 1) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - started) / calls


if __name__ == "__main__":
    main()
