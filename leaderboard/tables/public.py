"""What may be shown to everybody.

A score on private test rows is computed from them without noise, and so are seconds, memory and
whatever an error message quotes: for datasets that not everybody may have, all of it goes before
anything is averaged or ranked. Keys and fingerprints are hashes over the private table: whoever has
a guess at the table could confirm it, so they go too.
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
"""What a cell was asked to be: nothing of it depends on rows."""

_BLANK: Mapping[str, str] = {"reason": "", "log_tail": "", "warnings": "", "notes": "{}"}
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
    """The results without what speaks about private rows, and what was left out in words.

    `cells` gets a column that marks what was withheld: such a cell is not ranked as failing.
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
        homes={new_keys.get(key, key): home for key, home in results.homes.items()},
    )
    return redacted, _in_words(cells, closed, int(hidden_scores.sum()))


def _closed(cells: pd.DataFrame, results: Results, about: About) -> pd.Series[bool]:
    """Cells whose run does not say that anybody may have the rows."""
    known: dict[tuple[Path | None, str, str], bool] = {}
    found = []
    columns = cells[["key", "dataset", "dataset_name", "dataset_parameters"]]
    for cell in records(columns):
        home, identity = results.homes.get(cell["key"]), identity_of(cell)
        name = (home, *identity)
        if name not in known:
            known[name] = not about.is_open(home, identity)
        found.append(known[name])
    return pd.Series(found, index=cells.index, dtype=bool)


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
    # How many rows came out of a method without a proof may depend on any row.
    proven = cells["eps_proven"].astype(float)
    cells["rows_released"] = cells["rows_released"].mask(closed & ~(proven < float("inf")))
    # An audit's verdict stays; the numbers that it was found by go.
    refuted = closed & cells["verdict"].str.contains("refuted", regex=False)
    cells["verdict_reason"] = cells["verdict_reason"].mask(
        refuted, f"by an attack; its numbers are {_ABSENT_REASON}"
    )
    cells["fingerprint"] = cells["fingerprint"].where(~closed, "")
    # The time between two cells says how long one took: the day is kept.
    day = cells["finished_at"].str.slice(0, 10)
    cells["finished_at"] = cells["finished_at"].where(~closed, day)
    cells["log_tail"] = ""
    cells["key"] = cells["key"].map(lambda key: new_keys.get(key, key))
    return cells


def _public_key(cell: Mapping[str, Any]) -> str:
    identity = [None if pd.isna(cell[name]) else cell[name] for name in _IDENTITY]
    return f"public-{hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:24]}"


def _without_paths(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """Folders of the machine that a run was made on are nobody's business."""
    return frame.assign(**{column: _cleaned(frame[column], column in _NAMES) for column in columns})


def _cleaned(texts: pd.Series[str], apart: bool) -> pd.Series[str]:
    """Names that differ stay `apart`, also where only their folders differed."""
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
    """The names of files stay, the folders they lie in go."""
    return _ABSOLUTE.sub(_PLACE, text)


def _in_words(cells: pd.DataFrame, closed: pd.Series[bool], scores: int) -> tuple[str, ...]:
    said = ["logs of all cells, and folder names in messages"]
    count = int(closed.sum())
    if not count:
        return tuple(said)
    names = sorted(cells.loc[closed, "shown_dataset"].unique())
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    which = "1 cell" if count == 1 else f"{count:,} cells"
    where = f"of {which} on data that not everybody may have ({without_paths(listed)})"
    return (
        f"all scores {where}: {scores:,} numbers computed from private rows without noise, and "
        "the ranks that would follow from them",
        "of the same cells: seconds, memory, audited epsilons, error messages, warnings, notes, "
        "the hour they finished, and keys and fingerprints, which are hashes of private tables",
        *said,
    )
