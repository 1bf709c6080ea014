"""GATS behind the kernel, on tables with known rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import PrivateData
from bench.data.dataset import Counts, Dataset
from bench.data.encoder import EncodedRows, Encoder
from bench.methods.gats.gats import Gats
from bench.plugins.method import Spec
from bench.plugins.release import Release, Rows
from bench.plugins.returned import check_release
from bench.plugins.source import DatasetSource, build_dataset
from bench.privacy.kernel import Vault
from bench.privacy.ledger import Ledger
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from tests.support.tables import ToyTable

AGE, MARKER, SMOKER, STAGE = 0, 1, 2, slice(3, 6)
"""Positions of the toy table's columns in the encoded rows."""


def private_rows(
    ages: Sequence[float],
    markers: Sequence[float],
    smokers: Sequence[int],
    stages: Sequence[int],
    labels: Sequence[int],
) -> PrivateData:
    """Rows of the toy table's schema, given as encoded values."""
    values = np.zeros((len(labels), 6), dtype=np.float32)
    values[:, AGE], values[:, MARKER], values[:, SMOKER] = ages, markers, smokers
    values[np.arange(len(labels)), 3 + np.asarray(stages)] = 1.0
    return behind_kernel(values, np.asarray(labels))


def behind_kernel(
    values: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    source: DatasetSource | None = None,
) -> PrivateData:
    encoder = Encoder((source or ToyTable()).declare().schema)
    by_class = np.bincount(labels, minlength=len(encoder.schema.classes))
    rows = EncodedRows(values, labels, np.zeros_like(labels), np.zeros(len(labels)))
    counts = Counts(len(labels), tuple(int(count) for count in by_class))
    vault = Vault(Ledger(), SeededNoise(np.random.default_rng(0)))
    return PrivateData(rows, encoder, counts, vault, ())


def make(private: PrivateData, ipc: int | None = 200, seed: int = 0, **parameters: Any) -> Release:
    release = Gats(**parameters).synthesize(
        private, Spec(private.task, ipc, None), np.random.default_rng(seed)
    )
    check_release(release, private.encoder)
    return release


def made(private: PrivateData, ipc: int | None = 200, seed: int = 0, **parameters: Any) -> Rows:
    rows = make(private, ipc, seed, **parameters).rows
    assert rows is not None
    return rows


@functools.cache
def built(source: DatasetSource) -> Dataset:
    return build_dataset(source)


def opened(source: DatasetSource) -> tuple[PrivateData, Ledger]:
    return open_private(built(source), None, SeededNoise(np.random.default_rng(0)))
