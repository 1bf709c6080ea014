"""Overhead of the privacy kernel against the bare arithmetic, as a ratio measured in one run.

NDPDC makes 10,000 sampled Gaussian sums. Here both sides do 10,000 of them over 10,000 rows of 64
columns at an expected sample of 50: the kernel with its ledger and checks, and plain NumPy that
samples, clips, sums and adds noise without recording or checking anything.

The second pair is one Gaussian sum over all rows: on the kernel's grid with exactly sampled noise,
and in doubles with `ndtri` of 52 random bits, as the kernel did before its answers were on a grid.

The third pair is `gaussian_sum` as a method calls it, against the same sum in doubles: the kernel
also copies the rows for the row function, which could write into them. The last line times that
copy alone.

    python benchmarks/kernel_overhead.py
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np
from scipy.special import ndtri

from bench import PrivateData, gaussian, sampled_gaussian
from bench.data.dataset import Counts
from bench.data.encoder import EncodedRows, Encoder
from bench.data.schema import Categorical, Numeric, Role, Schema, Task
from bench.privacy.grid import Grid
from bench.privacy.kernel import Vault
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise, SystemNoise

ROWS, COLUMNS, CALLS, EXPECTED = 10_000, 64, 10_000, 50
ROUNDS = 5
SUMS = 200


def main() -> None:
    columns = [Numeric(name=f"x{i}", low=-1, high=1) for i in range(COLUMNS)]
    label = Categorical(name="y", categories=("0", "1"), role=Role.TARGET)
    encoder = Encoder(Schema((*columns, label), Task.CLASSIFICATION))
    values = np.random.default_rng(0).uniform(-1, 1, (ROWS, COLUMNS)).astype(np.float32)
    rows = EncodedRows(values, np.zeros(ROWS, dtype=int), np.zeros(ROWS, dtype=int), np.zeros(ROWS))
    rate = EXPECTED / ROWS
    pairs = [(_kernel(rows, encoder, rate), _plain(values, rate)) for _ in range(ROUNDS)]
    kernel, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{CALLS} sampled sums over {ROWS} x {COLUMNS} (median of {ROUNDS}):")
    print(f"  kernel {kernel:.3f} s, plain NumPy {plain:.3f} s, ratio {kernel / plain:.2f}")
    vectors = values.astype(np.float64)
    pairs = [(_on_the_grid(vectors), _in_doubles(vectors)) for _ in range(ROUNDS)]
    grid, doubles = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{SUMS} noisy sums of {ROWS} x {COLUMNS} (median of {ROUNDS}):")
    print(f"  on the grid {grid:.3f} s, in doubles {doubles:.3f} s, ratio {grid / doubles:.2f}")
    pairs = [(_full(rows, encoder), _in_doubles(values)) for _ in range(ROUNDS)]
    kernel, doubles = (statistics.median(side) for side in zip(*pairs, strict=True))
    copies = statistics.median(_copies(rows) for _ in range(ROUNDS))
    print(f"{SUMS} calls of gaussian_sum over {ROWS} x {COLUMNS} (median of {ROUNDS}):")
    print(f"  kernel {kernel:.3f} s, in doubles {doubles:.3f} s, ratio {kernel / doubles:.2f}")
    print(f"  of these, copies of the rows {copies:.3f} s")


def _kernel(rows: EncodedRows, encoder: Encoder, rate: float) -> float:
    vault = Vault(Ledger(), SeededNoise(np.random.default_rng(1)))
    private = PrivateData(rows, encoder, Counts(ROWS, (ROWS, 0)), vault, ())
    started = time.perf_counter()
    private.reserve(sampled_gaussian(rate, 1.0), CALLS)
    for _ in range(CALLS):
        private.poisson_sum(lambda batch: batch.values, 8.0, 1.0, rate)
    return time.perf_counter() - started


def _full(rows: EncodedRows, encoder: Encoder) -> float:
    vault = Vault(Ledger(), SystemNoise())
    private = PrivateData(rows, encoder, Counts(ROWS, (ROWS, 0)), vault, ())
    private.reserve(gaussian(1.0), SUMS)
    started = time.perf_counter()
    for _ in range(SUMS):
        private.gaussian_sum(lambda batch: batch.values, 8.0, 1.0)
    return time.perf_counter() - started


def _copies(rows: EncodedRows) -> float:
    started = time.perf_counter()
    for _ in range(SUMS):
        rows.copy()
    return time.perf_counter() - started


def _plain(values: np.ndarray, rate: float) -> float:
    rng = np.random.default_rng(1)
    started = time.perf_counter()
    for _ in range(CALLS):
        chosen = rng.choice(len(values), rng.binomial(len(values), rate), False, shuffle=False)
        batch = values[chosen]
        norms = np.linalg.norm(batch, axis=1, keepdims=True)
        total = (batch * np.minimum(1.0, 8.0 / norms)).sum(axis=0)
        total + 8.0 * rng.standard_normal(values.shape[1])
    return time.perf_counter() - started


def _on_the_grid(vectors: np.ndarray) -> float:
    noise, grid = SystemNoise(), Grid.of(8.0, 8.0, COLUMNS)
    grid.sum(vectors[:2], 8.0)  # compiled once per machine
    started = time.perf_counter()
    for _ in range(SUMS):
        grid.answer(grid.sum(vectors, 8.0), noise.normal)
    return time.perf_counter() - started


def _in_doubles(values: np.ndarray) -> float:
    started = time.perf_counter()
    for _ in range(SUMS):
        vectors = np.asarray(values, dtype=np.float64)
        squares = np.einsum("ij,ij->i", vectors, vectors)
        total = np.minimum(1.0, 8.0 / np.sqrt(np.maximum(squares, 1e-300))) @ vectors
        words = np.frombuffer(os.urandom(8 * COLUMNS), dtype=np.uint64)
        total + 8.0 * ndtri(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
