"""Formats the descriptions of all plugins for `bench list`."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from bench.plugins import registry
from bench.plugins.description import (
    DatasetDescription,
    describe_dataset,
    describe_method,
    describe_metric,
)


def listing(kind: str, as_json: bool) -> str:
    """Return the plugins of one kind, as a table or as JSON."""
    rows = {"methods": _methods, "datasets": _datasets, "metrics": _metrics}[kind]()
    if as_json:
        return json.dumps(rows, indent=1)
    return _aligned(_in_words(rows) if kind == "metrics" else rows)


def _in_words(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return metrics for people: one folded text, with shared facts at a metric's first number."""
    shown, introduced = [], set()
    for row in rows:
        sentences = [row["definition"]] if row["definition"] != row["about"] else []
        if row["metric"] not in introduced:
            asked = " Computed when asked for." if row["default"] == "no" else ""
            sentences += [row["about"], f"Tasks: {row['tasks']}.", f"Cost: {row['cost']}.{asked}"]
        elif row["metric"] != row["name"]:
            sentences.append(f"(Metric {row['metric']}.)")
        introduced.add(row["metric"])
        kept = ("name", "family", "better", "accepted")
        shown.append({**{name: row[name] for name in kept}, "definition": " ".join(sentences)})
    return shown


def _methods() -> list[dict[str, Any]]:
    described = (describe_method(registry.method_class(name)) for name in registry.method_names())
    return [
        {
            "name": method.name,
            "title": method.title,
            "budget": _yes(method.uses_budget),
            "ipc": _yes(method.uses_ipc),
            "parameters": ", ".join(
                f"{item.name}={json.loads(item.default or 'null')}" for item in method.parameters
            ),
            "paper": method.paper,
        }
        for method in described
    ]


def _datasets() -> list[dict[str, Any]]:
    described = (describe_dataset(registry.build_source(name)) for name in registry.dataset_names())
    return [
        {
            "name": dataset.name,
            "title": dataset.title,
            "task": dataset.task,
            "rows": dataset.rows,
            "columns": dataset.feature_count,
            "by class": " / ".join(str(item.rows) for item in dataset.by_class),
            "from": _origin(dataset),
            "stands for": dataset.stands_for,
            "licence": dataset.licence,
        }
        for dataset in described
    ]


def _origin(dataset: DatasetDescription) -> str:
    if dataset.simulated:
        return "simulator"
    if dataset.agreement:
        return "files"
    return f"package ({dataset.extra})" if dataset.extra else "package"


def _metrics() -> list[dict[str, Any]]:
    """Return one row per number; metrics that are left out unless asked for say so."""
    rows = []
    for name in registry.metric_names():
        metric = describe_metric(registry.metric(name))
        for output in metric.outputs:
            weak = f" Weak: {output.weak}." if output.weak else ""
            rows.append(
                {
                    "name": output.name,
                    "metric": name,
                    "family": metric.family,
                    "better": output.direction.value,
                    "accepted": output.accepted,
                    "tasks": ", ".join(metric.tasks),
                    "cost": metric.cost,
                    "default": _yes(not metric.optional),
                    "definition": f"{output.definition or metric.definition}.{weak}",
                    "about": f"{metric.definition}.",
                }
            )
    return rows


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def _aligned(rows: Sequence[dict[str, Any]]) -> str:
    """Return aligned text: the last column is folded on a terminal, never in a pipe."""
    if not rows:
        return "none"
    heads = list(rows[0])
    cells = [[str(row[head]) for head in heads] for row in rows]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    indent = sum(widths[:-1]) + 2 * (len(heads) - 1)
    if sys.stdout.isatty():
        widths[-1] = max(30, shutil.get_terminal_size().columns - indent)
    lines = []
    for line in [heads, ["-" * width for width in widths], *cells]:
        start = "".join(
            f"{text.ljust(width)}  " for text, width in zip(line, widths[:-1], strict=False)
        )
        folded = textwrap.wrap(line[-1], widths[-1]) or [""]
        lines += [f"{start}{folded[0]}".rstrip(), *(" " * indent + more for more in folded[1:])]
    return "\n".join(lines)
