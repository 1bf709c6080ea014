"""Gathers the contents of a dossier: one release in a run directory.

Nothing is written, no data file is opened, and no private row is read: only the journal (or the
tables), the files of the release, and the declarations of plugins.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from bench.data.splits import check_preset, expected_sizes, home_site
from bench.errors import BenchError, InputError, StoreError, printable
from bench.leaderboard.dossier.attacks import KnownMetric
from bench.leaderboard.dossier.schema import SchemaFacts, schema_facts
from bench.leaderboard.tables.load import read_results
from bench.plugins import registry
from bench.plugins.method import UNKNOWN
from bench.plugins.metric import Family
from bench.plugins.source import DatasetSource
from bench.plugins.user_tables import OwnTable
from bench.results import encoded, private_rows
from bench.results.integrity import digest_of
from bench.results.journal import Finished
from bench.results.opening import check_key, modified, open_file, read_object, read_text
from bench.results.parquet_files import columns_in, parquet_file, read_parquet, table_of
from bench.results.private_rows import RowsSummary
from bench.results.reading import (
    charged_keys,
    check_run,
    finished_of,
    open_journal,
)
from bench.results.records import AnyRecord, CellRow, ScoreRow, Status, from_values


@final
@dataclass(frozen=True)
class FileDigest:
    """A file of the release with its digest."""

    name: str
    size: int
    sha256: str


@final
@dataclass(frozen=True)
class ReleaseFiles:
    """Contents of `releases/<key>/`."""

    digests: tuple[FileDigest, ...]
    ledger: str | None
    columns: tuple[str, ...]
    by_class: tuple[int, ...]
    """Released rows of each class, by class code."""
    rows: int
    beside: tuple[str, ...] = ()
    """What every row has besides its columns: weights, soft labels."""
    rows_digest: str = ""
    """Digest of the encoded rows, where the rows have no proven epsilon and are not stored."""


@final
@dataclass(frozen=True)
class PublicFacts:
    """Declarations in the file of the dataset; nothing here was computed from rows."""

    title: str
    classes: tuple[str, ...]
    training_rows: tuple[int, ...]
    """Declared training rows of each class."""
    label: str = ""
    """Name of the label column."""
    quasi_identifiers: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    simulated: bool = False
    inferred: bool = False
    own: bool = False
    """True for a user's own table."""

    def class_name(self, code: int) -> str:
        """Return a class in words: `cens = 1`."""
        name = self.classes[code] if code < len(self.classes) else f"class {code}"
        return f"{self.label} = {name}" if self.label else name

    @property
    def counted(self) -> str:
        """Declared training rows of each class in words."""
        counts = enumerate(self.training_rows)
        return ", ".join(f"{self.class_name(code)}: {count:,}" for code, count in counts)


@final
@dataclass(frozen=True)
class Material:
    """Everything a dossier is written from."""

    run: str
    """Name of the run directory, without the path."""
    manifest: Mapping[str, Any]
    row: CellRow
    scores: tuple[ScoreRow, ...]
    cells: tuple[CellRow, ...]
    """All cells of the run."""
    files: ReleaseFiles
    facts: PublicFacts | None = None
    """None if the plugin of the dataset is not installed."""
    schema: SchemaFacts | None = None
    """Schema that the run recorded; None where it did not."""
    ceiling: tuple[ScoreRow, ...] = ()
    """Scores of the real training rows in this run, if it has them."""
    charged: frozenset[str] = frozenset()
    known: tuple[KnownMetric, ...] = ()
    method_title: str = ""
    """Title of the method; empty if its plugin is not installed."""
    tuned_on: tuple[str, ...] = (UNKNOWN,)
    """Datasets in view when the defaults of the method were chosen, see `Method.tuned_on`."""
    home: Path | None = None
    """The run directory, whose details the charts are drawn from."""


# Reading a run directory --------------------------------------------------------------------------


_SHIPPED = "bench.methods."
"""Prefix of the modules of the methods in this distribution."""
_ROW_FILES = ("synthetic.parquet", "encoded.parquet")
_LEDGER = "ledger.json"
_LISTED = 12
_ANY = ("", "*")


def gather(directory: Path, wanted: str) -> Material:
    """Return everything about the cell that `wanted` names."""
    manifest = {} if modified(directory, "run.json") is None else check_run(directory)
    cells, finished = _results(directory)
    row = find_cell(cells, wanted)
    _check_finished(row)
    files = _read_files(directory, row)
    _, scores = finished(row.key)
    ceiling = next((cell for cell in cells if _is_ceiling_of(cell, row)), None)
    facts = _public_facts(row)
    return Material(
        run=directory.resolve().name,
        manifest=manifest,
        row=row,
        scores=scores,
        cells=cells,
        files=files,
        facts=facts,
        schema=schema_facts(directory, row),
        ceiling=() if ceiling is None else finished(ceiling.key)[1],
        charged=frozenset(charged_keys(directory)),
        known=_known_metrics(),
        method_title=_method_title(row.method),
        tuned_on=_tuned_on(row.method, facts is not None and facts.own),
        home=directory,
    )


# Cells ------------------------------------------------------------------------------------------


def _results(directory: Path) -> tuple[tuple[CellRow, ...], Callable[[str], Finished]]:
    """Return all cells and a function that returns one with its scores."""
    if modified(directory, "journal.jsonl") is not None:
        journal = open_journal(directory)
        cells = tuple(row for row, _ in journal.all() if not row.attack)
        return cells, lambda key: finished_of(journal, key)
    read_results([directory])  # reports what is wrong with malformed tables
    rows = _records(CellRow, directory, "cells.parquet")
    rows = [row for row in rows if not row.attack]
    scores = _records(ScoreRow, directory, "scores.parquet")
    for row in rows:
        check_key(row.key, directory / "cells.parquet")
    by_key = {row.key: row for row in rows}
    return tuple(rows), lambda key: (
        by_key[key],
        tuple(score for score in scores if score.key == key),
    )


def _records(kind: type[AnyRecord], directory: Path, name: str) -> list[AnyRecord]:
    table = read_parquet(directory, name)
    lines = [] if table is None else table.to_pylist()
    try:
        return [from_values(kind, line) for line in lines]
    except (KeyError, ValueError) as problem:
        raise StoreError(f"{directory / name}: a row is damaged ({problem})") from None


def find_cell(cells: Sequence[CellRow], wanted: str) -> CellRow:
    """Return the cell with this key or key prefix, or the only one that matches a filter.

    A filter is `method/dataset/epsilon/ipc/seed`; parts may be left out at the end, `*` and an
    empty part stand for anything. The IPC is the number of rows per class, `full` or `own`.
    """
    matches = [cell for cell in cells if cell.key == wanted]
    if not matches and wanted:
        matches = [cell for cell in cells if cell.key.startswith(wanted)]
    if not matches:
        matches = [cell for cell in cells if _matches(cell, wanted.split("/"))]
    if len(matches) == 1:
        return matches[0]
    problem = "matches no cell" if not matches else f"matches {len(matches)} cells"
    listed = [_in_words(cell) for cell in (matches or cells)[:_LISTED]]
    more = len(matches or cells) - len(listed)
    listed += [f"and {more} more"] if more > 0 else []
    raise InputError(
        printable(
            f"{wanted!r} {problem} of this run; give a key, a prefix of one, or "
            "method/dataset/epsilon/ipc/seed. "
            + ("Candidates:\n  " + "\n  ".join(listed) if listed else "The run has no cells.")
        )
    )


def _matches(cell: CellRow, parts: Sequence[str]) -> bool:
    ipc = cell.ipc_text
    target = "none" if cell.eps_target is None else f"{cell.eps_target:g}"
    told = ((cell.label, cell.method), (cell.dataset,), (target,), (ipc,), (str(cell.seed),))
    if len(parts) > len(told) or all(part in _ANY for part in parts):
        return False
    asked = [*parts[:2], *(_as_number(part) for part in parts[2:])]
    return all(part in _ANY or part in known for part, known in zip(asked, told, strict=False))


def _as_number(text: str) -> str:
    """Return a number as text in which `1.0` equals `1`."""
    try:
        return f"{float(text):g}" if "." in text or "e" in text.lower() else text
    except ValueError:
        return text


def _in_words(cell: CellRow) -> str:
    ipc = cell.ipc_text
    target = "none" if cell.eps_target is None else f"{cell.eps_target:g}"
    name = "/".join([cell.label, cell.dataset, target, ipc, str(cell.seed)])
    return f"{cell.key}  {name}  {cell.status}"


def _check_finished(row: CellRow) -> None:
    if row.status == Status.OK:
        return
    text = f"cell {row.key} ({row.label} on {row.dataset}) ended as {row.status}: {row.reason}. "
    text += (
        "Its release was written, but not all of its scores: `bench score` on the run directory "
        "completes them, and then the dossier can be written"
        if row.eps_proven is not None
        else "There is no release to write a dossier about"
    )
    raise InputError(printable(text))


def _is_ceiling_of(cell: CellRow, row: CellRow) -> bool:
    """Return whether a cell holds the real training rows of the same split."""
    return (
        cell.method == "real"
        and cell.status == Status.OK
        and cell.key != row.key
        and (cell.dataset, cell.fingerprint) == (row.dataset, row.fingerprint)
    )


# Files of the release ---------------------------------------------------------------------------


def _read_files(directory: Path, row: CellRow) -> ReleaseFiles:
    place = ("releases", row.key)
    about = read_object(directory, *place, "release.json") or {}
    folder = directory.joinpath(*place)
    if about.get("result") == "model":
        bounded = row.eps_proven is not None and math.isfinite(row.eps_proven)
        proven = f"epsilon {row.eps_proven:.4g}" if bounded else "no bound"
        raise InputError(
            printable(
                f"cell {row.key} ({row.label} on {row.dataset}) released a model, not rows: "
                "there is no table to identify by a digest, and the attacks on released rows do "
                "not apply. A dossier describes released rows only. Its ledger, which proves "
                f"{proven}, is stored: see {folder / 'ledger.json'} and the leaderboard"
            )
        )
    summary = private_rows.read_summary(directory, row.key)
    if summary is not None:
        return _without_rows(directory, row.key, summary)
    try:
        columns = columns_in(directory, *place, "synthetic.parquet")
        file = open_file(directory, *place, encoded.FILE)
        if file is None or not columns:
            raise StoreError(f"{folder}: synthetic.parquet or {encoded.FILE} is missing")
        with file:
            special = encoded.special_columns(parquet_file(file, folder).schema_arrow)
            table = table_of(file, folder / encoded.FILE, [special.label])
        labels = table.column(special.label).to_numpy()
        by_class = np.bincount(labels.astype(np.int64)).tolist() if len(labels) else []
    except (StoreError, KeyError, ValueError, TypeError, IndexError, MemoryError) as problem:
        raise StoreError(
            f"{folder}: the files of the release cannot be read ({problem}); `bench verify` on the "
            "run directory says more"
        ) from None
    # Once it is known that they are tables: what is none can be very large.
    names = (*_ROW_FILES, _LEDGER)
    digests = tuple(filter(None, (_digest(directory, *place, name) for name in names)))
    return ReleaseFiles(
        digests=digests,
        ledger=_ledger_text(directory, row.key),
        # A pandas index is not a column of the table.
        columns=tuple(name for name in columns if not name.startswith("__index_level_")),
        by_class=tuple(by_class),
        rows=len(labels),
        beside=_beside(special.weighted, special.soft),
    )


def _without_rows(directory: Path, key: str, summary: RowsSummary) -> ReleaseFiles:
    """Return what is known of a release without a proven epsilon, whose rows are not with it."""
    ledger = _digest(directory, "releases", key, _LEDGER)
    return ReleaseFiles(
        digests=() if ledger is None else (ledger,),
        ledger=_ledger_text(directory, key),
        columns=summary.columns,
        by_class=summary.by_class,
        rows=summary.rows,
        beside=_beside(summary.weighted, summary.soft_labels),
        rows_digest=summary.sha256,
    )


def _beside(weighted: bool, soft_labels: bool) -> tuple[str, ...]:
    beside = ["a weight"] if weighted else []
    return (*beside, "probabilities of the classes") if soft_labels else tuple(beside)


def _ledger_text(directory: Path, key: str) -> str | None:
    """Return the text of the ledger; None if there is none to read."""
    try:
        return read_text(directory, "releases", key, "ledger.json")
    except StoreError:
        return None  # the dossier says that nothing can be checked


def _digest(directory: Path, *parts: str) -> FileDigest | None:
    found = digest_of(directory, *parts)
    return None if found is None else FileDigest(parts[-1], found.size, found.sha256)


# What plugins declare ---------------------------------------------------------------------------


def _public_facts(row: CellRow) -> PublicFacts | None:
    """Return the declarations of the dataset; None if it is not installed."""
    try:
        source = registry.build_source(
            row.dataset_name or row.dataset, json.loads(row.dataset_parameters)
        )
        declared = source.declare()
    except (BenchError, OSError, ValueError, TypeError):
        return None
    schema = declared.schema
    return PublicFacts(
        title=declared.title,
        classes=schema.classes,
        training_rows=_training_rows(source, row.split),
        label=schema.label.name,
        quasi_identifiers=schema.quasi_identifiers,
        sensitive=schema.sensitive,
        simulated=declared.simulated,
        inferred=schema.inferred,
        own=isinstance(source, OwnTable),
    )


def _method_title(name: str) -> str:
    try:
        kind = registry.method_class(name)
    except (BenchError, ImportError):
        return ""
    return f"{kind.title} ({kind.paper})" if getattr(kind, "paper", "") else kind.title


def _tuned_on(name: str, own_table: bool) -> tuple[str, ...]:
    """Return the datasets in view when the defaults of a method were chosen.

    Nobody who wrote a method of this distribution had a user's own table, whatever else is not on
    record; the author of another plugin may be that user.
    """
    try:
        kind = registry.method_class(name)
    except (BenchError, ImportError):
        return (UNKNOWN,)
    shipped = kind.__module__.startswith(_SHIPPED)
    return tuple(
        entry for entry in kind.tuned_on if not (own_table and shipped and entry == UNKNOWN)
    )


def _training_rows(source: DatasetSource, preset: str) -> tuple[int, ...]:
    """Return the declared training rows of each class, by the public formula of the split."""
    check_preset(preset)  # a row of a stranger's tables may name any
    declared = source.declare()
    # Checked on the class: calling it would open the data.
    official = type(source).load_official_test is not DatasetSource.load_official_test
    tables = [declared.by_class]
    if declared.by_site_class:
        home = home_site(preset)
        sites = declared.by_site_class
        tables = [counts for site, counts in sites.items() if home in (None, site)]
    shares = [
        [expected_sizes(count, preset, official)["train"] for count in table] for table in tables
    ]
    return tuple(sum(column) for column in zip(*shares, strict=True))


def _known_metrics() -> tuple[KnownMetric, ...]:
    """Return the privacy metrics of this installation."""
    metrics = (registry.metric(name) for name in registry.metric_names())
    return tuple(
        KnownMetric(
            name=metric.name,
            optional=metric.optional,
            tasks=tuple(task.value for task in metric.tasks),
            outputs=tuple(output.name for output in metric.declared()),
        )
        for metric in metrics
        if metric.family is Family.PRIVACY
    )
