"""Draws a panel: points and lines of many methods over two axes, some of them highlighted.

Highlighted methods have a colour, a marker, dashes, whiskers and one tooltip per point. All others
are faint, with one tooltip per method. Hollow: not sound. Missing values are drawn as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from markupsafe import Markup

from bench.leaderboard.charts import svg
from bench.leaderboard.charts.panels import (
    PALETTE,
    FrontPoint,
    Level,
    MethodSeries,
    MethodStyle,
    PanelContent,
    Point,
    Prominence,
    Scene,
    Upright,
    drawable,
)
from bench.leaderboard.charts.svg import BOTTOM, LEFT, MARKERS, RIGHT, TOP, AxisScale, n
from bench.leaderboard.charts.tradeoffs import against_epsilon
from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables import show

_DODGE, _DODGE_SPAN = 6.0, 36.0
"""Horizontal shift between points at one position; smaller for many points."""
_LABELS = 3
"""Maximum number of faint methods that are named on the front."""
_LISTED = 12
_LINE = 12
"""Height of a line of text."""


@final
@dataclass(frozen=True)
class Drawing:
    """A drawn panel and the points on its front."""

    markup: Markup
    front: tuple[FrontPoint, ...]


def draw(panel: PanelContent, numbers: Mapping[str, int]) -> Drawing:
    """Return the panel as SVG; `numbers` identifies methods for the script of the page."""
    shifts = _shifts(panel)
    front = _front(panel) if panel.with_front else ()
    members = tuple(FrontPoint(panel.name, s.label, p.x, p.y) for s, p in front)
    parts = [
        svg.opened(_spoken(panel, members)),
        svg.head(panel.name, panel.subject),
        svg.axes(panel.horizontal, panel.vertical, panel.label),
    ]
    parts += [_upright(item, panel.horizontal) for item in panel.uprights]
    parts.append(_stairs(panel, front, shifts))
    background = [item for item in panel.series if item.role is Prominence.OTHER]
    parts += [_background(panel, item, numbers) for item in background]
    # References are named alternately right and left.
    turns = itertools.accumulate(item.role is Prominence.REFERENCE for item in panel.levels)
    parts += [
        _level(panel, item, place, numbers, right=turn % 2 == 1)
        for place, (item, turn) in enumerate(zip(panel.levels, turns, strict=True))
    ]
    for item in panel.series:
        if item.role is not Prominence.OTHER:
            parts.append(_foreground(panel, item, shifts, numbers))
    parts.append(_named(panel, front))
    parts.append(_all_missing(panel, shifts))
    parts.append(Markup("</svg>"))
    return Drawing(Markup("").join(parts), members)


@final
@dataclass(frozen=True)
class UtilityFigure:
    """Utility against target epsilon at one IPC, one panel per dataset."""

    ipc: str
    panels: tuple[Markup, ...]


@final
@dataclass(frozen=True)
class LegendEntry:
    """One method with its marker."""

    name: str
    reference: str
    sign: Markup


def utility_figures(scene: Scene) -> tuple[UtilityFigure, ...]:
    """Return one figure per IPC, the largest first, methods that set their own size last."""
    ipcs = {row.ipc for ground in scene.grounds for row in scene.rows(ground)}
    figures = []
    for ipc in sorted(ipcs, key=show.largest_ipc_first):
        contents = (replace(panel, with_front=False) for panel in against_epsilon(scene, ipc))
        panels = tuple(draw(content, scene.numbers).markup for content in contents)
        if panels:
            figures.append(UtilityFigure(ipc, panels))
    return tuple(figures)


def legend(scene: Scene, rows: Sequence[Row]) -> tuple[LegendEntry, ...]:
    """Return the highlighted methods; hollow markers for those that are never sound."""
    sound = {row.label for row in rows if is_sound(row.verdict)}
    reference = {row.label: row.reference for row in rows}
    drawn = {row.label for row in rows if drawable(row.headline) is not None}
    template = Markup(
        '<svg class="sign" viewBox="0 0 30 14" aria-hidden="true"><g class="s {}">'
        '<path class="l" d="M1 7H29"/><use{} href="#{}" x="15" y="7"/></g></svg>'
    )
    entries = []
    for name, role in scene.roles.items():
        if role is Prominence.OTHER or name not in drawn:
            continue
        style = scene.styles.get(name)
        hollow = Markup("") if name in sound else Markup(' class="h"')
        sign = template.format(classes(style, role), hollow, marker_of(style))
        entries.append(LegendEntry(name, reference[name], sign))
    return tuple(entries)


def _shifts(panel: PanelContent) -> dict[str, float]:
    names = [item.label for item in panel.series if item.role is not Prominence.OTHER]
    if not panel.dodged or len(names) < 2:
        return {}
    step = min(_DODGE, _DODGE_SPAN / (len(names) - 1))
    return {name: (place - (len(names) - 1) / 2) * step for place, name in enumerate(names)}


def _front(panel: PanelContent) -> tuple[tuple[MethodSeries, Point], ...]:
    able = [(s, p) for s in panel.series for p in s.points if p.sound]
    costs = [p.x if p.cost is None else p.cost for _, p in able]
    gains = [p.y if panel.higher else -p.y for _, p in able]
    return tuple(able[place] for place in pareto(costs, gains))


def _spoken(panel: PanelContent, members: Sequence[FrontPoint]) -> str:
    """Return the content of the panel in words, for screen readers."""
    words = [f"{panel.description}."]
    if panel.with_front and members:
        best = [f"{m.label} {m.y:.3g} at {m.x:.3g}" for m in members[:_LISTED]]
        words.append(
            f"Pareto front of sound methods, by increasing {panel.label}: {', '.join(best)}."
        )
    elif panel.with_front:
        words.append("No sound method has a value.")
    lines = [f"{item.label} {item.point.y:.3g}" for item in panel.levels[:_LISTED]]
    if lines:
        words.append(f"Lines: {', '.join(lines)}.")
    absent = sum(len(item.missing) for item in panel.series)
    if absent:
        words.append(f"{absent} without a value.")
    return " ".join(words)


def _stairs(
    panel: PanelContent, front: Sequence[tuple[MethodSeries, Point]], shifts: Mapping[str, float]
) -> Markup:
    """Return the best utility at each cost as a staircase."""
    if not front:
        return Markup("")
    path = ""
    for series, point in front:
        x = panel.horizontal.place(point.x) + shifts.get(series.label, 0.0)
        y = panel.vertical.place(point.y)
        path += f"H{n(x)}V{n(y)}" if path else f"M{n(x)} {n(y)}"
    return Markup('<path class="front" d="{}H{}"/>').format(path, RIGHT)


def _background(panel: PanelContent, series: MethodSeries, numbers: Mapping[str, int]) -> Markup:
    places = [
        f"{n(panel.horizontal.place(p.x))} {n(panel.vertical.place(p.y))}" for p in series.points
    ]
    if not places:
        return Markup("")
    sound = all(point.sound for point in series.points)
    dots = "".join(f"M{place}h0" for place in places)
    if panel.joined and len(places) > 1:
        shape = Markup('<path class="{}" d="M{}"/>').format(
            "o" if sound else "o u", "L".join(places)
        )
    else:
        shape = Markup('<path class="p" d="{}"/>').format(dots)
        if not sound:
            shape += Markup('<path class="q" d="{}"/>').format(dots)
    return Markup('<g data-e="{}">{}{}</g>').format(
        numbers[series.label], svg.title(series.label), shape
    )


def _foreground(
    panel: PanelContent,
    series: MethodSeries,
    shifts: Mapping[str, float],
    numbers: Mapping[str, int],
) -> Markup:
    shift = shifts.get(series.label, 0.0)
    places = [
        (panel.horizontal.place(p.x) + shift, panel.vertical.place(p.y)) for p in series.points
    ]
    whiskers = "".join(
        _whisker(panel, point, x, y) for point, (x, y) in zip(series.points, places, strict=True)
    )
    parts = []
    if len(places) > 1:
        line = "L".join(f"{n(x)} {n(y)}" for x, y in places)
        parts.append(Markup('<path class="l" d="M{}"/>').format(line))
    if whiskers:
        parts.append(Markup('<path class="w" d="{}"/>').format(whiskers))
    for point, (x, y) in zip(series.points, places, strict=True):
        parts.append(_marker(point, x, y, marker_of(series.style)))
        if point.x > panel.horizontal.end and panel.horizontal.beyond is None:
            # Beyond the axis: at its end, with the number.
            text = Markup('<text class="tick e" x="{}" y="{}">at {} →</text>')
            parts.append(text.format(RIGHT, n(y + 15), f"{point.x:.3g}"))
    return Markup('<g class="s {}" data-e="{}">{}</g>').format(
        classes(series.style, series.role), numbers[series.label], Markup("").join(parts)
    )


def _whisker(panel: PanelContent, point: Point, x: float, y: float) -> str:
    path = ""
    if point.low is not None and point.high is not None:
        bottom, top = panel.vertical.place(point.low), panel.vertical.place(point.high)
        path += f"M{n(x)} {n(bottom)}V{n(top)}"
    if point.left is not None and point.right is not None:
        first, last = panel.horizontal.place(point.left), panel.horizontal.place(point.right)
        path += f"M{n(first)} {n(y)}H{n(last)}"
    return path


def _marker(point: Point, x: float, y: float, shape: str) -> Markup:
    return Markup('<use{} href="#{}" x="{}" y="{}">{}</use>').format(
        Markup("") if point.sound else Markup(' class="h"'),
        shape,
        n(x),
        n(y),
        svg.title(point.text),
    )


def marker_of(style: MethodStyle | None) -> str:
    """Return the name of the marker in the page."""
    return "star" if style is None else f"m{MARKERS.index(style.marker)}"


def classes(style: MethodStyle | None, role: Prominence) -> str:
    """Return the classes for colour and dashes of a highlighted method."""
    if style is None:
        return "ink"
    dashes = "ref" if role is Prominence.REFERENCE else f"d{style.dashes}"
    return f"c{PALETTE.index(style.colour)} {dashes}"


def _level(
    panel: PanelContent, level: Level, place: int, numbers: Mapping[str, int], *, right: bool
) -> Markup:
    """Return a line over the whole width; references are named on it, right or left."""
    y = panel.vertical.place(level.point.y)
    line = f"M{LEFT} {n(y)}H{RIGHT}"
    tooltip = svg.title(level.point.text)
    number = numbers[level.label]
    if level.role is Prominence.OTHER:
        return Markup('<g data-e="{}">{}<path class="o v" d="{}"/></g>').format(
            number, tooltip, line
        )
    shape = Markup('<path class="v" d="{}"/>').format(line)
    if level.style is not None:
        hollow = Markup("") if level.point.sound else Markup(' class="h"')
        shape += Markup('<use{} href="#{}" x="{}" y="{}"/>').format(
            hollow, marker_of(level.style), RIGHT - 6 - 9 * (place % 3), n(y)
        )
    if level.role is Prominence.REFERENCE:
        shape += Markup('<text class="tick {}" x="{}" y="{}">{}</text>').format(
            "e" if right else "b",
            RIGHT - (18 if level.style else 0) if right else LEFT + 4,
            n(y - 3 if y - 3 > TOP + 6 else y + 11),
            show.shortened(level.label, 18),
        )
    return Markup('<g class="s {}" data-e="{}">{}{}</g>').format(
        classes(level.style, level.role), number, tooltip, shape
    )


def _upright(item: Upright, horizontal: AxisScale) -> Markup:
    x = horizontal.place(item.value)
    anchor, shift = ("b", 3) if x < (LEFT + RIGHT) / 2 else ("e", -3)
    return Markup(
        '<path class="upright" d="M{0} {1}V{2}"/><text class="tick {3}" x="{4}" y="{5}">{6}</text>'
    ).format(n(x), TOP, BOTTOM, anchor, n(x + shift), BOTTOM - 4, item.text)


def _named(panel: PanelContent, front: Sequence[tuple[MethodSeries, Point]]) -> Markup:
    """Return the names of faint methods on the front."""
    parts: list[Markup] = []
    seen: set[str] = set()
    heights: list[float] = []
    for series, point in front:
        x, y = panel.horizontal.place(point.x), panel.vertical.place(point.y)
        free = all(abs(y - other) > _LINE for other in heights)
        if series.role is not Prominence.OTHER or series.label in seen or not free:
            continue
        if len(seen) == _LABELS:
            break
        seen.add(series.label)
        heights.append(y)
        left = x > (LEFT + RIGHT) / 2
        parts.append(
            Markup('<text class="on {}" x="{}" y="{}">{}</text>').format(
                "e" if left else "b",
                n(x - 5 if left else x + 5),
                n(max(y - 5, TOP + 4)),
                show.shortened(series.label, 18),
            )
        )
    return Markup("").join(parts)


def _all_missing(panel: PanelContent, shifts: Mapping[str, float]) -> Markup:
    """Return a cross on the axis for failures, a bar for skipped results; one mark per position."""
    marks: dict[tuple[float, bool, str], list[str]] = {}
    unplaced: dict[bool, list[str]] = {}
    for series in panel.series:
        shift = shifts.get(series.label, 0.0)
        colour = "" if series.role is Prominence.OTHER else classes(series.style, series.role)
        for item in series.missing:
            if not svg.finite(item.x):
                unplaced.setdefault(item.skipped, []).append(item.text)
                continue
            x = panel.horizontal.place(item.x) + shift
            marks.setdefault((x, item.skipped, colour), []).append(item.text)
    parts = [
        Markup('<g class="x {}">{}<path d="M{} {}{}"/></g>').format(
            colour,
            svg.title(_listed(texts)),
            n(x - 3),
            BOTTOM - 5 if skipped else BOTTOM - 8,
            "h6" if skipped else "l6 6m0 -6l-6 6",
        )
        for (x, skipped, colour), texts in marks.items()
    ]
    failed = len(unplaced.get(False, ()))
    words = [f"✕ {failed} without a value"] if failed else []
    words += [f"{len(unplaced[True])} skipped"] if True in unplaced else []
    if words:
        everything = [text for skipped in sorted(unplaced) for text in unplaced[skipped]]
        parts.append(
            Markup('<text class="none e{}" x="{}" y="{}">{}{}</text>').format(
                "" if failed else " faint",
                RIGHT,
                TOP - 3,
                svg.title(_listed(everything)),
                ", ".join(words),
            )
        )
    return Markup("").join(parts)


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _LISTED
    return "\n".join([*texts[:_LISTED], *([f"and {more} more"] if more > 0 else [])])


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
