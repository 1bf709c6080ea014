"""Audited epsilon against claimed and proven epsilon.

An audited epsilon is a lower bound. Above the diagonal it exceeds the epsilon it is compared with.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from bench.leaderboard.charts.chart import IS_PICKED, SHAPES, Chart, Spec, colour, columns, finite
from bench.leaderboard.charts.draw import WIDTH, finished
from bench.leaderboard.charts.panels import Look, Scene
from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables import show
from bench.leaderboard.tables.measures import Span

_MOST = 500
"""Maximum number of markers in a panel."""
_ROUND = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
_LISTED = 8


@final
@dataclass(frozen=True)
class AuditPoint:
    """An audited epsilon and the epsilon that it is compared with.

    An audit that applies to several IPCs or datasets is one point.
    """

    row: Row
    count: int
    """Number of rows with the same values."""
    x: float
    """Claimed or proven epsilon; infinite if there is no bound."""
    audited: Span
    detectable: float | None
    """The largest epsilon that the trials could have shown."""

    @property
    def exceeds(self) -> bool:
        """True above the diagonal."""
        return self.audited.high > self.x


@final
@dataclass(frozen=True)
class AuditCharts:
    """The charts and a summary in words."""

    charts: tuple[Chart, ...]
    words: str


def audit_charts(scene: Scene, rows: Sequence[Row]) -> AuditCharts:
    """Return claimed and proven against audited epsilon, over all datasets and IPCs."""
    audited = [row for row in rows if row.epsilons.audited is not None]
    if not audited:
        return AuditCharts(
            (),
            f"None of the {len(rows):,} rows was audited. An audit attacks a method and measures a "
            "lower bound on its epsilon, which can refute a claim or a proof."
            if rows
            else "The runs hold no cells yet.",
        )
    charts = []
    words = [f"{len(audited):,} of {len(rows):,} rows were audited."]
    for name in ("claimed", "proven"):
        points = _points(audited, name)
        if points:
            charts.append(_chart(scene, name, points[:_MOST]))
            beyond = sum(point.count for point in points if point.exceeds)
            every = sum(point.count for point in points)
            words.append(f"{beyond:,} of {every:,} exceed the {name} epsilon.")
            if len(points) > _MOST:
                words.append(f"Only the {_MOST} largest differences are shown.")
        else:
            words.append(f"None of them has a {name} epsilon.")
    return AuditCharts(tuple(charts), " ".join(words))


def _points(rows: Sequence[Row], name: str) -> tuple[AuditPoint, ...]:
    """Return the points, sorted by how much the audited epsilon exceeds the other."""
    points: dict[tuple[str, float, float, float, float | None, str], AuditPoint] = {}
    for row in rows:
        compared = row.epsilons.claimed if name == "claimed" else row.epsilons.proven
        audited = row.epsilons.audited
        if compared is None or audited is None or not finite(audited.high):
            continue
        most = row.epsilons.detectable
        detectable = most if finite(most) else None
        x = max(compared.high, 0.0)
        identity = (row.label, x, audited.low, audited.high, detectable, row.verdict)
        before = points.get(identity)
        count = 1 if before is None else before.count + 1
        points[identity] = AuditPoint(before.row if before else row, count, x, audited, detectable)
    return tuple(sorted(points.values(), key=lambda point: point.x - point.audited.high))


def _chart(scene: Scene, name: str, points: Sequence[AuditPoint]) -> Chart:
    numbers = [point.x for point in points if finite(point.x)]
    numbers += [point.audited.high for point in points]
    numbers += [point.detectable for point in points if point.detectable is not None]
    top = next((value for value in _ROUND if value >= max(numbers)), max(numbers))
    ticks = tuple(value for value in _ROUND if value <= top)
    endless = any(not finite(point.x) for point in points)
    end = 3.0 * top + 0.3 if endless else top  # the place of infinity
    records = []
    for point in points:
        row, high = point.row, max(point.audited.high, 0.0)
        records.append(
            (
                row.label,
                point.x if finite(point.x) else show.INFINITE,
                point.x if finite(point.x) else end,
                high,
                max(0.0, point.audited.low) if point.audited.low < high else None,
                point.detectable,
                is_sound(row.verdict),
                _text(point, name),
            )
        )
    heads = ("series", "x", "at", "y", "low", "most", "sound", "text")
    beyond = [point for point in points if point.exceeds]
    refuted, every = sum(point.count for point in beyond), sum(point.count for point in points)
    listed = "; ".join(
        f"{point.row.label} on {point.row.dataset}: audited {show.epsilon(point.audited.high)}, "
        f"{name} {show.epsilon(point.x)}"
        for point in beyond[:_LISTED]
    )
    return Chart(
        title="audited ε",
        subject=f"against {name} ε",
        text=f"Audited against {name} epsilon: {refuted} of {every} above the diagonal. {listed}",
        build=partial(_spec, _look(scene, points), name, top, ticks, end),
        data={
            "points": columns(heads, records),
            "corner": {"at": [0.0, top], "y": [0.0, top], "top": [top, top]},
        },
        headings={
            "series": "method",
            "x": f"{name} ε",
            "y": "audited ε",
            "most": "maximum detectable ε",
            "text": "result",
        },
    )


def _look(scene: Scene, points: Sequence[AuditPoint]) -> Look:
    """Return the look of all drawn methods; of the faint ones, what exceeds a claim stands out."""
    look = scene.look
    loud = {point.row.label for point in points if point.exceeds}
    faint = sorted({point.row.label for point in points} - set(look.names))
    return Look(
        (*look.names, *faint),
        (*look.colours, *("text" if name in loud else "faint" for name in faint)),
        (*look.shapes, *("circle" for _ in faint)),
        (),
    )


def _text(point: AuditPoint, name: str) -> str:
    row = point.row
    most = ""
    if point.detectable is not None:
        most = f" (maximum detectable {show.epsilon(point.detectable)})"
    where = row.dataset if point.count == 1 else f"{row.dataset} and {point.count - 1} more"
    return (
        f"{row.label} on {where}, target ε {show.epsilon(row.epsilons.target)}: audited "
        f"{show.epsilon_span(point.audited)}{most}, {name} {show.epsilon(point.x)}; "
        f"{row.verdict or 'no verdict'}"
    )


@functools.lru_cache(maxsize=32)
def _spec(
    look: Look, name: str, top: float, ticks: tuple[float, ...], end: float, legend: bool
) -> Spec:
    import altair as alt

    # Like a logarithm, but defined at zero.
    scale: dict[str, Any] = {"type": "symlog", "constant": 0.1, "nice": False}
    shown = [*ticks, *([end] if end > top else [])]
    labels = f"datum.value > {top!r} ? '{show.INFINITE}' : format(datum.value, '~g')"
    x = alt.X(
        "at:Q",
        title=f"{name} ε",
        scale=alt.Scale(domain=[0, end], **scale),
        axis=alt.Axis(values=shown, labelExpr=labels, grid=False),
    )
    y = alt.Y(
        "y:Q",
        title="audited ε",
        scale=alt.Scale(domain=[0, top], **scale),
        axis=alt.Axis(values=list(ticks), labelExpr=labels),
    )
    names = list(look.names)
    hues = alt.Scale(domain=names, range=[colour(each) for each in look.colours])
    shapes = alt.Scale(domain=names, range=[SHAPES[each] for each in look.shapes])
    key = alt.Legend(symbolOpacity=1) if legend else None
    points = alt.Chart(alt.NamedData(name="points"))
    corner = alt.Chart(alt.NamedData(name="corner"))
    stroke = alt.Stroke("series:N", scale=hues, legend=key)
    sound = alt.when("datum.sound").then(alt.Fill("series:N", scale=hues, legend=None))
    shade = alt.when(IS_PICKED).then(alt.value(1)).otherwise(alt.value(0.15))
    upper = alt.Y2("top:Q")
    layers = [
        corner.mark_area(color=colour("beyond"), opacity=0.7).encode(x=x, y=y, y2=upper),
        corner.mark_line(color=colour("faint"), strokeWidth=1).encode(x=x, y=y),
        corner.transform_filter("datum.at == 0")
        .mark_text(align="left", dx=5, dy=10, color=colour("faint"))
        .encode(x=x, y=alt.value(0), text=alt.value("above: exceeds it")),
        points.transform_filter("isValid(datum.low)")
        .mark_rule()
        .encode(x=x, y=alt.Y("low:Q"), y2="y:Q", stroke=stroke, opacity=shade),
        points.transform_filter("isValid(datum.most)")
        .mark_rule(strokeDash=[1, 3])
        .encode(x=x, y=y, y2="most:Q", stroke=stroke, opacity=shade),
        points.transform_filter("isValid(datum.most)")
        .mark_tick(thickness=1.2, size=7)
        .encode(x=x, y=alt.Y("most:Q"), color=alt.value(colour("faint")), opacity=shade),
        points.mark_point(size=55, strokeWidth=1.4, opacity=1).encode(
            x=x,
            y=y,
            stroke=stroke,
            fill=sound.otherwise(alt.value(colour("page"))),
            shape=alt.Shape("series:N", scale=shapes, legend=key),
            opacity=shade,
            tooltip="text:N",
        ),
    ]
    return finished(alt.layer(*layers).properties(width=WIDTH, height=220))
