"""Why a planned cell is not done already: what has changed since one like it was stored.

A key is a hash, which does not tell what went into it. Stored rows do: those of the same method
label, dataset label, size, epsilon and seed under another key are compared with what is planned.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from bench.engine import keys
from bench.results.records import Cell, CellRow, Status
from bench.results.run_directory import RunStore

_SETTINGS = ("delta", "split", "split_seed", "private_counts", "secure_noise")
_SPLIT = ("split", "split_seed")
_NAMED = 5


@final
@dataclass(frozen=True)
class Circumstances:
    """Under what a cell was computed. Many cells share them, so that they are kept once."""

    status: str
    method: str
    parameters: str
    dataset: str
    dataset_parameters: str
    settings: tuple[object, ...]
    fingerprint: str
    source: str
    versions: str

    @classmethod
    def of(cls, row: CellRow) -> Circumstances:
        """Those of a stored cell."""
        secure = not row.study_only
        return cls(
            status=row.status,
            method=row.method,
            parameters=row.parameters,
            dataset=row.dataset_name or row.dataset,
            dataset_parameters=row.dataset_parameters,
            settings=(row.delta, row.split, row.split_seed, row.private_counts, secure),
            fingerprint=row.fingerprint,
            source=row.source_hash,
            versions=row.versions,
        )


@final
@dataclass(frozen=True)
class Index:
    """The stored cells of a run directory by what a person calls the same cell.

    About 200 bytes a cell: a hash of that name, and a reference to circumstances.
    """

    store: RunStore
    metrics: tuple[str, ...] = ()
    """Those that must have scored a cell for it to be done."""
    alike: dict[bytes, tuple[Circumstances, ...]] = field(default_factory=dict)
    """In the order in which they were stored."""

    @classmethod
    def of(cls, store: RunStore, metrics: Sequence[str] = ()) -> Index:
        """Read the journal through once."""
        index = cls(store, tuple(metrics))
        shared: dict[Circumstances, tuple[Circumstances, ...]] = {}
        for row, _ in store.all():
            now = Circumstances.of(row)
            alone = shared.setdefault(now, (now,))
            place = _place(row.label, row.dataset, row.ipc, row.full_size, row.eps_target, row.seed)
            index.alike[place] = (*index.alike[place], *alone) if place in index.alike else alone
        return index


def _place(
    label: str, dataset: str, ipc: int | None, full_size: bool, epsilon: float | None, seed: int
) -> bytes:
    # A grid may say 1 where another says 1.0.
    spend = None if epsilon is None else float(epsilon)
    name = repr((label, dataset, ipc, full_size, spend, seed))
    return hashlib.blake2b(name.encode(), digest_size=12).digest()


def why_not_cached(cell: Cell, key: str, index: Index) -> str:
    """The reason in a few words; the same words for the same reason."""
    row, _ = index.store.finished.get(key, (None, ()))
    if row is not None:
        return _why_again(row, index)
    place = _place(
        cell.method.label, cell.dataset.label, cell.ipc, cell.full_size, cell.epsilon, cell.seed
    )
    found = [list(_changes(cell, key, then)) for then in index.alike.get(place, ())]
    # The nearest one; among equals the last.
    nearest = min(reversed(found), key=lambda changes: len(changes), default=["never run"])
    return "; ".join(nearest)


def _why_again(row: CellRow, index: Index) -> str:
    """Of a cell that is stored under its key and still has to be done."""
    if row.verdict == "":
        return f"failed before ({row.status})"
    if not index.store.release_intact(row.key):
        return "release damaged"
    recorded = json.loads(row.metrics)
    missing = [name for name in index.metrics if name not in recorded]
    held = [name for name in index.metrics if name in recorded]
    changed = [name for name in held if recorded[name] != keys.metric_hash(name)]
    if missing or changed:
        said = [f"metrics missing: {_some(missing)}"] if missing else []
        return "; ".join([*said, f"metrics changed: {_some(changed)}"] if changed else said)
    if row.status != Status.OK.value:
        return f"failed before ({row.status})"
    return "release damaged"  # nothing else sends a good cell back: its rows cannot be read


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _changes(cell: Cell, key: str, then: Circumstances) -> Iterator[str]:
    """What tells a planned cell from a stored one; never empty."""
    if not then.fingerprint:
        yield f"failed before ({then.status})"  # its dataset could not be loaded
        return
    count = 0
    for text in _known_changes(cell, key, then):
        count += 1
        yield text
    if not count:
        yield "harness changed (format of the key, or the method's environment)"


def _known_changes(cell: Cell, key: str, then: Circumstances) -> Iterator[str]:
    name = cell.method.name
    if then.method != name:
        yield f"method changed: {then.method} -> {name}"
    elif then.source != keys.method_source_hash(name):
        yield f"code changed ({name}, or a module that it imports)"
    if names := _different(dict(cell.method.parameters), then.parameters):
        yield f"parameters changed ({cell.method.label}: {', '.join(names)})"
    settings = [
        setting
        for setting, value in zip(_SETTINGS, then.settings, strict=True)
        if getattr(cell, setting) != value
    ]
    if settings:
        yield f"settings changed ({', '.join(settings)})"
    # The key of this cell with the stored fingerprint is its own key if that is its dataset's.
    # Another split has another fingerprint as well, which is no news.
    if (
        then.dataset != cell.dataset.name
        or _different(dict(cell.dataset.parameters), then.dataset_parameters)
        or (not set(settings) & set(_SPLIT) and keys.cell_key(cell, then.fingerprint) != key)
    ):
        yield f"dataset changed ({cell.dataset.label})"
    versions = json.loads(then.versions)
    for library, version in keys.method_libraries(name).items():
        if versions.get(library, version) != version:
            yield f"library changed: {library} {versions[library]} -> {version}"


def _different(now: dict[str, object], then: str) -> list[str]:
    """Names of parameters that are given otherwise."""
    # Through JSON, as stored: a tuple is a list there.
    given = json.loads(json.dumps(now))
    stored = json.loads(then)
    absent = object()
    return [
        name
        for name in sorted({*given, *stored})
        if given.get(name, absent) != stored.get(name, absent)
    ]


def summary(reasons: Iterable[str]) -> list[str]:
    """`12 cells: never run`, the most frequent first."""
    return [
        f"{count} {'cell' if count == 1 else 'cells'}: {reason}"
        for reason, count in Counter(reasons).most_common()
    ]


def explain(
    planned: Iterable[tuple[Cell, str]], store: RunStore, metrics: Sequence[str]
) -> list[str]:
    """The summary for cells that have to be done; nothing where nothing is stored yet."""
    if not len(store.finished):
        return []
    index = Index.of(store, metrics)
    return summary(why_not_cached(cell, key, index) for cell, key in planned)
