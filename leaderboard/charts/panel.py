"""What a panel shows, before it is drawn."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import final

from bench.leaderboard.charts.plots import Style
from bench.leaderboard.charts.svg import Scale


class Role(enum.Enum):
    """How much a method stands out."""

    LEADING = "leading"
    REFERENCE = "reference"
    OTHER = "other"


@final
@dataclass(frozen=True)
class Point:
    """One result in a panel."""

    x: float
    y: float
    sound: bool
    text: str
    """The tooltip."""
    low: float | None = None
    """Interval of y."""
    high: float | None = None
    left: float | None = None
    """Interval of x."""
    right: float | None = None
    eligible: bool = True
    """Whether it may be on the front, if it is sound."""
    cost: float | None = None
    """What the front takes for x, where that is not x itself."""


@final
@dataclass(frozen=True)
class Missing:
    """A result without a value; `x` is infinite where not even its place is known."""

    x: float
    text: str
    skipped: bool


@final
@dataclass(frozen=True)
class Series:
    """The results of one method in a panel."""

    entrant: str
    role: Role
    style: Style | None
    """None for a ceiling, which is drawn in the colour of the text."""
    points: tuple[Point, ...]
    missing: tuple[Missing, ...] = ()


@final
@dataclass(frozen=True)
class Level:
    """A horizontal line: real rows, a random subset, or a method without a budget."""

    entrant: str
    role: Role
    style: Style | None
    """None for a ceiling, which is drawn in the colour of the text."""
    point: Point


@final
@dataclass(frozen=True)
class Upright:
    """A vertical line: chance, or a threshold from a paper."""

    value: float
    text: str


@final
@dataclass(frozen=True)
class Member:
    """A point on the front, for the table below the panels."""

    panel: str
    entrant: str
    x: float
    y: float


@final
@dataclass(frozen=True)
class Panel:
    """What one panel shows, before it is drawn."""

    name: str
    subject: str
    """What the vertical axis shows, with its arrow."""
    label: str
    """Of the horizontal axis."""
    description: str
    """Where and against what; the front is added when it is drawn."""
    horizontal: Scale
    vertical: Scale
    series: tuple[Series, ...]
    higher: bool
    """Whether higher is better on the vertical axis."""
    levels: tuple[Level, ...] = ()
    uprights: tuple[Upright, ...] = ()
    joined: bool = True
    """Whether the points of the background are joined by a line."""
    dodged: bool = False
    with_front: bool = True
