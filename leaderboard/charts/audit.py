"""Audited epsilon against claimed and proven epsilon.

An audited epsilon is a lower bound. Above the diagonal it exceeds the epsilon it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from bench.leaderboard.charts import svg
from bench.leaderboard.charts.draw import classes, marker_of
from bench.leaderboard.charts.panels import MethodStyle, Prominence, Scene
from bench.leaderboard.charts.svg import BOTTOM, LEFT, RIGHT, TOP, AxisScale, Spacing, Tick, n
from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables import show
from bench.leaderboard.tables.measures import Span

_MOST = 500
"""Maximum number of markers in a panel."""
_ROUND = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


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
class AuditPanels:
    """The panels and a summary in words."""

    panels: tuple[Markup, ...]
    words: str


def audit_panels(scene: Scene, rows: Sequence[Row]) -> AuditPanels:
    """Return claimed and proven against audited epsilon, over all datasets and IPCs."""
    audited = [row for row in rows if row.epsilons.audited is not None]
    if not audited:
        return AuditPanels(
            (),
            f"None of the {len(rows):,} rows was audited. An audit attacks a method and measures a "
            "lower bound on its epsilon, which can refute a claim or a proof."
            if rows
            else "The runs hold no cells yet.",
        )
    panels = []
    words = [f"{len(audited):,} of {len(rows):,} rows were audited."]
    for name in ("claimed", "proven"):
        points = _points(audited, name)
        if points:
            panels.append(_panel(scene, name, points[:_MOST]))
            beyond = sum(point.count for point in points if point.exceeds)
            every = sum(point.count for point in points)
            words.append(f"{beyond:,} of {every:,} exceed the {name} epsilon.")
            if len(points) > _MOST:
                words.append(f"Only the {_MOST} largest differences are shown.")
        else:
            words.append(f"None of them has a {name} epsilon.")
    return AuditPanels(tuple(panels), " ".join(words))


def _points(rows: Sequence[Row], name: str) -> tuple[AuditPoint, ...]:
    """Return the points, sorted by how much the audited epsilon exceeds the other."""
    points: dict[tuple[str, float, float, float, float | None, str], AuditPoint] = {}
    for row in rows:
        compared = row.epsilons.claimed if name == "claimed" else row.epsilons.proven
        audited = row.epsilons.audited
        if compared is None or audited is None or not svg.finite(audited.high):
            continue
        most = row.epsilons.detectable
        detectable = most if svg.finite(most) else None
        x = max(compared.high, 0.0)
        identity = (row.label, x, audited.low, audited.high, detectable, row.verdict)
        before = points.get(identity)
        count = 1 if before is None else before.count + 1
        points[identity] = AuditPoint(before.row if before else row, count, x, audited, detectable)
    return tuple(sorted(points.values(), key=lambda point: point.x - point.audited.high))


def _panel(scene: Scene, name: str, points: Sequence[AuditPoint]) -> Markup:
    numbers = [point.x for point in points if svg.finite(point.x)]
    numbers += [point.audited.high for point in points]
    numbers += [point.detectable for point in points if point.detectable is not None]
    top = next((value for value in _ROUND if value >= max(numbers)), max(numbers))
    marks = [Tick(value, f"{value:g}") for value in _ROUND if value <= top]
    endless = any(not svg.finite(point.x) for point in points)
    horizontal = svg.chosen(marks, LEFT, RIGHT - 12, "∞" if endless else "", Spacing.FROM_ZERO)
    vertical = svg.chosen(marks, BOTTOM, TOP + 6, kind=Spacing.FROM_ZERO)
    refuted = sum(point.count for point in points if point.exceeds)
    every = sum(point.count for point in points)
    description = f"Audited against {name} epsilon: {refuted} of {every} above the diagonal"
    parts = [
        svg.opened(f"{description}. {_spoken(points, name)}"),
        svg.head("audited ε", f"against {name} ε"),
        svg.axes(horizontal, vertical, f"{name} ε"),
        _diagonal(horizontal, vertical, top),
    ]
    ordered = sorted(points, key=lambda point: scene.roles[point.row.label] is not Prominence.OTHER)
    parts += [_mark(scene, point, horizontal, vertical, name) for point in ordered]
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _spoken(points: Sequence[AuditPoint], name: str) -> str:
    beyond = [point for point in points if point.exceeds]
    listed = [
        f"{point.row.label} on {point.row.dataset}: audited {show.epsilon(point.audited.high)}, "
        f"{name} {show.epsilon(point.x)}"
        for point in beyond[:8]
    ]
    return "; ".join(listed)


def _diagonal(horizontal: AxisScale, vertical: AxisScale, top: float) -> Markup:
    x0, x1 = horizontal.place(0.0), horizontal.place(top)
    y0, y1 = vertical.place(0.0), vertical.place(top)
    return Markup(
        '<path class="beyond" d="M{0} {1}L{2} {3}H{0}z"/>'
        '<path class="diagonal" d="M{0} {1}L{2} {3}"/>'
        '<text class="tick b" x="{4}" y="{5}">above: exceeds it</text>'
    ).format(n(x0), n(y0), n(x1), n(y1), LEFT + 5, TOP + 16)


def _mark(
    scene: Scene, point: AuditPoint, horizontal: AxisScale, vertical: AxisScale, name: str
) -> Markup:
    row = point.row
    x, y = horizontal.place(point.x), vertical.place(point.audited.high)
    most = ""
    if point.detectable is not None:
        most = f" (maximum detectable {show.epsilon(point.detectable)})"
    where = row.dataset if point.count == 1 else f"{row.dataset} and {point.count - 1} more"
    text = (
        f"{row.label} on {where}, target ε {show.epsilon(row.epsilons.target)}: audited "
        f"{show.epsilon_span(point.audited)}{most}, {name} {show.epsilon(point.x)}; "
        f"{row.verdict or 'no verdict'}"
    )
    path = ""
    if point.audited.low < point.audited.high:
        path += f"M{n(x)} {n(vertical.place(max(0.0, point.audited.low)))}V{n(y)}"
    limit = ""
    if point.detectable is not None:
        limit = f"M{n(x)} {n(y)}V{n(vertical.place(point.detectable))}m-3 0h6"
    style: MethodStyle | None = scene.styles.get(row.label)
    role = scene.roles[row.label]
    look = "x" if role is Prominence.OTHER and not point.exceeds else f"s {classes(style, role)}"
    return Markup(
        '<g class="{}" data-e="{}">{}<path class="w" d="{}"/><path class="v" d="{}"/>'
        '<use{} href="#{}" x="{}" y="{}"/></g>'
    ).format(
        look,
        scene.numbers[row.label],
        svg.title(text),
        path,
        limit,
        Markup("") if is_sound(row.verdict) else Markup(' class="h"'),
        marker_of(style),
        n(x),
        n(y),
    )
