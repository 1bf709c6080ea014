"""How long a cell may take, and how much memory and disk it may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from bench.data.dataset import Dataset
from bench.plugins.method import Resources

_MINUTES = 30.0
_MEMORY_MB = 4096
_DISK_MB = 4096
_TABLE = 1e7
"""Encoded numbers in a table that doubles the time: some 100,000 rows of 100 columns."""
_COPIES = 40
"""Copies of the encoded rows that methods and metrics may hold at once."""


@final
@dataclass(frozen=True)
class Limits:
    """Of one cell; a worker that goes beyond is killed."""

    seconds: float
    memory_mb: float
    disk_mb: float = _DISK_MB

    @classmethod
    def of(cls, resources: Resources, dataset: Dataset, asked: Asked) -> Limits:
        """What is asked for, or what the method declares, or by the dataset's size."""
        numbers = len(dataset.train.rows) * dataset.encoder.width
        minutes = resources.minutes or _MINUTES * (1.0 + numbers / _TABLE)
        memory = resources.memory_mb or _MEMORY_MB + _COPIES * numbers * 4 / 2**20
        return cls(
            60.0 * (asked.minutes or minutes), asked.memory_mb or memory, asked.disk_mb or _DISK_MB
        )


@final
@dataclass(frozen=True)
class Asked:
    """Limits from the command line, for every cell; None leaves the default."""

    minutes: float | None = None
    memory_mb: float | None = None
    disk_mb: float | None = None


def expected_seconds(resources: Resources, dataset: Dataset, before: float | None) -> float:
    """What a cell may take, to start long ones first: as before, or by what is declared."""
    if before is not None:
        return before
    numbers = len(dataset.train.rows) * dataset.encoder.width
    return 60.0 * (resources.minutes or 1.0) * (0.1 + numbers / _TABLE)
