"""Fields of a cell in MLflow: tags, parameters, metrics, and the columns of the default view."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict

from bench.plugins.metric import HEADLINES, Family
from bench.results.records import AuditRow, CellRow, ScoreRow, TimingRow
from bench.results.reproduce import json_object

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
    "attack",
    "trials",
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
_AUDIT_TEXTS = ("key", "canary", "scorer", "planted_bug")
_TAG_LENGTH = 5000
_FORBIDDEN = re.compile(r"[^\w\-. :/]")

VIEW = "bench"
"""Name of the view of an experiment that shows the cells as one table."""


def view() -> dict[str, str]:
    """Return the tag of an experiment that holds the view: columns, and the order of the rows.

    In any order but by time, the interface lists nested runs flat, one line per cell.
    """
    headlines = [f"metrics.`{Family.UTILITY.value}/{name}`" for name in HEADLINES.values()]
    # Few, so that they fit on a screen; MLflow shows status and duration anyway.
    columns = [
        *("params.`dataset`", "params.`label`", "tags.`verdict`"),
        *("metrics.`epsilon/proven`", "metrics.`epsilon/target`", "metrics.`grid/ipc`"),
        *headlines,
    ]
    state = {"selectedColumns": columns, "orderByKey": "params.`dataset`", "orderByAsc": True}
    return {f"mlflow.sharedViewState.{VIEW}": json.dumps(state)}


def tags_of(row: CellRow) -> dict[str, str]:
    """Return verdict, status and other texts as tags, with a description."""
    tags = {name: str(getattr(row, name))[:_TAG_LENGTH] for name in _TAGS}
    tags["eps_proven"] = "" if row.eps_proven is None else f"{row.eps_proven:.6g}"
    reason = f": {markdown(row.verdict_reason)}" if row.verdict_reason else ""
    ended = f": {markdown(row.reason)}" if row.reason else ""
    tags["mlflow.note.content"] = (
        f"**{markdown(row.verdict or 'no verdict')}**{reason}\n\n"
        f"Status {row.status}{ended}\n\nAll results of the cell: artifact `report.html`."
    )[:_TAG_LENGTH]
    return tags


def parameters_of(row: CellRow) -> dict[str, str]:
    """Return what the grid asked for; each hyperparameter separately, to compare methods."""
    values = {name: getattr(row, name) for name in _PARAMETERS}
    values |= {f"parameter/{name}": value for name, value in json_object(row.parameters).items()}
    of_the_dataset = json_object(row.dataset_parameters).items()
    values |= {f"dataset_parameter/{name}": value for name, value in of_the_dataset}
    return {name: "" if value is None else str(value) for name, value in values.items()}


def metrics_of(
    row: CellRow,
    scores: Sequence[ScoreRow],
    audit: AuditRow | None = None,
    timings: Sequence[TimingRow] = (),
) -> dict[str, float]:
    """Return every finite number by name.

    An infinite epsilon is a tag: MLflow would store a huge number. Numbers of the grid are metrics
    too, since the interface sorts parameters as text.
    """
    values = {f"grid/{name}": getattr(row, name) for name in _GRID}
    values |= {f"epsilon/{name}": getattr(row, f"eps_{name}") for name in _EPSILONS}
    values |= {f"cost/{name}": getattr(row, name) for name in _COSTS}
    # Those of single metrics are in `report.html`: there are dozens.
    values |= {f"cost/{t.phase}_processor": t.processor_seconds for t in timings if not t.metric}
    if audit is not None:
        numbers = {name: value for name, value in asdict(audit).items() if name not in _AUDIT_TEXTS}
        values |= {f"audit/{name}": value for name, value in numbers.items()}
    for score in scores:
        name = f"{score.family}/{score.metric}"
        values |= {name: score.value, f"{name}/low": score.low, f"{name}/high": score.high}
    return {
        name: float(value)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }


def valid_name(name: str) -> str:
    """Return a name that MLflow accepts: a plugin may name its scores freely."""
    parts = _FORBIDDEN.sub("_", name).split("/")
    return "/".join(part for part in parts if part.strip("."))[:250]


def markdown(text: object) -> str:
    """Escape a text for Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", str(text).replace("\n", " "))
