"""Leaves out numbers that have no meaning, with the reason.

The difference of two R2 of an attack says how much more it discloses about those it was made from,
if it discloses anything: where a model predicts worse than the mean, both R2 are large negative
numbers, and so is, with either sign, their difference.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

NEEDS: Mapping[str, str] = {"aia/gap": "aia/r2", "aia/r2-excess": "aia/r2"}
"""Metrics that mean something only where another one is not negative."""


def unmeant(needed: str, value: float | None) -> str:
    """Return why a metric has no meaning, given the one that it needs; empty if it has."""
    if value is None or not value < 0:
        return ""
    return f"not meaningful: the attack is worse than predicting the mean ({needed} is {value:.3g})"


def without_meaningless(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the scores with a reason instead of each number that has no meaning."""
    wanted = scores["metric"].isin({*NEEDS, *NEEDS.values()}).to_numpy()
    some = scores.loc[wanted, ["key", "metric", "value"]]
    values = some.set_index(["key", "metric"])["value"]
    values = values[~values.index.duplicated(keep="last")]
    reasons: dict[object, str] = {}
    for place, key, metric, value in some[some["metric"].isin(NEEDS)].itertuples():
        needed = NEEDS[metric]
        reason = unmeant(needed, values.get((key, needed)))
        if reason and not pd.isna(value):
            reasons[place] = reason
    if not reasons:
        return scores
    cleaned = scores.copy()
    places = list(reasons)
    cleaned.loc[places, ["value", "low", "high"]] = float("nan")
    cleaned.loc[places, "reason"] = list(reasons.values())
    return cleaned
