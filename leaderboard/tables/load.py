"""Reads the tables of run directories and rejects malformed ones with the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, final

import pandas as pd

from bench.errors import StoreError
from bench.leaderboard.tables.audits import audited
from bench.leaderboard.tables.checks import checked
from bench.leaderboard.tables.meaning import without_meaningless
from bench.results.opening import read_object
from bench.results.reading import in_use, read_audits, read_tables
from bench.results.records import ipc_text
from bench.results.status import read_status

SETTING = ["split", "delta", "private_counts", "study_only", "adjacency", "unit"]
"""Settings that must be equal for two results to be comparable, besides those in `GROUP`."""

GROUP = ["shown_dataset", "shown_ipc", "eps_target", *SETTING]
"""Results of different methods in one group are compared with each other."""

WITHHELD = "withheld"
"""A public site's column of cells whose scores it leaves out: neither ranked nor failing."""

TUNED = "tuned"
"""Column of cells on datasets that were in view when the defaults of their method were chosen."""

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
    timings: pd.DataFrame
    """One row per cell and step: `TimingRow`. None for cells of earlier versions."""
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
    tampered: int = 0
    """Number of cells whose stored files contradict their row."""
    without_ledger: int = 0
    """Number of cells that the tables call sound, without a ledger that shows it."""
    unfinished: tuple[str, ...] = ()
    """How far runs are that have not come to their end, in sentences."""


def load_results(directories: Sequence[Path]) -> Results:
    """Return the results of all runs with checked verdicts; of a repeated cell the latest.

    Verdicts follow from the ledgers (`checks`) and from what the audits refute, in this order.
    Numbers without a meaning are left out (`meaning`).
    """
    results = read_results(directories)
    found = checked(results.cells, results.homes)
    audits = [row for directory in results.directories for row in read_audits(directory)]
    return replace(
        results,
        cells=audited(found.cells, audits),
        scores=without_meaningless(results.scores),
        tampered=found.tampered,
        without_ledger=found.without_ledger,
        unfinished=tuple(text for one in results.directories if (text := _how_far(one))),
    )


def _how_far(directory: Path) -> str:
    """Return how far a run is that has not come to its end; empty for all others."""
    going = in_use(directory)
    progress = read_object(directory, "progress.json")
    if progress is None or (not going and progress.get("ended") == "finished"):
        return ""
    status = read_status(directory)
    if status.planned is None or status.left is None or not status.left:
        return ""
    state = "is active" if status.state == "running" else "was interrupted"
    done = status.planned - status.left
    return f"The run {directory.name} {state}: {done:,} of {status.planned:,} planned cells so far."


def read_results(directories: Sequence[Path]) -> Results:
    """Return the results as the tables state them, without a check and without audits."""
    unique = {directory.resolve(): directory for directory in directories}
    if not unique:
        raise StoreError(f"no run directory was given; {_HINT}")
    cells, scores, timings = [], [], []
    directories_in_order = tuple(unique.values())
    for number, directory in enumerate(directories_in_order):
        tables = read_tables(directory)
        released = tables.cells[tables.cells["attack"] == ""]
        cells.append(released.assign(run=number))  # audits are joined below
        scores.append(tables.scores)
        timings.append(tables.timings)
    all_cells = _named(pd.concat(cells, ignore_index=True))
    kept = _latest(_latest(all_cells, ["key"]), ["shown_label", *GROUP, "repetition"])
    _check_directions(scores)
    unclaimed = 0
    for number, run_scores in enumerate(scores):
        unclaimed += int((~run_scores["key"].isin(cells[number]["key"])).sum())
        wanted = run_scores["key"].isin(kept.loc[kept["run"] == number, "key"]).to_numpy()
        # There can be millions of scores: copy only if some are left out.
        scores[number] = run_scores if wanted.all() else run_scores[wanted].reset_index(drop=True)
    return Results(
        cells=kept.drop(columns="run").reset_index(drop=True),
        scores=scores[0] if len(scores) == 1 else pd.concat(scores, ignore_index=True),
        timings=pd.concat(
            [
                table[table["key"].isin(kept.loc[kept["run"] == number, "key"])]
                for number, table in enumerate(timings)
            ],
            ignore_index=True,
        ),
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
