"""1000 bootstrap resamples of the C-index against looping lifelines, as a ratio in one run.

10,000 rows, a third of them censored, times in whole months as registries keep them, continuous
risks. One side draws its resamples and weights the rows; the other calls lifelines'
`concordance_index` on the resampled rows, ten times, scaled to 1000. Both compute the same numbers
on the same resamples (`tests/metrics/shared/test_bootstrap.py`).

    OMP_NUM_THREADS=1 python benchmarks/concordance.py
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from lifelines.utils import concordance_index

from bench.metrics._shared import bootstrap
from bench.metrics._shared.c_index import concordance

ROWS, RESAMPLES, LOOPS = 10_000, 1000, 10
ROUNDS = 3
LEAST = 50.0
"""Smallest accepted speed-up."""


def main() -> None:
    rng = np.random.default_rng(0)
    risks = rng.normal(size=ROWS)
    survived, observed = rng.exponential(60 * np.exp(-risks)), rng.exponential(120, ROWS)
    times, events = np.ceil(np.minimum(survived, observed)), (survived <= observed).astype(int)
    # The first call of either side loads its libraries.
    _loop(times, events, risks, 1)
    pairs = [
        (_weighted(times, events, risks), _loop(times, events, risks, LOOPS)) for _ in range(ROUNDS)
    ]
    ours, lifelines = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = lifelines / ours
    print(f"{RESAMPLES} resamples of the C-index of {ROWS} rows (median of {ROUNDS}):")
    print(
        f"  weights {ours:.2f} s, lifelines {lifelines:.1f} s (from {LOOPS} calls), "
        f"{ratio:.0f} times faster; at least {LEAST:.0f}"
    )
    if ratio < LEAST:
        raise SystemExit(1)


def _weighted(times: np.ndarray, events: np.ndarray, risks: np.ndarray) -> float:
    started = time.perf_counter()
    statistic = concordance(times, events, risks)
    bootstrap.bootstrap(statistic, np.zeros(ROWS), np.random.default_rng(1), RESAMPLES)
    return time.perf_counter() - started


def _loop(times: np.ndarray, events: np.ndarray, risks: np.ndarray, loops: int) -> float:
    rng = np.random.default_rng(1)
    started = time.perf_counter()
    for _ in range(loops):
        drawn = rng.integers(0, ROWS, ROWS)
        concordance_index(times[drawn], -risks[drawn], events[drawn])
    return (time.perf_counter() - started) * RESAMPLES / loops


if __name__ == "__main__":
    main()
