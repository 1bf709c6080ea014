"""SVG elements that all plots share: scales, ticks, axes, markers.

Every text goes through `Markup.format`, which escapes it. Colours are classes (`c0` to `c5`) that
the page's style sheet turns into one for light and one for dark pages; markers are defined once per
page (`definitions`) and used by reference, so that a panel with hundreds of points stays small.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from bench.leaderboard.tables.show import shortened

WIDTH, HEIGHT = 320, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 308, 28, 184
"""Positions of the axes of a panel."""

MARKERS = ("circle", "square", "triangle", "diamond", "down", "cross")

SHAPES = {
    "circle": "M-3.8 0a3.8 3.8 0 1 0 7.6 0a3.8 3.8 0 1 0 -7.6 0z",
    "square": "M-3.4 -3.4h6.8v6.8h-6.8z",
    "triangle": "M0 -4.4L4.2 3.4H-4.2z",
    "diamond": "M0 -4.8L4.2 0L0 4.8L-4.2 0z",
    "down": "M0 4.4L4.2 -3.4H-4.2z",
    "cross": "M-1.5 -4.2h3v2.7h2.7v3h-2.7v2.7h-3v-2.7h-2.7v-3h2.7z",
}

_STAR = "M0 -5L1.5 -1.6L5 -1.6L2.2 .7L3.2 4.4L0 2.2L-3.2 4.4L-2.2 .7L-5 -1.6L-1.5 -1.6z"
_LARGEST = 1e100
_APART = 26.0
"""Minimum distance of tick labels; half of it on a vertical axis."""


class Spacing(enum.Enum):
    """Spacing of values along an axis."""

    LINEAR = "linear"
    LOG = "log"
    FROM_ZERO = "from zero"
    """log(1 + 10 v): like a logarithm, but defined at zero."""


@final
@dataclass(frozen=True)
class Tick:
    """A value with its label, which is empty where labels would overlap."""

    value: float
    text: str


@final
@dataclass(frozen=True)
class AxisScale:
    """Maps values to positions along one side of a panel.

    `beyond` is a separate position at the end for a special value (`full size` or infinity).
    """

    kind: Spacing
    start: float
    end: float
    first: float
    last: float
    ticks: tuple[Tick, ...]
    beyond: float | None = None
    """Position of the special value."""

    def place(self, value: float) -> float:
        """Return the position of a value; values beyond the axis are clipped."""
        if self.beyond is not None and math.isinf(value) and value > 0:
            return self.beyond
        low, high = _warp(self.kind, self.start), _warp(self.kind, self.end)
        if high == low:
            return (self.first + self.last) / 2
        share = (_warp(self.kind, min(max(value, self.start), self.end)) - low) / (high - low)
        return self.first + (self.last - self.first) * share


def finite(value: float | None) -> bool:
    """Return whether an axis can show the value."""
    return value is not None and abs(value) < _LARGEST


def linear(values: Sequence[float], first: float, last: float, wanted: int = 4) -> AxisScale:
    """Return an axis over all values with a margin and round ticks."""
    low, high = min(values), max(values)
    size = max(abs(low), abs(high), 1e-9)
    margin = 0.08 * (high - low) if high - low > 1e-9 * size else 0.05 * size
    low, high = low - margin, high + margin
    shown = tuple(Tick(value, f"{value:g}") for value in ticks(low, high, wanted))
    return AxisScale(Spacing.LINEAR, low, high, first, last, shown)


def logarithmic(values: Sequence[float], first: float, last: float) -> AxisScale:
    """Return a logarithmic axis over positive values, with a margin."""
    low, high = math.log(min(values)), math.log(max(values))
    margin = max(0.08 * (high - low), 0.15)
    start, end = math.exp(low - margin), math.exp(high + margin)
    scale = AxisScale(Spacing.LOG, start, end, first, last, ())
    places = _thinned(scale, [Tick(value, f"{value:g}") for value in log_ticks(start, end)])
    return AxisScale(Spacing.LOG, start, end, first, last, places)


def chosen(
    values: Sequence[Tick], first: float, last: float, beyond: str = "", kind: Spacing = Spacing.LOG
) -> AxisScale:
    """Return an axis with exactly these ticks; `beyond` names a special last one."""
    end = last - 40 if beyond else last
    ordered = sorted(values, key=lambda tick: tick.value)
    low, high = (ordered[0].value, ordered[-1].value) if ordered else (1.0, 1.0)
    scale = AxisScale(kind, low, high, first, end, (), last if beyond else None)
    marks = [*ordered, Tick(math.inf, beyond)] if beyond else ordered
    return AxisScale(kind, low, high, first, end, _thinned(scale, marks), scale.beyond)


def ticks(low: float, high: float, wanted: int = 4) -> tuple[float, ...]:
    """Return round numbers within [low, high], about as many as wanted."""
    step = 10.0 ** math.floor(math.log10((high - low) / wanted))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= wanted + 1)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(round(place * step, 12) for place in range(first, last + 1))


def log_ticks(low: float, high: float, most: int = 6) -> tuple[float, ...]:
    """Return 1, 2, 5 times powers of ten within [low, high]; fewer where too many fit."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = range(first, last + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [f * 10.0**power for power in powers for f in factors]
        values = [value for value in values if low <= value <= high]
        if len(values) <= most:
            return tuple(values)
    return tuple(values[:: math.ceil(len(values) / most)])


def axes(horizontal: AxisScale, vertical: AxisScale, label: str) -> Markup:
    """Return grid, ticks and the label of the horizontal axis; the head labels the vertical one."""
    grid = "".join(f"M{LEFT} {n(vertical.place(t.value))}H{RIGHT}" for t in vertical.ticks)
    places = [horizontal.place(tick.value) for tick in horizontal.ticks]
    marks = f"M{LEFT} {BOTTOM}H{RIGHT}" + "".join(f"M{n(x)} {BOTTOM}v4" for x in places)
    left = Markup('<text class="tick e" x="{}" y="{}">{}</text>')
    below = Markup('<text class="tick m" x="{}" y="{}">{}</text>')
    texts = [
        left.format(LEFT - 5, n(vertical.place(tick.value) + 3.5), tick.text)
        for tick in vertical.ticks
        if tick.text
    ]
    texts += [
        below.format(n(x), BOTTOM + 15, tick.text)
        for x, tick in zip(places, horizontal.ticks, strict=True)
        if tick.text
    ]
    texts.append(below.format(n((LEFT + RIGHT) / 2), HEIGHT - 6, label))
    return Markup('<path class="grid" d="{}"/><path class="axis" d="{}"/>{}').format(
        grid, marks, Markup("").join(texts)
    )


def head(name: str, rest: str) -> Markup:
    """Return the heading of a panel, with a tooltip for long names."""
    return Markup(
        '<text class="head" x="4" y="15">{}{} <tspan class="faint">{}</tspan></text>'
    ).format(title(name) if len(name) > 24 else "", shortened(name, 24), shortened(rest, 26))


def opened(description: str) -> Markup:
    """Return the opening tag of a panel; screen readers read the description."""
    return Markup('<svg class="panel" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        WIDTH, HEIGHT, description
    )


def title(text: str) -> Markup:
    """Return a tooltip."""
    return Markup("<title>{}</title>").format(text)


def definitions() -> Markup:
    """Return the markers of a page: `m0` to `m5` as in `MARKERS`, `star` for real rows."""
    shape = Markup('<path id="{}" d="{}"/>')
    shapes = [shape.format(f"m{place}", SHAPES[name]) for place, name in enumerate(MARKERS)]
    shapes.append(shape.format("star", _STAR))
    return Markup(
        '<svg class="defs" width="0" height="0" aria-hidden="true"><defs>{}</defs></svg>'
    ).format(Markup("").join(shapes))


def n(value: float) -> str:
    """Return a coordinate, rounded to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


def _warp(kind: Spacing, value: float) -> float:
    if kind is Spacing.LOG:
        return math.log(value)
    return math.log1p(10.0 * value) if kind is Spacing.FROM_ZERO else value


def _thinned(scale: AxisScale, marks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Remove tick labels that would overlap; the last one is always kept."""
    kept: list[Tick] = []
    apart = _APART if scale.last > scale.first else _APART / 2
    for mark in marks:
        place = scale.place(mark.value)
        if kept and abs(place - scale.place(kept[-1].value)) < apart:
            if mark is not marks[-1]:
                continue
            kept.pop()
        kept.append(mark)
    return tuple(mark if mark in kept else Tick(mark.value, "") for mark in marks)
