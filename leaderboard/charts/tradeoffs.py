"""Panels of utility against epsilon, IPC, attacks, time and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

from bench.leaderboard.charts.chart import Chart, finite
from bench.leaderboard.charts.draw import FULL, Axis, Panel, chosen, draw
from bench.leaderboard.charts.panels import (
    DatasetSetting,
    Missing,
    Point,
    Scene,
    drawable,
    missing,
    subject,
    tooltip,
)
from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables import show
from bench.leaderboard.tables.measures import Measure
from bench.leaderboard.tables.show import ipc_order
from bench.plugins.metric import Direction, Family


def against_epsilon(scene: Scene, ipc: str) -> Iterator[Panel]:
    """Yield one panel per dataset: headline utility at each target epsilon, at one IPC."""
    for ground in scene.grounds:
        rows = [row for row in scene.budgeted[ground] if row.ipc == ipc]
        flat = [row for row in scene.flat[ground] if row.ipc == ipc]
        targets = sorted({row.epsilons.target for row in rows if row.epsilons.target is not None})
        places = [row.epsilons.target or 1.0 for row in rows]
        axis = chosen({target: show.epsilon(target) for target in targets}, "target ε")
        panel = _utility_panel(scene, ground, rows, places, flat, axis, show.ipcs((ipc,)))
        if panel is not None:
            yield panel


@final
@dataclass(frozen=True)
class UtilityFigure:
    """Utility against target epsilon at one IPC, one chart per dataset."""

    ipc: str
    charts: tuple[Chart, ...]


def utility_figures(scene: Scene) -> tuple[UtilityFigure, ...]:
    """Return one figure per IPC, the largest first, methods that set their own size last."""
    ipcs = {row.ipc for ground in scene.grounds for row in scene.rows(ground)}
    figures = []
    for ipc in sorted(ipcs, key=show.largest_ipc_first):
        panels = (replace(panel, with_front=False) for panel in against_epsilon(scene, ipc))
        charts = tuple(draw(scene, panel) for panel in panels)
        if charts:
            figures.append(UtilityFigure(ipc, charts))
    return tuple(figures)


def against_ipc(scene: Scene, target: float) -> Iterator[Panel]:
    """Yield one panel per dataset: headline utility at each IPC, at one target epsilon.

    Methods without a budget are shown at every target; releases that set their own size are not.
    """
    for ground in scene.grounds:
        able = [row for row in scene.budgeted[ground] if row.epsilons.target == target]
        if not able:
            continue
        rows = [row for row in (*able, *scene.flat[ground]) if row.ipc != "own"]
        ipcs = sorted({row.ipc for row in rows}, key=ipc_order)
        if len(ipcs) < 2:
            continue
        counted = [ipc for ipc in ipcs if ipc.isdigit() and int(ipc) > 0]
        places = [float(row.ipc) if row.ipc in counted else math.inf for row in rows]
        beyond = FULL if FULL in ipcs else ""
        axis = chosen({float(ipc): ipc for ipc in counted}, "rows per class", beyond)
        words = f"target ε {show.epsilon(target)}"
        panel = _utility_panel(scene, ground, rows, places, (), axis, words)
        if panel is not None:
            yield panel


def _utility_panel(
    scene: Scene,
    ground: DatasetSetting,
    rows: Sequence[Row],
    places: Sequence[float],
    flat: Sequence[Row],
    axis: Axis,
    where: str,
) -> Panel | None:
    """Return the panel; None if there is nothing to draw."""
    if not rows:
        return None
    points: list[Point] = []
    absent: list[Missing] = []
    for x, row in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0]):
        measure = drawable(row.headline)
        if measure is None or measure.value is None:
            absent.append(missing(row, x, row.headline))
            continue
        sound, ends = is_sound(row.verdict), (measure.low, measure.high)
        points.append(Point(row.label, x, measure.value, sound, tooltip(row, measure), *ends))
    absent += [missing(row, math.inf, row.headline) for row in flat if not drawable(row.headline)]
    levels = scene.levels(ground, flat)
    if not points and not levels:
        return None
    name, higher = subject(row.headline for row in (*rows, *flat, *scene.ceilings[ground]))
    return Panel(
        name=ground.name,
        subject=name,
        where=where,
        axis=axis,
        points=tuple(points),
        higher=higher,
        missing=tuple(absent),
        levels=levels,
    )


# Utility against a score that should be low -------------------------------------------------------


_FIRST = ("mia/auroc", "domias/auroc", "mia-threshold/risk")
"""Membership attacks, which epsilon bounds, precede others with as many results."""
_LEAST = 1e-3
"""Smaller seconds and megabytes are drawn here, since a logarithm has no zero."""


@final
@dataclass(frozen=True)
class AttackMetric:
    """A metric of an attack."""

    metric: str
    results: int
    limit: float | None
    remarks: tuple[str, ...]

    @property
    def chance(self) -> float | None:
        """Value of guessing; lower values are not safer. None if the name does not tell."""
        last = self.metric.rsplit("/", 1)[-1]
        if last in ("auroc", "auc"):
            return 0.5
        return 0.0 if last.endswith(("gap", "excess", "advantage")) else None


@final
@dataclass(frozen=True)
class Cost:
    """A horizontal axis: its label and the value of a row."""

    label: str
    logarithmic: bool
    of: Callable[[Row], Measure | float | None]


SECONDS = Cost("fit seconds ↓", True, lambda row: row.fit_seconds)
MEMORY = Cost("peak memory in MB ↓", True, lambda row: row.peak_memory_mb)


def attacks(rows: Sequence[Row]) -> tuple[AttackMetric, ...]:
    """Return the attack metrics of the results, those of most rows first.

    These are the metrics of the family `privacy` for which lower is better: the success of an
    attack, not a distance. Metrics that the table of the leaderboard shows come first.
    """
    counts: dict[str, int] = {}
    shown: dict[str, bool] = {}
    limits: dict[str, float | None] = {}
    remarks: dict[str, dict[str, None]] = {}
    for row in rows:
        for measure in row.measures.values():
            fits = (
                measure.family == Family.PRIVACY.value
                and measure.direction == Direction.LOWER.value
            )
            if fits and drawable(measure) and drawable(row.headline):
                name = measure.metric
                counts[name] = counts.get(name, 0) + 1
                shown[name] = shown.get(name, False) or measure.shown
                limits[name] = limits.get(name) if measure.limit is None else measure.limit
                if measure.remark:
                    remarks.setdefault(name, {})[measure.remark] = None

    def preference(name: str) -> tuple[bool, int, int, str]:
        place = _FIRST.index(name) if name in _FIRST else len(_FIRST)
        return (not shown[name], -counts[name], place, name)

    return tuple(
        AttackMetric(name, counts[name], limits[name], tuple(remarks.get(name, ())))
        for name in sorted(counts, key=preference)
    )


def against_attack(scene: Scene, ipc: str, attack: AttackMetric) -> Iterator[Panel]:
    """Yield one panel per dataset: headline utility against an attack, at one IPC.

    A line connects the budgets of a method. An attack that performs worse than guessing counts as
    guessing on the front: that is chance, not safety.
    """
    cost = Cost(f"{attack.metric} ↓", False, lambda row: row.measures.get(attack.metric))
    uprights = []
    if attack.chance is not None:
        uprights.append((attack.chance, "chance"))
    if attack.limit is not None:
        uprights.append((attack.limit, f"limit {attack.limit:g}"))
    for ground in scene.grounds:
        panel = _tradeoff_panel(scene, ground, ipc, cost, True, attack.chance, uprights)
        if panel is not None:
            yield panel


def against_cost(scene: Scene, ipc: str, cost: Cost) -> Iterator[Panel]:
    """Yield one panel per dataset: headline utility against seconds or memory, at one IPC."""
    for ground in scene.grounds:
        panel = _tradeoff_panel(scene, ground, ipc, cost, False, None, ())
        if panel is not None:
            yield panel


def _tradeoff_panel(
    scene: Scene,
    ground: DatasetSetting,
    ipc: str,
    cost: Cost,
    with_ceilings: bool,
    chance: float | None,
    uprights: Sequence[tuple[float, str]],
) -> Panel | None:
    rows = [row for row in scene.rows(ground) if row.ipc == ipc]
    if not rows:
        return None
    placed = [*rows, *(scene.ceilings[ground] if with_ceilings else ())]
    points: list[Point] = []
    absent: list[Missing] = []
    for row in sorted(placed, key=lambda row: row.epsilons.target or 0.0):
        point = _point(row, cost, chance)
        if point is None:
            absent.append(_why(row, cost))
        else:
            points.append(point)
    if not points:
        return None
    name, higher = subject(row.headline for row in placed)
    return Panel(
        name=ground.name,
        subject=name,
        where=show.ipcs((ipc,)),
        axis=_axis(scene, points, cost, uprights),
        points=tuple(points),
        higher=higher,
        missing=tuple(absent),
        levels=scene.levels(ground, ()),
        uprights=tuple(uprights),
        joined=False,
    )


def _point(row: Row, cost: Cost, chance: float | None) -> Point | None:
    measure, spent = drawable(row.headline), cost.of(row)
    if measure is None or measure.value is None or spent is None:
        return None
    if isinstance(spent, Measure):
        if drawable(spent) is None or spent.value is None:
            return None
        x, left, right = spent.value, spent.low, spent.high
        also = f"{spent.metric} {show.number(x)} {show.interval(spent)}".strip()
    else:
        if not finite(spent):
            return None
        x, left, right = max(spent, _LEAST), None, None
        also = f"{cost.label.removesuffix(' ↓')} {spent:,.3g}"
    return Point(
        row.label,
        x,
        measure.value,
        is_sound(row.verdict),
        tooltip(row, measure, also),
        measure.low,
        measure.high,
        left,
        right,
        cost=x if chance is None else max(x, chance),
    )


def _why(row: Row, cost: Cost) -> Missing:
    spent = cost.of(row)
    absent = spent if drawable(row.headline) and isinstance(spent, Measure) else row.headline
    return missing(row, math.inf, absent)


def _axis(
    scene: Scene, points: Sequence[Point], cost: Cost, uprights: Sequence[tuple[float, str]]
) -> Axis:
    """Return an axis over all points and their whiskers.

    Attacks on real rows would hide the rest: they are drawn at its end, with their value.
    """
    if cost.logarithmic:
        return Axis(cost.label, True)
    shown = [point for point in points if point.series in scene.styles] or points
    ends = [end for p in shown for end in (p.x, p.left, p.right) if end is not None]
    ends += [value for value, _ in uprights]
    low, high = min(ends), max(ends)
    size = max(abs(low), abs(high), 1e-9)
    margin = 0.08 * (high - low) if high - low > 1e-9 * size else 0.05 * size
    return Axis(cost.label, domain=(low - margin, high + margin))
