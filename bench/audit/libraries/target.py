"""What an audit of a library is."""

from __future__ import annotations

import enum
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd

from bench.audit.libraries.tables import patients, with_row
from bench.plugins.method import Environment

Call = Callable[[Any], Any]

STAGES = ("bound", "replicate")
WORLDS = ("in", "out")


class CanaryKind(enum.StrEnum):
    """What only the canary has."""

    CATEGORY = "category"
    """A category that no other row has."""
    EXTREME = "extreme"
    """A number far outside the range of all other rows."""
    MISSING = "missing value"
    """The only missing value of a column."""
    ROW = "row"
    """Nothing: an ordinary row, whose presence changes noisy answers only."""


@final
@dataclass(frozen=True)
class LibraryTarget:
    """One call of a library, with the event that an attacker looks for."""

    name: str
    library: str
    version: str
    package: str
    """Name of the distribution whose version is recorded."""
    environment: Environment | None
    """None for the main environment."""
    call: Call
    """The library's own call, on a table; what is released."""
    score: Callable[[Any, pd.DataFrame], float]
    """What the attacker computes from the release, knowing the table without the canary. The event
    is a score of at least 1."""
    canary: CanaryKind
    planted: Mapping[str, object]
    """Values of the canary; other columns have ordinary ones."""
    event: str
    """The event in words: the release of a table without the canary never, or rarely, has it."""
    rows: int
    columns: tuple[str, ...]
    epsilon: float
    """What the call claims to spend."""
    delta: float
    trials: int
    """Trials of each world and stage."""
    source: str
    """The text of the library's documentation that the call follows."""
    differs: str
    """What differs from that text, and why."""
    cause: str
    """Why the event happens, with file and line; empty where nothing was found."""
    documented: str
    """What the library itself says about it."""
    instead: str
    """What a user can do instead."""
    contact: str = ""
    """Where the maintainers ask for reports; empty where there is nothing to report."""

    @property
    def code(self) -> str:
        """The call as it is run."""
        return textwrap.dedent(inspect.getsource(self.call)).strip()

    def trial(self, rng: np.random.Generator, inside: bool) -> float:
        """Run the call once on a fresh table and return the score of what it releases."""
        known = patients(rng, self.rows)[list(self.columns)]
        table = with_row(known, **self.planted) if inside else known
        return float(self.score(self.call(table), known))
