"""Content keys: what a cell's result depends on, hashed."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import numpy as np

from bench.core import registry
from bench.grid import Cell

KERNEL_FORM = 2
"""Raise when the kernel or the contracts change what a method produces: all cells refit."""

_PRIVATE_IMPORT = re.compile(
    r"from bench\.methods\.(_\w+) import|from bench\.methods import (_\w+)"
)

_LIBRARIES = (
    "dp-release-bench",
    "dp-accounting",
    "lifelines",
    "numpy",
    "opacus",
    "pandas",
    "ray",
    "scikit-learn",
    "scipy",
    "torch",
    "xgboost",
    "xgboost-cpu",
)


def cell_key(cell: Cell, fingerprint: str) -> str:
    """Key of a cell: its parameters, the dataset's content, the method's source.

    Libraries are recorded with the result but not part of the key: a patch release must not
    silently throw a week of results away.
    """
    identity = {
        **asdict(cell),
        "method": [cell.method.name, cell.method.parameters],
        "dataset": [cell.dataset.name, cell.dataset.parameters],
        "fingerprint": fingerprint,
        "source": method_source_hash(cell.method.name),
        "kernel": KERNEL_FORM,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


def generator(key: str, purpose: str) -> np.random.Generator:
    """Randomness of a cell for one purpose, from a hash of its whole key."""
    digest = hashlib.sha256(f"{key}/{purpose}".encode()).digest()
    return np.random.default_rng(np.random.SeedSequence(int.from_bytes(digest, "big")))


@functools.cache
def method_source_hash(name: str) -> str:
    """Hash of a method's file and of the underscored files that it shares with others."""
    path = Path(inspect.getfile(registry.method_class(name)))
    return _hash_files(sorted(_with_shared(path)))


def _with_shared(path: Path) -> set[Path]:
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        current = waiting.pop()
        if current in found or not current.exists():
            continue
        found.add(current)
        for match in _PRIVATE_IMPORT.finditer(current.read_text(encoding="utf-8")):
            waiting.append(path.parent / f"{match.group(1) or match.group(2)}.py")
    return found


@functools.cache
def metrics_hash(names: tuple[str, ...]) -> str:
    """Hash of the metrics asked for and of all metric files."""
    files: set[Path] = set()
    for name in names:
        module = Path(inspect.getfile(type(registry.metric(name))))
        files.update(module.parent.glob("*.py"))
    return hashlib.sha256(f"{names}{_hash_files(sorted(files))}".encode()).hexdigest()[:20]


def _hash_files(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


@functools.cache
def versions() -> str:
    """JSON of the versions that compute results here."""
    found = {"python": platform.python_version(), "platform": sys.platform}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return json.dumps(found)
