"""Named charts for `bench plot` and for MLflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from bench.leaderboard.charts.audit import audit_charts
from bench.leaderboard.charts.cell import KINDS as CELL_KINDS
from bench.leaderboard.charts.chart import Chart, ChartError, combined, to_file
from bench.leaderboard.charts.draw import Panel, draw
from bench.leaderboard.charts.overview import by_epsilon, pareto_picture, rank_intervals
from bench.leaderboard.charts.panels import (
    MethodStyle,
    Scene,
    ipcs_first_to_last,
    scene,
    targets_first_to_last,
)
from bench.leaderboard.charts.tradeoffs import (
    MEMORY,
    SECONDS,
    against_attack,
    against_cost,
    against_epsilon,
    against_ipc,
    attacks,
)
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.ranking.significance import RankComparison
from bench.leaderboard.tables.details import CellFiles, NoSuchFile, Unavailable


@final
@dataclass(frozen=True)
class Results:
    """What the charts over all results are drawn from."""

    rows: Sequence[Row]
    styles: Mapping[str, MethodStyle]
    comparisons: Sequence[RankComparison]
    ipc: str = ""
    """Rows per class; empty for those with the most results."""
    dataset: str = ""
    """The dataset of charts with one panel per dataset; empty for all."""

    @property
    def setting(self) -> Scene:
        """The rows, sorted for charts."""
        return scene(self.rows, self.styles)


_Maker = Callable[[Results], Sequence[Chart]]


def _overview(make: Callable[[Scene, Sequence[Row], str], Chart | None]) -> _Maker:
    def charts(results: Results) -> list[Chart]:
        chart = make(results.setting, results.rows, results.ipc)
        return [] if chart is None else [chart]

    return charts


def _panels(make: Callable[[Scene, Results, str], Sequence[Panel]]) -> _Maker:
    def charts(results: Results) -> list[Chart]:
        setting = results.setting
        sizes = ipcs_first_to_last(setting)
        ipc = results.ipc or (sizes[0] if sizes else "")
        panels = make(setting, results, ipc)
        kept = [panel for panel in panels if results.dataset in ("", panel.name)]
        return [draw(setting, panel) for panel in kept]

    return charts


def _by_attack(setting: Scene, results: Results, ipc: str) -> Sequence[Panel]:
    tried = attacks(results.rows)
    return tuple(against_attack(setting, ipc, tried[0])) if tried else ()


def _by_ipc(setting: Scene, results: Results, ipc: str) -> Sequence[Panel]:
    del results, ipc
    targets = targets_first_to_last(setting)
    return tuple(against_ipc(setting, targets[0])) if targets else ()


KINDS: Mapping[str, tuple[str, _Maker]] = {
    "pareto": ("utility against proven and audited epsilon", _overview(pareto_picture)),
    "epsilon": ("utility against target epsilon, over datasets", _overview(by_epsilon)),
    "ranks": (
        "mean ranks with intervals",
        lambda results: [rank_intervals(each, results.styles) for each in results.comparisons[:1]],
    ),
    "datasets": (
        "utility against target epsilon on each dataset",
        _panels(lambda setting, _, ipc: tuple(against_epsilon(setting, ipc))),
    ),
    "ipc": ("utility against rows per class", _panels(_by_ipc)),
    "attacks-utility": ("utility against the success of an attack", _panels(_by_attack)),
    "time": (
        "utility against fit time",
        _panels(lambda setting, _, ipc: tuple(against_cost(setting, ipc, SECONDS))),
    ),
    "memory": (
        "utility against peak memory",
        _panels(lambda setting, _, ipc: tuple(against_cost(setting, ipc, MEMORY))),
    ),
    "audit": (
        "audited against claimed and proven epsilon",
        lambda results: audit_charts(results.setting, results.rows).charts,
    ),
}
"""Charts over all results: what they show, and how they are made."""

OF_A_CELL: Mapping[str, str] = {kind.name: kind.title for kind in CELL_KINDS}
"""Charts of one cell."""


def all_charts(results: Results, kind: str) -> tuple[Chart, ...]:
    """Return the charts of a kind; raise `ChartError` where there is nothing to draw."""
    charts = tuple(KINDS[kind][1](results))
    if not charts:
        where = " ".join(part for part in (results.dataset, results.ipc) if part)
        raise ChartError(
            f"nothing to draw for {kind!r} ({KINDS[kind][0]}){' at ' + where if where else ''}; "
            "the run has no such results"
        )
    return charts


def run_files(
    results: Results, endings: Sequence[str] = ("svg", "json"), columns: int = 3
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every chart over all results that there are results for."""
    for kind in KINDS:
        try:
            figure = combined(all_charts(results, kind), columns)
        except ChartError:
            continue  # a run without audits, say
        for ending in endings:
            yield f"{kind}.{ending}", to_file(figure, ending)


def cell_file(files: CellFiles, task: str) -> tuple[str, bytes] | None:
    """Return name and picture of the first figure of a cell; None where the run stores none.

    For most tasks it shows the headline: the ROC curve, survival curves, the confusion matrix.
    """
    for kind in CELL_KINDS:
        if task in kind.tasks:
            try:
                charts = cell_charts(files, kind.name)
            except ChartError:
                continue
            return f"{kind.name}.svg", to_file(combined(charts), "svg")
    return None


def cell_charts(files: CellFiles, kind: str) -> tuple[Chart, ...]:
    """Return the charts of one cell; raise `ChartError` with the reason why there are none."""
    (found,) = [each for each in CELL_KINDS if each.name == kind]
    try:
        return found.draw(files).charts
    except (Unavailable, NoSuchFile) as problem:
        raise ChartError(
            f"no chart {kind!r} of this cell: {problem}; bench score RUN --metrics {found.metric} "
            "computes what it shows"
        ) from None
