"""How close released rows lie to real ones: histograms of distances, and a picture."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from bench.leaderboard.charts import cell_svg as svg
from bench.leaderboard.charts.cell_drawn import Drawn, Panel
from bench.leaderboard.charts.cell_svg import CONTROL, REAL, RELEASED, Series, across, upright
from bench.leaderboard.tables.details import Array, Columns, Files, Unavailable

MOST_BINS = 30
MOST_DOTS = 600
"""Of each kind."""

_PAIRS = (
    ("Training rows against control rows", "matched", "control", "Equally many of both"),
    ("Released rows against real rows", "released", "real", "All training rows"),
)


def closest(files: Files) -> Drawn:
    """Distances to the closest record, with control."""
    table = files.table("dcr-distribution", ("low", "high", "count"), ("rows",))
    low, high, count = table.finite("low", "high", "count")
    if (count < 0).any() or (high < low).any():
        raise Unavailable("dcr-distribution.parquet is not what it should be: negative counts")
    kinds = np.array(table.texts["rows"])
    found = {kind: _Histogram(table.where(kinds == kind)) for kind in dict.fromkeys(kinds.tolist())}
    names = {
        "matched": Series("released", "released to training rows"),
        "control": Series("control", "released to control rows"),
        "released": Series("released", "released to training rows"),
        "real": Series("real", "training to other training rows"),
    }
    panels, lines = [], []
    for title, first, second, which in _PAIRS:
        own = {kind: found[kind] for kind in (second, first) if kind in found}
        if len(own) < 2:
            lines.append(f"{title}: not in this run.")
            continue
        panels.append(Panel(title, _histograms(title, {names[k]: own[k] for k in own})))
        copies = {names[kind].label: own[kind].copies for kind in (first, second)}
        said = ", ".join(f"{share:.1%} ({name})" for name, share in copies.items())
        lines.append(f"{title}. {which}; at distance 0: {said}.")
    if not panels:
        raise Unavailable("dcr-distribution.parquet holds no two populations to compare")
    text = (
        "Distance of each row to its closest record. A release that copied training rows lies "
        "closer to them than to control rows, which no method saw."
    )
    return Drawn(text, tuple(panels), (RELEASED, CONTROL, REAL), lines=tuple(lines))


class _Histogram:
    """Shares by equal bins, fewer than the table has; and the share at distance 0."""

    def __init__(self, table: Columns) -> None:
        low, high, count = (table.numbers[name] for name in ("low", "high", "count"))
        order = np.argsort(low, kind="stable")
        low, high, count = low[order], high[order], count[order]
        total = count.sum()
        if total <= 0:
            raise Unavailable("a population of distances is empty")
        point = high == low
        self.copies = float(count[point & (low == 0)].sum() / total)
        # The bin that is a point belongs to the one that starts there.
        middle = (low + high) / 2
        self.edges: Array = np.linspace(0.0, max(float(high.max()), 1e-12), MOST_BINS + 1)
        places = np.searchsorted(self.edges, middle, side="right") - 1
        sums = np.bincount(places.clip(0, MOST_BINS - 1), count, MOST_BINS)
        self.shares: Array = sums / total


def _histograms(title: str, own: dict[Series, _Histogram]) -> Markup:
    most = max(float(each.shares.max()) for each in own.values())
    furthest = max(float(each.edges[-1]) for each in own.values())
    x, y = across(0.0, furthest), upright(0.0, 1.05 * most)
    parts = [svg.axes(x, y, "distance to the closest record", "share of rows")]
    parts += [
        svg.outline(series, x(each.edges), y(each.shares), y.start) for series, each in own.items()
    ]
    return svg.picture(f"Histogram of distances: {title}", parts)


def embedding(files: Files) -> Drawn:
    """A t-SNE of real and released rows."""
    table = files.table("embedding", ("x", "y"), ("rows",))
    across_, up = table.finite("x", "y")
    kinds = np.array(table.texts["rows"])
    x = svg.scale_over(across_, 8, svg.WIDTH - 8)
    y = svg.scale_over(up, svg.HEIGHT - 8, 8)
    parts = []
    for series in (REAL, RELEASED):
        own = np.flatnonzero(kinds == series.style)[:MOST_DOTS]
        if not len(own):
            raise Unavailable(f"embedding.parquet holds no {series.label}")
        parts.append(svg.dots(series, x(across_[own]), y(up[own])))
    text = (
        "t-SNE of as many training rows and released rows of each class. Near rows are drawn near; "
        "distances between groups and their sizes mean nothing. Rows that mix look alike to it; "
        "the score `embedding` says how well they mix before anything is drawn."
    )
    drawing = svg.picture("Real and released rows in two dimensions", parts)
    return Drawn(text, (Panel("", drawing),), (REAL, RELEASED))
