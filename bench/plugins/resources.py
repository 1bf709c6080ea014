"""What a method needs of a machine, as it declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from bench.errors import InputError


@final
@dataclass(frozen=True)
class Resources:
    """CPUs also cap the threads of its libraries. Time and memory are limits, not wishes."""

    cpus: int = 1
    gpus: float = 0.0
    """Asked for where the cluster has any; without, the method runs on CPUs."""
    memory_mb: int | None = None
    """None: by the size of the dataset."""
    minutes: float | None = None
    """Of a whole cell, its scores included. None: by the size of the dataset. Cells that may take
    long are started first."""

    def __post_init__(self) -> None:
        sizes = (self.cpus, self.memory_mb or 1, self.minutes or 1)
        if min(sizes) <= 0 or self.gpus < 0:
            raise InputError(f"{self}: CPUs, memory, minutes must be positive, GPUs not negative")
