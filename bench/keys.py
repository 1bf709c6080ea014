"""Content keys: what a cell's result depends on, hashed."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from bench.core import registry
from bench.grid import Cell

KERNEL_FORM = 2
"""Raise when the kernel or the contracts change what a method produces: all cells refit."""

_FOLDER = re.compile(r"bench\.(?:methods|metrics)(?:\.(\w+))?")

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
    """Key of a cell: its parameters, the dataset's content, the method's source and environment.

    Libraries are recorded with the result but not part of the key: a patch release must not
    silently throw a week of results away. What a method pins in an environment of its own is.
    """
    identity: dict[str, Any] = {
        **asdict(cell),
        "method": [cell.method.name, cell.method.parameters],
        "dataset": [cell.dataset.name, cell.dataset.parameters],
        "fingerprint": fingerprint,
        "source": method_source_hash(cell.method.name),
        "kernel": KERNEL_FORM,
    }
    environment = registry.method_class(cell.method.name).environment
    if environment is not None:
        identity["environment"] = environment.digest
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
    """A plugin's file and all files beside it that it imports, directly or through others."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        current = waiting.pop()
        if current in found or not current.exists():
            continue
        found.add(current)
        for module, names in _imports(current):
            if module:
                waiting.append(path.parent / f"{module}.py")
            else:
                waiting += [path.parent / f"{name}.py" for name in names]
    return found


def _imports(path: Path) -> Iterator[tuple[str | None, list[str]]]:
    """Of the folders of plugins: the module imported from, or None and the modules imported."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            match = _FOLDER.fullmatch(node.module)
            if match:
                yield match.group(1), [alias.name for alias in node.names]


@functools.cache
def metric_hash(name: str) -> str:
    """Hash of a metric's file and of the files beside it that it uses."""
    path = Path(inspect.getfile(type(registry.metric(name))))
    return _hash_files(sorted(_with_shared(path)))


def metric_hashes(names: Iterable[str]) -> dict[str, str]:
    """What the scores of these metrics depend on."""
    return {name: metric_hash(name) for name in names}


def metrics_hash(hashes: Mapping[str, str]) -> str:
    """One hash for all metrics that scored a release."""
    return hashlib.sha256(json.dumps(dict(hashes), sort_keys=True).encode()).hexdigest()[:20]


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
