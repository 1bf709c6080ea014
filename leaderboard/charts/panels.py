"""What panels share: rows sorted by dataset, and how each method is drawn on every page."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import final

from bench.leaderboard.charts.chart import SHAPES, finite
from bench.leaderboard.ranking.rank import CEILING, is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables import show
from bench.leaderboard.tables.measures import Measure
from bench.plugins.metric import Direction

PALETTE = ("c0", "c1", "c2", "c3", "c4", "c5")
"""Colours of methods, by their names in `chart.COLOURS`."""
MARKERS = tuple(name for name in SHAPES if name != "star")
DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (8, 3), (3, 2), (9, 2, 2, 2))
"""Dashes and gaps of the lines of methods."""
REFERENCE_DASHES = (5, 4)

LEADING = 6
"""Number of highlighted methods if there are more than `FIT`."""
FIT = 8
"""Up to this number of methods, besides references, all are highlighted."""


@final
@dataclass(frozen=True)
class MethodStyle:
    """How one method is drawn, on every page the same."""

    colour: str
    marker: str
    dashes: int = 0


class Prominence(enum.Enum):
    """Whether a method is highlighted."""

    LEADING = "leading"
    REFERENCE = "reference"
    OTHER = "other"


@final
@dataclass(frozen=True)
class Look:
    """Highlighted series with their colours, markers and dashes, in the order of the legend."""

    names: tuple[str, ...]
    colours: tuple[str, ...]
    shapes: tuple[str, ...]
    dashes: tuple[tuple[int, ...], ...]

    def only(self, names: Sequence[str]) -> Look:
        """Return the look of some of the series."""
        kept = [k for k, name in enumerate(self.names) if name in names]
        return Look(
            tuple(self.names[k] for k in kept),
            tuple(self.colours[k] for k in kept),
            tuple(self.shapes[k] for k in kept),
            tuple(self.dashes[k] for k in kept),
        )


@final
@dataclass(frozen=True)
class Point:
    """One result in a panel."""

    series: str
    x: float
    y: float
    sound: bool
    text: str
    """The tooltip."""
    low: float | None = None
    """Interval of y."""
    high: float | None = None
    left: float | None = None
    """Interval of x."""
    right: float | None = None
    cost: float | None = None
    """Value that the front uses instead of x, if any."""


@final
@dataclass(frozen=True)
class Missing:
    """A result without a value; `x` is infinite if its position is unknown."""

    series: str
    x: float
    text: str
    skipped: bool
    reason: str = ""


@final
@dataclass(frozen=True)
class FrontPoint:
    """A point on the front, for the table below the panels."""

    panel: str
    label: str
    x: float
    y: float


# Rows of the leaderboard, sorted for panels -------------------------------------------------------


_REASON = 140


@final
@dataclass(frozen=True)
class DatasetSetting:
    """A dataset in one setting: one panel for each IPC or epsilon."""

    dataset: str
    variant: str
    split: str

    @property
    def name(self) -> str:
        """Heading of a panel."""
        return f"{self.dataset} ({self.variant})" if self.variant else self.dataset


@final
@dataclass(frozen=True)
class Scene:
    """Rows, styles and prominence that all panels draw from."""

    roles: Mapping[str, Prominence]
    """Prominence of all methods, best mean rank first, references last."""
    styles: Mapping[str, MethodStyle]
    grounds: tuple[DatasetSetting, ...]
    budgeted: Mapping[DatasetSetting, tuple[Row, ...]]
    flat: Mapping[DatasetSetting, tuple[Row, ...]]
    """Methods without a budget: the same at every epsilon."""
    ceilings: Mapping[DatasetSetting, tuple[Row, ...]]

    def rows(self, ground: DatasetSetting) -> tuple[Row, ...]:
        """Return all rows except the ceilings."""
        return (*self.budgeted[ground], *self.flat[ground])

    def faint(self, label: str) -> bool:
        """Return whether a method is drawn faintly."""
        return self.roles[label] is Prominence.OTHER

    @property
    def look(self) -> Look:
        """How the highlighted methods and the references are drawn."""
        names = tuple(name for name in self.roles if not self.faint(name))
        styles = [self.styles.get(name) for name in names]
        return Look(
            names,
            tuple("text" if style is None else style.colour for style in styles),
            tuple("star" if style is None else style.marker for style in styles),
            tuple(
                REFERENCE_DASHES
                if self.roles[name] is Prominence.REFERENCE or style is None
                else DASHES[style.dashes]
                for name, style in zip(names, styles, strict=True)
            ),
        )

    def levels(self, ground: DatasetSetting, flat: Iterable[Row]) -> tuple[Point, ...]:
        """Return ceilings and rows without a budget: horizontal lines."""
        lines = []
        for row in (*self.ceilings[ground], *flat):
            measure = drawable(row.headline)
            if measure is not None and measure.value is not None:
                text, sound = tooltip(row, measure), is_sound(row.verdict)
                lines.append(Point(row.label, 0.0, measure.value, sound, text))
        return tuple(lines)


def scene(rows: Sequence[Row], styles: Mapping[str, MethodStyle]) -> Scene:
    """Sort the rows of a board for its panels."""
    roles = _roles(rows)
    ceilings = [row for row in rows if row.reference == CEILING]
    budgeted: dict[DatasetSetting, list[Row]] = {}
    free: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.reference == CEILING:
            continue
        if row.epsilons.target is None:
            free.setdefault((row.dataset, row.split), []).append(row)
        else:
            ground = DatasetSetting(row.dataset, row.variant, row.split)
            budgeted.setdefault(ground, []).append(row)
    covered = {(ground.dataset, ground.split) for ground in budgeted}
    alone = [
        DatasetSetting(dataset, "", split)
        for dataset, split in free
        if (dataset, split) not in covered
    ]
    grounds = tuple(sorted((*budgeted, *alone), key=lambda ground: (ground.name, ground.split)))
    return Scene(
        roles=roles,
        styles=styles,
        grounds=grounds,
        budgeted={ground: tuple(budgeted.get(ground, ())) for ground in grounds},
        flat={ground: tuple(free.get((ground.dataset, ground.split), ())) for ground in grounds},
        ceilings={
            ground: tuple(
                row
                for row in ceilings
                if (row.dataset, row.split) == (ground.dataset, ground.split)
            )
            for ground in grounds
        },
    )


def _roles(rows: Sequence[Row]) -> dict[str, Prominence]:
    """Return the prominence of methods by mean rank, references last."""
    others = order(rows)
    leading = set(foreground(others))
    roles = {name: Prominence.LEADING if name in leading else Prominence.OTHER for name in others}
    references = sorted({row.label for row in rows if row.reference})
    return roles | dict.fromkeys(references, Prominence.REFERENCE)


def styles(rows: Sequence[Row]) -> dict[str, MethodStyle]:
    """Return a colour, a marker and dashes for each method except the ceilings.

    Highlighted methods come first and get the most distinct styles; there are 36 pairs of colour
    and marker before one repeats.
    """
    others = order(rows)
    fore = foreground(others)
    references = sorted({row.label for row in rows if row.reference not in ("", CEILING)})
    turns = len(PALETTE)
    return {
        name: MethodStyle(
            PALETTE[place % turns],
            MARKERS[(place + place // turns) % len(MARKERS)],
            place % len(DASHES),
        )
        for place, name in enumerate((*fore, *references, *others[len(fore) :]))
    }


def foreground(others: Sequence[str]) -> Sequence[str]:
    """Return the methods to highlight: all, or the first ones if there are many."""
    return others if len(others) <= FIT else others[:LEADING]


def order(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the methods without references, by mean rank, then those without a rank by name."""
    ranks: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if not row.reference:
            by_dataset = ranks.setdefault(row.label, {})
            if row.place.rank is not None:
                by_dataset.setdefault(row.dataset, []).append(row.place.rank)
    # Datasets have equal weight, however many IPCs and budgets were run on them.
    means = {
        name: fmean(fmean(values) for values in by_dataset.values()) if by_dataset else math.inf
        for name, by_dataset in ranks.items()
    }
    return tuple(sorted(ranks, key=lambda name: (means[name], name)))


def drawable(measure: Measure | None) -> Measure | None:
    """Return the measure if an axis can show it; otherwise None."""
    if measure is None or not finite(measure.value):
        return None
    ends = [end for end in (measure.low, measure.high) if end is not None]
    return measure if all(finite(end) for end in ends) else None


def higher(direction: str) -> bool:
    """Return whether higher is better."""
    return direction != Direction.LOWER.value


def subject(measures: Iterable[Measure | None]) -> tuple[str, bool]:
    """Return the label of the vertical axis, and whether higher is better."""
    first = next((measure for measure in measures if measure is not None), None)
    if first is None:
        return "utility", True
    return f"{first.metric} {show.arrow(first.direction)}", higher(first.direction)


def tooltip(row: Row, measure: Measure, also: str = "") -> str:
    """Return the tooltip of a result."""
    name = row.label
    if row.epsilons.target is not None:
        proven = show.epsilon_span(row.epsilons.proven)
        name += f", target ε {show.epsilon(row.epsilons.target)} (proven {proven})"
    value = f"{measure.metric} {show.number(measure.value)} {show.interval(measure)}".strip()
    ending = [value, *([also] if also else []), row.verdict or "no verdict"]
    if row.failed:
        ending.append(f"{row.failed} of {row.cells} cells failed")
    return f"{name}: {'; '.join(ending)}"


def missing(row: Row, x: float, what: Measure | None) -> Missing:
    """Return a result without a value, with the reason."""
    why = "; ".join(problem.reason or problem.status for problem in row.problems)
    if what is not None:
        why = why or "; ".join(what.reasons)
    target = row.epsilons.target
    budget = "" if target is None else f", target ε {show.epsilon(target)}"
    text = f"{row.label}{budget}: no value" + (f"; {why}" if why else "")
    reason = show.shortened(why, _REASON)
    return Missing(row.label, x, show.shortened(text, _REASON), skipped(row), reason)


def skipped(row: Row) -> bool:
    """Return whether the method does not support the task; nothing failed."""
    return row.skipped > 0 and row.finished + row.failed == 0


def ipcs_first_to_last(scene: Scene) -> tuple[str, ...]:
    """Return the IPC with the most results first, then larger before smaller, own sizes last."""
    counts: dict[str, int] = {}
    for ground in scene.grounds:
        for row in scene.rows(ground):
            counts[row.ipc] = counts.get(row.ipc, 0) + (drawable(row.headline) is not None)
    largest_first = sorted(counts, key=show.largest_ipc_first)
    if not largest_first:
        return ()
    most = max(largest_first, key=lambda ipc: counts[ipc])
    return (most, *(ipc for ipc in largest_first if ipc != most))


def targets_first_to_last(scene: Scene) -> tuple[float, ...]:
    """Return the target epsilon with the most results (nearest to 1 in a tie), then the others."""
    counts: dict[float, int] = {}
    for rows in scene.budgeted.values():
        for row in rows:
            if row.epsilons.target is not None:
                there = drawable(row.headline) is not None
                counts[row.epsilons.target] = counts.get(row.epsilons.target, 0) + there
    if not counts:
        return ()
    most = min(counts, key=lambda target: (-counts[target], abs(math.log(target))))
    return (most, *(target for target in sorted(counts) if target != most))
