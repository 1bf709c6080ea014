"""Specifications of the charts of one cell: curves, histograms, bars, heat maps, dots.

Series are real, released and control rows. Their colours and dashes are the same in all charts.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, final

from bench.leaderboard.charts.chart import IS_PICKED, Spec, colour
from bench.leaderboard.charts.draw import finished

WIDTH, HEIGHT = 340, 200
SMALL_WIDTH, SMALL_HEIGHT = 190, 92
SQUARE = 260
"""Side of a heat map."""
ROW = 11
"""Height of a bar."""


@final
@dataclass(frozen=True)
class Series:
    """What a line, a bar or a point stands for."""

    label: str
    hue: str
    dashes: tuple[int, ...] = (1, 0)

    def named(self, label: str) -> Series:
        """Return the same look under another name."""
        return Series(label, self.hue, self.dashes)


REAL = Series("real rows", "real")
RELEASED = Series("released rows", "released", (6, 3))
CONTROL = Series("control rows", "control", (2, 3))
OTHER = Series("", "other", (2, 3))

Ends = tuple[float, float]


def _channels(series: tuple[Series, ...], legend: bool) -> tuple[Any, Any, Any]:
    """Return colour, dashes and opacity of the series."""
    import altair as alt

    names = [each.label for each in series]
    key = alt.Legend(symbolOpacity=1, symbolType="stroke") if legend else None
    hue = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=[colour(each.hue) for each in series]),
        legend=key,
    )
    dashes = alt.StrokeDash(
        "series:N",
        scale=alt.Scale(domain=names, range=[list(each.dashes) for each in series]),
        legend=key,
    )
    return hue, dashes, alt.when(IS_PICKED).then(alt.value(1)).otherwise(alt.value(0.12))


def _of(name: str) -> Any:
    import altair as alt

    return alt.Chart(alt.NamedData(name=name))


@functools.lru_cache(maxsize=64)
def curves(
    series: tuple[Series, ...],
    x_title: str,
    y_title: str,
    x_ends: Ends | None,
    shape: str,
    diagonal: bool,
    legend: bool,
) -> Spec:
    """Return lines over two axes; `shape` is that of Vega's lines, such as `step-after`.

    Tables: `curves` (series, x, y and, for a band, low and high); `diagonal` (x, y).
    """
    import altair as alt

    ends = {"domain": list(x_ends), "nice": False} if x_ends else {"nice": False, "zero": False}
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(**ends), axis=alt.Axis(tickCount=5, grid=False))
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    hue, dashes, shade = _channels(series, legend)
    base = _of("curves")
    layers = []
    if diagonal:
        thin = _of("diagonal").mark_line(color=colour("faint"), strokeWidth=0.8)
        layers.append(thin.encode(x=x, y=y))
    layers.append(
        base.transform_filter("isValid(datum.low)")
        .mark_area(opacity=0.2)
        .encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=hue)
    )
    layers.append(
        base.mark_line(interpolate=shape, strokeWidth=1.8).encode(
            x=x, y=y, color=hue, strokeDash=dashes, opacity=shade
        )
    )
    layers.append(
        base.mark_point(size=30, opacity=0, filled=True).encode(
            x=x,
            y=y,
            color=hue,
            tooltip=[
                alt.Tooltip("series:N", title="curve"),
                alt.Tooltip("x:Q", title=x_title, format=".3~g"),
                alt.Tooltip("y:Q", title=y_title, format=".3~g"),
            ],
        )
    )
    return finished(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT))


@functools.lru_cache(maxsize=64)
def histogram(
    series: tuple[Series, ...], x_title: str, y_title: str, small: bool, legend: bool
) -> Spec:
    """Return histograms as areas. Table: `bins` (series, low, high, share)."""
    import altair as alt

    x = alt.X(
        "low:Q",
        title=x_title or None,
        scale=alt.Scale(nice=False, zero=False),
        # Without a format of ours: `~g` has one digit for round ticks, and 50 becomes 5e+1.
        axis=alt.Axis(tickCount=3 if small else 5, grid=False),
    )
    labels = alt.Axis(labels=False, ticks=False, grid=False) if small else alt.Axis(tickCount=5)
    y = alt.Y("share:Q", title=y_title or None, axis=labels, stack=None)
    hue, dashes, shade = _channels(series, legend)
    base = _of("bins")
    tips = [
        alt.Tooltip("series:N", title="rows"),
        alt.Tooltip("low:Q", title="from", format=".4~g"),
        alt.Tooltip("high:Q", title="to", format=".4~g"),
        alt.Tooltip("share:Q", title="share", format=".2%"),
    ]
    fill = base.mark_bar(opacity=0.16, binSpacing=0).encode(
        x=x, x2="high:Q", y=y, y2=alt.datum(0), color=hue, tooltip=tips
    )
    line = base.mark_line(interpolate="step-after", strokeWidth=1.5).encode(
        x=x, y=y, color=hue, strokeDash=dashes, opacity=shade
    )
    width, height = (SMALL_WIDTH, SMALL_HEIGHT) if small else (WIDTH, HEIGHT)
    return finished(alt.layer(fill, line).properties(width=width, height=height))


@functools.lru_cache(maxsize=64)
def bars(
    series: tuple[Series, ...],
    names: int,
    x_title: str,
    ends: Ends,
    form: str,
    small: bool,
    legend: bool,
) -> Spec:
    """Return named rows with a bar, or a point, per series, and whiskers.

    `form` is `bars`, `points`, or `ratios` for points on a logarithmic axis. Table: `rows` (series,
    name, order, value, low, high, note, text).
    """
    import altair as alt

    scale: dict[str, Any] = {"domain": list(ends), "nice": False, "clamp": True}
    if form == "ratios":
        scale["type"] = "log"
    x = alt.X(
        "value:Q",
        title=x_title or None,
        scale=alt.Scale(**scale),
        axis=alt.Axis(tickCount=3 if small else 5, format="~%" if small else "~g"),
    )
    y = alt.Y(
        "name:N",
        title=None,
        sort=alt.EncodingSortField("order", op="min"),
        axis=alt.Axis(grid=False, ticks=False, labelLimit=62 if small else 110),
    )
    shift = alt.YOffset("series:N", scale=alt.Scale(domain=[each.label for each in series]))
    hue, _, shade = _channels(series, legend)
    base = _of("rows")
    mark = base.mark_bar() if form == "bars" else base.mark_point(filled=True, size=52, opacity=1)
    layers = [mark.encode(x=x, y=y, yOffset=shift, color=hue, opacity=shade, tooltip="text:N")]
    whisker = base.transform_filter("isValid(datum.low)").mark_rule(
        strokeWidth=1.2, **({"color": colour("text"), "opacity": 0.75} if form == "bars" else {})
    )
    drawn = whisker.encode(x=alt.X("low:Q"), x2="high:Q", y=y, yOffset=shift)
    layers.append(drawn if form == "bars" else drawn.encode(color=hue))
    if form == "ratios":
        one = alt.Chart(alt.NamedData(name="one")).mark_rule(color=colour("faint"))
        layers.insert(0, one.encode(x=alt.X("value:Q")))
    if not small:
        notes = base.transform_filter("isValid(datum.note)").mark_text(
            align="right", dx=-2, color=colour("faint")
        )
        layers.append(notes.encode(x=alt.value("width"), y=y, text="note:N"))
    width = SMALL_WIDTH if small else WIDTH
    height = SMALL_HEIGHT if small else names * (ROW * len(series) + 6)
    return finished(alt.layer(*layers).properties(width=width, height=height))


@functools.lru_cache(maxsize=64)
def heat(
    names: tuple[str, ...], x_title: str, y_title: str, both: bool, counted: bool, legend: bool
) -> Spec:
    """Return a square of coloured fields; blue for negative values if `both`.

    Table: `fields` (x, y, value, count, text). Stronger colours are larger, up to 1 and -1.
    """
    import altair as alt

    del legend  # the colours are explained beside it
    every = max(1, len(names) * 10 // SQUARE)
    axis: dict[str, Any] = {"ticks": False, "domain": False, "grid": False, "labelLimit": 84}
    shown = list(names[::every])
    x = alt.X(
        "x:N",
        title=x_title or None,
        scale=alt.Scale(domain=list(names)),
        axis=alt.Axis(values=shown if not both else [], labelAngle=0, **axis),
    )
    y = alt.Y(
        "y:N",
        title=y_title or None,
        scale=alt.Scale(domain=list(names)),
        axis=alt.Axis(values=shown, **axis),
    )
    # A colour cannot be computed from a style-sheet variable: fields are faint or strong instead.
    sign = alt.when("datum.value < 0").then(alt.value(colour("real")))
    strength = alt.Opacity(
        "size:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1], clamp=True), legend=None
    )
    fields = _of("fields").transform_calculate(size="abs(datum.value)")
    layers = [
        fields.mark_rect(stroke=None).encode(
            x=x,
            y=y,
            fill=sign.otherwise(alt.value(colour("released"))),
            opacity=strength,
            tooltip="text:N",
        )
    ]
    if counted:
        words = _of("fields").transform_filter("datum.count > 0").mark_text(fontSize=9)
        layers.append(words.encode(x=x, y=y, text="count:Q"))
    return finished(alt.layer(*layers).properties(width=SQUARE, height=SQUARE))


@functools.lru_cache(maxsize=8)
def dots(series: tuple[Series, ...], legend: bool) -> Spec:
    """Return points without axes. Table: `dots` (series, x, y)."""
    import altair as alt

    hue, _, _ = _channels(series, legend)
    shape = alt.Shape(
        "series:N",
        scale=alt.Scale(domain=[each.label for each in series], range=["circle", "square"]),
        legend=None,
    )
    shade = alt.when(IS_PICKED).then(alt.value(0.65)).otherwise(alt.value(0.08))
    chart = (
        _of("dots")
        .mark_point(filled=True, size=18)
        .encode(
            x=alt.X("x:Q", axis=None, scale=alt.Scale(zero=False)),
            y=alt.Y("y:Q", axis=None, scale=alt.Scale(zero=False)),
            color=hue,
            shape=shape,
            opacity=shade,
            tooltip="series:N",
        )
    )
    return finished(chart.properties(width=WIDTH, height=HEIGHT))
