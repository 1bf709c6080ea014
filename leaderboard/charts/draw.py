"""Turns a panel into a chart: points and lines of many methods, some of them highlighted.

Highlighted methods have a colour, a marker, dashes and whiskers; all others are faint. Hollow: not
sound. Results without a value are drawn on the axis.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from bench.leaderboard.charts.chart import (
    FAILED,
    IS_PICKED,
    PICKED,
    SHAPES,
    SKIPPED,
    Chart,
    Columns,
    Spec,
    colour,
    columns,
    finite,
    schema,
)
from bench.leaderboard.charts.panels import (
    FrontPoint,
    Look,
    Missing,
    Point,
    Prominence,
    Scene,
)
from bench.leaderboard.tables import show

FULL = "full"
"""Label of the position of releases of full size."""

WIDTH, HEIGHT = 300, 170
"""Pixels inside the axes; pages set the width."""

_DODGE, _DODGE_SPAN = 0.02, 0.12
"""Shift between points at one position as a share of the axis; smaller for many points."""
_ROOM = 0.11
"""Margin at both ends of an axis with shifted points, as a share of it."""
_LABELS = 3
"""Maximum number of faint methods that are named on the front."""
_LISTED = 12
_APART = 0.08
"""Minimum distance of these names, as a share of the height."""


@final
@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a panel."""

    title: str
    logarithmic: bool = False
    ticks: tuple[float, ...] = ()
    """Positions of the ticks; none for round numbers."""
    labels: tuple[str, ...] = ()
    domain: tuple[float, float] | None = None
    """Ends of the axis, at which other values are drawn; None for those of the data."""
    dodged: bool = False


@final
@dataclass(frozen=True)
class Panel:
    """Content of one panel before it is drawn."""

    name: str
    subject: str
    """Label of the vertical axis, with its arrow."""
    where: str
    """The setting, in words."""
    axis: Axis
    points: tuple[Point, ...]
    higher: bool
    """Whether higher is better on the vertical axis."""
    missing: tuple[Missing, ...] = ()
    levels: tuple[Point, ...] = ()
    """Horizontal lines: real rows, a random subset, methods without a budget."""
    uprights: tuple[tuple[float, str], ...] = ()
    """Vertical lines: chance, or a threshold from a paper."""
    joined: bool = True
    """Whether the points of faint methods are connected by a line."""
    with_front: bool = True

    @property
    def front(self) -> tuple[Point, ...]:
        """The sound results that no other dominates, by increasing cost."""
        able = [point for point in self.points if point.sound] if self.with_front else []
        costs = [point.x if point.cost is None else point.cost for point in able]
        gains = [point.y if self.higher else -point.y for point in able]
        return tuple(able[place] for place in pareto(costs, gains))

    @property
    def members(self) -> tuple[FrontPoint, ...]:
        """The front, for a table."""
        return tuple(FrontPoint(self.name, point.series, point.x, point.y) for point in self.front)


def _exp(value: float) -> float:
    """Return e to the value; the largest number where it is larger, as a stranger's tick may be."""
    return math.exp(value) if value < _LARGEST_LOG else sys.float_info.max


_LARGEST_LOG = math.log(sys.float_info.max)


def chosen(values: Mapping[float, str], title: str, beyond: str = "") -> Axis:
    """Return a logarithmic axis with exactly these ticks; `beyond` names a special last one."""
    ordered = sorted(values)
    low, high = (math.log(ordered[0]), math.log(ordered[-1])) if ordered else (0.0, 0.0)
    step = max(high - low, 1.0) * 0.25
    end = high + step if beyond else high
    room = _ROOM * max(end - low, 1.0)
    ticks = [*ordered, *([_exp(high + step)] if beyond else [])]
    labels = [*(values[value] for value in ordered), *([beyond] if beyond else [])]
    domain = (_exp(low - room), _exp(end + room))
    return Axis(title, True, tuple(ticks), tuple(labels), domain, dodged=True)


def draw(scene: Scene, panel: Panel) -> Chart:
    """Return the panel as a chart."""
    tables = _tables(scene, panel)
    look = scene.look
    drawn = {point.series for point in (*panel.points, *panel.levels)}
    names = tuple(name for name in look.names if name in drawn)

    def build(legend: bool) -> Spec:
        # Pages share one specification; a legend names only what is drawn.
        used = look.only(names) if legend else look
        return _spec(used, panel.axis, panel.subject, tuple(tables), panel.joined, legend)

    headings = {"series": "method", "x": panel.axis.title, "y": panel.subject}
    if any(point.low is not None for point in panel.points):
        headings |= {"low": "low", "high": "high"}
    unplaced = [item for item in panel.missing if not _placed(panel.axis, item)]
    return Chart(
        title=panel.name,
        subject=panel.subject,
        text=_spoken(panel),
        build=build,
        data=tables,
        headings={**headings, "text": "result"},
        note=_note(unplaced),
        group=panel.name,
    )


def _tables(scene: Scene, panel: Panel) -> dict[str, Columns]:
    """Return the tables that the specification draws; those without rows are left out."""
    shifts = _shifts(scene, panel)
    names = ("series", "x", "at", "y", "low", "high", "left", "right", "sound", "text")
    parts: dict[str, list[tuple[Any, ...]]] = {"points": [], "others": []}
    edge = math.inf if panel.axis.domain is None else panel.axis.domain[1]
    beyond = []
    for p in panel.points:
        faint = scene.faint(p.series)
        at = _place(panel.axis, p.x, shifts.get(p.series, 0.0))
        whiskers = (None,) * 4 if faint else (p.low, p.high, p.left, p.right)
        x = p.x if finite(p.x) else panel.axis.labels[-1]
        values = (p.series, x, at if panel.axis.ticks else None, p.y, *whiskers, p.sound, p.text)
        parts["others" if faint else "points"].append(values)
        if p.x > edge and math.isfinite(p.x):
            beyond.append((p.series, p.x, p.y, f"at {p.x:.3g} →"))
    tables = {name: columns(names, records) for name, records in parts.items() if records}
    front = panel.front
    if front:
        xs = [_place(panel.axis, p.x, shifts.get(p.series, 0.0)) for p in front]
        ys = [p.y for p in front]
        tables["front"] = columns(("at", "y"), [*zip(xs, ys, strict=True), (_end(panel), ys[-1])])
    sides = iter(range(len(panel.levels)))
    lines = []
    for level in panel.levels:
        named = scene.roles[level.series] is Prominence.REFERENCE
        side = next(sides) % 2 if named else None
        lines.append((level.series, level.y, scene.faint(level.series), side, level.text))
    missing = [
        (m.series, m.x, _place(panel.axis, m.x, shifts.get(m.series, 0.0)), m.skipped, m.text)
        for m in panel.missing
        if _placed(panel.axis, m)
    ]
    for name, heads, records in (
        ("levels", ("series", "y", "faint", "side", "text"), lines),
        ("missing", ("series", "x", "at", "skipped", "text"), missing),
        ("uprights", ("at", "text"), panel.uprights),
        ("beyond", ("series", "x", "y", "text"), beyond),
        ("names", ("series", "at", "y", "text"), _named(scene, panel, front)),
    ):
        if records:
            tables[name] = columns(heads, records)
    return tables


def _place(axis: Axis, x: float, shift: float) -> float:
    """Return the position of a value, shifted; an infinite one is the last of chosen ticks."""
    if axis.ticks and math.isinf(x):
        x = axis.ticks[-1]
    if not shift or axis.domain is None:
        return x
    return x * math.pow(axis.domain[1] / axis.domain[0], shift)


def _placed(axis: Axis, item: Missing) -> bool:
    """Return whether a result without a value has a position: a full size has one."""
    return finite(item.x) or axis.labels[-1:] == (FULL,)


def _end(panel: Panel) -> float:
    if panel.axis.domain is not None:
        return panel.axis.domain[1]
    return max(max(p.x, p.right or p.x) for p in panel.points)


def _shifts(scene: Scene, panel: Panel) -> dict[str, float]:
    names = sorted({p.series for p in panel.points if not scene.faint(p.series)})
    if not panel.axis.dodged or len(names) < 2:
        return {}
    step = min(_DODGE, _DODGE_SPAN / (len(names) - 1))
    return {name: (place - (len(names) - 1) / 2) * step for place, name in enumerate(names)}


def _named(
    scene: Scene, panel: Panel, front: Sequence[Point]
) -> list[tuple[str, float, float, str]]:
    """Return the names of faint methods on the front, a few that do not overlap."""
    every = [p.y for p in (*panel.points, *panel.levels)]
    apart = _APART * (max(every) - min(every)) if every else 0.0
    found: list[tuple[str, float, float, str]] = []
    for p in front:
        known = any(p.series == name or abs(p.y - y) < apart for name, _, y, _ in found)
        if scene.faint(p.series) and not known and len(found) < _LABELS:
            found.append(
                (p.series, _place(panel.axis, p.x, 0.0), p.y, show.shortened(p.series, 18))
            )
    return found


def _spoken(panel: Panel) -> str:
    """Return the content of the panel in words."""
    label = panel.axis.title
    words = [f"{panel.subject} against {label} on {panel.name}, {panel.where}."]
    if panel.with_front and panel.front:
        best = [f"{p.series} {p.y:.3g} at {p.x:.3g}" for p in panel.front[:_LISTED]]
        words.append(f"Pareto front of sound methods, by increasing {label}: {', '.join(best)}.")
    elif panel.with_front:
        words.append("No sound method has a value.")
    lines = [f"{level.series} {level.y:.3g}" for level in panel.levels[:_LISTED]]
    if lines:
        words.append(f"Lines: {', '.join(lines)}.")
    if panel.missing:
        words.append(f"{len(panel.missing)} without a value.")
    return " ".join(words)


def _note(unplaced: Sequence[Missing]) -> str:
    if not unplaced:
        return ""
    by_reason: dict[str, dict[str, None]] = {}
    for item in unplaced:
        by_reason.setdefault(item.reason, {})[item.series] = None
    listed = [
        show.some(list(names)) + (f" ({reason})" if reason else "")
        for reason, names in list(by_reason.items())[:_LABELS]
    ]
    more = len(by_reason) - len(listed)
    others = f"; {show.plural(more, 'other reason')}" if more else ""
    return f"✕ Not drawn: {'; '.join(listed)}{others}."


# The specification --------------------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def _spec(
    look: Look, axis: Axis, subject: str, tables: tuple[str, ...], joined: bool, legend: bool
) -> Spec:
    import altair as alt

    picked = alt.when(IS_PICKED)
    field = "at" if axis.ticks else "x"
    options: dict[str, Any] = {"zero": False}
    if axis.logarithmic:
        options = {"type": "log"}
    if axis.domain is not None:
        options |= {"domain": list(axis.domain), "clamp": True, "nice": False}
    ticks: dict[str, Any] = {"grid": False, "tickCount": 5}
    if axis.ticks:
        ticks = {"grid": False, "values": list(axis.ticks)}
        if axis.labels != tuple(f"{value:g}" for value in axis.ticks):
            ticks["labelExpr"] = _labels(axis)
    elif axis.logarithmic:
        ticks["format"] = "~g"
    x = alt.X(f"{field}:Q", title=axis.title, scale=alt.Scale(**options), axis=alt.Axis(**ticks))
    y = alt.Y(
        "y:Q",
        title=subject,
        scale=alt.Scale(zero=False),
        axis=alt.Axis(tickCount=5, domain=False, ticks=False),
    )
    names = list(look.names)
    hues = alt.Scale(domain=names, range=[colour(name) for name in look.colours])
    key: Any = alt.Legend(symbolOpacity=1, symbolStrokeWidth=1.6) if legend else None
    stroke = alt.Stroke("series:N", scale=hues, legend=key)

    def of(name: str) -> alt.Chart:
        return alt.Chart(alt.NamedData(name=name))

    layers: list[alt.Chart] = []
    if "uprights" in tables:
        lines = of("uprights").encode(x=alt.X("at:Q", scale=alt.Scale(**options)))
        layers.append(lines.mark_rule(color=colour("faint"), strokeDash=[2, 3]))
        layers.append(
            lines.mark_text(align="left", dx=3, color=colour("faint")).encode(
                y=alt.value(HEIGHT - 6), text="text:N"
            )
        )
    if "front" in tables:
        layers.append(
            of("front")
            .mark_line(interpolate="step-after", strokeWidth=5, opacity=0.2, color=colour("text"))
            .encode(x=_on(x, "at"), y=y)
        )
    if "others" in tables:
        layers += _faint(of("others"), x, y, joined)
    if "levels" in tables:
        layers += _levels(of("levels"), y, stroke, hues)
    if "points" in tables:
        base = of("points")
        shade = picked.then(alt.value(1)).otherwise(alt.value(0.15))
        dashes = alt.StrokeDash(
            "series:N",
            scale=alt.Scale(domain=names, range=[list(each) for each in look.dashes]),
            legend=None,
        )
        shapes = alt.Shape(
            "series:N",
            scale=alt.Scale(domain=names, range=[SHAPES[name] for name in look.shapes]),
            legend=key,
        )
        layers.append(
            base.mark_line(strokeWidth=1.6).encode(
                x=x, y=y, stroke=stroke, strokeDash=dashes, opacity=shade
            )
        )
        thin = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.1)
        half = picked.then(alt.value(0.6)).otherwise(alt.value(0.1))
        layers.append(thin.encode(x=x, y=_on(y, "low"), y2="high", stroke=stroke, opacity=half))
        if not axis.dodged:
            wide = base.transform_filter("isValid(datum.left)").mark_rule(strokeWidth=1.1)
            layers.append(
                wide.encode(x=_on(x, "left"), x2="right", y=y, stroke=stroke, opacity=half)
            )
        sound = alt.when("datum.sound").then(alt.Fill("series:N", scale=hues, legend=None))
        layers.append(
            base.mark_point(size=55, strokeWidth=1.4, opacity=1).encode(
                x=x,
                y=y,
                stroke=stroke,
                fill=sound.otherwise(alt.value(colour("page"))),
                shape=shapes,
                opacity=shade,
                tooltip="text:N",
            )
        )
    if "beyond" in tables:
        layers.append(
            of("beyond")
            .mark_text(align="right", dy=14, color=colour("faint"))
            .encode(x=alt.value("width"), y=y, text="text:N")
        )
    if "names" in tables:
        layers.append(
            of("names")
            .mark_text(align="right", dx=-4, dy=-7, fontWeight="bold")
            .encode(x=_on(x, "at"), y=y, text="text:N")
        )
    if "missing" in tables:
        for test, shape in (("!datum.skipped", FAILED), ("datum.skipped", SKIPPED)):
            layers.append(
                of("missing")
                .transform_filter(test)
                .mark_point(shape=shape, size=40, strokeWidth=1.6, opacity=1, color=colour("faint"))
                .encode(x=_on(x, "at"), y=alt.value(HEIGHT - 5), tooltip="text:N")
            )
    return finished(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT))


def finished(whole: Any) -> Spec:
    """Return a specification of Altair without data and look, with the parameter of legends."""
    spec: Spec = whole.to_dict()
    spec.pop("config", None)
    spec["$schema"] = schema()
    spec["params"] = [*spec.get("params", ()), {"name": PICKED, "value": []}]
    return spec


def _on(channel: Any, field: str) -> Any:
    """Return a channel that shows another column on the same axis."""
    copy = channel.copy()
    copy.shorthand = f"{field}:Q"
    return copy


def _labels(axis: Axis) -> str:
    """Return the labels of chosen ticks: numbers as they are, the last one in its own words."""
    last = axis.labels[-1]
    if last not in (FULL, show.INFINITE):
        return "format(datum.value, '~g')"
    limit = math.sqrt(axis.ticks[-1] * axis.ticks[-2]) if len(axis.ticks) > 1 else 0.0
    return f"datum.value > {limit!r} ? '{last}' : format(datum.value, '~g')"


def _faint(base: Any, x: Any, y: Any, joined: bool) -> list[Any]:
    import altair as alt

    chosen_one = f"length({PICKED}) > 0 && indexof({PICKED}, datum.series) >= 0"
    hue = alt.when(chosen_one).then(alt.value(colour("text"))).otherwise(alt.value(colour("faint")))
    shade = (
        alt.when(chosen_one)
        .then(alt.value(1))
        .when(f"length({PICKED}) == 0")
        .then(alt.value(0.38))
        .otherwise(alt.value(0.12))
    )
    layers = []
    if joined:
        layers.append(
            base.mark_line(strokeWidth=1).encode(
                x=x, y=y, detail="series:N", stroke=hue, opacity=shade
            )
        )
    fill = alt.when("datum.sound").then(alt.value(colour("faint")))
    layers.append(
        base.mark_point(size=16, strokeWidth=1).encode(
            x=x,
            y=y,
            stroke=hue,
            fill=fill.otherwise(alt.value(colour("page"))),
            opacity=shade,
            tooltip="text:N",
        )
    )
    return layers


def _levels(base: Any, y: Any, stroke: Any, hues: Any) -> list[Any]:
    """Return lines over the whole width; references are named, in turn left and right."""
    import altair as alt

    plain = base.transform_filter("datum.faint")
    own = base.transform_filter("!datum.faint")
    shade = alt.when(IS_PICKED).then(alt.value(0.9)).otherwise(alt.value(0.15))
    ink = alt.Color("series:N", scale=hues, legend=None)
    layers = [
        plain.mark_rule(strokeDash=[1, 3], opacity=0.4, color=colour("faint")).encode(
            y=y, tooltip="text:N"
        ),
        own.mark_rule(strokeDash=[5, 4], strokeWidth=1.2).encode(
            y=y, stroke=stroke, opacity=shade, tooltip="text:N"
        ),
    ]
    for side, align, at in ((0, "right", "width"), (1, "left", 2)):
        layers.append(
            own.transform_filter(f"datum.side === {side}")
            .mark_text(align=align, dy=-5, fontSize=11, limit=110)
            .encode(x=alt.value(at), y=y, text="series:N", color=ink, opacity=shade)
        )
    return layers


# The Pareto front ---------------------------------------------------------------------------------


def pareto(costs: Sequence[float], gains: Sequence[float]) -> tuple[int, ...]:
    """Return the indices of the points that no other dominates, by increasing cost.

    A point dominates another if it costs no more, gains no less, and is better in one of the two.
    Equal points do not dominate each other: all of them are on the front. What is not a number is
    never on it.
    """
    known = [
        place
        for place, (cost, gain) in enumerate(zip(costs, gains, strict=True))
        if not (math.isnan(cost) or math.isnan(gain))
    ]
    front: list[int] = []
    best = -math.inf
    for place in sorted(known, key=lambda place: (costs[place], -gains[place])):
        last = front[-1] if front else None
        equal = last is not None and (costs[place], gains[place]) == (costs[last], gains[last])
        if equal or gains[place] > best:
            front.append(place)
            best = gains[place]
    return tuple(front)
