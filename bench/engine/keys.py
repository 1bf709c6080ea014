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

from bench.plugins import registry
from bench.results.records import Cell

KERNEL_FORM = 2
"""Raise when the kernel or the contracts change what a method produces: all cells refit."""

_FOLDER = re.compile(r"bench\.(?:methods|metrics)(?:\.(\w+))?")

_LIBRARIES = (
    "dp-release-bench",
    "dp-accounting",
    "lifelines",
    "networkx",
    "numba",
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

_ALWAYS = "numpy"
"""Every method's random numbers come from it."""

_OWN = ("dp-release-bench", "ray")
"""No libraries that compute: what a method takes from ours is in its source and KERNEL_FORM."""

_IMPORTED_AS = {"scikit-learn": "sklearn", "xgboost-cpu": "xgboost"}
"""Distributions whose import name does not follow from theirs."""


def cell_key(cell: Cell, fingerprint: str) -> str:
    """Key of a cell: parameters, the dataset's content, the method's source and what that runs on.

    Results are keyed by the versions of relevant libraries: those that the method's own files
    import. Another torch draws other numbers and rounds otherwise, so its results do not stand
    beside the old ones under one key. A release of a library that the method does not import (or
    of one that only metrics use) leaves its cells alone: not every upgrade may throw a week of
    results away. `bench run` says which library made it run a cell again.
    """
    identity: dict[str, Any] = {
        **asdict(cell),
        "method": [cell.method.name, cell.method.parameters],
        "dataset": [cell.dataset.name, cell.dataset.parameters],
        "fingerprint": fingerprint,
        "source": method_source_hash(cell.method.name),
        "libraries": method_libraries(cell.method.name),
        "kernel": KERNEL_FORM,
    }
    environment = registry.method_class(cell.method.name).environment
    if environment is not None:
        identity["environment"] = environment.digest
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


def charge_identity(cell: Cell, fingerprint: str) -> str:
    """What a budget was spent on: the cell without the code that spent it.

    A change of source or libraries gives a cell another key, but the rows have paid already.
    """
    identity = {
        **asdict(cell),
        "method": [cell.method.name, cell.method.parameters],
        "dataset": [cell.dataset.name, cell.dataset.parameters],
        "fingerprint": fingerprint,
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


def method_libraries(name: str) -> dict[str, str]:
    """Versions of the libraries that a method's files import themselves, and of numpy.

    The files are those of `method_source_hash`. What an environment of the method's own brings is
    left out: it is pinned there, and its digest is in the key.
    """
    kind = registry.method_class(name)
    imported = _imported(Path(inspect.getfile(kind)))
    pinned = set()
    if kind.environment is not None:
        pinned = {_distribution(text) for text in kind.environment.requirements}
    installed: dict[str, str] = json.loads(versions())
    return {
        library: installed[library]
        for library in _LIBRARIES
        if library in installed
        and library not in _OWN
        and library not in pinned
        and (library == _ALWAYS or _import_name(library) in imported)
    }


def _distribution(requirement: str) -> str:
    """The name in a requirement such as `scikit-learn>=1.7,<1.8`, as package indexes spell it."""
    name = re.match(r"[A-Za-z0-9._-]*", requirement.strip())
    return re.sub(r"[-_.]+", "-", name.group() if name else "").lower()


def _import_name(library: str) -> str:
    return _IMPORTED_AS.get(library, library.replace("-", "_"))


@functools.cache
def _imported(path: Path) -> frozenset[str]:
    """Top-level names of all modules that a plugin's files import, inside functions as well."""
    found: set[str] = set()
    for file in _with_shared(path):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return frozenset(found)


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
