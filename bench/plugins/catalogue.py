"""Formats the descriptions of all plugins for `bench list`."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from bench.errors import InputError, UnknownNameError, text_of
from bench.plugins import registry
from bench.plugins.description import (
    DatasetDescription,
    MethodDescription,
    describe_dataset,
    describe_method,
    describe_metric,
)

T = TypeVar("T")

_WIDEST = 40
"""Width of the columns of a table between the first and the last."""
_NARROWEST = 24
"""A column is left out where less than this of a long text could be shown."""
_LEAST = 80
"""Width that is used on a narrower terminal too."""


def listing(kind: str, as_json: bool, name: str | None = None) -> str:
    """Return the plugins of one kind, as a table or as JSON; one of them with its full text.

    The table of all plugins is as wide as the terminal: texts are cut, and columns left out.
    """
    rows = {"methods": _methods, "datasets": _datasets, "metrics": _metrics}[kind]()
    if name is not None:
        rows = _named(kind.removesuffix("s"), name, rows)
    if as_json:
        return json.dumps(rows, indent=1)
    shown = _in_words(rows) if kind == "metrics" else rows
    return _aligned(shown, kind) if name is None else _in_full(shown)


def _named(kind: str, name: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one plugin; a metric is named by itself or by one of its numbers."""
    keys = ("name", "metric")
    matches = [row for row in rows if name in (row.get(key) for key in keys)]
    if not matches:
        raise UnknownNameError(kind, name, {row[key] for row in rows for key in keys if key in row})
    return matches


def _in_words(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return metrics for people: one text, with shared facts at a metric's first number."""
    shown, introduced = [], set()
    for row in rows:
        sentences = [row["definition"]] if row["definition"] != row["about"] else []
        if row["metric"] not in introduced:
            asked = " Computed on request only." if row["default"] == "no" else ""
            sentences += [row["about"], f"Tasks: {row['tasks']}.", f"Cost: {row['cost']}.{asked}"]
        elif row["metric"] != row["name"]:
            sentences.append(f"(Metric {row['metric']}.)")
        introduced.add(row["metric"])
        kept = ("name", "family", "better", "accepted")
        shown.append({**{name: row[name] for name in kept}, "definition": " ".join(sentences)})
    return shown


def skipped(kind: str) -> tuple[str, ...]:
    """Return why plugins are left out of the listing, each in one line."""
    if kind == "metrics":
        return registry.skipped_plugins()
    methods = kind == "methods"
    _, problems = _described(_method if methods else _dataset, _names(kind), kind)
    return problems


def _names(kind: str) -> tuple[str, ...]:
    return registry.method_names() if kind == "methods" else registry.dataset_names()


def _described(
    describe: Callable[[str], T], names: Iterable[str], kind: str
) -> tuple[list[T], tuple[str, ...]]:
    """Descriptions of plugins, and why others have none: one that is broken hides no other."""
    described, problems = [], []
    for name in names:
        try:
            described.append(describe(name))
        except InputError as problem:
            problems.append(f"skipped: {problem}")
        except Exception as problem:
            said = f"{type(problem).__name__}: {text_of(problem, 300)}"
            problems.append(f"skipped: {kind.removesuffix('s')} {name!r}: {said}")
    return described, tuple(problems)


def _method(name: str) -> MethodDescription:
    return describe_method(registry.method_class(name))


def _dataset(name: str) -> DatasetDescription:
    return describe_dataset(registry.build_source(name))


def _methods() -> list[dict[str, Any]]:
    described, _ = _described(_method, _names("methods"), "methods")
    return [
        {
            "name": method.name,
            "title": method.title,
            "budget": _yes(method.uses_budget),
            "ipc": _yes(method.uses_ipc),
            "parameters": ", ".join(
                f"{item.name}={json.loads(item.default or 'null')}" for item in method.parameters
            ),
            "defaults chosen on": method.tuned_in_words,
            "paper": method.paper,
        }
        for method in described
    ]


def _datasets() -> list[dict[str, Any]]:
    described, _ = _described(_dataset, _names("datasets"), "datasets")
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
    """Return one row per number; metrics that are computed on request only say so."""
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


def _aligned(rows: Sequence[dict[str, Any]], kind: str) -> str:
    """Return a table with one line per row, no wider than the terminal.

    Names are whole, other texts are cut. Columns that do not fit are left out, from the right: the
    last line says which, and how to see them.
    """
    if not rows:
        return "none"
    heads = list(rows[0])
    cells = [
        [name, *(textwrap.shorten(text, _WIDEST, placeholder=" ...") for text in texts), last]
        for name, *texts, last in ([str(row[head]) for head in heads] for row in rows)
    ]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    room = max(_LEAST, shutil.get_terminal_size().columns)
    shown, used = 0, -2
    for width in widths:
        # A text may be cut further, to what is left; not to nothing.
        if used + 2 + min(width, _NARROWEST) > room and shown:
            break
        shown, used = shown + 1, used + 2 + width
    left = room - sum(widths[: shown - 1]) - 2 * (shown - 1)
    widths = [*widths[: shown - 1], min(widths[shown - 1], left)]
    lines = []
    for line in [heads, ["-" * width for width in widths], *cells]:
        texts = [f"{text.ljust(width)}  " for text, width in zip(line, widths[:-1], strict=False)]
        last = textwrap.shorten(line[shown - 1], widths[-1], placeholder=" ...")
        lines.append(f"{''.join(texts)}{last}".rstrip())
    if left_out := heads[shown:]:
        named = ", ".join(left_out)
        more = f"bench list {kind} NAME, or --json, shows also: {named}"
        lines += textwrap.wrap(more, room)
    return "\n".join(lines)


def _in_full(rows: Sequence[dict[str, Any]]) -> str:
    """Return every fact of each row on lines of its own, folded to the width of the terminal."""
    width = max(_WIDEST, shutil.get_terminal_size().columns)
    return "\n\n".join(
        "\n".join(
            textwrap.fill(f"{head}: {value}", width, subsequent_indent="  ")
            for head, value in row.items()
            if value != ""
        )
        for row in rows
    )
