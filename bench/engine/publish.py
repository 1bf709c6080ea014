"""Adds the finished cells of run directories to the published results, and writes their log.

What is published says by which code it was computed. Left out, each with its reason, is what would
mislead: cells of code that is not the one that is installed (a version would mix two of one
method), of a checkout with changes that are in no commit, and of data that not everybody may have.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from bench.engine import keys
from bench.engine.merge import score_differences
from bench.errors import InputError, StoreError, shortened
from bench.plugins import registry
from bench.plugins.description import dataset_identity
from bench.results import published
from bench.results.published import Compact, Joined, SignOff, Slice, Version
from bench.results.reading import check_run
from bench.results.records import ScoreRow, Status

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 3
MOST_FAILING = 0.05
"""Share of a method's cells that may fail before the log asks for an explanation."""


@final
@dataclass(frozen=True)
class Published:
    """What a publishing did."""

    target: Path
    cells: int
    size: int
    added: int = 0
    replaced: int = 0
    left_out: tuple[str, ...] = ()
    """Why cells of the runs were left out, in sentences."""
    remarks: tuple[str, ...] = ()


def publish(
    runs: Sequence[Path],
    target: Path,
    *,
    allow_dirty: bool = False,
    signed: Mapping[str, str] = MappingProxyType({}),
    today: str = "",
) -> Published:
    """Add the cells of run directories to published results, which are created if need be.

    `signed` has the methods that their authors have signed off, with the names of these.
    """
    today = today or datetime.datetime.now(datetime.UTC).date().isoformat()
    there = (target / "run.json").exists()
    if target.exists() and not there and any(target.iterdir()):
        raise StoreError(f"{target} is not empty and holds no published results; name another")
    version = published.check_published(target) if there else Version(target.name, today, today)
    results = published.compact(target) if there else None
    left_out: list[str] = []
    remarks: list[str] = []
    slices = []
    added = replaced = 0
    for run in runs:
        manifest = check_run(run)
        if published.version_of(run) is not None:
            raise InputError(f"{run} holds published results; name run directories")
        found = published.compact(run)
        good, why = publishable(found, manifest, allow_dirty)
        left_out += [f"{run.name}: {text}" for text in why]
        remarks += [f"{run.name}: {text}" for text in _conflicts(results, good)]
        joined = published.join(results, good)
        results = joined.results
        added, replaced = added + len(joined.added), replaced + len(joined.replaced)
        if joined.added or joined.replaced:
            slices.append(slice_of(run, manifest, joined, today))
    if results is None or results.cells.empty:
        reasons = "; ".join(left_out) or "the runs hold no finished cells"
        raise StoreError(f"nothing to publish: {reasons}")
    if slices:
        version = replace(version, updated=today, slices=(*version.slices, *slices))
    version = replace(version, signed=_signed(version, results.cells, signed, today))
    log = to_log(version, results)
    size = published.write(target, results, version, log)
    remarks += outdated(results.cells)
    return Published(
        target, len(results.cells), size, added, replaced, tuple(left_out), tuple(remarks)
    )


def _signed(
    version: Version, cells: pd.DataFrame, signed: Mapping[str, str], today: str
) -> tuple[SignOff, ...]:
    """Return the sign-offs, of which one holds for all cells of its method or not at all."""
    codes: dict[str, set[str]] = {}
    for method, digest in zip(cells["method"], cells["source_hash"], strict=True):
        codes.setdefault(method, set()).update({digest} - {""})
    given = {one.method: one for one in version.signed}
    for method, name in signed.items():
        if len(codes.get(method, ())) != 1:
            raise InputError(
                f"method {method} cannot be signed off: it has cells of "
                f"{len(codes.get(method, ()))} versions of its code, and needs those of one"
            )
        given[method] = SignOff(method, next(iter(codes[method])), name, today)
    kept = (one for one in given.values() if codes.get(one.method) == {one.source_hash})
    return tuple(sorted(kept, key=lambda one: one.method))


def publishable(
    results: Compact, manifest: Mapping[str, Any], allow_dirty: bool
) -> tuple[Compact, list[str]]:
    """Return the cells that may be published, and why the others may not."""
    if manifest.get("dirty") and not allow_dirty:
        return results.only([]), [
            f"all {len(results.cells)} cells: computed by a checkout with changes that are in no "
            "commit; commit and run again into a new --out, or publish them so marked by "
            "--allow-dirty"
        ]
    opened = {one.identity for one in results.about.datasets if one.open}
    current = _Current()
    why: Counter[str] = Counter()
    good = []
    for row in _lines(results.cells):
        if dataset_identity(row["dataset_name"], row["dataset"], row["dataset_parameters"]) not in (
            opened
        ):
            why[f"dataset {row['dataset']} is not declared to be open to everybody"] += 1
        elif problem := current.problem(row):
            why[problem] += 1
        elif not row["fingerprint"]:
            why[f"dataset {row['dataset']} could not be loaded"] += 1
        else:
            good.append(row["key"])
    told = [f"{_cells(count)}: {reason}" for reason, count in why.most_common()]
    return results.only(good), told


@final
class _Current:
    """Compares the code behind cells with the code that is installed; each hash is taken once."""

    def __init__(self) -> None:
        # None for what is not installed: no recorded hash equals it, not even an empty one.
        self._methods: dict[str, str | None] = {}
        self._metrics: dict[str, str | None] = {}

    def problem(self, row: Mapping[str, Any]) -> str:
        """Return which code of a cell is not the installed one; empty where all is."""
        method = row["method"]
        if method not in self._methods:
            known = method in registry.method_names()
            self._methods[method] = keys.method_source_hash(method) if known else None
        # A cell that failed before the method was looked at has no hash.
        hashed = row["source_hash"] or row["status"] == Status.OK.value
        if hashed and row["source_hash"] != self._methods[method]:
            return f"the code of method {method} is not the installed one"
        for name, digest in json.loads(row["metrics"]).items():
            if name not in self._metrics:
                known = name in registry.metric_names()
                self._metrics[name] = keys.metric_hash(name) if known else None
            if self._metrics[name] is None:
                return f"metric {shortened(name)} is not installed"
            if digest != self._metrics[name]:
                return f"the code of metric {name} is not the installed one"
        return ""


def outdated(cells: pd.DataFrame) -> list[str]:
    """Return, in sentences, which published cells the installed code would compute again."""
    current = _Current()
    counts = Counter(problem for row in _lines(cells) if (problem := current.problem(row)))
    return [f"{_cells(count)} published: {problem}" for problem, count in counts.most_common()]


def _conflicts(old: Compact | None, new: Compact) -> Iterator[str]:
    """Return, in sentences, what two runs of one key do not agree on: a key fixes the result."""
    if old is None:
        return
    both = set(old.cells["key"]) & set(new.cells["key"])
    mine, theirs = (_scores(one.scores, both) for one in (old, new))
    names = new.cells.set_index("key")
    differing = {}
    for key in sorted(both):
        found = list(score_differences(mine.get(key, []), theirs.get(key, [])))
        if found:
            differing[key] = found[0]
    for key in list(differing)[:_NAMED]:
        row = names.loc[key]
        yield f"{row['label']} on {row['dataset']} ({key}): published before with {differing[key]}"
    if len(differing) > _NAMED:
        yield f"{len(differing) - _NAMED} more cells have other scores than published under one key"


def _scores(scores: pd.DataFrame, wanted: set[str]) -> dict[str, list[ScoreRow]]:
    found: dict[str, list[ScoreRow]] = {}
    for line in _lines(scores[scores["key"].isin(wanted)]):
        found.setdefault(line["key"], []).append(ScoreRow(**line))
    return found


def _lines(frame: pd.DataFrame) -> list[dict[str, Any]]:
    plain = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in line.items()} for line in plain.to_dict("records")]


def slice_of(run: Path, manifest: Mapping[str, Any], joined: Joined, today: str) -> Slice:
    """Return the entry of a publishing of a run directory."""
    new = [*joined.added, *joined.replaced]
    cells = joined.results.cells
    cells = cells[cells["key"].isin(new)]
    hours, untimed = published.core_hours(joined.results, new)
    return Slice(
        date=today,
        run=run.resolve().name,
        grid=str(manifest.get("grid", "")),
        machine=str(manifest.get("machine", "")),
        cpu=str(manifest.get("cpu", "")),
        memory_gb=manifest.get("memory_gb"),
        python=str(manifest.get("python", "")),
        commit=str(manifest.get("commit") or ""),
        dirty=bool(manifest.get("dirty")),
        environment_hash=str(manifest.get("environment_hash", "")),
        added=len(joined.added),
        replaced=len(joined.replaced),
        statuses=published.statuses(cells),
        first_finished=min(cells["finished_at"]),
        last_finished=max(cells["finished_at"]),
        core_hours=round(hours, 4),
        untimed=untimed,
        left_out=tuple(map(str, manifest.get("left_out", ()))),
    )


# The log ------------------------------------------------------------------------------------------


def to_log(version: Version, results: Compact) -> str:
    """Return the text of `LOG.md`: everything in it follows from the results."""
    return "\n".join(_log(version, results)) + "\n"


def _log(version: Version, results: Compact) -> Iterator[str]:
    cells = results.cells
    yield f"# Results {version.version}"
    yield ""
    yield (
        "Written by `bench publish` from the tables beside it. Core-hours are processor time of "
        "loading, fitting, proving, scoring and writing."
    )
    yield ""
    yield f"- First published {version.started}, last {version.updated}."
    released, audits = cells[cells["attack"] == ""], cells[cells["attack"] != ""]
    for what, part in (("cells", released), ("audits", audits)):
        if len(part):
            listed = ", ".join(
                f"{count:,} {name}" for name, count in published.statuses(part).items()
            )
            yield f"- {len(part):,} {what}: {listed}."
    untimed = sum(one.untimed for one in version.slices)
    hours = f"- {version.core_hours:.2f} core-hours"
    yield hours + (f", without {_cells(untimed)} whose time is not known." if untimed else ".")
    yield (
        f"- {released['method'].nunique()} methods, {released['dataset'].nunique()} datasets, "
        f"seeds {', '.join(map(str, sorted(released['seed'].unique())))}, epsilon "
        f"{', '.join(f'{eps:g}' for eps in sorted(released['eps_target'].dropna().unique()))}."
    )
    for mark in version.signed:
        yield f"- Method {mark.method}: verified, signed off by {_text(mark.by)} on {mark.date}."
    yield ""
    yield "## Publishings"
    yield ""
    yield "| date | run | grid | machine | commit | added | replaced | cells | core-hours |"
    yield "|---|---|---|---|---|---:|---:|---|---:|"
    for one in version.slices:
        memory = "" if one.memory_gb is None else f", {one.memory_gb:g} GB"
        commit = one.commit[:12] or "not known"
        marked = f"{commit} and uncommitted changes" if one.dirty else commit
        counts = ", ".join(f"{count} {name}" for name, count in one.statuses.items())
        yield (
            f"| {one.date} | {_text(one.run)} | {_text(one.grid)} | {_text(one.machine)}, "
            f"{_text(one.cpu)}{memory}, Python {one.python} | {marked} | {one.added} | "
            f"{one.replaced} | {counts} | {one.core_hours:.2f} |"
        )
    yield ""
    left_out = dict.fromkeys(text for one in version.slices for text in one.left_out)
    if left_out:
        yield "## Left out of the grid"
        yield ""
        yield from (f"- {_text(text)}" for text in left_out)
        yield ""
    yield from _versions(released)
    yield from _by_method(released, results)
    yield from _failures(cells)


def _versions(cells: pd.DataFrame) -> Iterator[str]:
    yield "## Versions of libraries"
    yield ""
    for text, count in cells["versions"].value_counts().items():
        found = json.loads(str(text))
        listed = ", ".join(f"{name} {one}" for name, one in found.items())
        yield f"- {_cells(int(count))}: {_text(listed) or 'not known (they failed before)'}"
    yield ""


def _by_method(cells: pd.DataFrame, results: Compact) -> Iterator[str]:
    yield "## Methods"
    yield ""
    yield "| method | ok | skipped | failed | failed of those tried | core-hours | codes |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for label, part in cells.groupby("label"):
        counts = published.statuses(part)
        ok, skipped = counts.get("ok", 0), counts.get("skipped", 0)
        failed = len(part) - ok - skipped
        tried = ok + failed
        share = f"{failed / tried:.1%}" if tried else ""
        hours, _ = published.core_hours(results, list(part["key"]))
        codes = part.loc[part["source_hash"] != "", "source_hash"].nunique()
        marked = f"**{share}**" if tried and failed / tried > MOST_FAILING else share
        yield (
            f"| {_text(str(label))} | {ok} | {skipped} | {failed} | {marked} | {hours:.3f} | "
            f"{codes} |"
        )
    yield ""


def _failures(cells: pd.DataFrame) -> Iterator[str]:
    for title, chosen in (
        ("Failures", ~cells["status"].isin([Status.OK.value, Status.SKIPPED.value])),
        ("Skipped", cells["status"] == Status.SKIPPED.value),
    ):
        part = cells[chosen]
        if part.empty:
            continue
        yield f"## {title}"
        yield ""
        yield "| method | datasets | cells | status | reason |"
        yield "|---|---|---:|---|---|"
        for (label, status, reason), group in part.groupby(["label", "status", "reason"]):
            names = ", ".join(sorted(group["dataset"].unique()))
            yield (
                f"| {_text(str(label))} | {_text(names)} | {len(group)} | {status} | "
                f"{_text(str(reason)) or 'no reason was recorded'} |"
            )
        yield ""


def _text(text: str) -> str:
    """Return text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count:,} cells"
