"""Heat map of methods by datasets: headline utility as a share of that of the real rows.

The heat map is an HTML table, so that screen readers can read it and users can copy it. Colours
have fixed steps, the same in all tables, so that tables can be compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from bench.leaderboard.charts.panels import DatasetSetting, Scene, drawable, higher, skipped
from bench.leaderboard.ranking.quantities import (
    over_datasets,
    printed_win_rate,
    share_of_real,
)
from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables import show
from bench.leaderboard.tables.measures import Measure

STEPS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Boundaries of the colours; the last colour is for values that reach the real rows."""

_REASON = 160


@final
@dataclass(frozen=True)
class HeatCell:
    """One method on one dataset."""

    text: str
    classes: str
    """Style classes: colour step, failed, skipped."""
    title: str


@final
@dataclass(frozen=True)
class HeatLine:
    """One method on all datasets."""

    label: str
    reference: str
    cells: tuple[HeatCell, ...]


@final
@dataclass(frozen=True)
class HeatColumn:
    """One dataset."""

    dataset: str
    name: str
    metric: str
    real: str
    """Utility of the real rows; empty if they were not run."""


@final
@dataclass(frozen=True)
class HeatMap:
    """All methods and datasets at one IPC and target epsilon."""

    columns: tuple[HeatColumn, ...]
    lines: tuple[HeatLine, ...]
    finding: str


@final
@dataclass(frozen=True)
class HeatStep:
    """One colour of the scale."""

    number: int
    text: str


def steps() -> tuple[HeatStep, ...]:
    """Return the colours and their meaning."""
    texts = [f"below {STEPS[0]:.0%}"]
    texts += [f"{100 * low:.0f} to {high:.0%}" for low, high in itertools.pairwise(STEPS)]
    return tuple(HeatStep(k, text) for k, text in enumerate([*texts, f"{STEPS[-1]:.0%} or more"]))


def step(share: float) -> int:
    """Return the colour step of a share of the utility of the real rows."""
    return sum(share >= limit for limit in STEPS)


def relative(measure: Measure | None, real: Measure | None) -> float | None:
    """Return utility as a share of that of the real rows, as all pages print it.

    None if either is missing or not positive, or lower is better: a share has no meaning then.
    """
    released, top = drawable(measure), drawable(real)
    if released is None or top is None or not higher(released.direction):
        return None
    return share_of_real(released.value, top.value)


def heat_map(scene: Scene, rows: Sequence[Row], ipc: str, target: float | None) -> HeatMap | None:
    """Return the releases at one IPC and target epsilon, and those without a budget."""
    by_place: dict[tuple[str, DatasetSetting], Row] = {}
    grounds = []
    for ground in scene.grounds:
        matches = [
            row
            for row in scene.rows(ground)
            if row.ipc == ipc and row.epsilons.target in (target, None)
        ]
        if any(row.epsilons.target == target for row in matches):
            grounds.append(ground)
            by_place |= {(row.label, ground): row for row in matches}
    if not grounds:
        return None
    reals = {ground: _real(scene, ground) for ground in grounds}
    present = {name for name, _ in by_place}
    reference = {row.label: row.reference for row in rows}
    names = [name for name in scene.roles if name in present]
    lines = [
        HeatLine(
            name,
            reference[name],
            tuple(_cell(by_place.get((name, ground)), reals[ground]) for ground in grounds),
        )
        for name in names
    ]
    columns = tuple(
        _column(ground, reals[ground], [row for (_, g), row in by_place.items() if g == ground])
        for ground in grounds
    )
    return HeatMap(columns, tuple(lines), _finding(by_place))


def _real(scene: Scene, ground: DatasetSetting) -> Measure | None:
    present = [drawable(row.headline) for row in scene.ceilings[ground]]
    return next((measure for measure in present if measure is not None), None)


def _column(ground: DatasetSetting, real: Measure | None, rows: Sequence[Row]) -> HeatColumn:
    first = next((row.headline for row in rows if row.headline is not None), real)
    return HeatColumn(
        ground.dataset,
        ground.name,
        "" if first is None else f"{first.metric} {show.arrow(first.direction)}",
        "" if real is None else show.number(real.value),
    )


def _cell(row: Row | None, real: Measure | None) -> HeatCell:
    if row is None:
        return HeatCell("", "none", "")
    why = show.shortened("; ".join(p.reason or p.status for p in row.problems), _REASON)
    if skipped(row):
        return HeatCell("skip", "none", f"skipped: {why}")
    measure = drawable(row.headline)
    if row.headline is None and not row.failed:
        return HeatCell(show.ABSENT, "none", row.place.reason)
    if measure is None:
        absent = "" if row.headline is None else "; ".join(row.headline.reasons)
        return HeatCell("✕", "failing", f"no value: {why or absent}")
    share = relative(measure, real)
    classes, titles = [], []
    if share is None:
        text = show.number(measure.value)
        classes.append("plain")
    else:
        text = show.share(share).removesuffix("%")
        classes.append(f"h{step(share)}")
    if not is_sound(row.verdict):
        text += "○"
        titles.append(row.verdict or "no verdict")
    if row.failed:
        classes.append("failing")
        titles.append(f"{row.failed} of {row.cells} cells failed: {why}")
    if titles:
        titles.insert(0, f"{show.number(measure.value)} {show.interval(measure)}".strip())
    return HeatCell(text, " ".join(classes), "; ".join(titles))


def _finding(by_place: Mapping[tuple[str, DatasetSetting], Row]) -> str:
    """Return the methods with the highest win rate, which the front page calls the best as well."""
    beaten: dict[str, list[tuple[str, float]]] = {}
    for (name, ground), row in by_place.items():
        if row.place.beaten is not None and row.epsilons.target is not None:
            beaten.setdefault(name, []).append((ground.dataset, row.place.beaten))
    if not beaten:
        return "No two sound methods are ranked here."
    wins = {name: printed_win_rate(over_datasets(known) or 0.0) for name, known in beaten.items()}
    first = min(wins, key=lambda name: (-wins[name], name))
    best = [
        name
        for name in sorted(wins)
        if wins[name] == wins[first] and len(beaten[name]) == len(beaten[first])
    ]
    datasets = len({ground for _, ground in by_place})
    return (
        f"Highest win rate of the sound methods here: {', '.join(best)} "
        f"({show.share(wins[first] / 100)}), ranked "
        f"on {len(beaten[first])} of {show.plural(datasets, 'dataset')}."
    )
