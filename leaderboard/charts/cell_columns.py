"""Columns of one cell: distributions side by side, and correlations of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from markupsafe import Markup

from bench.leaderboard.charts import cell_svg as svg
from bench.leaderboard.charts.cell_drawn import Drawn, Panel
from bench.leaderboard.charts.cell_svg import REAL, RELEASED, Scale
from bench.leaderboard.tables.details import (
    Array,
    Columns,
    Files,
    NoSuchFile,
    Unavailable,
    shortened,
)

MOST_COLUMNS = 24
MOST_CATEGORIES = 8
MOST_CORRELATED = 32
LEVELS = 10
_PAIRS_LISTED = 6

_WIDTH, _HEIGHT = 190, 118
_HEAT = 336
"""Width and height of a heat map with its names."""


@final
@dataclass(frozen=True)
class _Marginal:
    """One column of both tables."""

    name: str
    difference: float
    """Total variation distance of what is drawn."""
    drawing: Markup


def marginals(files: Files) -> Drawn:
    """Distribution of every column, real against released."""
    found: list[_Marginal] = []
    lines: list[str] = []
    for read, what in ((_numeric, "numeric columns"), (_categories, "categories")):
        try:
            found += read(files)
        except NoSuchFile:
            lines.append(f"No {what} are kept: score the release again, or it has none.")
    if not found:
        raise NoSuchFile("the run keeps neither histograms nor shares of this cell")
    found.sort(key=lambda each: -each.difference)
    panels = tuple(
        Panel(f"{each.name} ({each.difference:.2f})", each.drawing) for each in found[:MOST_COLUMNS]
    )
    if len(found) > MOST_COLUMNS:
        lines.append(f"{MOST_COLUMNS} of {len(found)} columns, the most different ones.")
    text = (
        "Shares of training rows and of released rows, the latter weighted to the declared class "
        "shares; the most different columns first. In brackets: total variation distance of what "
        "is drawn, 0 for equal shares, 1 for none in common. The outer bins hold what lies beyond."
    )
    return Drawn(text, panels, (REAL, RELEASED), small=True, lines=tuple(lines))


def _numeric(files: Files) -> list[_Marginal]:
    table = files.table("histograms", ("low", "high", "real", "released"), ("column",))
    table.finite("low", "high", "real", "released")
    found = []
    for name, own in _by_name(table, "column"):
        low, high, real, released = own.finite("low", "high", "real", "released")
        order = np.argsort(low, kind="stable")
        edges = np.append(low[order], high[order][-1])
        if not (np.diff(edges) > 0).all():
            raise Unavailable("histograms.parquet is not what it should be: bins overlap")
        x = svg.scale_over(edges, 8, _WIDTH - 8)
        y = Scale(0.0, max(float(real.max()), float(released.max()), 1e-9), _HEIGHT - 20, 6)
        parts = [
            svg.outline(REAL, x(edges), y(real[order]), y.start),
            svg.outline(RELEASED, x(edges), y(released[order]), y.start),
            svg.baseline(x, y.start, ""),
        ]
        label = f"Histogram of {name}, real and released rows"
        drawing = svg.picture(label, parts, _WIDTH, _HEIGHT)
        found.append(_Marginal(name, _difference(real, released), drawing))
    return found


def _categories(files: Files) -> list[_Marginal]:
    table = files.table("shares", ("real", "released"), ("column", "category"))
    table.finite("real", "released")
    found = []
    for name, own in _by_name(table, "column"):
        real, released = own.finite("real", "released")
        order = np.argsort(-np.maximum(real, released), kind="stable")
        shown = order[:MOST_CATEGORIES] if len(order) > MOST_CATEGORIES + 1 else order
        bars = [(own.texts["category"][k], real[k], released[k]) for k in shown]
        others = order[len(shown) :]
        if len(others):
            bars.append((f"{len(others)} more", real[others].sum(), released[others].sum()))
        drawing = _bars(f"Shares of {name}, real and released rows", bars)
        found.append(_Marginal(name, _difference(real, released), drawing))
    return found


def _bars(label: str, bars: Sequence[tuple[str, float, float]]) -> Markup:
    left, step = 66.0, min(40.0, (_HEIGHT - 26) / len(bars))
    thick = min(13.0, (step - 2) / 2)
    x = Scale(0.0, max([1e-9, *(max(bar[1:]) for bar in bars)]), left, _WIDTH - 10)
    parts = []
    for place, (name, real, released) in enumerate(bars):
        top = 5 + place * step
        parts.append(
            svg.group(
                f"{name}: real {real:.1%}, released {released:.1%}",
                svg.text(left - 5, top + thick + 3, shortened(name, 9), "tick", "end"),
                svg.bar(REAL, left, top, x.at(real) - left, thick),
                svg.bar(RELEASED, left, top + thick, x.at(released) - left, thick),
            )
        )
    parts.append(svg.baseline(x, _HEIGHT - 20, ""))
    return svg.picture(label, parts, _WIDTH, _HEIGHT)


def _difference(real: Array, released: Array) -> float:
    return float(np.abs(real - released).sum() / 2)


def _by_name(table: Columns, column: str) -> list[tuple[str, Columns]]:
    names = np.array(table.texts[column])
    return [(name, table.where(names == name)) for name in dict.fromkeys(table.texts[column])]


# Correlations -------------------------------------------------------------------------------------


def correlations(files: Files) -> Drawn:
    """Correlations of all pairs of columns: real, released, difference."""
    table = files.table("correlations", ("real", "released"), ("first", "second"))
    table.finite("real", "released")
    names = list(dict.fromkeys((*table.texts["first"], *table.texts["second"])))
    shown, lines = names, []
    if len(names) > MOST_CORRELATED:
        shown = _most_different(table, names)
        lines.append(
            f"{MOST_CORRELATED} of {len(names)} columns, those that differ most from the real ones."
        )
    place = {name: number for number, name in enumerate(shown)}
    size = len(shown)
    real, released = np.eye(size), np.eye(size)
    for k, pair in enumerate(zip(table.texts["first"], table.texts["second"], strict=True)):
        if pair[0] in place and pair[1] in place:
            i, j = place[pair[0]], place[pair[1]]
            real[i, j] = real[j, i] = table.numbers["real"][k]
            released[i, j] = released[j, i] = table.numbers["released"][k]
    panels = (
        Panel("Real rows", _heat("Correlations of real rows", real, shown)),
        Panel("Released rows", _heat("Correlations of released rows", released, shown)),
        Panel("Released minus real", _heat("Differences", released - real, shown)),
    )
    lines.append("Columns from top to bottom and from left to right: " + ", ".join(shown) + ".")
    lines += _largest(table)
    text = (
        "Pearson correlation of each pair of columns. Orange: positive, blue: negative; the "
        "stronger the colour, the larger; none at 0, full at 1 and -1."
    )
    return Drawn(text, panels, lines=tuple(lines))


def _most_different(table: Columns, names: Sequence[str]) -> list[str]:
    difference = np.abs(table.numbers["released"] - table.numbers["real"])
    total = dict.fromkeys(names, 0.0)
    for first, second, amount in zip(
        table.texts["first"], table.texts["second"], difference.tolist(), strict=True
    ):
        total[first] += amount
        total[second] += amount
    kept = set(sorted(names, key=lambda name: -total[name])[:MOST_CORRELATED])
    return [name for name in names if name in kept]


def _heat(label: str, values: Array, names: Sequence[str]) -> Markup:
    left, top = 92.0, 4.0
    whole = _HEAT - left - 4
    side = whole / len(names)
    clipped = np.clip(values, -1.0, 1.0)
    levels = np.sign(clipped) * np.round(np.abs(clipped) * LEVELS)
    parts = [
        Markup(f'<rect class="empty" x="{left}" y="{top}" width="{whole}" height="{whole}"/>'),
    ]
    for level in range(1, LEVELS + 1):
        for sign, style in ((1, "up"), (-1, "down")):
            rows, columns = np.nonzero(levels == sign * level)
            if len(rows):
                x = np.asarray(left + columns * side, dtype=np.float64)
                y = np.asarray(top + rows * side, dtype=np.float64)
                parts.append(svg.squares(f"heat {style} l{level}", x, y, side))
    every = max(1, math.ceil(10 / side))
    parts += [
        svg.text(left - 4, top + (k + 0.5) * side + 3.5, shortened(names[k], 12), "tick", "end")
        for k in range(0, len(names), every)
    ]
    return svg.picture(label, parts, _HEAT, whole + 8)


def _largest(table: Columns) -> list[str]:
    real, released = table.numbers["real"], table.numbers["released"]
    order = np.argsort(-np.abs(released - real), kind="stable")[:_PAIRS_LISTED]
    said = (
        f"{table.texts['first'][k]} with {table.texts['second'][k]} "
        f"{real[k]:.2f} → {released[k]:.2f}"
        for k in order
    )
    return [f"Largest differences (real → released): {'; '.join(said)}."]
