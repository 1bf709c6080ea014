"""Who did better than whom, and where that may be said: pure functions over tables.

Methods are compared at equal proven epsilon: within a group (one dataset, IPC, target epsilon and
setting) only labels whose proven epsilon keeps the target are ranked, among themselves. All
others are listed with the reason why they are not ranked.

Ranks are taken seed by seed and then averaged, so that a method that fails on some seeds is
neither thrown out nor treated as if it had not failed: a failing cell takes the last place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.leaderboard.tables.load import GROUP, WITHHELD, records
from bench.plugins.metric import HEADLINES, Direction, Family
from bench.results.records import Status
from bench.results.verdicts import Verdict

CEILING = "ceiling"
FLOOR = "floor"
SAMPLE = "real sample"
REFERENCES: Mapping[str, str] = {"real": CEILING, "subset": SAMPLE, "marginals": FLOOR}
"""Methods that say what can be reached at best, what so few rows can do, what must be beaten."""

ALONE = "no other sound method to compare with here"
NO_COMMON_SEED = "no seed in common with the other sound methods"
DEPENDS_ON_OTHERS = ("", ALONE, NO_COMMON_SEED)
"""Reasons for no rank that may not hold among other labels."""


def is_sound(verdict: str) -> bool:
    """True for `sound` and for `sound, trusting <library>`."""
    return verdict == Verdict.SOUND.value or verdict.startswith(Verdict.SOUND_TRUSTING.value)


def headline_metrics(cells: pd.DataFrame, scores: pd.DataFrame) -> dict[str, str]:
    """The metric that ranks each dataset: one for all its labels.

    That of the task; where no cell has it, the first utility metric by name that has a value.
    """
    cell = pd.Index(cells["key"]).get_indexer(scores["key"])
    known = (cell >= 0) & scores["value"].notna().to_numpy()
    dataset, datasets = pd.factorize(cells["shown_dataset"], sort=True)
    metric, metrics = pd.factorize(scores["metric"], sort=True)
    utility = (scores["family"].to_numpy() == Family.UTILITY.value) & (
        scores["direction"].to_numpy() != Direction.NEUTRAL.value
    )
    # Millions of scores have a few hundred pairs of dataset and metric.
    pairs = np.unique((dataset[cell] * len(metrics) + metric)[known])
    useful = set(np.unique((dataset[cell] * len(metrics) + metric)[known & utility]).tolist())
    tasks = cells.groupby("shown_dataset")["task"].first()
    choices: dict[str, list[str]] = {}
    for pair in pairs.tolist():
        own, name = str(datasets[pair // len(metrics)]), str(metrics[pair % len(metrics)])
        found = choices.setdefault(own, [])
        if name == HEADLINES.get(tasks[own], ""):
            found.insert(0, name)
        elif pair in useful:
            found.append(name)
    return {own: found[0] for own, found in choices.items() if found}


def ranking_table(cells: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """One row a cell with its headline utility, turned so that higher is better."""
    if WITHHELD in cells.columns:
        cells = cells[~cells[WITHHELD].astype(bool)]
    headlines = headline_metrics(cells, scores)
    table = cells[["key", "shown_label", *GROUP, "repetition", "status", "verdict", "eps_proven"]]
    table = table.assign(metric=table["shown_dataset"].map(headlines).astype(object))
    ranking = scores["metric"].isin(set(headlines.values()))
    own = scores.loc[ranking, ["key", "metric", "value", "direction"]]
    table = table.merge(own, on=["key", "metric"], how="left")
    sign = np.where(table["direction"] == Direction.LOWER.value, -1.0, 1.0)
    return table.assign(utility=table["value"].astype(float) * sign).drop(
        columns=["metric", "value", "direction"]
    )


def placements(table: pd.DataFrame) -> pd.DataFrame:
    """The place of each label in each group.

    Columns: those of `GROUP`, `label`, `rank` (mean over seeds, empty where not ranked),
    `labels` (how many were ranked), `beaten` (share of the other labels beaten, a tie
    counting half), `cells` (seeds it is based on), `failing` (how many of these failed) and
    `reason` (why there is no rank).
    """
    finished = table[table["verdict"] != ""]
    sound_somewhere = set(finished.loc[finished["verdict"].map(is_sound), "shown_label"])
    never_sound = set(finished["shown_label"]) - sound_somewhere
    groups: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for cell in records(table):
        labels = groups.setdefault(group_identity(cell), {})
        labels.setdefault(cell["shown_label"], []).append(cell)
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
    """Ranks (1 is best) and shares of opponents beaten, for each row of (blocks, labels).

    Equal values share the mean of their ranks. What is not finite is failing: it takes the last
    place, whoever else fails, so that failing together is no better than failing alone.
    """
    labels = utility.shape[1]
    failing = ~np.isfinite(utility)
    values = np.where(failing, -np.inf, utility)
    above = (values[:, None, :] > values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2) - 1
    below = labels - 1 - above - equal
    ranks = np.where(failing, float(labels), 1.0 + above + equal / 2.0)
    shares = np.where(failing, 0.0, (below + equal / 2.0) / max(1, labels - 1))
    return ranks, shares


def mean_ranks(places: pd.DataFrame) -> pd.DataFrame:
    """One row an label that was ranked anywhere, best mean rank first.

    Groups are averaged within a dataset first, so that each dataset has the same weight. Not every
    label takes part everywhere: `datasets`, `groups` and `cells` say what the mean is based on,
    `labels` the mean number of labels it was ranked among.
    """
    ranked = places[places["rank"].notna()].copy()
    ranked["among"] = ranked["among"].astype(float)
    means = ["rank", "beaten", "among"]
    by_dataset = ranked.groupby(["shown_label", "shown_dataset"])[means].mean()
    result = by_dataset.groupby("shown_label").mean()
    own = ranked.groupby("shown_label")
    result["datasets"] = own["shown_dataset"].nunique()
    result["groups"] = own.size()
    result["cells"] = own["cells"].sum()
    result["failing"] = own["failing"].sum()
    result = result.reset_index().rename(columns={"rank": "mean_rank"})
    return result.sort_values(["mean_rank", "shown_label"], ignore_index=True)


def group_identity(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    """The group of a cell as a key in which absent numbers are equal to each other."""
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
    # Seeds that only some labels have run would compare different things.
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
    """Empty for an label that is ranked in this group, also where it is ranked as failing."""
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
    # The verdict says so already; a table from elsewhere may contradict itself. An absent number
    # is not within the target either.
    if not all(cell["eps_proven"] <= target * (1 + 1e-9) for cell in finished):
        return "proven epsilon is not within the target"
    return ""
