"""What `bench data list` and `bench data check` say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, final

from bench.data.folder import data_folder
from bench.errors import BenchError
from bench.plugins import registry
from bench.plugins.source import DatasetSource, FileSource, build_dataset


@final
@dataclass(frozen=True)
class CheckReport:
    """What was found about one dataset."""

    good: bool
    lines: tuple[str, ...]


def listing(as_json: bool) -> str:
    """Every dataset with its state and, where files are missing, how to obtain them."""
    rows = [_row(name) for name in registry.dataset_names()]
    if as_json:
        return json.dumps(rows, indent=1)
    lines = [f"data folder: {data_folder()}", ""]
    for row in rows:
        lines.append(f"{row['state']:<8} {row['name']:<20} {row['title']}")
        if row["state"] == "missing":
            lines += [f"{'':<30}{line}" for line in _remedy(row)]
    ready = sum(row["state"] == "ready" for row in rows)
    lines += ["", f"{ready} ready, {len(rows) - ready} not"]
    return "\n".join(lines)


def _remedy(row: dict[str, Any]) -> list[str]:
    """How to get what is missing."""
    if "files" not in row:
        return [f"needs {row['page']} (licence: {row['licence']})"]
    lines = [
        f"needs {row['folder']}/{', '.join(row['files'])}",
        f"from {row['publisher']}: {row['page']} (agreement: {row['agreement']}; licence: "
        f"{row['licence']})",
    ]
    if row["download"]:
        lines.append(f"or: bench data get {row['name']}")
    return lines


def _row(name: str) -> dict[str, Any]:
    try:
        source = registry.build_source(name)
        declared = source.declare()
    except BenchError as problem:
        return {"name": name, "state": "broken", "title": str(problem)}
    row: dict[str, Any] = {
        "name": name,
        "state": "ready",
        "title": declared.title,
        "task": declared.schema.task.value,
        "rows": sum(declared.by_class),
        "licence": declared.licence,
        "simulated": declared.simulated,
        "stands_for": declared.stands_for,
    }
    if isinstance(source, FileSource):
        obtain = source.obtain()
        missing = source.missing()
        row |= {
            "state": "missing" if missing else "ready",
            "folder": obtain.folder,
            "files": [file.name for file in obtain.files if not file.optional],
            "missing": list(missing),
            "publisher": obtain.publisher,
            "agreement": obtain.agreement,
            "page": obtain.page,
            "how": obtain.how,
            "download": all(file.url for file in obtain.files if not file.optional),
        }
    elif declared.extra and not source.available():
        row |= {
            "state": "missing",
            "publisher": declared.source,
            "page": f"pip install 'dp-release-bench[{declared.extra}]'",
            "agreement": "none",
            "download": False,
        }
    return row


def check_dataset(name: str) -> CheckReport:
    """Files, fingerprints, columns, row counts, bounds: everything that can differ."""
    source = registry.build_source(name)
    lines: list[str] = []
    good = True
    if isinstance(source, FileSource):
        for path in source.paths().values():
            lines.append(f"found {path}")
        differences = source.check()
        good = not differences
        lines += [f"differs: {difference}" for difference in differences]
    lines += _facts(source)
    lines.append(f"{name}: {'as published' if good else 'NOT as published'}")
    return CheckReport(good, tuple(lines))


def _facts(source: DatasetSource) -> list[str]:
    dataset = build_dataset(source)
    declared = dataset.declaration
    total = sum(declared.by_class)
    shares = ", ".join(
        f"{label} {count / total:.1%}"
        for label, count in zip(declared.schema.classes, declared.by_class, strict=True)
    )
    outside = {name: count for name, count in dataset.clipped.items() if count}
    lines = [
        f"{total} rows, {len(declared.schema.features)} features; {shares}",
        f"train {len(dataset.train)}, validation {len(dataset.validation)}, control "
        f"{len(dataset.control)}, test {len(dataset.test)}",
    ]
    if outside:
        worst = ", ".join(f"{name} {count}" for name, count in sorted(outside.items()))
        lines.append(f"values outside the public bounds, clipped: {worst}")
    return lines
