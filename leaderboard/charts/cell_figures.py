"""The figures of one cell, or why they are not available."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from bench.data.schema import Task
from bench.leaderboard.charts import cell_panels
from bench.leaderboard.charts.cell_panels import CellFigure
from bench.leaderboard.tables.details import CellFiles, NoSuchFile, Unavailable
from bench.plugins.metric import Family
from bench.results.records import ScoreRow

_TABLES = (Task.CLASSIFICATION.value, Task.SURVIVAL.value)


@final
@dataclass(frozen=True)
class FigureKind:
    """A kind of figure that a cell may have."""

    name: str
    """Anchor on the page."""
    title: str
    family: Family
    metric: str
    """Metric whose details are drawn; its scores give the reason if there are none."""
    draw: Callable[[CellFiles], CellFigure]
    tasks: tuple[str, ...] = tuple(task.value for task in Task)


KINDS = (
    FigureKind(
        "survival",
        "Survival curves",
        Family.FIDELITY,
        "km",
        cell_panels.kaplan_meier,
        (Task.SURVIVAL.value,),
    ),
    FigureKind(
        "roc",
        "ROC of the downstream model",
        Family.UTILITY,
        "auroc",
        cell_panels.roc,
        (Task.CLASSIFICATION.value,),
    ),
    FigureKind(
        "confusion",
        "Confusion matrix",
        Family.UTILITY,
        "accuracy/convnet",
        cell_panels.confusion,
        (Task.IMAGE.value,),
    ),
    FigureKind(
        "hazards",
        "Hazard ratios",
        Family.UTILITY,
        "hazard",
        cell_panels.hazards,
        (Task.SURVIVAL.value,),
    ),
    FigureKind(
        "importance",
        "Feature importance",
        Family.UTILITY,
        "shap",
        cell_panels.importance,
        _TABLES,
    ),
    FigureKind(
        "marginals",
        "Column distributions",
        Family.FIDELITY,
        "moments",
        cell_panels.marginals,
        _TABLES,
    ),
    FigureKind(
        "correlations",
        "Correlations",
        Family.FIDELITY,
        "pcd",
        cell_panels.correlations,
        _TABLES,
    ),
    FigureKind(
        "embedding",
        "Real and released rows in two dimensions",
        Family.FIDELITY,
        "embedding",
        cell_panels.embedding,
    ),
    FigureKind(
        "closest",
        "Distance to the closest record",
        Family.PRIVACY,
        "dcr-distribution",
        cell_panels.closest,
    ),
    FigureKind("attacks", "Membership attacks", Family.PRIVACY, "mia", cell_panels.attacks),
    FigureKind(
        "attributes",
        "Attribute inference",
        Family.PRIVACY,
        "aia",
        cell_panels.attributes,
        _TABLES,
    ),
)


@final
@dataclass(frozen=True)
class FigureOrReason:
    """A figure, or the reason why it is not available."""

    kind: FigureKind
    figure: CellFigure | None
    reason: str = ""


def figures(
    files: CellFiles, task: str, scores: Sequence[ScoreRow], asked: Sequence[str]
) -> tuple[FigureOrReason, ...]:
    """Return all figures of a task; `asked` are the metrics that scored the release."""
    results = []
    for kind in KINDS:
        if task and task not in kind.tasks:
            continue
        try:
            results.append(FigureOrReason(kind, kind.draw(files)))
        except Unavailable as problem:
            results.append(FigureOrReason(kind, None, str(problem)))
        except NoSuchFile as problem:
            results.append(FigureOrReason(kind, None, _why(kind, scores, asked) or str(problem)))
    return tuple(results)


def _why(kind: FigureKind, scores: Sequence[ScoreRow], asked: Sequence[str]) -> str:
    """Return the reason given by the metric, or that it was not requested."""
    related = [
        s for s in scores if s.metric == kind.metric or s.metric.startswith(f"{kind.metric}/")
    ]
    said = dict.fromkeys(score.reason for score in related if score.value is None and score.reason)
    if said:
        return "; ".join(said)
    if not related and kind.metric not in asked:
        return f"not computed: bench score RUN --metrics {kind.metric} adds it"
    return ""
