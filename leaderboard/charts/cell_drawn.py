"""What a figure about one cell consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from bench.leaderboard.charts.cell_svg import Series


@final
@dataclass(frozen=True)
class Panel:
    """One drawing, with its heading."""

    title: str
    drawing: Markup


@final
@dataclass(frozen=True)
class Drawn:
    """A figure: panels that belong together, and how to read them."""

    text: str
    panels: tuple[Panel, ...]
    legend: tuple[Series, ...] = ()
    small: bool = False
    """Many little panels beside each other."""
    lines: tuple[str, ...] = ()
    """Said below the panels."""
