"""The figures about one cell: each where its data are there, otherwise why not."""

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
    """A figure that a cell may have."""

    name: str
    """The anchor on the page."""
    title: str
    family: Family
    metric: str
    """Its details are drawn; its scores know why there are none."""
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
        "Which images are taken for which",
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
        "Which columns matter",
        Family.UTILITY,
        "shap",
        cell_panels.importance,
        _TABLES,
    ),
    FigureKind(
        "marginals",
        "Columns, real against released",
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
    """A figure, or why there is none."""

    kind: FigureKind
    figure: CellFigure | None
    reason: str = ""


def figures(
    files: CellFiles, task: str, scores: Sequence[ScoreRow], asked: Sequence[str]
) -> tuple[FigureOrReason, ...]:
    """All figures of a task; `asked` are the metrics that scored the release."""
    found = []
    for kind in KINDS:
        if task and task not in kind.tasks:
            continue
        try:
            found.append(FigureOrReason(kind, kind.draw(files)))
        except Unavailable as problem:
            found.append(FigureOrReason(kind, None, str(problem)))
        except NoSuchFile as problem:
            found.append(FigureOrReason(kind, None, _why(kind, scores, asked) or str(problem)))
    return tuple(found)


def _why(kind: FigureKind, scores: Sequence[ScoreRow], asked: Sequence[str]) -> str:
    """What the metric itself said, or that nobody asked it."""
    own = [s for s in scores if s.metric == kind.metric or s.metric.startswith(f"{kind.metric}/")]
    said = dict.fromkeys(score.reason for score in own if score.value is None and score.reason)
    if said:
        return "; ".join(said)
    if not own and kind.metric not in asked:
        return f"not computed: bench score RUN --metrics {kind.metric} adds it"
    return ""
