"""Content keys: what a cell's result depends on, hashed."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib import metadata
from typing import Any

import numpy as np

from bench.engine.code import class_closure, code_hash
from bench.plugins import registry
from bench.plugins.method import Method
from bench.privacy.opening import open_private
from bench.results.records import ONE_RUN, TRANSCRIPT, TWO_WORLD, Cell

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
"""No libraries that compute: what a method takes from ours is in the hash of its code."""

_IMPORTED_AS = {"scikit-learn": "sklearn", "xgboost-cpu": "xgboost"}
"""Distributions whose import name does not follow from theirs."""

_ATTACKS = {
    TWO_WORLD: "bench.audit.two_worlds",
    ONE_RUN: "bench.audit.one_run",
    TRANSCRIPT: "bench.audit.transcript_attack",
}
"""Modules that, with all that they import, decide the numbers of an audit. They are read only."""


def cell_key(cell: Cell, fingerprint: str, kind: type[Method] | None = None) -> str:
    """Return the key of a cell: identity, the dataset's content, the method's code and libraries.

    Results are keyed by the versions of relevant libraries: those that the method's own files
    import. Another torch draws other numbers and rounds otherwise, so its results do not stand
    beside the old ones under one key. A release of a library that the method does not import (or
    of one that only metrics use) leaves its cells alone: not every upgrade may throw a week of
    results away. `bench run` says which library made it run a cell again.

    The key of an audit includes the code of its attack. `kind` is given for a method that is no
    plugin.
    """
    kind = kind or registry.method_class(cell.method.name)
    identity: dict[str, Any] = {
        **_identity(cell),
        "fingerprint": fingerprint,
        "source": method_hash(kind),
        "libraries": _libraries(kind),
    }
    if kind.environment is not None:
        identity["environment"] = kind.environment.digest
    if cell.audit is not None:
        identity["attack"] = code_hash(_ATTACKS[cell.audit.attack])
    return hashed(identity)


def charge_identity(cell: Cell, fingerprint: str) -> str:
    """Return what a budget was spent on: the cell without the code that spent it.

    A change of source or libraries gives a cell another key, but the rows have paid already.
    """
    return hashed({**_identity(cell), "fingerprint": fingerprint})


def seed_of(cell: Cell) -> str:
    """Return what all randomness of a cell follows from: what was asked for, nothing else.

    Neither the code nor the rows enter. Editing a method draws the same noise, so that what
    changes is due to the edit; and numbers that depend on the table would distinguish two tables
    wherever they reach a release.
    """
    return hashed({**_identity(cell), "secure_noise": False})


def _identity(cell: Cell) -> dict[str, Any]:
    identity = {
        **asdict(cell),
        "method": [cell.method.name, cell.method.parameters],
        "dataset": [cell.dataset.name, cell.dataset.parameters],
    }
    if cell.audit is None:
        del identity["audit"]  # keys and seeds of releases are older than audits as cells
    return identity


def hashed(identity: Mapping[str, Any]) -> str:
    """Twenty hexadecimal digits that stand for these facts."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


def generator(seed: str, purpose: str) -> np.random.Generator:
    """Randomness for one purpose, from the seed of a cell or of an audit."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return np.random.default_rng(np.random.SeedSequence(int.from_bytes(digest, "big")))


def method_source_hash(name: str) -> str:
    """Hash of what a method's code does, with all modules that it imports and the kernel's."""
    return method_hash(registry.method_class(name))


def method_hash(kind: type[Method]) -> str:
    """`method_source_hash` of a class, which need not be a registered plugin."""
    return class_closure(kind, open_private.__module__).digest


def method_libraries(name: str) -> dict[str, str]:
    """Versions of the libraries that a method's files import themselves, and of numpy.

    What the method's own environment brings is left out: it is pinned there, and its digest is in
    the key.
    """
    return _libraries(registry.method_class(name))


def _libraries(kind: type[Method]) -> dict[str, str]:
    imported = class_closure(kind, open_private.__module__).libraries
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
    """Return the name in a requirement such as `SciPy>=1.7,<1.8`, as indexes spell it."""
    name = re.match(r"[A-Za-z0-9._-]*", requirement.strip())
    return re.sub(r"[-_.]+", "-", name.group() if name else "").lower()


def _import_name(library: str) -> str:
    return _IMPORTED_AS.get(library, library.replace("-", "_"))


def metric_hash(name: str) -> str:
    """Hash of what a metric's code does, with all modules that it imports."""
    return class_closure(type(registry.metric(name))).digest


def metric_hashes(names: Iterable[str]) -> dict[str, str]:
    """Return the hashes that the scores of these metrics depend on."""
    return {name: metric_hash(name) for name in names}


def metrics_hash(hashes: Mapping[str, str]) -> str:
    """Return one hash for all metrics that scored a release."""
    return hashed(hashes)


@functools.cache
def versions() -> str:
    """JSON of the versions that compute results here."""
    installed = {"python": platform.python_version(), "platform": sys.platform}
    for library in _LIBRARIES:
        try:
            installed[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return json.dumps(installed)
