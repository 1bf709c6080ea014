"""Fields of a cell in MLflow: tags, parameters, metrics, and the columns of the default view."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from bench.plugins.description import Descriptions
from bench.plugins.metric import HEADLINES
from bench.results.records import AuditRow, CellRow, ScoreRow, TimingRow
from bench.results.reproduce import json_object

_FIRST_PARAMETERS = ("method", "label", "dataset", "task", "eps_target")
"""Parameters without a prefix. MLflow's comparison of runs opens with the first three, by name, of
those that differ: as a rule dataset, target and label."""
_SETTINGS = (
    "ipc",
    "full_size",
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
_HEADLINE_SCORES = {
    "tvd": "tvd",
    "discriminator_auc": "discriminator/auc",
    "mia_auroc": "mia/auroc",
    "dcr_copies": "dcr/copies",
}
"""Scores without a prefix beside that of the task, with the metrics, which all tasks have."""
_HEADLINE_FIELDS = (
    *("eps_target", "eps_claimed", "eps_proven", "eps_audited"),
    *("ipc", "fit_seconds", "peak_memory_mb"),
)
HEADLINE_NAMES = ("utility", *_HEADLINE_SCORES, *_HEADLINE_FIELDS)
"""Metrics without a prefix. `utility` is first: MLflow's comparison of runs opens with it."""
_COSTS = ("score_seconds", "rows_released")
_AUDIT_TEXTS = ("key", "canary", "scorer", "planted_bug")
_TAG_LENGTH = 5000
_FORBIDDEN = re.compile(r"[^\w\-. :/]")

VIEW = "bench"
"""Name of the view of an experiment that shows the cells as one table, and as charts."""
_SECTION = "bench-cells"


def view() -> dict[str, str]:
    """Return the tag of an experiment that holds the view: columns, order of the rows, charts.

    In any order but by time, the interface lists nested runs flat, one line per cell.
    """
    # Few, so that they fit on a screen; MLflow shows status and duration anyway.
    columns = [
        *("params.`dataset`", "params.`label`", "tags.`verdict`"),
        *(f"metrics.`{name}`" for name in ("eps_target", "eps_proven", "ipc", "utility")),
        "params.`utility_metric`",
    ]
    card = {"metricSectionId": _SECTION, "deleted": False, "isGenerated": False}
    charts = [
        {
            **card,
            "uuid": "bench-parallel",
            "type": "PARALLEL",
            "displayName": "All cells",
            "selectedParams": ["dataset", "label"],
            "selectedMetrics": ["eps_proven", "mia_auroc", "utility"],
            "showAllRuns": True,
        },
        {
            **card,
            "uuid": "bench-utility",
            "type": "SCATTER",
            "displayName": "Utility against proven epsilon",
            "xaxis": {"key": "eps_proven", "type": "METRIC"},
            "yaxis": {"key": "utility", "type": "METRIC"},
        },
    ]
    section = {"uuid": _SECTION, "name": "Cells", "display": True, "isReordered": False}
    state = {
        "selectedColumns": columns,
        "orderByKey": "params.`dataset`",
        "orderByAsc": True,
        "compareRunCharts": charts,
        "compareRunSections": [{**section, "deleted": False, "isGenerated": False}],
        # The charts leave out all but the first ten runs otherwise.
        "runsHiddenMode": "SHOW_ALL",
    }
    return {f"mlflow.sharedViewState.{VIEW}": json.dumps(state)}


def run_name(row: CellRow) -> str:
    """Return the name of the run of a cell: method, dataset and epsilon first."""
    target = "no epsilon" if row.eps_target is None else f"eps {row.eps_target:g}"
    size = "full size" if row.full_size else "" if row.ipc is None else f"ipc {row.ipc}"
    attack = f"{row.attack} audit" if row.attack else ""
    parts = (row.label, row.dataset, target, size, f"seed {row.seed}", attack)
    return ", ".join(part for part in parts if part)


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


def parameters_of(
    row: CellRow, defaults: Mapping[str, Mapping[str, object]] = MappingProxyType({})
) -> dict[str, str]:
    """Return what the grid asked for, and each hyperparameter of the method separately.

    `defaults` has the hyperparameters by method, as far as they are known.
    """
    values = {name: getattr(row, name) for name in _FIRST_PARAMETERS}
    values["utility_metric"] = HEADLINES.get(row.task, "")
    values |= {f"setting/{name}": getattr(row, name) for name in _SETTINGS}
    hyperparameters = {**defaults.get(row.method, {}), **json_object(row.parameters)}
    values |= {f"parameter/{name}": value for name, value in hyperparameters.items()}
    of_the_dataset = json_object(row.dataset_parameters).items()
    values |= {f"dataset_parameter/{name}": value for name, value in of_the_dataset}
    return {name: "" if value is None else str(value) for name, value in values.items()}


def defaults_of(descriptions: Descriptions | None) -> dict[str, dict[str, object]]:
    """Return the hyperparameters of methods with their defaults, from what a run says of them."""
    methods = () if descriptions is None else descriptions.methods
    return {
        method.name: {item.name: _value(item.default) for item in method.parameters if item.default}
        for method in methods
    }


def _value(text: str) -> object:
    """Return what a JSON text says, or the text of a stranger's file that is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def metrics_of(
    row: CellRow,
    scores: Sequence[ScoreRow],
    audit: AuditRow | None = None,
    timings: Sequence[TimingRow] = (),
) -> dict[str, float]:
    """Return every finite number by name: the headlines first, the others below a prefix.

    An infinite epsilon is a tag: MLflow would store a huge number. Numbers of the grid are metrics
    too, since the interface sorts parameters as text.
    """
    known = {score.metric: score.value for score in scores}
    values: dict[str, float | None] = {"utility": known.get(HEADLINES.get(row.task, ""))}
    values |= {name: known.get(metric) for name, metric in _HEADLINE_SCORES.items()}
    values |= {name: getattr(row, name) for name in _HEADLINE_FIELDS}
    values |= {"grid/seed": row.seed, **{f"cost/{name}": getattr(row, name) for name in _COSTS}}
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
