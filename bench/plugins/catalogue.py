"""What `bench list` shows."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from bench.data.dataset import Declaration
from bench.plugins import registry
from bench.plugins.metric import Direction, Output


def listing(kind: str, as_json: bool) -> str:
    """Plugins of one kind, as a table or as JSON."""
    rows = {"methods": _methods, "datasets": _datasets, "metrics": _metrics}[kind]()
    if as_json:
        return json.dumps(rows, indent=1)
    return _table(_in_words(rows) if kind == "metrics" else rows)


def _in_words(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics for people: one folded text; what a metric's numbers share is said at the first."""
    shown, told = [], set()
    for row in rows:
        said = [row["definition"]] if row["definition"] != row["about"] else []
        if row["metric"] not in told:
            asked = " Computed when asked for." if row["default"] == "no" else ""
            said += [row["about"], f"Tasks: {row['tasks']}.", f"Cost: {row['cost']}.{asked}"]
        elif row["metric"] != row["name"]:
            said.append(f"(Metric {row['metric']}.)")
        told.add(row["metric"])
        kept = ("name", "family", "better", "accepted")
        shown.append({**{name: row[name] for name in kept}, "definition": " ".join(said)})
    return shown


def _methods() -> list[dict[str, Any]]:
    rows = []
    for name in registry.method_names():
        kind = registry.method_class(name)
        rows.append(
            {
                "name": name,
                "title": kind.title,
                "budget": "yes" if kind.uses_budget else "no",
                "ipc": "yes" if kind.uses_ipc else "no",
                "parameters": ", ".join(
                    f"{key}={value}"
                    for key, value in registry.build_method(name).parameters().items()
                ),
                "paper": kind.paper,
            }
        )
    return rows


def _datasets() -> list[dict[str, Any]]:
    rows = []
    for name in registry.dataset_names():
        declared = registry.build_source(name).declare()
        shares = " / ".join(str(count) for count in declared.by_class)
        rows.append(
            {
                "name": name,
                "title": declared.title,
                "task": declared.schema.task.value,
                "rows": sum(declared.by_class),
                "columns": len(declared.schema.features),
                "by class": shares,
                "from": _origin(declared),
                "stands for": declared.stands_for,
                "licence": declared.licence,
            }
        )
    return rows


def _origin(declared: Declaration) -> str:
    if declared.simulated:
        return "simulator"
    if declared.obtain is not None:
        return "files"
    return f"package ({declared.extra})" if declared.extra else "package"


def _metrics() -> list[dict[str, Any]]:
    """One row a number; what is left out unless asked for says so."""
    rows = []
    for name in registry.metric_names():
        metric = registry.metric(name)
        for output in metric.declared():
            said = [_sentence(output.definition or metric.definition)]
            if output.weak:
                said.append(_sentence(f"Weak: {output.weak}"))
            rows.append(
                {
                    "name": output.name,
                    "metric": name,
                    "family": metric.family.value,
                    "better": output.direction.value,
                    "accepted": "" if output.limit is None else _limit(output),
                    "tasks": ", ".join(task.value for task in metric.tasks),
                    "cost": metric.cost,
                    "default": "no" if metric.optional else "yes",
                    "definition": " ".join(said),
                    "about": _sentence(metric.definition),
                }
            )
    return rows


def _sentence(text: str) -> str:
    plain = " ".join(inspect.cleandoc(text).split())
    return plain if plain.endswith(".") else f"{plain}."


def _limit(output: Output) -> str:
    return f"{'>=' if output.direction is Direction.HIGHER else '<'} {output.limit:g}"


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Aligned text; on a terminal the last column is folded, in a pipe a row stays one line."""
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
