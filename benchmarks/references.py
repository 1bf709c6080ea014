"""Processor seconds for the first release that a process scores, alone and in a run.

    python benchmarks/references.py [--dataset adult] [--rows 200]

Three new processes score the same release (of `subset`) by the default metrics, one thread each:
the first shares its references with nobody, as a process did before runs shared them; the second
fills an empty folder, the third reads it. The ratio is that of the first and the third. What is
left in the third are imports, loops that are compiled, and the release itself. Adult is used if its
files are available (see `bench data`), otherwise the built-in `curial-sim`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.data.dataset import Dataset
from bench.engine.references import references_folder, shared_references
from bench.errors import InputError, NotComputable
from bench.plugins import registry
from bench.plugins.method import Spec
from bench.plugins.metric import Evaluation, Metric
from bench.plugins.release import Release
from bench.plugins.source import build_dataset
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        print(_seconds(options.dataset, options.rows, options.folder))
        return
    name = options.dataset or _dataset_name()
    with tempfile.TemporaryDirectory() as place, references_folder(Path(place)) as folder:
        taken = {
            kind: _in_new_process(name, options.rows, where)
            for kind, where in (("alone", ""), ("fills", str(folder)), ("reads", str(folder)))
        }
        stored = [file.stat().st_size for file in folder.glob("*.npz")]
    print(f"{name}, release of {options.rows} rows, first release of a process")
    for kind, seconds in taken.items():
        print(f"{kind:8}{seconds:8.2f} s")
    print(f"ratio   {taken['alone'] / taken['reads']:8.2f}")
    print(f"{len(stored)} references of {sum(stored) / 2**20:.1f} MB in all")


def _in_new_process(name: str, rows: int, folder: str) -> float:
    command = [sys.executable, __file__, "--dataset", name, "--rows", str(rows)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    found = subprocess.run(
        [*command, "--folder", folder], env=one_thread, stdout=subprocess.PIPE, check=True
    )
    return float(found.stdout)


def _seconds(name: str, rows: int, folder: str) -> float:
    dataset = build_dataset(registry.build_source(name))
    evaluation = Evaluation(dataset, _release(dataset, rows), 0)
    chosen = [registry.metric(metric) for metric in registry.select_metrics(["default"])]
    started = time.process_time()
    with shared_references(folder):
        for metric in chosen:
            if dataset.task in metric.tasks and isinstance(metric, Metric):
                try:
                    metric.compute(evaluation)
                except NotComputable as reason:
                    print(f"{metric.name}: absent, {reason}", file=sys.stderr)
    return time.process_time() - started


def _dataset_name() -> str:
    try:
        build_dataset(registry.build_source("adult"))
    except InputError:
        return "curial-sim"
    return "adult"


def _release(dataset: Dataset, rows: int) -> Release:
    private, ledger = open_private(dataset, None, SeededNoise(np.random.default_rng(0)))
    spec = Spec(dataset.task, rows // len(dataset.schema.classes), None)
    made = registry.build_method("subset").synthesize(private, spec, np.random.default_rng(1))
    return Release(made.rows, claim=made.claim, notes=made.notes, ledger=ledger)


if __name__ == "__main__":
    main()
