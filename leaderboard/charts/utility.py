"""Utility against what a release costs in privacy (epsilon), or against its size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.leaderboard.charts import svg
from bench.leaderboard.charts.panel import Missing, Panel, Point, Series
from bench.leaderboard.charts.rows import (
    Ground,
    Scene,
    drawable,
    missing,
    subject,
    told,
    vertical,
)
from bench.leaderboard.charts.svg import LEFT, RIGHT, Tick
from bench.leaderboard.pages import show
from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.tables.aggregate import Row, size_order

_ROOM = 28
"""Beside the first and the last place, for points that are moved apart."""


def against_epsilon(scene: Scene, size: str) -> Iterator[Panel]:
    """A panel a dataset: headline utility at each target epsilon, releases of one size."""
    for ground in scene.grounds:
        rows = [row for row in scene.budgeted[ground] if row.size == size]
        flat = [row for row in scene.flat[ground] if row.size == size]
        targets = sorted({row.epsilons.target for row in rows if row.epsilons.target is not None})
        ticks = [Tick(target, show.epsilon(target)) for target in targets]
        places = [row.epsilons.target or 1.0 for row in rows]
        panel = _panel(
            scene, ground, rows, places, flat, ticks, "", "target ε", show.sizes((size,))
        )
        if panel is not None:
            yield panel


def against_size(scene: Scene, target: float) -> Iterator[Panel]:
    """A panel a dataset: headline utility at each size, at one target epsilon.

    Methods without a budget take part at every target. Sizes of a release's own have no place.
    """
    for ground in scene.grounds:
        able = [row for row in scene.budgeted[ground] if row.epsilons.target == target]
        if not able:
            continue
        rows = [row for row in (*able, *scene.flat[ground]) if row.size != "own"]
        sizes = sorted({row.size for row in rows}, key=size_order)
        if len(sizes) < 2:
            continue
        counted = [size for size in sizes if size.isdigit() and int(size) > 0]
        ticks = [Tick(float(size), size) for size in counted]
        places = [float(row.size) if row.size in counted else math.inf for row in rows]
        beyond = "full" if "full" in sizes else ""
        words = f"target ε {show.epsilon(target)}"
        panel = _panel(scene, ground, rows, places, (), ticks, beyond, "rows per class", words)
        if panel is not None:
            yield panel


def _panel(
    scene: Scene,
    ground: Ground,
    rows: Sequence[Row],
    places: Sequence[float],
    flat: Sequence[Row],
    ticks: Sequence[Tick],
    beyond: str,
    label: str,
    where: str,
) -> Panel | None:
    """None where there is nothing to draw."""
    if not rows:
        return None
    found: dict[str, tuple[list[Point], list[Missing]]] = {}
    in_order = sorted(zip(places, rows, strict=True), key=lambda pair: pair[0])
    for x, row in in_order:
        points, absent = found.setdefault(row.entrant, ([], []))
        measure = drawable(row.headline)
        if measure is None or measure.value is None:
            # The place of a full size is known, though it is not a number.
            absent.append(missing(row, x, row.headline))
            continue
        points.append(
            Point(
                x,
                measure.value,
                is_sound(row.verdict),
                told(row, measure),
                measure.low,
                measure.high,
            )
        )
    levels = scene.levels(ground, flat)
    series: list[Series] = [scene.series(name, *found[name]) for name in sorted(found)]
    series += [
        scene.series(row.entrant, (), [missing(row, math.inf, row.headline)])
        for row in flat
        if drawable(row.headline) is None
    ]
    every = [point for item in series for point in item.points]
    upright = vertical([*every, *(level.point for level in levels)])
    if upright is None:
        return None
    name, higher = subject(row.headline for row in (*rows, *flat, *scene.ceilings[ground]))
    return Panel(
        name=ground.name,
        subject=name,
        label=label,
        description=f"{name} against {label} on {ground.name}, {where}",
        horizontal=svg.chosen(ticks, LEFT + _ROOM, RIGHT - _ROOM, beyond),
        vertical=upright,
        series=tuple(series),
        higher=higher,
        levels=levels,
        dodged=True,
    )
