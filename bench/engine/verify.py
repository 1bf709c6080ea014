"""Checks a run directory: all of it cheaply, and some cells by computing them again.

Cheap: the files of every release and audit are whole, its ledger replays to the epsilon of its row
(the first trial's of an audit to no more), and the tables agree with the journal. By recomputing: a
seeded cell is a function of its key, so the same code on the same data must give the same rows, the
same epsilon, verdict and scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.cell import run_cell
from bench.engine.merge import close, score_differences
from bench.engine.plan import load_dataset
from bench.environments import overlays
from bench.errors import BenchError, InputError, UnknownNameError
from bench.plugins import registry
from bench.plugins.release import Rows
from bench.privacy.ledger import Ledger
from bench.results.journal import Journal
from bench.results.opening import survey
from bench.results.reading import AUDITS, check_run, finished_of, in_use, open_journal
from bench.results.records import AuditRow, Cell, CellRow, Status, Variant, to_table
from bench.results.run_directory import RunStore

_CHUNK = 500
_NAMED = 5


@final
@dataclass(frozen=True)
class Recomputed:
    """A cell that was computed again."""

    key: str
    cell: str
    differences: tuple[str, ...]
    remarks: tuple[str, ...]
    """What may explain a difference, and what could not be compared."""


@final
@dataclass(frozen=True)
class NotVerifiable:
    """A cell that cannot be computed again here."""

    key: str
    cell: str
    reason: str


@final
@dataclass
class Verification:
    """Result of a verification."""

    cells: int = 0
    releases: int = 0
    problems: list[str] = field(default_factory=list)
    """Problems that the cheap checks have found."""
    remarks: list[str] = field(default_factory=list)
    recomputed: list[Recomputed] = field(default_factory=list)
    not_verifiable: list[NotVerifiable] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """True when nothing differs."""
        return not self.problems and not any(cell.differences for cell in self.recomputed)


def verify(
    directory: Path,
    sample: int = 5,
    seed: int = 0,
    cell: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> Verification:
    """Do all cheap checks, then compute `sample` random cells (or the one named) again."""
    check_run(directory)
    survey(directory)
    journal = open_journal(directory)
    if cell and cell not in journal:
        raise InputError(f"{directory} holds no cell {cell}; keys are in its cells.parquet")
    result = Verification(cells=len(journal))
    store = RunStore(directory)
    say(f"checking {len(journal)} cells")
    result.releases, result.problems = _check_releases(journal, store)
    if in_use(directory):
        result.remarks.append("a run is writing to the directory: its tables were not compared")
    else:
        result.problems += _check_tables(directory, journal)
    good = sorted(key for key, status in journal.statuses.items() if status == Status.OK.value)
    order = [good[number] for number in np.random.default_rng(seed).permutation(len(good))]
    recompute = _Recompute(journal, store, say)
    # What cannot be verified is said and does not use up the sample.
    for key in [cell] if cell else order:
        if len(result.recomputed) >= sample and not cell:
            break
        checked = recompute(key)
        if isinstance(checked, Recomputed):
            result.recomputed.append(checked)
        else:
            result.not_verifiable.append(checked)
    return result


# All cells, cheaply -------------------------------------------------------------------------------


def _check_releases(journal: Journal, store: RunStore) -> tuple[int, list[str]]:
    """How many releases there are, and what is wrong with them."""
    problems: list[str] = []
    replayed: dict[bytes, float] = {}
    releases = 0
    for row, _ in journal.all():
        if row.verdict == "":
            continue
        releases += not row.attack
        name = f"{row.cell.describe()} ({row.key})"
        if not store.intact(row):
            what = "audit" if row.attack else "release"
            problems.append(f"{name}: its {what} is missing or damaged")
            continue
        folder = store.audit_directory if row.attack else store.release_directory
        text = (folder(row.key) / "ledger.json").read_text(encoding="utf-8")
        # Cells that differ in their seed have the same ledger: it is replayed once.
        digest = hashlib.sha256(text.encode()).digest()
        try:
            if digest not in replayed:
                replayed[digest] = Ledger.from_json(text).proof().epsilon
        except (BenchError, KeyError, TypeError, ValueError) as problem:
            problems.append(f"{name}: its ledger cannot be replayed ({problem})")
            continue
        # Ledgers of an audit's trials may differ: its row has the largest epsilon of all.
        epsilon = replayed[digest]
        expected = max(epsilon, row.eps_proven or 0.0) if row.attack else epsilon
        if not close(expected, row.eps_proven):
            problems.append(
                f"{name}: its ledger replays to epsilon {epsilon:.10g}, its row says "
                f"{row.eps_proven}"
            )
    return releases, problems


def _check_tables(directory: Path, journal: Journal) -> list[str]:
    """What the tables say otherwise than the journal."""
    again = "; `bench run` or `bench score` writes it again"
    path = directory / "cells.parquet"
    if not path.is_file():
        return [f"cells.parquet is missing{again}"] if len(journal) else []
    scores = 0
    try:
        table = pq.ParquetFile(path)
        names = [item.name for item in fields(CellRow) if item.name in table.schema_arrow.names]
        stored = {
            str(line["key"]): _digest(line, names)
            for batch in table.iter_batches(_CHUNK, columns=names)
            for line in batch.to_pylist()
        }
        counted = pq.read_metadata(directory / "scores.parquet").num_rows
    except (OSError, KeyError, pa.ArrowInvalid) as problem:
        return [f"the tables cannot be read ({problem}){again}"]
    lacking, other = [], []
    for row, given in journal.all():
        scores += len(given)
        (line,) = to_table([row], CellRow).to_pylist()
        known = stored.pop(row.key, None)
        if known is None:
            lacking.append(row.key)
        elif known != _digest(line, names):
            other.append(row.key)
    problems = []
    for cells, what in (
        (lacking, "lacks cells of the journal"),
        (other, "has other values than the journal"),
        (list(stored), "holds cells that are not in the journal"),
    ):
        if cells:
            shown = ", ".join(cells[:_NAMED]) + (", ..." if len(cells) > _NAMED else "")
            problems.append(f"cells.parquet {what}: {len(cells)} ({shown}){again}")
    if counted != scores:
        problems.append(f"scores.parquet has {counted} rows, the journal {scores} scores{again}")
    rows = [one.audit for one in journal.audits() if one.audit is not None]
    path, again = directory / AUDITS, "; `bench audit` writes it again"
    try:
        audits = pq.ParquetFile(path).read().to_pylist() if path.is_file() else []
    except (OSError, pa.ArrowInvalid) as problem:
        return [*problems, f"{AUDITS} cannot be read ({problem}){again}"]
    if sorted(map(repr, audits)) != sorted(map(repr, to_table(rows, AuditRow).to_pylist())):
        problems.append(
            f"{AUDITS} has other values than the journal; `bench audit` writes it again"
        )
    return problems


def _digest(line: Mapping[str, Any], names: Sequence[str]) -> bytes:
    return hashlib.sha256(repr([line[name] for name in names]).encode()).digest()


# Some cells, again --------------------------------------------------------------------------------


@final
class _Recompute:
    """Computes stored cells again, and compares."""

    def __init__(self, journal: Journal, store: RunStore, say: Callable[[str], None]) -> None:
        self._journal = journal
        self._store = store
        self._say = say
        self._datasets: dict[tuple[Variant, str, int], Dataset | BenchError] = {}

    def __call__(self, key: str) -> Recomputed | NotVerifiable:
        row, scores = finished_of(self._journal, key)
        cell = row.cell
        if reason := _reason_against(row):
            return NotVerifiable(key, cell.describe(), reason)
        dataset = self._dataset(cell)
        if isinstance(dataset, BenchError):
            return NotVerifiable(key, cell.describe(), str(dataset))
        if dataset.fingerprint != row.fingerprint:
            reason = f"dataset {row.dataset} has changed since"
            return NotVerifiable(key, cell.describe(), reason)
        metrics, remarks = _comparable(row)
        self._say(f"computing again: {cell.describe()}")
        outcome = run_cell(cell, key, dataset, metrics)
        now = outcome.row
        differences: list[str] = []
        if now.status != row.status:
            differences.append(f"it was {row.status} and is now {now.status} ({now.reason})")
        elif outcome.release is not None and outcome.release.rows is not None:
            stored = self._store.read_release(key, dataset.encoder)
            if stored is None or stored.rows is None:
                differences.append("its stored release cannot be read")
            else:
                differences += _row_differences(stored.rows, outcome.release.rows)
        else:
            remarks.append("a released model is not stored: only its scores are compared")
        if now.status == row.status:
            if not close(row.eps_proven, now.eps_proven):
                differences.append(f"eps proven {row.eps_proven} and now {now.eps_proven}")
            if row.verdict != now.verdict:
                differences.append(f"verdict {row.verdict!r} and now {now.verdict!r}")
            differences += score_differences(scores, outcome.scores)
        if differences:
            remarks += _explanations(row, cell, dataset)
        return Recomputed(key, cell.describe(), tuple(differences), tuple(remarks))

    def _dataset(self, cell: Cell) -> Dataset | BenchError:
        place = (cell.dataset, cell.split, cell.split_seed)
        if place not in self._datasets:
            self._datasets[place] = load_dataset(*place)
        return self._datasets[place]


def _reason_against(row: CellRow) -> str:
    """Why the method cannot be run again to the same result; empty where it can."""
    if row.status != Status.OK.value:
        return f"it ended as {row.status}"
    if row.attack:
        return "an audit is not computed again here; `bench audit` with a new --out does it"
    try:
        kind = registry.method_class(row.method)
    except UnknownNameError:
        return f"method {row.method} is not installed"
    if kind.environment is not None and not overlays.inside(kind.environment):
        return f"method {row.method} runs in its own environment"
    if not kind.seeded:
        return f"method {row.method} cannot be seeded"
    if not row.study_only and row.eps_target is not None:
        return "its noise was secure, which cannot be drawn again"
    if keys.method_source_hash(row.method) != row.source_hash:
        return f"the source of method {row.method} has changed since"
    return ""


def _comparable(row: CellRow) -> tuple[tuple[str, ...], list[str]]:
    """Metrics that would give the same scores here, and which others there were."""
    recorded: dict[str, str] = json.loads(row.metrics)
    known = set(registry.metric_names())
    same = [n for n in sorted(recorded) if n in known and keys.metric_hash(n) == recorded[n]]
    others = [name for name in recorded if name not in same]
    if not others:
        return tuple(same), []
    return tuple(same), [f"not compared, their source has changed: {', '.join(others)}"]


def _row_differences(stored: Rows, now: Rows) -> Iterator[str]:
    for name in ("values", "labels", "weights", "soft_labels"):
        one, two = getattr(stored, name), getattr(now, name)
        if (one is None) != (two is None):
            yield f"{name} of the release are given once and absent once"
            continue
        if one is None:
            continue
        one, two = np.asarray(one), np.asarray(two)
        if one.shape != two.shape:
            yield f"{name} of the release have shape {one.shape} and now {two.shape}"
        elif not np.array_equal(one, two):
            gap = np.abs(one.astype(float) - two.astype(float))
            yield (
                f"{name} of the release: {np.count_nonzero(gap)} of {gap.size} numbers differ, "
                f"by up to {gap.max():.3g}"
            )


def _explanations(row: CellRow, cell: Cell, dataset: Dataset) -> Iterator[str]:
    """What is known to be other than it was: a difference need not be a fault."""
    then, now = json.loads(row.versions), json.loads(keys.versions())
    changed = [
        f"{name} {then[name]} -> {now.get(name, 'absent')}"
        for name in then
        if "/" not in name and then[name] != now.get(name)
    ]
    if changed:
        yield f"computed with other versions: {', '.join(changed)}"
    elif keys.cell_key(cell, dataset.fingerprint) != row.key:
        yield "this version would give the cell another key: the harness has changed since"


def to_text(result: Verification) -> str:
    """Return text for a terminal."""
    return "\n".join(_lines(result))


def _lines(result: Verification) -> Iterator[str]:
    state = f"problems: {len(result.problems)}" if result.problems else "all good"
    yield f"checked {result.cells} cells, {result.releases} releases, ledgers and tables; {state}"
    yield from (f"  problem: {problem}" for problem in result.problems)
    yield from (f"  remark: {remark}" for remark in result.remarks)
    for cell in result.recomputed:
        state = "DIFFERS" if cell.differences else "the same"
        yield f"computed again, {state}: {cell.cell} ({cell.key})"
        yield from (f"  differs: {text}" for text in cell.differences)
        yield from (f"  remark: {text}" for text in cell.remarks)
    reasons: dict[str, list[NotVerifiable]] = {}
    for lost in result.not_verifiable:
        reasons.setdefault(lost.reason, []).append(lost)
    for reason, cells in reasons.items():
        yield f"not verifiable ({len(cells)}): {reason}"
        yield f"  e.g. {cells[0].cell} ({cells[0].key})"
    if not result.recomputed:
        yield "no cell was computed again"
