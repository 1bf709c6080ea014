"""The page of plots: utility against epsilon, attacks, IPC, time and memory, and audits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from markupsafe import Markup

from bench.leaderboard.charts.audit import audit_charts
from bench.leaderboard.charts.draw import Panel, draw
from bench.leaderboard.charts.heat import HeatMap, heat_map, steps
from bench.leaderboard.charts.overview import by_epsilon, method_legend, pareto_picture
from bench.leaderboard.charts.panels import (
    FrontPoint,
    Prominence,
    Scene,
    ipcs_first_to_last,
    scene,
    targets_first_to_last,
)
from bench.leaderboard.charts.sheet import SCRIPT, Sheet, legend
from bench.leaderboard.charts.tradeoffs import (
    MEMORY,
    SECONDS,
    AttackMetric,
    against_attack,
    against_cost,
    against_epsilon,
    against_ipc,
    attacks,
)
from bench.leaderboard.pages.board import Board
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables import show
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import Page

BUDGET = 330_000
"""Maximum number of characters of the data of the charts of one section."""
FIRST_BUDGET = 620_000
"""The same for the first section."""
STATIC = 6
"""Number of panels that are also drawn for readers without scripts."""
ATTACKS = 4
"""Number of attacks that are drawn."""


@final
@dataclass(frozen=True)
class Facet:
    """Panels under one collapsible heading."""

    summary: str
    panels: tuple[Markup, ...]
    front: tuple[FrontPoint, ...]
    label: str
    """Label of the horizontal axis."""
    note: str = ""


@final
@dataclass(frozen=True)
class HeatFacet:
    """One heat map under a heading."""

    summary: str
    table: HeatMap


@final
@dataclass(frozen=True)
class PlotSection:
    """The facets of a section, and the names of those that were left out."""

    facets: tuple[Facet, ...]
    left_out: tuple[str, ...]


@final
@dataclass(frozen=True)
class PendingFacet:
    """A facet that has not been drawn yet."""

    summary: str
    panels: Callable[[], Iterable[Panel]]
    note: str = ""


def pages(board: Board) -> Iterator[Page]:
    """Yield the page of plots."""
    setting = scene(board.rows, board.styles)
    ipcs = ipcs_first_to_last(setting)
    targets = targets_first_to_last(setting)
    tried = attacks(board.rows)[:ATTACKS]
    sheet = Sheet()
    overview = [make(setting, board.rows) for make in (pareto_picture, by_epsilon)]
    drawing = partial(_drawn, setting, sheet)
    audit = audit_charts(setting, board.rows)
    heat, heat_left_out = _heat(setting, board.rows, ipcs, targets)
    yield rendering.page(
        rendering.PLOTS,
        "plots.html",
        scripts=("plots.js", SCRIPT),
        css=Markup(rendering.asset("plots.css")),
        notes=[note for note in board.notes if note.study_only],
        methods=tuple(setting.roles),
        datasets=[ground.name for ground in setting.grounds],
        legend=legend(method_legend(setting, board.rows)),
        overview=[sheet.place(chart, static=True) for chart in overview if chart is not None],
        leading=sum(role is Prominence.LEADING for role in setting.roles.values()),
        others=sum(role is Prominence.OTHER for role in setting.roles.values()),
        privacy=drawing(_by_epsilon(setting, ipcs), FIRST_BUDGET, static=STATIC),
        attack=drawing(_by_attack(setting, ipcs, tried)),
        attacks=tried,
        ipc=drawing(_by_ipc(setting, targets)),
        ipcs=sorted({row.ipc for row in board.rows if row.ipc.isdigit()}, key=int),
        heat=heat,
        heat_left_out=heat_left_out,
        steps=steps(),
        time=drawing(_by_cost(setting, ipcs)),
        audit=audit,
        audits=[sheet.place(chart, static=True) for chart in audit.charts],
        empty=not board.rows,
        value_text=_value_text,
        # Evaluated last: all charts have been placed.
        charts=sheet.data(),
    )


def _by_epsilon(setting: Scene, ipcs: Sequence[str]) -> Iterator[PendingFacet]:
    for ipc in ipcs:
        yield PendingFacet(show.ipcs((ipc,)), partial(against_epsilon, setting, ipc))


def _by_attack(
    setting: Scene, ipcs: Sequence[str], tried: Sequence[AttackMetric]
) -> Iterator[PendingFacet]:
    """Yield all attacks at the first IPC, then the first attack at all others."""
    pairs = [(ipcs[0], attack) for attack in tried] if ipcs else []
    pairs += [(ipc, attack) for ipc in ipcs[1:] for attack in tried[:1]]
    for ipc, attack in pairs:
        yield PendingFacet(
            f"{attack.metric}, {show.ipcs((ipc,))}",
            partial(against_attack, setting, ipc, attack),
            "; ".join(attack.remarks[:2]),
        )


def _by_ipc(setting: Scene, targets: Sequence[float]) -> Iterator[PendingFacet]:
    for target in targets:
        yield PendingFacet(
            f"target ε {show.epsilon(target)}",
            partial(against_ipc, setting, target),
        )


def _by_cost(setting: Scene, ipcs: Sequence[str]) -> Iterator[PendingFacet]:
    pairs = [(ipc, SECONDS) for ipc in ipcs]
    pairs[1:1] = [(ipc, MEMORY) for ipc in ipcs[:1]]
    for ipc, cost in pairs:
        yield PendingFacet(
            f"{cost.label.removesuffix(' ↓')}, {show.ipcs((ipc,))}",
            partial(against_cost, setting, ipc, cost),
        )


def _drawn(
    setting: Scene,
    sheet: Sheet,
    wanted: Iterable[PendingFacet],
    budget: int = BUDGET,
    static: int = 0,
) -> PlotSection:
    """Draw facets until the next one would probably exceed the budget; at least one.

    The first `static` charts are drawn for readers without scripts as well.
    """
    facets: list[Facet] = []
    left_out = []
    start = sheet.size
    for item in wanted:
        if _full(sheet.size - start, len(facets), budget):
            left_out.append(item.summary)
            continue
        panels = tuple(item.panels())
        if not panels:
            continue
        placed = tuple(
            sheet.place(draw(setting, panel), static=not facets and number < static)
            for number, panel in enumerate(panels)
        )
        members = tuple(member for panel in panels for member in panel.members)
        facets.append(Facet(item.summary, placed, members, panels[0].axis.title, item.note))
    return PlotSection(tuple(facets), tuple(left_out))


def _full(used: int, facets: int, budget: int) -> bool:
    return facets > 0 and used + used / facets > budget


def _heat(
    setting: Scene, rows: Sequence[Row], ipcs: Sequence[str], targets: Sequence[float]
) -> tuple[tuple[HeatFacet, ...], tuple[str, ...]]:
    """Return the first IPC at all epsilons, then all IPCs at the first epsilon, then the rest."""
    budgets: Sequence[float | None] = targets or (None,)
    pairs = [(ipc, target) for ipc in ipcs for target in budgets]
    pairs.sort(key=lambda pair: 0 if pair[0] == ipcs[0] else 1 + (pair[1] != budgets[0]))
    facets: list[HeatFacet] = []
    left_out = []
    used = 0
    for ipc, target in pairs:
        budget = "no budget" if target is None else f"target ε {show.epsilon(target)}"
        summary = f"{show.ipcs((ipc,))}, {budget}"
        if _full(used, len(facets), BUDGET):
            left_out.append(summary)
            continue
        table = heat_map(setting, rows, ipc, target)
        if table is not None:
            used += sum(40 + len(cell.title) for line in table.lines for cell in line.cells)
            facets.append(HeatFacet(summary, table))
    return tuple(facets), tuple(left_out)


def _value_text(value: float, label: str) -> str:
    """Return the horizontal value of a point on the front."""
    if math.isinf(value):
        return "full size"
    return show.epsilon(value) if "ε" in label or "rows" in label else show.number(value)
