"""Seconds that each metric takes on one release, and the whole default suite against two minutes.

    python benchmarks/suite.py [--dataset adult] [--rows 10000] [--threads 2] [--all]

The release is 10,000 rows (5,000 of each class) of `marginals` at epsilon 1. Adult is used if its
files are available (see `bench data`), otherwise the built-in `curial-sim`. Two numbers per metric:
the time for the first release of a dataset in a process (models of the real rows are fitted, loops
are compiled), and for every further release.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from bench import Budget
from bench.data.dataset import Dataset
from bench.errors import InputError, NotComputable
from bench.plugins import registry
from bench.plugins.method import Spec
from bench.plugins.metric import Evaluation, Metric
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private

LIMIT = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="optional metrics too")
    options = parser.parse_args()
    dataset = _dataset(options.dataset)
    release = _release(dataset, options.rows)
    names = registry.select_metrics(["all" if options.all else "default"])
    metrics = [registry.metric(name) for name in names]
    chosen = [m for m in metrics if dataset.task in m.tasks and isinstance(m, Metric)]
    print(f"{dataset.name}: {len(dataset.train)} training rows, {options.threads} threads")
    first = _seconds(dataset, release, chosen, options.threads)
    again = _seconds(dataset, release, chosen, options.threads)
    print(f"{'metric':24}{'first':>8}{'again':>8}")
    for name in sorted(first, key=lambda name: -first[name]):
        print(f"{name:24}{first[name]:8.2f}{again[name]:8.2f}")
    for word, total in (("first", sum(first.values())), ("again", sum(again.values()))):
        print(f"whole suite, {word}: {total:.1f} s, {total / LIMIT:.2f} of two minutes")


def _dataset(name: str | None) -> Dataset:
    for candidate in (name,) if name else ("adult", "curial-sim"):
        try:
            return build_dataset(registry.build_source(candidate))
        except InputError:
            if name:
                raise
    raise SystemExit("no dataset to score")


def _release(dataset: Dataset, rows: int) -> Release:
    budget = Budget(1.0, 1e-5)
    private, ledger = open_private(dataset, budget, SeededNoise(np.random.default_rng(0)))
    spec = Spec(dataset.task, rows // len(dataset.schema.classes), budget)
    result = registry.build_method("marginals").synthesize(private, spec, np.random.default_rng(1))
    return Release(result.rows, claim=result.claim, notes=result.notes, ledger=ledger)


def _seconds(
    dataset: Dataset, release: Release, metrics: list[Metric], threads: int
) -> dict[str, float]:
    evaluation = Evaluation(dataset, release, 0, threads)
    taken: dict[str, float] = {}
    for metric in metrics:
        started = time.perf_counter()
        try:
            metric.compute(evaluation)
        except NotComputable as reason:
            print(f"{metric.name}: absent, {reason}")
        taken[metric.name] = time.perf_counter() - started
    return taken


if __name__ == "__main__":
    main()
