"""Joins run directories into a new one: cells by key with releases, details and audits.

What several runs hold of one key is compared. The same release with the same scores is kept once
(scores that only one run has are added); a cell that succeeded beats one that failed; two that
succeeded and differ are a conflict: said, and the first kept. A key fixes what a seeded cell gives,
so a conflict means that something the key does not know has changed the result.

Sources are only read. Nothing is written until everything was compared; what is written is put
together under another name and renamed, so that a merge that was cut short leaves no run directory.

Logs of failed cells are not copied. They are the one place that may hold values of private rows as
text; a merged directory, which is made to be passed on, would be another one. The reason of such a
cell says so instead of naming a file that is not there.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from bench.engine import keys
from bench.engine.about import join_descriptions
from bench.errors import StoreError
from bench.plugins.description import Identity, dataset_identity
from bench.results import encoded, private_rows
from bench.results.journal import Finished, Journal
from bench.results.opening import link_or_copy, names_in, open_file, survey
from bench.results.parquet_files import read_parquet
from bench.results.reading import (
    Charge,
    check_run,
    finished_of,
    held,
    open_journal,
    read_charges,
    refuse_old_audits,
)
from bench.results.records import AuditRow, Outcome, ScoreRow, Status, TimingRow, log_name
from bench.results.run_directory import RunStore
from bench.results.timings import with_metrics
from bench.results.writing import make_folder, sync_folder, writing

TOLERANCE = 1e-9
"""Scores closer than this (relative, or absolute near zero) are the same."""

_NAMED = 5
_AGAIN = "then merge again: nothing is left of this attempt"

_AUDITED = ("p_claim", "p_proof", "replicated_p_claim", "replicated_p_proof")
"""Numbers of an audit that two runs of it must agree on."""

_LOG_STAYED = "its log stayed in the run directory that was merged"

_LISTS = ("datasets", "methods", "ipc", "epsilon", "seeds", "metrics")


@final
@dataclass(frozen=True)
class Source:
    """A run directory that is read."""

    directory: Path
    manifest: Mapping[str, Any]
    journal: Journal
    charges: tuple[Charge, ...]

    @classmethod
    def of(cls, directory: Path) -> Source:
        """Check and open a run directory."""
        survey(directory)
        refuse_old_audits(directory)
        manifest, journal = check_run(directory), open_journal(directory)
        return cls(directory, manifest, journal, read_charges(directory))

    def place(self, kind: str, key: str) -> Path:
        """Return `releases/<key>`, `details/<key>` or `audits/<key>`."""
        return self.directory / kind / key


@final
@dataclass(frozen=True)
class Choice:
    """Whose result of a cell is kept, and who adds scores to it."""

    key: str
    source: Source
    more: tuple[Source, ...] = ()


@final
@dataclass(frozen=True)
class Conflict:
    """Two good results of one key that differ."""

    key: str
    cell: str
    kept: Path
    other: Path
    differences: tuple[str, ...]

    def describe(self) -> str:
        """Return one line."""
        return (
            f"{self.cell} ({self.key}): {self.kept} (kept) and {self.other} differ: "
            + "; ".join(self.differences)
        )


@final
@dataclass(frozen=True)
class Merge:
    """What a merge keeps, before it is written."""

    sources: tuple[Source, ...]
    choices: tuple[Choice, ...]
    conflicts: tuple[Conflict, ...]
    doubles: int
    """Results that were left out because the same, or a better one, is kept."""


def merge_runs(
    directories: Sequence[Path],
    target: Path,
    strict: bool = False,
    *,
    keep_private_rows: bool = False,
) -> Merge:
    """Compare and write; with `strict`, nothing is written where there are conflicts.

    Rows without a proven epsilon that a source holds stay there, unless they are to be kept.
    """
    check_target(target)
    with ExitStack() as stack:
        for directory in directories:
            check_run(directory)
            # A run that starts meanwhile could replace a release that is being copied.
            stack.enter_context(held(directory))
        merge = plan_merge(directories)
        if not (strict and merge.conflicts):
            write_merge(merge, target, keep_private_rows=keep_private_rows)
    return merge


def plan_merge(directories: Sequence[Path]) -> Merge:
    """Compare everything; nothing is written."""
    places = [directory.resolve() for directory in directories]
    if len(set(places)) < len(places):
        raise StoreError("a run directory is named twice; name each once")
    sources = tuple(Source.of(directory) for directory in directories)
    choices, conflicts, doubles = [], [], 0
    for key in dict.fromkeys(key for source in sources for key in source.journal):
        holders = [source for source in sources if key in source.journal]
        choice, contradictions = _chosen(key, holders)
        choices.append(choice)
        conflicts += contradictions
        doubles += len(holders) - 1
    return Merge(sources, tuple(choices), tuple(conflicts), doubles)


def _chosen(key: str, holders: Sequence[Source]) -> tuple[Choice, list[Conflict]]:
    if len(holders) == 1:
        return Choice(key, holders[0]), []
    # Sorting is stable: among equals, the first run named counts.
    ranked = sorted(holders, key=lambda source: _rank(source, key))
    best, row_and_scores = ranked[0], finished_of(ranked[0].journal, key)
    if row_and_scores[0].status != Status.OK.value:
        return Choice(key, best), []
    more, conflicts = [], []
    for other in ranked[1:]:
        theirs = finished_of(other.journal, key)
        if theirs[0].status != Status.OK.value:
            continue
        differences = tuple(_differences(best, row_and_scores, other, theirs))
        if differences:
            name = row_and_scores[0].cell.describe()
            conflicts.append(Conflict(key, name, best.directory, other.directory, differences))
        elif {s.metric for s in theirs[1]} - {s.metric for s in row_and_scores[1]}:
            more.append(other)
    return Choice(key, best, tuple(more)), conflicts


def _rank(source: Source, key: str) -> int:
    """Good with its release, good, failed after the release, skipped, failed."""
    status = source.journal.statuses[key]
    if status == Status.OK.value:
        return 0 if RunStore(source.directory).intact(source.journal[key][0]) else 1
    if names_in(source.directory, "releases", key):
        return 2
    return 3 if status == Status.SKIPPED.value else 4


def _differences(best: Source, mine: Finished, other: Source, theirs: Finished) -> Iterator[str]:
    """In words, what two good results of one key do not agree on."""
    (row, scores), (row2, scores2) = mine, theirs
    key = row.key
    released = _release_difference(best.directory, other.directory, key)
    if released and not row.study_only:
        released += " (noise was not seeded: these are two releases, and their budgets add up)"
    if released:
        yield released
    for name in ("eps_proven", "eps_audited", "verdict", "rows_released"):
        one, two = getattr(row, name), getattr(row2, name)
        if not (close(one, two) if name.startswith("eps_") else one == two):
            yield f"{name} {one} and {two}"
    audit, audit2 = best.journal.outcome(key).audit, other.journal.outcome(key).audit
    if audit is not None and audit2 is not None:
        yield from _audit_differences(audit, audit2)
    yield from score_differences(scores, scores2)


def _audit_differences(one: AuditRow, two: AuditRow) -> Iterator[str]:
    for name in _AUDITED:
        a, b = getattr(one, name), getattr(two, name)
        if not close(a, b):
            yield f"{name} {_short(a)} and {_short(b)}"


def _release_difference(one: Path, two: Path, key: str) -> str:
    """The encoded rows are compared, not the files: writers of other versions pad otherwise."""
    place = ("releases", key, encoded.FILE)
    try:
        first, second = read_parquet(one, *place), read_parquet(two, *place)
        summaries = [private_rows.read_summary(source, key) for source in (one, two)]
    except StoreError:
        return ""  # damaged, and so ranked behind the whole one
    digests = {summary.sha256 for summary in summaries if summary is not None}
    if len(digests) > 1:
        return "the released rows"
    if first is None or second is None:
        return ""  # a model, or a release that was lost: there is nothing to compare
    # Earlier versions named the columns otherwise, in the same order.
    numbers = [str(number) for number in range(first.num_columns)]
    same = first.num_columns == second.num_columns and first.rename_columns(numbers).equals(
        second.rename_columns(numbers)
    )
    return "" if same else "the released rows"


# When two results are the same --------------------------------------------------------------------


def score_differences(one: Sequence[ScoreRow], two: Sequence[ScoreRow]) -> Iterator[str]:
    """Return numbers that both have and that are not the same; the worst first, a few by name."""
    theirs = {score.metric: score for score in two}
    differences = []
    for score in one:
        other = theirs.get(score.metric)
        if other is None:
            continue
        for name in ("value", "low", "high"):
            a, b = getattr(score, name), getattr(other, name)
            if not close(a, b):
                known = a is not None and b is not None
                label = score.metric if name == "value" else f"{score.metric} ({name})"
                gap = abs(a - b) if known else math.inf
                differences.append((gap, f"{label} {_short(a)} and {_short(b)}"))
    differences.sort(key=lambda item: -item[0])
    yield from (text for _, text in differences[:_NAMED])
    if len(differences) > _NAMED:
        yield f"{len(differences) - _NAMED} more numbers"


def close(one: float | None, two: float | None) -> bool:
    """Return True for the same number up to rounding; an absent one equals an absent one."""
    if one is None or two is None:
        return one is two
    return math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _short(value: float | None) -> str:
    return "absent" if value is None else f"{value:.10g}"


# Writing ------------------------------------------------------------------------------------------


def write_merge(merge: Merge, target: Path, *, keep_private_rows: bool = False) -> None:
    """Write the new run directory, all of it or nothing."""
    check_target(target)
    with writing(target, _AGAIN):
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    try:
        with writing(target, _AGAIN):
            _fill(merge, part, keep_private_rows)
            # All files at once, which is much faster than one by one: after a power cut, what is
            # there under the new name is whole.
            os.sync()
            part.replace(target)
            sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def check_target(target: Path) -> None:
    """Refuse to write over anything."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise StoreError(f"{target} is not a folder; give -o the name of a new one")
    if target.is_dir() and any(target.iterdir()):
        raise StoreError(f"{target} is not empty; give -o the name of a new folder")


def _fill(merge: Merge, directory: Path, keep_private_rows: bool) -> None:
    about: dict[Path, set[Identity]] = {source.directory: set() for source in merge.sources}
    with RunStore(directory) as store:
        store.write_manifest(_joined_manifest(merge))
        charges = dict.fromkeys(charge for source in merge.sources for charge in source.charges)
        for charge in charges:
            store.charge(charge.key, charge.identity)
        for choice in merge.choices:
            row, scores = _joined(choice)
            rows_stay = not (keep_private_rows or private_rows.may_travel(row))
            left = (encoded.FILE, "synthetic.parquet") if rows_stay else ()
            # An earlier version stored rows without a proven epsilon like all others.
            _copy(choice.source, directory, "releases", choice.key, left)
            for kind in ("details", "audits"):
                _copy(choice.source, directory, kind, choice.key)
            if keep_private_rows:
                _copy(choice.source, directory, private_rows.FOLDER, choice.key)
            for other in choice.more:
                _copy(other, directory, "details", choice.key)
            audit = choice.source.journal.outcome(choice.key).audit
            timings = _joined_timings(choice)
            store.record(Outcome(row, scores, audit=audit, timings=timings), None)
            about[choice.source.directory].add(
                dataset_identity(row.dataset_name, row.dataset, row.dataset_parameters)
            )
        join_descriptions(directory, about)
        store.compact()


def _joined(choice: Choice) -> Finished:
    """The kept result, with the scores that only others have."""
    row, scores = finished_of(choice.source.journal, choice.key)
    # Logs hold what a plugin said, values of rows perhaps: they stay where their owner has them.
    log = f"; see {log_name(choice.key)}"
    if row.reason.endswith(log):
        row = replace(row, reason=f"{row.reason.removesuffix(log)}; {_LOG_STAYED}")
    for other in choice.more:
        theirs, their_scores = finished_of(other.journal, choice.key)
        known = {score.metric for score in scores}
        scores = (*scores, *(score for score in their_scores if score.metric not in known))
        hashes = {**json.loads(theirs.metrics), **json.loads(row.metrics)}
        row = replace(
            row,
            metrics=json.dumps(hashes, sort_keys=True),
            metrics_hash=keys.metrics_hash(hashes),
        )
    return row, scores


def _joined_timings(choice: Choice) -> tuple[TimingRow, ...]:
    """The timings of the kept result, with those of metrics that only others have computed."""
    timings = choice.source.journal.outcome(choice.key).timings
    for other in choice.more:
        known = {one.metric for one in timings}
        theirs = other.journal.outcome(choice.key).timings
        timings = with_metrics(timings, [one for one in theirs if one.metric not in known])
    return timings


def _copy(source: Source, target: Path, kind: str, key: str, left: Sequence[str] = ()) -> None:
    """The files of one folder but those to be left; what a killed run left is not taken either.

    What is there stays.
    """
    names = [name for name in names_in(source.directory, kind, key) if name not in left]
    if not names:
        return
    folder = target / kind / key
    make_folder(folder.parent)
    make_folder(folder)
    for name in names:
        if (source.place(kind, key) / name).is_dir() or (folder / name).exists():
            continue
        file = open_file(source.directory, kind, key, name)
        if file is not None:
            with file:
                link_or_copy(file, folder / name)


def _joined_manifest(merge: Merge) -> dict[str, Any]:
    """Facts that all runs share, the union of what they list, and where everything is from."""
    manifests = [source.manifest for source in merge.sources]
    shared = {
        name: value
        for name, value in manifests[0].items()
        if all(name in other and other[name] == value for other in manifests)
    }
    lists = {
        name: list(dict.fromkeys(item for one in manifests for item in _items(one, name)))
        for name in _LISTS
    }
    names = dict.fromkeys(str(one["grid"]) for one in manifests if one.get("grid"))
    started = [str(one["started_at"]) for one in manifests if one.get("started_at")]
    changed = any(one.get("dirty") for one in manifests)
    return {
        **shared,
        **lists,
        **({"dirty": True} if changed else {}),
        "grid": " + ".join(names),
        "started_at": min(started, default=""),
        "merged_from": [
            {
                "directory": str(source.directory),
                "cells": len(source.journal),
                "kept": sum(choice.source is source for choice in merge.choices),
                "manifest": dict(source.manifest),
            }
            for source in merge.sources
        ],
    }


def _items(manifest: Mapping[str, Any], name: str) -> list[Any]:
    value = manifest.get(name)
    # A stranger's list may hold lists, which have no place here.
    good = (str, int, float, type(None))
    return [item for item in value if isinstance(item, good)] if isinstance(value, list) else []
