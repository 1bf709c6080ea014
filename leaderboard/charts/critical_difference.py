"""The critical-difference diagram as SVG text (Demsar 2006, figure 1).

An axis of mean ranks, best on the left; a line from the name of each method to its mean rank; bars
that connect indistinguishable methods, with a dot on each of them. The ruler above is Nemenyi's
critical difference. Every text goes through `Markup.format`, which escapes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from bench.leaderboard.charts.panels import PALETTE, MethodStyle
from bench.leaderboard.ranking.significance import ComparedMethod, RankComparison

_WIDTH = 720
_LEFT, _RIGHT = 215, 505
"""Ends of the axis; names are outside of them."""
_AXIS = 62
_BAR, _LINE = 9, 20
"""Height of a bar with its margin, and of a name."""
_LONGEST = 24
_PLAIN = MethodStyle(PALETTE[0], "circle")


def diagram(result: RankComparison, used: Mapping[str, MethodStyle]) -> Markup:
    """Return the diagram of one comparison, in the colours of the methods."""
    place = _horizontal(len(result.standings))
    levels = _levels(result)
    top = _AXIS + 10 + _BAR * (max(levels, default=-1) + 1) + 14
    half = (len(result.standings) + 1) // 2
    # From both ends inwards, so that no line crosses another.
    sides = (result.standings[:half], result.standings[half:][::-1])
    parts = [
        Markup('<svg class="diagram" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            _WIDTH, top + _LINE * (half - 1) + 12, description(result)
        ),
        _axis(len(result.standings), place),
        _ruler(result, place),
    ]
    for left, side in zip((True, False), sides, strict=True):
        for row, standing in enumerate(side):
            style = used.get(standing.label, _PLAIN)
            parts.append(_method(standing, style, place, top + _LINE * row, left))
    ranks = {standing.label: standing.mean_rank for standing in result.standings}
    for clique, level in zip(result.cliques, levels, strict=True):
        parts.append(_bar([place(ranks[name]) for name in clique], _AXIS + 10 + _BAR * level))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def description(result: RankComparison) -> str:
    """Return the content of the diagram in words."""
    ranks = ", ".join(f"{s.label} {s.mean_rank:.2f}" for s in result.standings)
    bars = "; ".join(" and ".join(clique) for clique in result.cliques) or "none"
    return (
        f"Critical difference diagram. Mean ranks over {result.blocks} blocks, best first: "
        f"{ranks}. Critical difference {result.critical_difference:.2f}. Indistinguishable: {bars}."
    )


def _horizontal(methods: int) -> Callable[[float], float]:
    def place(rank: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (rank - 1) / max(1, methods - 1)

    return place


def _levels(result: RankComparison) -> list[int]:
    """Return for each clique the highest row in which its bar overlaps no other."""
    ranks = {standing.label: standing.mean_rank for standing in result.standings}
    ends: list[float] = []
    levels = []
    for clique in result.cliques:
        low, high = min(map(ranks.__getitem__, clique)), max(map(ranks.__getitem__, clique))
        level = next((n for n, end in enumerate(ends) if end < low), len(ends))
        ends[level : level + 1] = [high]
        levels.append(level)
    return levels


def _axis(methods: int, place: Callable[[float], float]) -> Markup:
    line = Markup('<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
    text = Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
    parts = [line.format(_LEFT, _AXIS, _RIGHT, _AXIS)]
    step = 1 + (methods - 1) // 15
    for rank in range(1, methods + 1, step):
        parts.append(line.format(place(rank), _AXIS - 4, place(rank), _AXIS))
        parts.append(text.format(place(rank), _AXIS - 8, rank))
    label = Markup('<text class="tick" x="{}" y="{}" text-anchor="end">mean rank, 1 is best</text>')
    parts.append(label.format(_LEFT - 12, _AXIS - 8))
    return Markup("").join(parts)


def _ruler(result: RankComparison, place: Callable[[float], float]) -> Markup:
    end = place(1 + result.critical_difference)
    words = f"critical difference {result.critical_difference:.2f}"
    if end > _RIGHT:
        return Markup('<text class="tick" x="{}" y="24">{}: longer than the axis</text>').format(
            _LEFT, words
        )
    return Markup(
        '<path d="M{0} 16v8M{0} 20H{1:.1f}M{1:.1f} 16v8" fill="none" stroke="currentColor"/>'
        '<text class="tick" x="{2:.1f}" y="24">{3}</text>'
    ).format(_LEFT, end, end + 6, words)


def _method(
    standing: ComparedMethod,
    style: MethodStyle,
    place: Callable[[float], float],
    y: float,
    left: bool,
) -> Markup:
    x = place(standing.mean_rank)
    edge = _LEFT - 12 if left else _RIGHT + 12
    name = standing.label
    shown = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
    interval = "" if standing.low is None else f" [{standing.low:.2f}, {standing.high:.2f}]"
    title = f"{name}: place {standing.place}, mean rank {standing.mean_rank:.2f}{interval}"
    return Markup(
        '<g><title>{0}</title><path d="M{1:.1f} {2}V{3:.1f}H{4}" fill="none" stroke="{5}" '
        'stroke-width="1.5"/><circle class="filled" cx="{1:.1f}" cy="{2}" r="3.6" fill="{5}"/>'
        '<text x="{6}" y="{7:.1f}" text-anchor="{8}">{9} <tspan class="faint">{10:.2f}</tspan>'
        "</text></g>"
    ).format(
        title,
        x,
        _AXIS,
        y,
        edge,
        style.colour,
        edge + (-5 if left else 5),
        y + 4,
        "end" if left else "start",
        shown,
        standing.mean_rank,
    )


def _bar(places: Sequence[float], y: float) -> Markup:
    line = Markup(
        '<line class="bar" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="currentColor" '
        'stroke-width="3" stroke-linecap="round"/>'
    ).format(min(places), y, max(places), y)
    dot = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3.2" fill="currentColor"/>')
    return line + Markup("").join(dot.format(place, y) for place in places)
