"""The eICU Collaborative Research Database 2.0: see `_eicu` for what is read and how.

Access is granted by PhysioNet to people who passed a course and signed an agreement. The
publication counts unit stays, not first stays of patients: the TOML file says how the declared
counts follow from it. `bench data check eicu` reports how far they are off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from bench.datasets.tables._eicu import Eicu


@final
@dataclass(frozen=True)
class EicuFull(Eicu):
    """About 138,000 patients of 208 hospitals."""

    name: ClassVar[str] = "eicu"
