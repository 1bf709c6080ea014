"""A table and statistics that tests of membership attacks need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.dataset import Declaration, Split
from bench.data.schema import Categorical, Column, Numeric, Role, Schema, Task
from bench.plugins.release import Release, Rows
from bench.plugins.source import DatasetSource


@final
@dataclass(frozen=True)
class RepeatedRecords(DatasetSource):
    """Common records stand in the table many times, rare ones once."""

    name: ClassVar[str] = "repeated-records"
    rows: int = 1500

    def declare(self) -> Declaration:
        columns: tuple[Column, ...] = (
            Numeric(name="visits", low=0, high=400, integer=True),
            Numeric(name="days", low=0, high=60, integer=True),
            Categorical(name="ward", categories=("a", "b", "c")),
            Categorical(name="outcome", categories=("0", "1"), role=Role.TARGET),
        )
        half = self.rows // 2
        return Declaration(
            "Repeated records",
            Schema(columns, Task.CLASSIFICATION),
            (half, self.rows - half),
            {},
            "CC0",
            "",
            "",
            simulated=True,
        )

    def load(self) -> pd.DataFrame:
        rng = np.random.default_rng(5)
        half = self.rows // 2
        return pd.DataFrame(
            {
                "visits": np.minimum(rng.exponential(60, self.rows).astype(int), 400),
                "days": np.minimum(rng.exponential(4, self.rows).astype(int), 60),
                "ward": rng.choice(["a", "b", "c"], self.rows, p=[0.9, 0.07, 0.03]),
                "outcome": np.repeat([0, 1], [half, self.rows - half]),
            }
        )


def some_rows(split: Split, size: int, seed: int = 0) -> Release:
    """As many rows of a split, drawn at random, released as they are."""
    index: npt.NDArray[np.intp] = np.random.default_rng(seed).choice(
        len(split), size, replace=False
    )
    return Release(Rows(split.rows.values[index], split.rows.labels[index]))


def within_noise(values: list[float], expected: float) -> bool:
    """Is the mean over independent splits within 2.8 standard errors (0.5% by chance)?"""
    error = float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return abs(float(np.mean(values)) - expected) < 2.8 * error
