"""Where the files of a data folder came from: `provenance.json` beside them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.data.files import DataFile, Package

_RECORD = "provenance.json"


def add_origin(folder: Path, package: Package, files: Mapping[str, DataFile]) -> Path:
    """Write down, for every file that a package brought, which archive it was taken from."""
    record = _read(folder)
    obtained = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    for member in package.members:
        record[member.file] = {
            "registry": package.registry,
            "package": package.package,
            "version": package.version,
            "licence": package.licence,
            "archive": package.archive,
            "archive_sha256": package.sha256,
            "path": member.path,
            "sha256": files[member.file].sha256,
            "obtained": obtained,
        }
    path = folder / _RECORD
    partial = folder / f".part-{_RECORD}"
    partial.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def origin_lines(path: Path) -> list[str]:
    """Return where a file came from, in at most one line: none where nobody recorded it."""
    entry = _read(path.parent).get(path.name)
    if not isinstance(entry, dict):
        return []
    named = [str(entry.get(key, "?")) for key in ("registry", "package", "version", "obtained")]
    return ["from {} package {} {}, obtained {}".format(*named)]


def _read(folder: Path) -> dict[str, Any]:
    """Return the record of a folder; one that cannot be read is a comment, and starts anew."""
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
