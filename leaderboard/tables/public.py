"""Removes what may not be published.

Scores on private test rows are computed without noise, and so are running times, memory and the
contents of error messages: for datasets that are not public, all of these are removed before
anything is averaged or ranked. Keys and fingerprints are hashes of the private table, by which a
guess of the table could be confirmed; they are removed too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from bench.leaderboard.tables.about import About, identity_of
from bench.leaderboard.tables.load import WITHHELD, Results, records

_IDENTITY = (
    "method",
    "label",
    "parameters",
    "dataset",
    "dataset_name",
    "dataset_parameters",
    "ipc",
    "full_size",
    "eps_target",
    "delta",
    "seed",
    "split",
    "split_seed",
    "private_counts",
    "study_only",
    "adjacency",
    "unit",
)
"""The request behind a cell, which does not depend on the rows."""

_BLANK: Mapping[str, str] = {
    **{"reason": "", "log_tail": "", "warnings": "", "notes": "{}"},
    # A release without noise is made of private rows: its digest confirms a guess of them.
    "release_hashes": "",
}
_MEASURED = ("fit_seconds", "score_seconds", "peak_memory_mb", "eps_audited", "eps_detectable")

_TEXTS = ("reason", "log_tail", "warnings", "notes", "verdict_reason", "claim_source")
_NAMES = (
    "label",
    "parameters",
    "dataset",
    "dataset_parameters",
    "shown_label",
    "shown_dataset",
    "split",
)

_ABSOLUTE = re.compile(
    # Not behind a letter or a slash, nor before two: `auroc/rf` and `https://host/page` stay.
    r"(?:file://|(?<![\w./\\])(?!//))(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\\"'<>|:,;()\[\]{}]+[/\\]+)+"
)
_PLACE = "[folder]/"

_ABSENT_REASON = "left out of the public site"


def redact(results: Results, about: About) -> tuple[Results, tuple[str, ...]]:
    """Return the results without what was computed from private rows, and a list of omissions.

    The column `WITHHELD` of `cells` marks withheld cells, so that they do not rank as failed.
    """
    cells = results.cells.reset_index(drop=True)
    closed = _closed(cells, results, about)
    new_keys = {
        cell["key"]: _public_key(cell)
        for cell, hidden in zip(records(cells), closed, strict=True)
        if hidden
    }
    hidden_scores = results.scores["key"].isin(new_keys)
    redacted = replace(
        results,
        cells=_without_paths(_blanked(cells, closed, new_keys), (*_TEXTS, *_NAMES)),
        scores=_without_paths(
            results.scores[~hidden_scores].reset_index(drop=True), ("reason", "remark")
        ),
        timings=results.timings[~results.timings["key"].isin(new_keys)].reset_index(drop=True),
        homes={new_keys.get(key, key): home for key, home in results.homes.items()},
    )
    return redacted, _in_words(cells, closed, int(hidden_scores.sum()))


def _closed(cells: pd.DataFrame, results: Results, about: About) -> pd.Series[bool]:
    """Return which cells belong to datasets that their run does not declare public."""
    known: dict[tuple[Path | None, str, str], bool] = {}
    hidden = []
    columns = cells[["key", "dataset", "dataset_name", "dataset_parameters"]]
    for cell in records(columns):
        home, identity = results.homes.get(cell["key"]), identity_of(cell)
        name = (home, *identity)
        if name not in known:
            known[name] = not about.is_open(home, identity)
        hidden.append(known[name])
    return pd.Series(hidden, index=cells.index, dtype=bool)


def _blanked(
    cells: pd.DataFrame, closed: pd.Series[bool], new_keys: Mapping[str, str]
) -> pd.DataFrame:
    cells = cells.copy()
    cells[WITHHELD] = closed
    for column, blank in _BLANK.items():
        cells[column] = cells[column].where(~closed, blank)
    for column in _MEASURED:
        if column in cells.columns:
            cells[column] = cells[column].mask(closed)
    # Without a proof, the number of released rows may depend on any row.
    proven = cells["eps_proven"].astype(float)
    cells["rows_released"] = cells["rows_released"].mask(closed & ~(proven < float("inf")))
    # The verdict of an audit stays; its numbers are removed.
    refuted = closed & cells["verdict"].str.contains("refuted", regex=False)
    cells["verdict_reason"] = cells["verdict_reason"].mask(
        refuted, f"refuted by an attack; its numbers are {_ABSENT_REASON}"
    )
    cells["fingerprint"] = cells["fingerprint"].where(~closed, "")
    # Time stamps would reveal how long a cell took: only the day is kept.
    day = cells["finished_at"].str.slice(0, 10)
    cells["finished_at"] = cells["finished_at"].where(~closed, day)
    cells["log_tail"] = ""
    cells["key"] = cells["key"].map(lambda key: new_keys.get(key, key))
    return cells


def _public_key(cell: Mapping[str, Any]) -> str:
    identity = [None if pd.isna(cell[name]) else cell[name] for name in _IDENTITY]
    return f"public-{hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:24]}"


def _without_paths(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """Remove the directories of the machine that a run was made on."""
    return frame.assign(**{column: _cleaned(frame[column], column in _NAMES) for column in columns})


def _cleaned(texts: pd.Series[str], apart: bool) -> pd.Series[str]:
    """Remove paths; names that differ stay distinct where `apart`, even if only folders differ."""
    new: dict[str, str] = {}
    taken = set(texts)
    for text in dict.fromkeys(texts):
        new[text] = clean = without_paths(text)
        number = 2
        while apart and clean != text and new[text] in taken:
            new[text] = f"{clean} ({number})"
            number += 1
        taken.add(new[text])
    return texts.map(new)


def without_paths(text: str) -> str:
    """Return the text with file names only, without directories."""
    return _ABSOLUTE.sub(_PLACE, text)


def _in_words(cells: pd.DataFrame, closed: pd.Series[bool], scores: int) -> tuple[str, ...]:
    said = ["the logs of all cells and directory names in messages"]
    count = int(closed.sum())
    if not count:
        return tuple(said)
    names = sorted(cells.loc[closed, "shown_dataset"].unique())
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    which = "1 cell" if count == 1 else f"{count:,} cells"
    where = f"of {which} on data that are not public ({without_paths(listed)})"
    return (
        f"all scores {where}: {scores:,} values computed from private rows without noise, and "
        "the ranks based on them",
        "running time, memory, audited epsilons, error messages, warnings, notes and finishing "
        "time of these cells, and their keys and fingerprints, which are hashes of private tables",
        *said,
    )
