"""Shapes of the figures about one cell, as SVG text.

Every text goes through `escape`; all else that is put in is a number that was formatted here, or a
class. `Markup.format` would escape these as well, at ten times the time: a page has a thousand of
them. Colours and line styles are classes: `cell.css` sets them for light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from markupsafe import Markup, escape

from bench.leaderboard.charts.svg import ticks
from bench.leaderboard.tables.details import Array
from bench.leaderboard.tables.show import shortened

WIDTH, HEIGHT = 340, 232
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 36

MOST_POINTS = 160
"""Points per curve: more cannot be seen at this width."""


@final
@dataclass(frozen=True)
class SeriesStyle:
    """What a line, a bar or a point stands for; `style` is a class of `cell.css`."""

    style: str
    label: str


REAL = SeriesStyle("real", "real rows")
RELEASED = SeriesStyle("released", "released rows")
CONTROL = SeriesStyle("control", "control rows")


@final
@dataclass(frozen=True)
class ArrayScale:
    """Maps arrays of numbers to positions along one axis; values beyond its ends are clipped."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, values: Array | float) -> Array:
        inside = np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)
        low, high = self.low, self.high
        if self.logarithmic:
            inside, low, high = np.log(inside), math.log(low), math.log(high)
        places: Array = self.start + (self.end - self.start) * (inside - low) / (high - low)
        return places

    def at(self, value: float) -> float:
        """Return the position of one value."""
        inside, low, high = min(max(value, self.low), self.high), self.low, self.high
        if self.logarithmic:
            inside, low, high = math.log(inside), math.log(low), math.log(high)
        return self.start + (self.end - self.start) * (inside - low) / (high - low)

    def ticks(self, wanted: int = 4) -> tuple[float, ...]:
        """Return round numbers on the axis, about as many as wanted."""
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
            inside = [mark for mark in marks if self.low <= mark <= self.high]
            return tuple(inside if len(inside) <= 2 * wanted else inside[::3])
        return ticks(self.low, self.high, wanted)


def scale_over(values: Array, start: float, end: float) -> ArrayScale:
    """Return a scale over the range of some numbers, or around a single number."""
    low, high = float(np.min(values)), float(np.max(values))
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        half = 0.5 * max(abs(low), 1e-3)
        low, high = low - half, high + half
    return ArrayScale(low, high, start, end)


def across(low: float, high: float) -> ArrayScale:
    """Return the horizontal scale of a standard panel."""
    return ArrayScale(low, high, LEFT, WIDTH - RIGHT)


def upright(low: float, high: float) -> ArrayScale:
    """Return the vertical scale of a standard panel."""
    return ArrayScale(low, high, HEIGHT - BOTTOM, TOP)


def picture(
    label: str, parts: Sequence[Markup], width: float = WIDTH, height: float = HEIGHT
) -> Markup:
    """Return a complete SVG figure."""
    return Markup(
        f'<svg class="panel" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def axes(x: ArrayScale, y: ArrayScale, x_label: str, y_label: str) -> Markup:
    """Return grid, ticks and axis labels."""
    bottom, left, right = max(y.start, y.end), min(x.start, x.end), max(x.start, x.end)
    parts = []
    for mark in y.ticks():
        at = y.at(mark)
        parts.append(
            f'<line class="grid" x1="{left:.1f}" y1="{at:.1f}" x2="{right:.1f}" y2="{at:.1f}"/>'
        )
        parts.append(text(left - 5, at + 3.5, number(mark), "tick", "end"))
    parts.append(baseline(x, bottom, x_label))
    middle = (y.start + y.end) / 2
    parts.append(
        f'<text class="tick" transform="translate(9 {middle:.1f}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>'
    )
    return Markup("".join(parts))


def baseline(x: ArrayScale, bottom: float, label: str) -> Markup:
    """Return the horizontal axis."""
    left, right = min(x.start, x.end), max(x.start, x.end)
    marks = [(x.at(mark), number(mark)) for mark in x.ticks()]
    path = "".join(f"M{at:.1f} {bottom:.1f}v3" for at, _ in marks)
    parts = [f'<path class="axis" d="M{left:.1f} {bottom:.1f}H{right:.1f}{path}"/>']
    parts += [text(at, bottom + 14, shown, "tick", "middle") for at, shown in marks]
    if label:
        parts.append(text((left + right) / 2, bottom + 28, label, "tick", "middle"))
    return Markup("".join(parts))


def number(value: float) -> str:
    """Return the label of a tick."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def thinned(count: int, most: int = MOST_POINTS) -> Array:
    """Return indices of at most `most` of `count` points, including the first and the last."""
    places = np.arange(count) if count <= most else np.linspace(0, count - 1, most).round()
    return places.astype(np.int64)


def line(series: SeriesStyle | str, x: Array, y: Array) -> Markup:
    """Return a line through positions."""
    style = series if isinstance(series, str) else series.style
    return Markup(f'<polyline class="line {style}" points="{_points(x, y)}"/>')


def steps(series: SeriesStyle, x: Array, y: Array) -> Markup:
    """Return a step function."""
    path = [f"M{x[0]:.1f} {y[0]:.1f}"]
    before = f"{y[0]:.1f}"
    for a, b in zip(x[1:].tolist(), y[1:].tolist(), strict=True):
        height = f"{b:.1f}"
        path.append(f"H{a:.1f}" if height == before else f"H{a:.1f}V{height}")
        before = height
    return Markup(f'<path class="line {series.style}" d="{"".join(path)}"/>')


def outline(series: SeriesStyle, edges: Array, heights: Array, bottom: float) -> Markup:
    """Return a histogram as an area, from positions of edges and heights."""
    pairs = zip(heights.tolist(), edges[1:].tolist(), strict=True)
    path = "".join(f"V{top:.1f}H{end:.1f}" for top, end in pairs)
    start = f"M{edges[0]:.1f} {bottom:.1f}"
    return Markup(f'<path class="area {series.style}" d="{start}{path}V{bottom:.1f}"/>')


def band(series: SeriesStyle, x: Array, low: Array, high: Array) -> Markup:
    """Return the area between two lines."""
    around = f"{_points(x, low)} {_points(x[::-1], high[::-1])}"
    return Markup(f'<polygon class="band {series.style}" points="{around}"/>')


def _points(x: Array, y: Array) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def dots(series: SeriesStyle, x: Array, y: Array) -> Markup:
    """Return points in a single path: a page with thousands of elements is slow."""
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    path = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in pairs)
    return Markup(f'<path class="dots {series.style}" d="{path}"/>')


def squares(style: str, x: Array, y: Array, side: float) -> Markup:
    """Return the cells of a heat map that share a colour, in a single path.

    Counted in fields from the first of them: a table of thirty columns has a thousand.
    """
    left, top = float(x.min()), float(y.min())
    columns = np.rint((x - left) / side).astype(np.int64).tolist()
    rows = np.rint((y - top) / side).astype(np.int64).tolist()
    path = "".join(f"M{a} {b}h1v1h-1z" for a, b in zip(columns, rows, strict=True))
    place = f"translate({left:.1f} {top:.1f}) scale({side:.3f})"
    return Markup(f'<path class="{style}" transform="{place}" d="{path}"/>')


def bar(series: SeriesStyle, x: float, y: float, width: float, height: float) -> Markup:
    """Return a bar; an empty one stays visible."""
    return Markup(
        f'<rect class="bar {series.style}" x="{x:.1f}" y="{y:.1f}" '
        f'width="{max(width, 0.5):.1f}" height="{height:.1f}"/>'
    )


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> Markup:
    """Return a text at a position."""
    return Markup(
        f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def group(title: str, *parts: Markup) -> Markup:
    """Return parts with a tooltip."""
    return Markup(f"<g><title>{escape(title)}</title>{''.join(parts)}</g>")


# Rows of bars or points with whiskers -------------------------------------------------------------


_THICK = 8.0


@final
@dataclass(frozen=True)
class Mark:
    """One value of a row with its optional interval."""

    series: SeriesStyle
    value: float
    low: float | None = None
    high: float | None = None


@final
@dataclass(frozen=True)
class Rung:
    """A named row with a note at its right end."""

    name: str
    marks: tuple[Mark, ...]
    note: str = ""


def ladder(
    label: str,
    rungs: Sequence[Rung],
    x: tuple[float, float],
    axis: str,
    origin: float,
    *,
    bars: bool,
    logarithmic: bool = False,
) -> Markup:
    """Return named rows, each with a bar or a point per series, and whiskers."""
    left, right = 120.0, 40.0 if any(rung.note for rung in rungs) else float(RIGHT)
    scale = ArrayScale(*x, left, WIDTH - right, logarithmic)
    most = max(len(rung.marks) for rung in rungs)
    height = most * _THICK + 6
    bottom = 6 + height * len(rungs)
    zero = scale.at(origin)
    grid = "".join(f"M{scale.at(mark):.1f} 4V{bottom:.1f}" for mark in scale.ticks())
    parts = [
        Markup(
            f'<path class="grid" d="{grid}"/><path class="axis" d="M{zero:.1f} 4V{bottom:.1f}"/>'
        )
    ]
    for place, rung in enumerate(rungs):
        top = 6 + place * height + 1
        middle = top + most * _THICK / 2 + 3.5
        parts.append(group(rung.name, text(left - 6, middle, shortened(rung.name, 16), "", "end")))
        for turn, mark in enumerate(rung.marks):
            parts.append(_mark(rung.name, mark, scale, zero, top + (turn + 0.5) * _THICK, bars))
        if rung.note:
            parts.append(text(WIDTH - 4, middle, rung.note, "tick", "end"))
    parts.append(baseline(scale, bottom, axis))
    return picture(label, parts, WIDTH, bottom + 34)


def _mark(name: str, mark: Mark, scale: ArrayScale, zero: float, y: float, bars: bool) -> Markup:
    at, style = scale.at(mark.value), mark.series.style
    ends, whisker = "", Markup("")
    if mark.low is not None and mark.high is not None:
        ends = f" [{mark.low:.3g}, {mark.high:.3g}]"
        whisker = Markup(
            f'<path class="whisker {style}" d="M{scale.at(mark.low):.1f} {y:.1f}'
            f'H{scale.at(mark.high):.1f}"/>'
        )
    hint = f"{name}, {mark.series.label}: {mark.value:.3g}{ends}"
    if bars:
        return group(hint, bar(mark.series, min(at, zero), y - 3, abs(at - zero), 6), whisker)
    return group(
        hint, whisker, Markup(f'<path class="dots large {style}" d="M{at:.1f} {y:.1f}h0"/>')
    )
