"""Ranks of methods, and where ranking is valid: pure functions over tables.

Methods are compared at equal proven epsilon: within a group (one dataset, IPC, target epsilon and
setting) only methods whose proven epsilon is within the target are ranked, among themselves. All
others are listed with the reason why they are not ranked.

Ranks are computed per seed and then averaged, so that a method that fails on some seeds is neither
excluded nor treated as if it had not failed: a failed cell ranks last.

What is printed equal is equal: utilities are compared as `show.number` prints them. A method is not
ranked on datasets that were in view when its defaults were chosen. `quantities` defines the
aggregates of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.leaderboard.tables import show
from bench.leaderboard.tables.load import GROUP, TUNED, WITHHELD, records
from bench.plugins.metric import HEADLINES, Direction, Family
from bench.results.records import Status
from bench.results.verdicts import Verdict

CEILING = "ceiling"
FLOOR = "floor"
SAMPLE = "real sample"
REFERENCES: Mapping[str, str] = {"real": CEILING, "subset": SAMPLE, "marginals": FLOOR}
"""Methods that bound what can be reached, show what so few rows can do, or must be beaten."""

ALONE = "no other sound method to compare with here"
NO_COMMON_SEED = "no seed in common with the other sound methods"
CHOSEN_HERE = "the defaults of the method were chosen with this dataset in view"
DETECTOR = "the release is a detector of anomalies"
"""Start of the reason why a score of labels is missing (`Evaluation.predictor`): such a release
does another task, which is no failure."""
DEPENDS_ON_OTHERS = ("", ALONE, NO_COMMON_SEED, CHOSEN_HERE)
"""Reasons for no rank that depend on which methods are compared, and whether tuned ones are."""


def is_sound(verdict: str) -> bool:
    """True for `sound` and for `sound, trusting <library>`."""
    return verdict == Verdict.SOUND.value or verdict.startswith(Verdict.SOUND_TRUSTING.value)


def headline_metrics(cells: pd.DataFrame, scores: pd.DataFrame) -> dict[str, str]:
    """Return the metric that ranks each dataset, the same for all methods.

    This is the headline metric of the task or, where no cell has it, the first utility metric by
    name that has a value.
    """
    cell = pd.Index(cells["key"]).get_indexer(scores["key"])
    known = (cell >= 0) & scores["value"].notna().to_numpy()
    dataset, datasets = pd.factorize(cells["shown_dataset"], sort=True)
    metric, metrics = pd.factorize(scores["metric"], sort=True)
    utility = (scores["family"].to_numpy() == Family.UTILITY.value) & (
        scores["direction"].to_numpy() != Direction.NEUTRAL.value
    )
    # Millions of scores have only a few hundred pairs of dataset and metric.
    pairs = np.unique((dataset[cell] * len(metrics) + metric)[known])
    useful = set(np.unique((dataset[cell] * len(metrics) + metric)[known & utility]).tolist())
    tasks = cells.groupby("shown_dataset")["task"].first()
    choices: dict[str, list[str]] = {}
    for pair in pairs.tolist():
        dataset_name, name = str(datasets[pair // len(metrics)]), str(metrics[pair % len(metrics)])
        candidates = choices.setdefault(dataset_name, [])
        if name == HEADLINES.get(tasks[dataset_name], ""):
            candidates.insert(0, name)
        elif pair in useful:
            candidates.append(name)
    return {
        dataset_name: candidates[0] for dataset_name, candidates in choices.items() if candidates
    }


def ranking_table(cells: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell with its headline utility, signed so that higher is better.

    Utilities are rounded as they are printed: what is printed equal is tied.
    """
    if WITHHELD in cells.columns:
        cells = cells[~cells[WITHHELD].astype(bool)]
    headlines = headline_metrics(cells, scores)
    table = cells[["key", "shown_label", *GROUP, "repetition", "status", "verdict", "eps_proven"]]
    table = table.assign(**{TUNED: cells[TUNED] if TUNED in cells.columns else False})
    table = table.assign(metric=table["shown_dataset"].map(headlines).astype(object))
    ranking = scores["metric"].isin(set(headlines.values()))
    headline_scores = scores.loc[ranking, ["key", "metric", "value", "direction", "reason"]]
    table = table.merge(headline_scores, on=["key", "metric"], how="left")
    table = table.assign(detects=table["reason"].astype(str).str.startswith(DETECTOR))
    sign = np.where(table["direction"] == Direction.LOWER.value, -1.0, 1.0)
    printed = table["value"].astype(float).map(show.as_shown)
    return table.assign(utility=printed * sign).drop(
        columns=["metric", "value", "direction", "reason"]
    )


def placements(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rank of each method in each group.

    Columns: those of `GROUP`, `shown_label`, `rank` (mean over seeds, empty where not ranked),
    `among` (how many were ranked), `beaten` (share of the other methods beaten, a tie
    counting half), `cells` (seeds it is based on), `failing` (how many of these failed) and
    `reason` (why there is no rank).
    """
    finished = table[table["verdict"] != ""]
    sound_somewhere = set(finished.loc[finished["verdict"].map(is_sound), "shown_label"])
    never_sound = set(finished["shown_label"]) - sound_somewhere
    groups: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for cell in records(table):
        by_label = groups.setdefault(group_identity(cell), {})
        by_label.setdefault(cell["shown_label"], []).append(cell)
    places: list[dict[str, Any]] = []
    for identity, members in groups.items():
        placed = _place_group(members, never_sound)
        places += [dict(zip(GROUP, identity, strict=True)) | record for record in placed]
    columns = [*GROUP, "shown_label", "rank", "among", "beaten", "cells", "failing", "reason"]
    frame = pd.DataFrame.from_records(places, columns=columns)
    return frame.astype({"rank": float, "beaten": float}).astype(
        {"among": "Int64", "cells": "Int64", "failing": "Int64"}
    )


def place_blocks(
    utility: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Ranks (1 is best) and shares of opponents beaten, for each row of (blocks, methods).

    Equal values share the mean of their ranks. A value that is not finite is a failure and ranks
    last, whoever else fails, so that failing together is no better than failing alone.
    """
    methods = utility.shape[1]
    failing = ~np.isfinite(utility)
    values = np.where(failing, -np.inf, utility)
    above = (values[:, None, :] > values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2) - 1
    below = methods - 1 - above - equal
    ranks = np.where(failing, float(methods), 1.0 + above + equal / 2.0)
    shares = np.where(failing, 0.0, (below + equal / 2.0) / max(1, methods - 1))
    return ranks, shares


def group_identity(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the group of a cell as a key in which missing numbers are equal to each other."""
    return tuple(None if pd.isna(cell[name]) else cell[name] for name in GROUP)


def _place_group(
    members: Mapping[str, list[dict[str, Any]]], never_sound: Set[str]
) -> list[dict[str, Any]]:
    reasons = {
        label: _why_not_ranked(cells, label in never_sound)
        for label, cells in sorted(members.items())
    }
    able = [label for label, reason in reasons.items() if not reason]
    utilities = {
        label: {
            cell["repetition"]: cell["utility"]
            for cell in members[label]
            if cell["status"] != Status.SKIPPED.value
        }
        for label in able
    }
    # Only seeds that all methods have run are comparable.
    seeds = sorted(set.intersection(*map(set, utilities.values()))) if able else []
    common = ""
    if len(able) < 2:
        common = ALONE
    elif not seeds:
        common = NO_COMMON_SEED
    placed: list[dict[str, Any]] = [
        {"shown_label": label, "reason": reason or common} for label, reason in reasons.items()
    ]
    if common:
        return placed
    utility = np.array([[utilities[label][seed] for label in able] for seed in seeds], float)
    ranks, shares = place_blocks(utility)
    for record in placed:
        if record["shown_label"] in able:
            column = able.index(record["shown_label"])
            record |= {
                "rank": ranks[:, column].mean(),
                "beaten": shares[:, column].mean(),
                "among": len(able),
                "cells": len(seeds),
                "failing": int((~np.isfinite(utility[:, column])).sum()),
            }
    return placed


def _why_not_ranked(cells: Sequence[Mapping[str, Any]], never_sound: bool) -> str:
    """Return why a method is not ranked in this group; empty if it is, even as failed."""
    if all(cell["status"] == Status.SKIPPED.value for cell in cells):
        return "skipped"
    finished = [cell for cell in cells if cell["verdict"]]
    unsound = sorted({cell["verdict"] for cell in finished if not is_sound(cell["verdict"])})
    if unsound:
        return " / ".join(unsound)
    target = cells[0]["eps_target"]
    if pd.isna(target):
        return "no target epsilon"
    if not finished and never_sound:
        return "failed, and not sound where it finished"
    if finished and all(cell["detects"] for cell in finished):
        return "it detects anomalies, and predicts no label"
    # The verdict implies this, but a foreign table may be inconsistent. A missing number is not
    # within the target either.
    if not all(cell["eps_proven"] <= target * (1 + 1e-9) for cell in finished):
        return "proven epsilon is not within the target"
    return CHOSEN_HERE if any(cell[TUNED] for cell in cells) else ""
