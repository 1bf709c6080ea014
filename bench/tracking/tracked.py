"""What MLflow is told: tags, parameters and metrics of a cell, and which columns people see."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from bench.plugins.metric import HEADLINES, Family
from bench.results.records import CellRow, ScoreRow
from bench.results.reproduce import table

_PARAMETERS = (
    "method",
    "label",
    "dataset",
    "task",
    "ipc",
    "full_size",
    "eps_target",
    "delta",
    "seed",
    "split",
    "split_seed",
    "unit",
    "adjacency",
    "private_counts",
)
_TAGS = (
    "status",
    "reason",
    "verdict",
    "verdict_reason",
    "accountant",
    "claim_source",
    "study_only",
    "warnings",
    "fingerprint",
    "source_hash",
)
_COSTS = ("fit_seconds", "score_seconds", "peak_memory_mb", "rows_released")
_EPSILONS = ("target", "claimed", "proven", "audited")
_GRID = ("ipc", "seed")
_TAG_LENGTH = 5000
_FORBIDDEN = re.compile(r"[^\w\-. :/]")


VIEW = "bench"
"""Name of the view of an experiment that shows the cells as a table to compare."""


def view() -> dict[str, str]:
    """Tag of an experiment that holds the view: columns, and the order of the rows.

    Any order but by time makes the interface list nested runs flat, one line a cell.
    """
    headlines = [f"metrics.`{Family.UTILITY.value}/{name}`" for name in HEADLINES.values()]
    # Few, so that they fit on a screen; how a cell ended and how long it took is there anyway.
    columns = [
        *("params.`dataset`", "params.`label`", "tags.`verdict`"),
        *("metrics.`epsilon/proven`", "metrics.`epsilon/target`", "metrics.`grid/ipc`"),
        *headlines,
    ]
    state = {"selectedColumns": columns, "orderByKey": "params.`dataset`", "orderByAsc": True}
    return {f"mlflow.sharedViewState.{VIEW}": json.dumps(state)}


def tags_of(row: CellRow) -> dict[str, str]:
    """Verdict, status and what else is text; with a description for people."""
    tags = {name: str(getattr(row, name))[:_TAG_LENGTH] for name in _TAGS}
    tags["eps_proven"] = "" if row.eps_proven is None else f"{row.eps_proven:.6g}"
    reason = f": {markdown(row.verdict_reason)}" if row.verdict_reason else ""
    ended = f": {markdown(row.reason)}" if row.reason else ""
    tags["mlflow.note.content"] = (
        f"**{markdown(row.verdict or 'no verdict')}**{reason}\n\n"
        f"Status {row.status}{ended}\n\nThe whole cell on one page: artifact `report.html`."
    )[:_TAG_LENGTH]
    return tags


def parameters_of(row: CellRow) -> dict[str, str]:
    """What was asked for; each hyperparameter on its own, so that methods line up."""
    values = {name: getattr(row, name) for name in _PARAMETERS}
    values |= {f"parameter/{name}": value for name, value in table(row.parameters).items()}
    own = table(row.dataset_parameters)
    values |= {f"dataset_parameter/{name}": value for name, value in own.items()}
    return {name: "" if value is None else str(value) for name, value in values.items()}


def metrics_of(row: CellRow, scores: Sequence[ScoreRow]) -> dict[str, float]:
    """Every number, by name."""
    return {**_grid(row), **_epsilons(row), **_costs(row), **_metrics(scores)}


def _grid(row: CellRow) -> dict[str, float]:
    """Numbers of the grid as metrics too: the interface sorts parameters as text."""
    values = {f"grid/{name}": getattr(row, name) for name in _GRID}
    return {name: float(value) for name, value in values.items() if value is not None}


def _epsilons(row: CellRow) -> dict[str, float]:
    """The finite ones: an infinite epsilon is a tag, since MLflow would store a huge number."""
    values = {f"epsilon/{name}": getattr(row, f"eps_{name}") for name in _EPSILONS}
    return {name: v for name, v in values.items() if v is not None and math.isfinite(v)}


def _costs(row: CellRow) -> dict[str, float]:
    values = {f"cost/{name}": getattr(row, name) for name in _COSTS}
    return {name: float(value) for name, value in values.items() if value is not None}


def _metrics(scores: Sequence[ScoreRow]) -> dict[str, float]:
    values: dict[str, float] = {}
    for score in scores:
        base = f"{score.family}/{score.metric}"
        for suffix, value in (("", score.value), ("/low", score.low), ("/high", score.high)):
            if value is not None and math.isfinite(value):
                values[base + suffix] = value
    return values


def valid_name(name: str) -> str:
    """A name that MLflow takes: a plugin may call its number as it likes."""
    parts = _FORBIDDEN.sub("_", name).split("/")
    return "/".join(part for part in parts if part.strip("."))[:250]


def markdown(text: object) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", str(text).replace("\n", " "))
