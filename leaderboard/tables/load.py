"""Reads the tables of run directories and refuses, with the reason, what is not such a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, final

import pandas as pd

from bench.errors import StoreError
from bench.leaderboard.tables.audits import audited
from bench.results.reading import check_values, read_audits, read_table
from bench.results.records import CellRow, ScoreRow

SETTING = ["split", "delta", "private_counts", "study_only", "adjacency", "unit"]
"""Beside dataset, size and epsilon: what must be equal for two results to be comparable."""

GROUP = ["cohort", "size", "eps_target", *SETTING]
"""Results of different entrants in one group are compared with each other."""

_HINT = "give a folder that `bench run --out` wrote, or run `bench run` there again to mend it"


@final
@dataclass(frozen=True)
class Results:
    """All cells and scores of some runs, each cell once.

    `cells` has the columns of `CellRow` and: `entrant` (the label; with method and parameters
    where one label stands for several things), `cohort` (the same for the dataset), `size` (rows
    per class as text) and `repetition` (seed and split seed). `scores` has those of `ScoreRow`.
    """

    cells: pd.DataFrame
    scores: pd.DataFrame
    runs: tuple[str, ...]
    """Names of the run directories, without the path: a page may leave this machine."""
    replaced: int = 0
    """Older results of a cell that was run again, left out."""
    unclaimed: int = 0
    """Scores of no cell, left out."""
    directories: tuple[Path, ...] = ()
    """The run directories, in the order of `runs`."""
    homes: Mapping[str, Path] = field(default_factory=dict)
    """The run directory of each cell, by key."""


def load_results(directories: Sequence[Path]) -> Results:
    """The results of all runs together; of a cell that is there twice, the latest."""
    unique = {directory.resolve(): directory for directory in directories}
    if not unique:
        raise StoreError(f"no run directory was given; {_HINT}")
    cells, scores = [], []
    directories_in_order = tuple(unique.values())
    for number, directory in enumerate(directories_in_order):
        table = read_table(directory, "cells.parquet", CellRow)
        cells.append(table[table["attack"] == ""].assign(run=number))  # audits are joined below
        scores.append(read_table(directory, "scores.parquet", ScoreRow))
        check_values(directory, cells[-1], scores[-1])
    all_cells = _named(pd.concat(cells, ignore_index=True))
    kept = _latest(_latest(all_cells, ["key"]), ["entrant", *GROUP, "repetition"])
    _check_directions(scores)
    unclaimed = 0
    for number, own in enumerate(scores):
        unclaimed += int((~own["key"].isin(cells[number]["key"])).sum())
        wanted = own["key"].isin(kept.loc[kept["run"] == number, "key"]).to_numpy()
        # There can be millions: they are copied only where some are left out.
        scores[number] = own if wanted.all() else own[wanted].reset_index(drop=True)
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
    """The rows of a table by column name."""
    return cast(list[dict[str, Any]], frame.to_dict("records"))


def _check_directions(runs: Sequence[pd.DataFrame]) -> None:
    ways: dict[str, set[str]] = {}
    for scores in runs:
        for metric, direction in scores[["metric", "direction"]].drop_duplicates().to_numpy():
            ways.setdefault(metric, set()).add(direction)
    for metric in sorted(name for name, found in ways.items() if len(found) > 1):
        raise StoreError(
            f"metric {metric!r} is better higher in some results and not in others: they are not "
            "comparable; score the older run again with `bench run`, or leave it out"
        )


def _named(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the names under which results are shown and compared."""
    cells = cells.copy()
    for column in ("parameters", "dataset_parameters"):
        texts = {text: _canonical(text) for text in cells[column].unique()}
        cells[column] = cells[column].map(texts)
    cells["entrant"] = _distinguished(cells, "label", ["method", "parameters"])
    cells["cohort"] = _distinguished(cells, "dataset", ["dataset_parameters"])
    # A cell that was lost before its dataset could be read knows neither task nor unit.
    for column in ("task", "unit"):
        known = cells[cells[column] != ""].groupby("cohort")[column].first()
        filled = cells["cohort"].map(known).fillna("")
        cells[column] = cells[column].where(cells[column] != "", filled)
    size = cells["ipc"].astype("string").fillna("own")
    cells["size"] = size.mask(cells["full_size"].astype(bool), "full").astype(object)
    cells["repetition"] = cells["seed"].astype(str) + "/" + cells["split_seed"].astype(str)
    return cells


def _canonical(text: str) -> str:
    """JSON with sorted keys, so that order makes no difference; other text as it is."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def _distinguished(cells: pd.DataFrame, name: str, identity: list[str]) -> pd.Series[str]:
    """The name; with the identity in brackets where one name stands for several."""
    variants = cells[[name, *identity]].drop_duplicates().groupby(name).size()
    ambiguous = cells[name].map(variants) > 1
    described = cells[name] + " [" + cells[identity[0]]
    for column in identity[1:]:
        described = described + " " + cells[column]
    return cells[name].where(~ambiguous, described + "]")


def _latest(cells: pd.DataFrame, identity: list[str]) -> pd.DataFrame:
    """Of rows with one identity the one that finished last; in doubt that of the later run."""
    finished = pd.to_datetime(cells["finished_at"], utc=True, errors="coerce", format="ISO8601")
    ordered = cells.assign(_finished=finished).sort_values(
        ["_finished", "run"], kind="stable", na_position="first"
    )
    kept = ordered.drop_duplicates(identity, keep="last").sort_index()
    return kept.drop(columns="_finished")
