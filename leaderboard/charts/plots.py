"""Plots as SVG text: no plotting library, no script, nothing fetched.

Every text goes through `Markup.format`, which escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean
from typing import final

from markupsafe import Markup

from bench.leaderboard.charts.svg import MARKERS, SHAPES, ticks
from bench.leaderboard.ranking.rank import CEILING, is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables import show
from bench.leaderboard.tables.measures import Measure
from bench.leaderboard.tables.show import ipc_order

# Okabe and Ito's colours, which colour-blind readers can tell apart; without black (the colour of
# the axes, which turns white on dark pages) and yellow (too faint on white).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = 4
"""Kinds of dashes; the style sheet says what they look like."""

LEADING = 6
"""Methods in the foreground, where there are more than fit."""
FIT = 8
"""With up to so many methods beside the references all stand in the foreground."""

_WIDTH, _HEIGHT = 320, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 26, 36
_DODGE, _DODGE_SPAN = 6.0, 48.0
"""Points at one epsilon are moved apart by this much, or all together by the other."""


@final
@dataclass(frozen=True)
class MethodStyle:
    """How one label is drawn, everywhere the same."""

    colour: str
    marker: str
    dashes: int = 0


@final
@dataclass(frozen=True)
class UtilityFigure:
    """The panels for one IPC of release."""

    ipc: str
    panels: tuple[Markup, ...]


@final
@dataclass(frozen=True)
class LegendEntry:
    """One label with its sign."""

    name: str
    sign: Markup


def styles(rows: Sequence[Row]) -> dict[str, MethodStyle]:
    """A colour, a marker and dashes for each label but the ceilings.

    Those that plots show in the foreground come first and so get the most different ones; 36 pairs
    of colour and marker before one comes again.
    """
    others = order(rows)
    fore = foreground(others)
    references = sorted({row.label for row in rows if row.reference not in ("", CEILING)})
    turns = len(PALETTE)
    return {
        name: MethodStyle(
            PALETTE[place % turns], MARKERS[(place + place // turns) % len(MARKERS)], place % DASHES
        )
        for place, name in enumerate((*fore, *references, *others[len(fore) :]))
    }


def foreground(others: Sequence[str]) -> Sequence[str]:
    """All methods, or the first of them where there are more than fit."""
    return others if len(others) <= FIT else others[:LEADING]


def order(rows: Sequence[Row]) -> tuple[str, ...]:
    """Methods but the references: by mean rank as in the ranking, then those without, by name."""
    ranks: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if not row.reference:
            own = ranks.setdefault(row.label, {})
            if row.place.rank is not None:
                own.setdefault(row.dataset, []).append(row.place.rank)
    # Datasets have equal weight, however many IPCs and budgets were run on them.
    means = {
        name: fmean(fmean(found) for found in own.values()) if own else math.inf
        for name, own in ranks.items()
    }
    return tuple(sorted(ranks, key=lambda name: (means[name], name)))


def legend(rows: Sequence[Row], used: Mapping[str, MethodStyle]) -> tuple[LegendEntry, ...]:
    """What the signs stand for; hollow for an label that is sound nowhere."""
    sound = {row.label for row in rows if is_sound(row.verdict)}
    shown = _standing_out(rows)
    template = Markup('<svg class="sign" viewBox="0 0 26 14" aria-hidden="true">{}{}</svg>')
    line = Markup('<line x1="1" y1="7" x2="25" y2="7" stroke="{}" stroke-width="1.5"/>')
    return tuple(
        LegendEntry(
            name, template.format(line.format(style.colour), _marker(style, 13, 7, name in sound))
        )
        for name, style in used.items()
        if name in shown
    )


def _standing_out(rows: Sequence[Row]) -> Set[str]:
    references = {row.label for row in rows if row.reference}
    return references | set(foreground(order(rows)))


def figures(rows: Sequence[Row], used: Mapping[str, MethodStyle]) -> tuple[UtilityFigure, ...]:
    """Utility against target epsilon: a figure a IPC, a panel a dataset, largest IPC first.

    Where methods are too many for their signs, those with the worse mean ranks are faint lines.
    """
    shown = _standing_out(rows)
    ceilings = [row for row in rows if row.reference == CEILING]
    drawn = [row for row in rows if row.reference != CEILING]
    found = []
    for ipc in sorted({row.ipc for row in drawn}, key=ipc_order, reverse=True):
        own = [row for row in drawn if row.ipc == ipc]
        budgeted = sorted({(r.dataset, r.variant) for r in own if r.epsilons.target is not None})
        panels = [
            _panel(dataset, variant, own, ceilings, used, shown) for dataset, variant in budgeted
        ]
        present = tuple(panel for panel in panels if panel is not None)
        if present:
            found.append(UtilityFigure(ipc, present))
    # Methods with a IPC of their own come after those that can be compared at equal IPC.
    return tuple(sorted(found, key=lambda figure: figure.ipc == "own"))


def _panel(
    dataset: str,
    variant: str,
    rows: Sequence[Row],
    references: Sequence[Row],
    used: Mapping[str, MethodStyle],
    shown: Set[str],
) -> Markup | None:
    budgeted = [
        row
        for row in rows
        if (row.dataset, row.variant) == (dataset, variant) and row.epsilons.target is not None
    ]
    split = budgeted[0].split
    ceilings = [row for row in references if (row.dataset, row.split) == (dataset, split)]
    flat = [
        row
        for row in rows
        if (row.dataset, row.split) == (dataset, split) and row.epsilons.target is None
    ]
    measures = [
        row.headline for row in (*budgeted, *ceilings, *flat) if _drawable(row.headline) is not None
    ]
    ends = [end for m in measures if m is not None for end in (m.value, m.low, m.high)]
    heights = [end for end in ends if end is not None]
    if not heights:
        return None
    vertical, y_ticks = _vertical(min(heights), max(heights))
    targets = sorted({row.epsilons.target for row in budgeted if row.epsilons.target is not None})
    horizontal = _horizontal(targets)
    first = next(m for m in measures if m is not None)
    name = f"{dataset} ({variant})" if variant else dataset
    parts = [
        Markup('<svg class="panel" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            _WIDTH, _HEIGHT, f"{first.metric} against target epsilon on {name}"
        ),
        Markup(
            '<text class="head" x="{}" y="15">{} <tspan class="faint">{} {}</tspan></text>'
        ).format(4, name, first.metric, show.arrow(first.direction)),
        _axes(vertical, y_ticks, horizontal, targets),
    ]
    parts += [_ceiling(row, vertical) for row in ceilings]
    by_name: dict[str, list[Row]] = {}
    for row in sorted(budgeted, key=lambda row: row.epsilons.target or 0.0):
        by_name.setdefault(row.label, []).append(row)
    parts += [
        _faint(name, by_name[name], horizontal, vertical) for name in sorted(set(by_name) - shown)
    ]
    parts += [_flat(row, used[row.label], vertical) for row in flat if row.label in shown]
    names = sorted(set(by_name) & shown)
    for place, label in enumerate(names):
        shift = (place - (len(names) - 1) / 2) * min(_DODGE, _DODGE_SPAN / len(names))
        parts.append(_series(by_name[label], used[label], horizontal, vertical, shift))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _vertical(low: float, high: float) -> tuple[Callable[[float], float], tuple[float, ...]]:
    scale = max(abs(low), abs(high), 1e-9)
    margin = 0.08 * (high - low) if high - low > 1e-9 * scale else 0.05 * scale
    low, high = low - margin, high + margin
    span = _HEIGHT - _TOP - _BOTTOM

    def place(value: float) -> float:
        return _TOP + span * (high - value) / (high - low)

    return place, ticks(low, high)


def _horizontal(targets: Sequence[float]) -> Callable[[float], float]:
    """Logarithmic, with room at both ends for points moved apart."""
    low, high = math.log(targets[0]), math.log(targets[-1])
    left, right = _LEFT + 28, _WIDTH - _RIGHT - 28

    def place(epsilon: float) -> float:
        if high == low:
            return (left + right) / 2
        return left + (right - left) * (math.log(epsilon) - low) / (high - low)

    return place


def _axes(
    vertical: Callable[[float], float],
    y_ticks: Sequence[float],
    horizontal: Callable[[float], float],
    targets: Sequence[float],
) -> Markup:
    grid = Markup(
        '<line class="grid" x1="{0}" y1="{2:.1f}" x2="{1}" y2="{2:.1f}"/>'
        '<text class="tick" x="{3}" y="{4:.1f}" text-anchor="end">{5}</text>'
    )
    tick = Markup(
        '<line class="axis" x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2}"/>'
        '<text class="tick" x="{0:.1f}" y="{3}" text-anchor="middle">{4}</text>'
    )
    bottom = _HEIGHT - _BOTTOM
    parts = [
        grid.format(_LEFT, _WIDTH - _RIGHT, vertical(t), _LEFT - 5, vertical(t) + 3.5, f"{t:g}")
        for t in y_ticks
    ]
    parts.append(
        Markup('<line class="axis" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
            _LEFT, bottom, _WIDTH - _RIGHT, bottom
        )
    )
    parts += [
        tick.format(horizontal(t), bottom, bottom + 4, bottom + 15, show.epsilon(t))
        for t in targets
    ]
    parts.append(
        Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">target ε</text>').format(
            (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6
        )
    )
    return Markup("").join(parts)


def _faint(
    name: str,
    rows: Sequence[Row],
    horizontal: Callable[[float], float],
    vertical: Callable[[float], float],
) -> Markup:
    """A method of the background: a grey line with its name, without points and whiskers."""
    points = [
        f"{horizontal(row.epsilons.target or 1.0):.1f},{vertical(measure.value):.1f}"
        for row, measure in ((row, _drawable(row.headline)) for row in rows)
        if measure is not None and measure.value is not None
    ]
    return Markup(
        '<g opacity="0.4"><title>{}</title><polyline class="axis" points="{}" fill="none"/></g>'
    ).format(name, " ".join(points))


def _series(
    rows: Sequence[Row],
    style: MethodStyle,
    horizontal: Callable[[float], float],
    vertical: Callable[[float], float],
    shift: float,
) -> Markup:
    points, parts = [], []
    for row in rows:
        x = horizontal(row.epsilons.target or 1.0) + shift
        measure = _drawable(row.headline)
        if measure is None or measure.value is None:
            parts.append(_missing(row, style, x))
            continue
        points.append(f"{x:.1f},{vertical(measure.value):.1f}")
        parts.append(_point(row, measure, style, x, vertical))
    line = Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="1.5"/>').format(
        " ".join(points), style.colour
    )
    return line + Markup("").join(parts)


def _point(
    row: Row, measure: Measure, style: MethodStyle, x: float, vertical: Callable[[float], float]
) -> Markup:
    value = measure.value if measure.value is not None else math.nan
    text = f"{row.label}, target ε {show.epsilon(row.epsilons.target)}: {show.number(value)} "
    text += f"{show.interval(measure)} {row.verdict or 'no verdict'}"
    whisker = Markup("")
    if measure.low is not None and measure.high is not None:
        whisker = Markup(
            '<line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}" stroke="{3}" '
            'stroke-width="1.2" opacity="0.75"/>'
        ).format(x, vertical(measure.low), vertical(measure.high), style.colour)
    marker = _marker(style, x, vertical(value), is_sound(row.verdict))
    return Markup("<g><title>{}</title>{}{}</g>").format(text, whisker, marker)


def _missing(row: Row, style: MethodStyle, x: float) -> Markup:
    """A method that has no value here still shows: a cross on the axis."""
    why = "; ".join(problem.reason or problem.status for problem in row.problems)
    if row.headline is not None:
        why = why or "; ".join(row.headline.reasons)
    y = _HEIGHT - _BOTTOM - 5
    text = f"{row.label}, target ε {show.epsilon(row.epsilons.target)}: no value. {why}"
    return Markup(
        '<g><title>{0}</title><path d="M{1:.1f} {2:.1f}l6 6m0 -6l-6 6" stroke="{3}" '
        'stroke-width="2" fill="none"/></g>'
    ).format(text, x - 3, y - 3, style.colour)


def _ceiling(row: Row, vertical: Callable[[float], float]) -> Markup:
    measure = _drawable(row.headline)
    if measure is None or measure.value is None:
        return Markup("")
    y = vertical(measure.value)
    text = f"{row.label}: {show.number(measure.value)} {show.interval(measure)}"
    return Markup(
        '<g><title>{0}</title><line class="ceiling" x1="{1}" y1="{2:.1f}" x2="{3}" y2="{2:.1f}"/>'
        '<text class="tick" x="{3}" y="{4:.1f}" text-anchor="end">{5}</text></g>'
    ).format(text, _LEFT, y, _WIDTH - _RIGHT, y - 3, row.label)


def _flat(row: Row, style: MethodStyle, vertical: Callable[[float], float]) -> Markup:
    """A method without a budget: the same at every epsilon."""
    measure = _drawable(row.headline)
    if measure is None or measure.value is None:
        return _missing(row, style, _WIDTH - _RIGHT - 6)
    line = Markup(
        '<line x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}" stroke="{}" stroke-dasharray="1 3"/>'
    ).format(_LEFT, vertical(measure.value), _WIDTH - _RIGHT, vertical(measure.value), style.colour)
    return line + _point(row, measure, style, _WIDTH - _RIGHT - 6, vertical)


def _drawable(measure: Measure | None) -> Measure | None:
    """None for what no axis can show."""
    ends = (None, None, None) if measure is None else (measure.value, measure.low, measure.high)
    shown = ends[0] is not None and all(end is None or abs(end) < 1e100 for end in ends)
    return measure if shown else None


def _marker(style: MethodStyle, x: float, y: float, filled: bool) -> Markup:
    """Filled for a sound release, hollow for every other."""
    return Markup(
        '<path class="{}" d="{}" transform="translate({:.1f} {:.1f})" fill="{}" stroke="{}" '
        'stroke-width="1.4"/>'
    ).format(
        "filled" if filled else "hollow",
        SHAPES[style.marker],
        x,
        y,
        style.colour,
        style.colour,
    )
