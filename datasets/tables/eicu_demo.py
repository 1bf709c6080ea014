"""The open demo of the eICU Collaborative Research Database: see `_eicu` for what is read and how.

2,520 unit stays of 1,841 patients, of whom 1,818 have a recorded outcome at the end of their first
stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from bench.datasets.tables._eicu import Eicu


@final
@dataclass(frozen=True)
class EicuDemo(Eicu):
    """1,818 patients, 9.1% of whom died in hospital."""

    name: ClassVar[str] = "eicu-demo"
