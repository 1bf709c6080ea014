"""Checks a run directory: all of it cheaply, and some cells by computing them again.

Cheap: the files of every release and audit are whole and have the digests that the journal has
recorded, the row follows from its ledger (epsilon, delta, target, unit, accountant, verdict; of an
audit, whose ledger is that of the first trial, an epsilon of no less), the key follows from the
row, and every value of the tables agrees with the journal. By recomputing: a seeded cell is a
function of its key, so the same code on the same data must give the same rows, the same epsilons,
verdict and scores.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Protocol, final

import numpy as np
import pyarrow as pa

from bench.data.dataset import Dataset
from bench.engine import keys
from bench.engine.cell import run_cell
from bench.engine.isolation.processes import isolated
from bench.engine.merge import close, score_differences
from bench.engine.plan import load_dataset
from bench.environments import overlays
from bench.errors import BenchError, InputError, StoreError, UnknownNameError
from bench.plugins import registry
from bench.plugins.metric import HEADLINES
from bench.plugins.release import Rows
from bench.results import encoded, private_rows, published
from bench.results.compaction import AUDITS, TABLES, TIMINGS, tables_of
from bench.results.integrity import (
    Ledgers,
    Stated,
    changed_files,
    check_release,
    contradictions,
    recorded_digests,
    settings_contradictions,
    stored_claim,
)
from bench.results.journal import Finished, Journal
from bench.results.opening import names_in, read_text, survey
from bench.results.parquet_files import read_parquet, rows_in
from bench.results.reading import check_run, finished_of, in_use, open_journal
from bench.results.records import (
    AuditRow,
    Cell,
    CellRow,
    Outcome,
    Record,
    ScoreRow,
    Status,
    TimingRow,
    Variant,
    arrow_schema,
    from_values,
    required,
    stored_object,
    to_table,
)
from bench.results.run_directory import RunStore

_CHUNK = 500
_BATCH = 5_000
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
    by_row: bool = False
    """True where it is the row that does not fit: other code or data than here, or secure noise."""


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
    if old := sum(_holds_private_rows(row, store) for row, _ in journal.all()):
        result.remarks.append(
            f"{old} releases without a proven epsilon, of an earlier version, hold their rows in "
            "releases/: they may be private rows. A merge leaves them out"
        )
    if in_use(directory):
        result.remarks.append("a run is writing to the directory: its tables were not compared")
    else:
        result.problems += _check_tables(directory, journal)
    good = sorted(key for key, status in journal.statuses.items() if status == Status.OK.value)
    order = [good[number] for number in np.random.default_rng(seed).permutation(len(good))]
    recompute = _Recompute(_RunSource(journal, store), say)
    _recompute_some(result, recompute, [cell] if cell else order, 1 if cell else sample)
    return result


def _recompute_some(
    result: Verification, recompute: _Recompute, order: Sequence[str], sample: int
) -> None:
    # What cannot be verified is said and does not use up the sample.
    for key in order:
        if len(result.recomputed) >= sample:
            break
        checked = recompute(key)
        if isinstance(checked, Recomputed):
            result.recomputed.append(checked)
        else:
            result.not_verifiable.append(checked)


def verify_published(
    directory: Path,
    sample: int = 5,
    seed: int = 0,
    cell: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> Verification:
    """Check published results against their ledgers, and compute some of their cells again.

    Released files are compared by their digests, scores by their values: with the versions of
    libraries that the cell was computed with they must be equal, otherwise within the tolerance of
    `_within_tolerance`.
    """
    source = _PublishedSource(directory)
    if cell and cell not in source.rows:
        raise InputError(f"{directory} holds no cell {cell}; keys are in its cells.parquet")
    rows = list(source.rows.values())
    result = Verification(cells=len(rows), releases=sum(row.verdict != "" for row in rows))
    say(f"checking {len(rows)} cells")
    ledgers = Ledgers()
    for row in rows:
        name = f"{row.cell.describe()} ({row.key})"
        if row.verdict and not row.attack:
            found = check_release(directory, Stated.of(row), ledgers)
            if found.verdict != row.verdict:
                result.problems.append(f"{name}: {found.reason}")
        if row.fingerprint and (problem := _key_problem(row)):
            result.problems.append(f"{name}: {problem}")
    good = sorted(row.key for row in rows if row.status == Status.OK.value and not row.attack)
    order = [good[number] for number in np.random.default_rng(seed).permutation(len(good))]
    recompute = _Recompute(source, say)
    _recompute_some(result, recompute, [cell] if cell else order, 1 if cell else sample)
    return result


# All cells, cheaply -------------------------------------------------------------------------------


def _check_releases(journal: Journal, store: RunStore) -> tuple[int, list[str]]:
    """How many releases there are, and what is wrong with them."""
    problems: list[str] = []
    ledgers = Ledgers()
    releases = 0
    for row, _ in journal.all():
        if row.verdict == "":
            continue
        releases += not row.attack
        name = f"{row.cell.describe()} ({row.key})"
        if damage := store.problem_of(row):
            what = "audit" if row.attack else "release"
            problems.append(f"{name}: its {what} is missing or damaged ({damage})")
            continue
        found = _audit_problems if row.attack else _release_problems
        problems += (f"{name}: {text}" for text in found(row, store.directory, ledgers))
        if problem := _key_problem(row):
            problems.append(f"{name}: {problem}")
    return releases, problems


def _holds_private_rows(row: CellRow, store: RunStore) -> bool:
    """True for rows that this version would not have stored among the releases."""
    if row.verdict == "" or row.attack or private_rows.may_travel(row):
        return False
    return encoded.FILE in names_in(store.directory, "releases", row.key)


def _release_problems(row: CellRow, directory: Path, ledgers: Ledgers) -> Iterator[str]:
    stated = Stated.of(row)
    yield from changed_files(directory, stated)
    text = read_text(directory, "releases", row.key, "ledger.json") or ""
    replay = ledgers.replay(text)
    if replay.ledger is None or replay.proof is None:
        yield f"its ledger cannot be replayed ({replay.problem})"
        return
    yield from contradictions(stated, replay.ledger, replay.proof)
    yield from stored_claim(directory, row.key).contradictions(stated)
    if row.rows_released is not None:
        summary = private_rows.read_summary(directory, row.key)
        name = encoded.FILE if summary is None else private_rows.SUMMARY
        rows = rows_in(directory, "releases", row.key, name) if summary is None else summary.rows
        if rows != row.rows_released:
            yield f"{name} has {rows} rows, its row says {row.rows_released}"


def _audit_problems(row: CellRow, directory: Path, ledgers: Ledgers) -> Iterator[str]:
    text = read_text(directory, "audits", row.key, "ledger.json") or ""
    replay = ledgers.replay(text)
    if replay.ledger is None or replay.proof is None:
        yield f"its ledger cannot be replayed ({replay.problem})"
        return
    # Ledgers of an audit's trials may differ: its row has the largest epsilon of all.
    epsilon = replay.proof.epsilon
    if not close(max(epsilon, row.eps_proven or 0.0), row.eps_proven):
        yield f"its ledger replays to epsilon {epsilon:.10g}, its row says {row.eps_proven}"
    yield from settings_contradictions(Stated.of(row), replay.ledger)


def _key_problem(row: CellRow) -> str:
    """What is wrong with the key, where it can be computed: delta, epsilon, seed, ... are in it."""
    if row.attack or row.method not in registry.method_names():
        return ""
    if keys.method_source_hash(row.method) != row.source_hash:
        return ""
    then = stored_object("versions", row.versions)
    libraries = keys.method_libraries(row.method)
    if any(then.get(name) != version for name, version in libraries.items()):
        return ""
    if keys.cell_key(row.cell, row.fingerprint) == row.key:
        return ""
    return (
        "its key does not follow from its row: a setting, the dataset or the key was changed (or "
        "an earlier version of bench made keys otherwise)"
    )


# Tables -------------------------------------------------------------------------------------------


def _check_tables(directory: Path, journal: Journal) -> list[str]:
    """What the tables say otherwise than the journal."""
    again = "; `bench run` or `bench score` writes it again"
    try:
        cells = read_parquet(directory, "cells.parquet")
        scores = read_parquet(directory, "scores.parquet")
        timings = read_parquet(directory, TIMINGS)
        audits = read_parquet(directory, AUDITS)
    except StoreError as problem:
        return [f"the tables cannot be read ({problem}){again}"]
    if cells is None or scores is None:
        missing = "cells.parquet" if cells is None else "scores.parquet"
        return [f"{missing} is missing{again}"] if len(journal) else []
    if timings is None:
        # As in directories of earlier versions, whose journals have none either.
        timings = to_table([], TimingRow)
    in_journal = tuple(_Sums(kind) for _, kind in TABLES)
    batches = journal.outcomes()
    while batch := list(itertools.islice(batches, _CHUNK)):
        for sums, table in zip(in_journal, tables_of(batch), strict=True):
            sums.add(table)
    problems = []
    for (name, _), table, expected in zip(
        TABLES, (cells, scores, timings), in_journal, strict=True
    ):
        found = expected.compared_with(table)
        if isinstance(found, str):
            problems.append(f"{name} {found}{again}")
            continue
        for difference, keys_of in found.items():
            if keys_of:
                shown = ", ".join(keys_of[:_NAMED]) + (", ..." if len(keys_of) > _NAMED else "")
                problems.append(f"{name} {difference}: {len(keys_of)} ({shown}){again}")
        if name == "scores.parquet":
            problems += _altered_scores(journal, table, found[_OTHER][:_NAMED])
    rows = [one.audit for one in journal.audits() if one.audit is not None]
    written = [] if audits is None else audits.to_pylist()
    if sorted(map(repr, written)) != sorted(map(repr, to_table(rows, AuditRow).to_pylist())):
        problems.append(
            f"{AUDITS} has other values than the journal; `bench audit` writes it again"
        )
    return problems


_LACKS = "lacks cells of the journal"
_OTHER = "has other values than the journal"
_MORE = "holds cells that are not in the journal"


@final
class _Sums:
    """The content of a table, as one number per cell: there can be millions of scores.

    The digests of a cell's rows are added, so that their order does not matter.
    """

    def __init__(self, kind: Record) -> None:
        self._kind = kind
        self._sums: dict[str, int] = {}

    def add(self, table: pa.Table) -> None:
        """Add rows with all columns of the record."""
        for batch in table.to_batches(_BATCH):
            for line in batch.to_pylist():
                digest = hashlib.sha256(repr(list(line.values())).encode()).digest()
                key = str(line["key"])
                self._sums[key] = self._sums.get(key, 0) + int.from_bytes(digest[:16], "big")

    def compared_with(self, table: pa.Table) -> dict[str, list[str]] | str:
        """Return the cells for which a stored table differs, by how; or why it is no such table."""
        stored = _Sums(self._kind)
        columns = []
        for item, column in zip(fields(self._kind), arrow_schema(self._kind), strict=True):
            if item.name in table.column_names:
                columns.append(table.column(item.name))
            elif required(item):
                return f"lacks the column {item.name}"
            else:
                columns.append(pa.array([item.default] * len(table), column.type))
        try:
            stored.add(pa.table(columns, arrow_schema(self._kind).names).cast(self._schema))
        except (pa.ArrowException, ValueError) as problem:
            return f"cannot be read ({problem})"
        mine, theirs = self._sums, stored._sums
        return {
            _LACKS: [key for key in mine if key not in theirs],
            _OTHER: [key for key in mine if key in theirs and mine[key] != theirs[key]],
            _MORE: [key for key in theirs if key not in mine],
        }

    @property
    def _schema(self) -> pa.Schema:
        return arrow_schema(self._kind)


def _altered_scores(journal: Journal, table: pa.Table, altered: Sequence[str]) -> Iterator[str]:
    """Name the numbers of a few cells that the table has otherwise: journal first, then table."""
    import pyarrow.compute as pc

    for key in altered:
        lines = table.filter(pc.equal(table.column("key"), key)).to_pylist()
        try:
            stored = [from_values(ScoreRow, line) for line in lines]
        except (KeyError, ValueError):
            continue  # said above
        row, scores = finished_of(journal, key)
        for text in score_differences(scores, stored):
            yield f"{row.cell.describe()} ({key}), journal and scores.parquet: {text}"


# Some cells, again --------------------------------------------------------------------------------


class _Source(Protocol):
    """Where stored cells are read from, to be compared with what is computed again."""

    def finished(self, key: str) -> Finished:
        """Return a cell with its scores."""

    def release_differences(
        self, row: CellRow, outcome: Outcome, dataset: Dataset
    ) -> tuple[list[str], list[str]]:
        """Return what of the released rows differs, and remarks."""

    def comparable(self, scores: Sequence[ScoreRow]) -> Sequence[ScoreRow]:
        """Return the scores that would be stored."""


@final
class _RunSource:
    """A run directory."""

    def __init__(self, journal: Journal, store: RunStore) -> None:
        self._journal = journal
        self._store = store

    def finished(self, key: str) -> Finished:
        return finished_of(self._journal, key)

    def release_differences(
        self, row: CellRow, outcome: Outcome, dataset: Dataset
    ) -> tuple[list[str], list[str]]:
        if outcome.release is None or outcome.release.rows is None:
            return [], ["a released model is not stored: only its scores are compared"]
        stored = self._store.read_release(row.key, dataset.encoder)
        digest = self._store.rows_not_stored(row.key)
        if digest:
            same = private_rows.digest(outcome.release.rows) == digest
            differences = [] if same else ["the released rows have another digest"]
            return differences, ["its rows are not stored: their digest is compared"]
        if stored is None or stored.rows is None:
            return ["its stored release cannot be read"], []
        return list(_row_differences(stored.rows, outcome.release.rows)), []

    def comparable(self, scores: Sequence[ScoreRow]) -> Sequence[ScoreRow]:
        return scores


@final
class _PublishedSource:
    """Published results, which hold the digests of releases and the scores that are shown."""

    def __init__(self, directory: Path) -> None:
        found = published.compact(directory)
        self.rows = published.rows_of(directory)
        self._scores: dict[str, list[ScoreRow]] = {}
        frame = found.scores
        plain = frame.astype(object).where(frame.notna(), None)
        for line in plain.to_dict("records"):
            score = ScoreRow(**{str(name): value for name, value in line.items()})
            self._scores.setdefault(score.key, []).append(score)

    def finished(self, key: str) -> Finished:
        return self.rows[key], tuple(self._scores.get(key, ()))

    def release_differences(
        self, row: CellRow, outcome: Outcome, dataset: Dataset
    ) -> tuple[list[str], list[str]]:
        recorded = recorded_digests(row.release_hashes) or {}
        with (
            tempfile.TemporaryDirectory(prefix="bench-verify-") as folder,
            RunStore(Path(folder) / "run") as store,
        ):
            again = store.record(outcome, dataset.encoder).row
        now = recorded_digests(again.release_hashes) or {}
        other = [name for name in recorded if now.get(name) != recorded[name]]
        if not other:
            return [], ["released files: the same bytes"]
        # The version of the library that writes Parquet is not recorded: scores decide.
        return [], [f"released files with other bytes: {', '.join(other)}"]

    def comparable(self, scores: Sequence[ScoreRow]) -> Sequence[ScoreRow]:
        headlines = set(HEADLINES.values())
        return [score for score in scores if score.shown or score.metric in headlines]


@final
class _Recompute:
    """Computes stored cells again, and compares."""

    def __init__(self, source: _Source, say: Callable[[str], None]) -> None:
        self._source = source
        self._say = say
        self._datasets: dict[tuple[Variant, str, int], Dataset | BenchError] = {}

    def __call__(self, key: str) -> Recomputed | NotVerifiable:
        row, scores = self._source.finished(key)
        cell = row.cell
        if reason := _reason_against(row):
            return NotVerifiable(key, cell.describe(), reason)
        if reason := _other_than_here(row):
            return NotVerifiable(key, cell.describe(), reason, by_row=True)
        dataset = self._dataset(cell)
        if isinstance(dataset, BenchError):
            return NotVerifiable(key, cell.describe(), str(dataset), by_row=True)
        if dataset.fingerprint != row.fingerprint:
            reason = f"dataset {row.dataset} has changed since"
            return NotVerifiable(key, cell.describe(), reason, by_row=True)
        metrics, remarks = _comparable(row)
        self._say(f"computing again: {cell.describe()}")
        # A method runs in a process of its own, as it did in the run.
        with isolated() as fits:
            outcome = run_cell(cell, key, dataset, metrics, fits=fits)
        now = outcome.row
        differences: list[str] = []
        if now.status != row.status:
            differences.append(f"it was {row.status} and is now {now.status} ({now.reason})")
        else:
            differences, said = self._source.release_differences(row, outcome, dataset)
            remarks += said
            differences += _fact_differences(row, now)
            # Where all metrics are computed again, no other score can be there.
            recorded = stored_object("metrics", row.metrics)
            known = None if set(recorded) <= set(metrics) else metrics
            again = self._source.comparable(outcome.scores)
            if isinstance(self._source, _PublishedSource) and other_versions(row):
                found, said = _within_tolerance(scores, again)
                differences += found
                remarks += said
            else:
                differences += _all_score_differences(scores, again, known)
        if differences:
            remarks += _explanations(row, cell, dataset)
        return Recomputed(key, cell.describe(), tuple(differences), tuple(remarks))

    def _dataset(self, cell: Cell) -> Dataset | BenchError:
        place = (cell.dataset, cell.split, cell.split_seed)
        if place not in self._datasets:
            self._datasets[place] = load_dataset(*place)
        return self._datasets[place]


def _reason_against(row: CellRow) -> str:
    """Why the installed method cannot be run again to the same result; empty where it can."""
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
    return ""


def _other_than_here(row: CellRow) -> str:
    """Why what the row says of noise and code keeps it from being computed again, or nothing."""
    if not row.study_only and row.eps_target is not None:
        return "its noise was secure, which cannot be drawn again"
    if keys.method_source_hash(row.method) != row.source_hash:
        return f"the source of method {row.method} has changed since"
    return ""


def _comparable(row: CellRow) -> tuple[tuple[str, ...], list[str]]:
    """Metrics that would give the same scores here, and which others there were."""
    recorded: dict[str, str] = stored_object("metrics", row.metrics)
    known = set(registry.metric_names())
    same = [n for n in sorted(recorded) if n in known and keys.metric_hash(n) == recorded[n]]
    others = [name for name in recorded if name not in same]
    if not others:
        return tuple(same), []
    return tuple(same), [f"not compared, their source has changed: {', '.join(others)}"]


_NUMBERS = ("eps_proven", "eps_claimed")
_FACTS = (
    *("verdict", "accountant", "claim_source", "adjacency", "unit", "rows_released", "task"),
    *("study_only", "warnings"),
)
"""What a cell gives besides rows and scores, and what must be the same again."""


def _fact_differences(row: CellRow, now: CellRow) -> Iterator[str]:
    for name in _NUMBERS:
        then, again = getattr(row, name), getattr(now, name)
        if not close(then, again):
            yield f"{name.replace('_', ' ')} {then} and now {again}"
    for name in _FACTS:
        then, again = getattr(row, name), getattr(now, name)
        if then != again:
            yield f"{name.replace('_', ' ')} {then!r} and now {again!r}"


def _all_score_differences(
    stored: Sequence[ScoreRow], now: Sequence[ScoreRow], metrics: Sequence[str] | None
) -> Iterator[str]:
    """Every number that these metrics (None: all) give, also one that is there only once."""
    theirs = {score.metric: score for score in now}
    outputs = set(theirs)
    for name in metrics or ():
        outputs |= {output.name for output in registry.metric(name).declared()}
    mine = {s.metric: s for s in stored if metrics is None or s.metric in outputs}
    yield from score_differences(list(mine.values()), now)
    for name in mine:
        if name not in theirs:
            yield f"{name} was stored and is not given now"
    for name, score in theirs.items():
        if name not in mine:
            yield f"{name} is given now and was not stored"
            continue
        yield from _score_facts(mine[name], score)


def _score_facts(stored: ScoreRow, now: ScoreRow) -> Iterator[str]:
    """What a metric says of its score besides numbers, where that is not the same again."""
    for fact in ("direction", "family", "limit", "shown"):
        then, again = getattr(stored, fact), getattr(now, fact)
        if then != again:
            yield f"{fact} of {stored.metric} {then!r} and now {again!r}"


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


_CLOSE = 0.01
"""Relative difference of a score without an interval that other versions of libraries can make."""


def _within_tolerance(
    stored: Sequence[ScoreRow], now: Sequence[ScoreRow]
) -> tuple[list[str], list[str]]:
    """Return scores that other versions do not explain, and remarks.

    Another version draws other numbers, as another seed does. A stored score may lie anywhere in
    the interval that is computed now, and the ends of its own interval may have moved by the width
    of that; a score without an interval may move by one per cent. What is stored decides nothing:
    an interval as wide as one likes would excuse every score.
    """
    again = {score.metric: score for score in now}
    differences, moved = [], 0
    for score in stored:
        other = again.pop(score.metric, None)
        if other is None or (score.value is None) != (other.value is None):
            differences.append(f"{score.metric} is there only once")
            continue
        differences += _score_facts(score, other)
        differences += _interval_differences(score, other)
        if score.value is None or other.value is None or close(score.value, other.value):
            continue
        moved += 1
        if other.low is not None and other.high is not None:
            good = other.low <= score.value <= other.high
        else:
            good = math.isclose(score.value, other.value, rel_tol=_CLOSE, abs_tol=_CLOSE)
        if not good:
            differences.append(f"{score.metric} {score.value:.10g} and {other.value:.10g}")
    differences += [f"{name} is given now and was not stored" for name in again]
    versions = "computed with other versions: scores are compared within their intervals"
    return differences, [f"{versions}; {moved} of {len(stored)} moved"]


def _interval_differences(stored: ScoreRow, now: ScoreRow) -> Iterator[str]:
    """Ends of an interval that have moved by more than the width of the one computed now."""
    width = 0.0 if now.low is None or now.high is None else now.high - now.low
    for name in ("low", "high"):
        then, again = getattr(stored, name), getattr(now, name)
        if not close(then, again) and (
            then is None or again is None or not abs(then - again) <= width
        ):
            yield f"{name} of {stored.metric} {then} and now {again}"


def other_versions(row: CellRow) -> list[str]:
    """Return the libraries that have another version than a cell was computed with."""
    then, now = stored_object("versions", row.versions), json.loads(keys.versions())
    return [
        f"{name} {then[name]} -> {now.get(name, 'absent')}"
        for name in then
        if "/" not in name and then[name] != now.get(name)
    ]


def _explanations(row: CellRow, cell: Cell, dataset: Dataset) -> Iterator[str]:
    """What is known to be other than it was: a difference need not be a fault."""
    if changed := other_versions(row):
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
