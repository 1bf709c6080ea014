"""Where the published versions are: `leaderboard/results/<version>/`, part of the package."""

from __future__ import annotations

import re
from pathlib import Path

import bench.leaderboard
from bench.errors import StoreError

NEWEST = "published"
"""What stands for the newest version where a directory can be named."""
_VERSION = re.compile(r"[0-9]{4}\.[0-9]{2}(?:\.[0-9]+)?")


def home() -> Path:
    """Return the folder of all versions."""
    return Path(bench.leaderboard.__file__).parent / "results"


def versions(folder: Path | None = None) -> tuple[Path, ...]:
    """Return the directories of all versions that have cells, oldest first."""
    folder = folder or home()
    if not folder.is_dir():
        return ()
    found = [
        path
        for path in folder.iterdir()
        if is_version(path.name) and (path / "cells.parquet").is_file()
    ]
    return tuple(sorted(found, key=lambda path: [int(part) for part in path.name.split(".")]))


def is_version(name: str) -> bool:
    """Return True for `2026.11` and, where one month has several, `2026.11.2`."""
    return _VERSION.fullmatch(name) is not None


def published_directory(name: str) -> Path:
    """Return the directory of `published` (the newest version), of a version, or of a path."""
    there = versions()
    if name == NEWEST:
        if not there:
            raise StoreError(f"{home()} holds no version yet; `bench publish` writes one")
        return there[-1]
    if is_version(name) and not Path(name).is_dir():
        if home() / name not in there:
            known = ", ".join(path.name for path in there) or "none"
            raise StoreError(f"version {name} is not in this package; there are: {known}")
        return home() / name
    return Path(name)


def before(directory: Path) -> Path | None:
    """Return the version before a published directory, among those that lie beside it."""
    older = list(versions(directory.resolve().parent))
    names = [path.name for path in older]
    name = directory.resolve().name
    if name not in names or names.index(name) == 0:
        return None
    return older[names.index(name) - 1]
