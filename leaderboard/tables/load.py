"""Reads the tables of run directories and rejects malformed ones with the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast, final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import StoreError
from bench.leaderboard.tables.audits import audited, read_audits
from bench.leaderboard.tables.show import ipc_text
from bench.plugins.metric import Direction
from bench.results.records import CellRow, ScoreRow, Status, arrow_schema, required

SETTING = ["split", "delta", "private_counts", "study_only", "adjacency", "unit"]
"""Settings that must be equal for two results to be comparable, besides those in `GROUP`."""

GROUP = ["shown_dataset", "shown_ipc", "eps_target", *SETTING]
"""Results of different methods in one group are compared with each other."""

WITHHELD = "withheld"
"""A public site's column of cells whose scores it leaves out: neither ranked nor failing."""

_HINT = "give a directory that `bench run --out` wrote, or run `bench run` there again to fix it"


@final
@dataclass(frozen=True)
class Results:
    """All cells and scores of one or more runs, each cell once.

    `cells` has the columns of `CellRow` and those under which results are shown and compared:
    `shown_label` (the label, with method and parameters where one label stands for several
    methods), `shown_dataset` (likewise for the dataset), `shown_ipc` (rows per class as text) and
    `repetition` (seed and split seed). `scores` has the columns of `ScoreRow`.
    """

    cells: pd.DataFrame
    scores: pd.DataFrame
    runs: tuple[str, ...]
    """Names of the run directories, without paths, because pages may be published."""
    replaced: int = 0
    """Number of older results of cells that were run again; left out."""
    unclaimed: int = 0
    """Number of scores without a cell; left out."""
    directories: tuple[Path, ...] = ()
    """The run directories, in the order of `runs`."""
    homes: Mapping[str, Path] = field(default_factory=dict)
    """The run directory of each cell, by key."""


def load_results(directories: Sequence[Path]) -> Results:
    """Return the results of all runs; of a cell that occurs twice, the latest."""
    unique = {directory.resolve(): directory for directory in directories}
    if not unique:
        raise StoreError(f"no run directory was given; {_HINT}")
    cells, scores = [], []
    directories_in_order = tuple(unique.values())
    for number, directory in enumerate(directories_in_order):
        cells.append(_read(directory, "cells.parquet", CellRow).assign(run=number))
        scores.append(_read(directory, "scores.parquet", ScoreRow))
        _check_values(directory, cells[-1], scores[-1])
    all_cells = _named(pd.concat(cells, ignore_index=True))
    kept = _latest(_latest(all_cells, ["key"]), ["shown_label", *GROUP, "repetition"])
    _check_directions(scores)
    unclaimed = 0
    for number, run_scores in enumerate(scores):
        unclaimed += int((~run_scores["key"].isin(cells[number]["key"])).sum())
        wanted = run_scores["key"].isin(kept.loc[kept["run"] == number, "key"]).to_numpy()
        # There can be millions of scores: copy only if some are left out.
        scores[number] = run_scores if wanted.all() else run_scores[wanted].reset_index(drop=True)
    audits = [row for directory in directories_in_order for row in read_audits(directory)]
    return Results(
        cells=audited(kept.drop(columns="run").reset_index(drop=True), audits),
        scores=scores[0] if len(scores) == 1 else pd.concat(scores, ignore_index=True),
        runs=tuple(directory.name for directory in unique),
        replaced=len(all_cells) - len(kept),
        unclaimed=unclaimed,
        directories=directories_in_order,
        homes={
            key: directories_in_order[number]
            for key, number in zip(kept["key"], kept["run"], strict=True)
        },
    )


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries."""
    return cast(list[dict[str, Any]], frame.to_dict("records"))


def _read(directory: Path, name: str, record: type[CellRow] | type[ScoreRow]) -> pd.DataFrame:
    path = directory / name
    if not directory.is_dir():
        raise StoreError(f"{directory}: no such directory; {_HINT}")
    if not path.is_file():
        raise StoreError(f"{directory}: holds no {name}, so it is not a run directory; {_HINT}")
    try:
        # As a file, not as a dataset: parent folders named `a=b` must not become columns.
        table = pq.ParquetFile(path).read()
        table.validate(full=True)  # text that is not UTF-8 would fail only when it is read
    except (OSError, pa.ArrowException) as problem:
        raise StoreError(f"{path}: cannot be read as Parquet ({problem}); {_HINT}") from None
    schema = arrow_schema(record)
    table = _completed(table, schema, record)
    _check_columns(path, table, schema)
    table = table.select(schema.names).cast(schema)
    required = [item.name for item in fields(record) if not str(item.type).endswith("| None")]
    empty = [column for column in required if table.column(column).null_count]
    if empty:
        raise StoreError(f"{path}: empty values in {', '.join(empty)}; {_HINT}")
    frame: pd.DataFrame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame


def _completed(
    table: pa.Table, schema: pa.Schema, record: type[CellRow] | type[ScoreRow]
) -> pa.Table:
    """Add the defaults of columns that an earlier version did not write."""
    for item in fields(record):
        if not required(item) and item.name not in table.column_names:
            column = schema.field(item.name)
            values = pa.array([item.default] * len(table), column.type)
            table = table.append_column(column, values)
    return table


def _check_columns(path: Path, table: pa.Table, schema: pa.Schema) -> None:
    """Check the known columns; a later version may write more."""
    problems = []
    for column in schema:
        positions = table.schema.get_all_field_indices(column.name)
        if len(positions) != 1:
            problems.append(f"column {column.name} is {'duplicated' if positions else 'missing'}")
            continue
        stored = table.schema.field(positions[0]).type
        text = pa.types.is_string(column.type) and pa.types.is_large_string(stored)
        if stored != column.type and not text:
            problems.append(f"column {column.name} is {stored}, expected {column.type}")
    if problems:
        raise StoreError(f"{path}: {'; '.join(problems)} (written by another version?); {_HINT}")


def _check_values(directory: Path, cells: pd.DataFrame, scores: pd.DataFrame) -> None:
    for frame, name, column, known in (
        (cells, "cells.parquet", "status", [status.value for status in Status]),
        (scores, "scores.parquet", "direction", [direction.value for direction in Direction]),
    ):
        strange = frame.loc[~frame[column].isin(known), column]
        if len(strange):
            raise StoreError(
                f"{directory / name}: {column} {strange.iloc[0]!r}, expected one of "
                f"{', '.join(known)} (written by another version?); {_HINT}"
            )
    targets = cells["eps_target"].dropna()
    if ((targets <= 0) | (targets == math.inf)).any():
        raise StoreError(
            f"{directory / 'cells.parquet'}: eps_target holds a number that is not positive and "
            f"finite; {_HINT}"
        )
    doubled = scores[scores.duplicated(["key", "metric"])]
    if len(doubled):
        row = doubled.iloc[0]
        raise StoreError(
            f"{directory / 'scores.parquet'}: two values of {row['metric']!r} for the cell "
            f"{row['key']!r}; {_HINT}"
        )


def _check_directions(runs: Sequence[pd.DataFrame]) -> None:
    ways: dict[str, set[str]] = {}
    for scores in runs:
        for metric, direction in scores[["metric", "direction"]].drop_duplicates().to_numpy():
            ways.setdefault(metric, set()).add(direction)
    for metric in sorted(name for name, directions in ways.items() if len(directions) > 1):
        raise StoreError(
            f"metric {metric!r} has different directions in these results, so they are not "
            "comparable; score the older run again with `bench run`, or leave it out"
        )


def _named(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the columns under which results are shown and compared."""
    cells = cells.copy()
    for column in ("parameters", "dataset_parameters"):
        texts = {text: _canonical(text) for text in cells[column].unique()}
        cells[column] = cells[column].map(texts)
    cells["shown_label"] = _distinguished(cells, "label", ["method", "parameters"])
    cells["shown_dataset"] = _distinguished(cells, "dataset", ["dataset_parameters"])
    # A cell that failed before its dataset was read has neither task nor unit.
    for column in ("task", "unit"):
        known = cells[cells[column] != ""].groupby("shown_dataset")[column].first()
        filled = cells["shown_dataset"].map(known).fillna("")
        cells[column] = cells[column].where(cells[column] != "", filled)
    cells["shown_ipc"] = [
        ipc_text(None if pd.isna(ipc) else int(ipc), bool(full))
        for ipc, full in zip(cells["ipc"], cells["full_size"], strict=True)
    ]
    cells["repetition"] = cells["seed"].astype(str) + "/" + cells["split_seed"].astype(str)
    return cells


def _canonical(text: str) -> str:
    """Return JSON with sorted keys; other text unchanged."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def _distinguished(cells: pd.DataFrame, name: str, identity: list[str]) -> pd.Series[str]:
    """Return the name, with the identity in brackets where one name has several identities."""
    variants = cells[[name, *identity]].drop_duplicates().groupby(name).size()
    ambiguous = cells[name].map(variants) > 1
    described = cells[name] + " [" + cells[identity[0]]
    for column in identity[1:]:
        described = described + " " + cells[column]
    return cells[name].where(~ambiguous, described + "]")


def _latest(cells: pd.DataFrame, identity: list[str]) -> pd.DataFrame:
    """Keep the row of each identity that finished last, or that of the later run."""
    finished = pd.to_datetime(cells["finished_at"], utc=True, errors="coerce", format="ISO8601")
    ordered = cells.assign(_finished=finished).sort_values(
        ["_finished", "run"], kind="stable", na_position="first"
    )
    kept = ordered.drop_duplicates(identity, keep="last").sort_index()
    return kept.drop(columns="_finished")
