"""What a reader would conclude: importance of columns, hazard ratios, guessed attributes."""

from __future__ import annotations

import math

import numpy as np

from bench.leaderboard.charts import cell_svg as svg
from bench.leaderboard.charts.cell_drawn import Drawn, Panel
from bench.leaderboard.charts.cell_svg import CONTROL, REAL, RELEASED, Mark, Rung, Series
from bench.leaderboard.tables.details import Array, Columns, Files, NoSuchFile, Unavailable

MOST_RUNGS = 16
_LARGEST_RATIO = 20.0

_SIDES = tuple(f"{side}{end}" for side in ("real", "released") for end in ("", "-low", "-high"))


def importance(files: Files) -> Drawn:
    """SHAP: which columns matter to models trained on real and on released rows."""
    table = files.table("shap", _SIDES, ("column",)).drawable("real", "released")
    if not table.rows:
        raise Unavailable("shap.parquet holds no number that can be drawn")
    ranks = {side: _ranks(table.numbers[side]) for side in ("real", "released")}
    totals = {side: float(np.abs(table.numbers[side]).sum()) or 1.0 for side in ranks}
    order = np.argsort(ranks["real"], kind="stable")[:MOST_RUNGS]
    rungs = [
        Rung(
            table.texts["column"][k],
            tuple(
                _mark(series, table, series.style, k, 1 / totals[series.style])
                for series in (REAL, RELEASED)
            ),
            f"{ranks['real'][k]:.0f} → {ranks['released'][k]:.0f}",
        )
        for k in order
    ]
    most = max(
        mark.high if mark.high is not None else mark.value for r in rungs for mark in r.marks
    )
    label = "Importance of columns to models trained on real and on released rows"
    drawing = svg.ladder(
        label,
        rungs,
        (0.0, max(1.02 * most, 1e-6)),
        "share of the mean |SHAP value|",
        0.0,
        bars=True,
    )
    text = (
        "Share of the mean absolute SHAP value on real test rows, of a model trained on the real "
        "rows and of one trained on the released rows. At the right: rank by the real, then by the "
        "released."
    )
    return Drawn(text, (Panel("", drawing),), (REAL, RELEASED), lines=_more(table.rows, len(rungs)))


def _ranks(values: Array) -> Array:
    ranks = np.empty(len(values))
    ranks[np.argsort(-np.abs(values), kind="stable")] = np.arange(1, len(values) + 1)
    return ranks


def hazards(files: Files) -> Drawn:
    """Hazard ratios of a Cox model, on a logarithmic axis."""
    try:
        table = files.table("hazard-contrasts", _SIDES, ("covariate", "per"))
    except NoSuchFile:
        table = files.table("hazards", _SIDES, ("covariate", "per"))
    positive = (table.numbers["real"] > 0) & (table.numbers["released"] > 0)
    table = table.where(positive).drawable("real", "released")
    if not table.rows:
        raise Unavailable("no covariate has a hazard ratio in both tables")
    rungs = [
        Rung(
            _covariate(table.texts["covariate"][k], table.texts["per"][k]),
            tuple(_mark(series, table, series.style, k, 1.0) for series in (REAL, RELEASED)),
        )
        for k in range(min(table.rows, MOST_RUNGS))
    ]
    ends = [end for r in rungs for m in r.marks for end in (m.value, m.low, m.high)]
    furthest = max([2.0, *(max(end, 1 / end) for end in ends if end is not None and end > 0)])
    furthest = min(furthest * 1.05, _LARGEST_RATIO)
    drawing = svg.ladder(
        "Hazard ratios of real and released rows",
        rungs,
        (1 / furthest, furthest),
        "hazard ratio",
        1.0,
        bars=False,
        logarithmic=True,
    )
    lines = _more(table.rows, len(rungs))
    if furthest == _LARGEST_RATIO:
        lines = (
            *lines,
            f"What lies beyond {_LARGEST_RATIO:g} or 1/{_LARGEST_RATIO:g} is at the end.",
        )
    text = (
        "Cox model of the training rows and of the released rows, with 95% intervals; numeric "
        "columns per standard deviation of the training rows. 1: no effect."
    )
    return Drawn(text, (Panel("", drawing),), (REAL, RELEASED), lines=lines)


def _covariate(name: str, per: str) -> str:
    return name if per == "standard deviation" else f"{name}: {per}"


def attributes(files: Files) -> Drawn:
    """Attributes of training rows, guessed from the release and from control rows."""
    table = files.table("aia", ("value", "low", "high"), ("attribute", "number")).drawable("value")
    found: dict[str, dict[str, int]] = {}
    for k, (attribute, number) in enumerate(
        zip(table.texts["attribute"], table.texts["number"], strict=True)
    ):
        found.setdefault(attribute, {})[number] = k
    train = Series(RELEASED.style, "with the released rows")
    control = Series(CONTROL.style, "with control rows")
    panels: list[Panel] = []
    lines: list[str] = []
    taken: set[str] = set()
    for number, title, axis, lowest in (
        ("accuracy", "Categories", "share guessed right", 0.0),
        ("r2", "Numbers", "R² of the guess", -1.0),
    ):
        own = [
            name
            for name, numbers in found.items()
            if number in numbers and f"{number}-control" in numbers and name not in taken
        ]
        taken |= set(own)
        own.sort(key=lambda name: -_excess(table, found[name], number))
        rungs = [
            Rung(
                name,
                (
                    _row_mark(train, table, found[name][number]),
                    _row_mark(control, table, found[name][f"{number}-control"]),
                ),
            )
            for name in own[:MOST_RUNGS]
        ]
        if not rungs:
            continue
        label = f"Attribute inference, {title.lower()}: {axis}"
        panels.append(Panel(title, svg.ladder(label, rungs, (lowest, 1.0), axis, 0.0, bars=True)))
        lines += _more(len(own), len(rungs))
        if number == "r2":
            lines.append("An R² below -1 is drawn at -1: worse than guessing the mean.")
    if not panels:
        raise Unavailable("no attribute was attacked with released rows and with control rows")
    text = (
        "An attacker who knows all other columns of a training row guesses the attribute by a "
        "model trained on the released rows, or on control rows, which no method saw: what anybody "
        "could learn from other people. Only what the release adds to that is leakage; largest "
        "excess (equally many rows of both) first. Whiskers: 95% intervals."
    )
    return Drawn(text, tuple(panels), (train, control), lines=tuple(lines))


def _excess(table: Columns, numbers: dict[str, int], number: str) -> float:
    values = table.numbers["value"]
    given = numbers.get(f"{number}-excess")
    if given is not None:
        return float(values[given])
    return float(values[numbers[number]] - values[numbers[f"{number}-control"]])


def _mark(series: Series, table: Columns, side: str, row: int, unit: float) -> Mark:
    value, low, high = (float(table.numbers[f"{side}{end}"][row]) for end in ("", "-low", "-high"))
    if not (math.isfinite(low) and math.isfinite(high)):
        return Mark(series, value * unit)
    return Mark(series, value * unit, low * unit, high * unit)


def _row_mark(series: Series, table: Columns, row: int) -> Mark:
    value, low, high = (float(table.numbers[name][row]) for name in ("value", "low", "high"))
    if not (math.isfinite(low) and math.isfinite(high)):
        return Mark(series, value)
    return Mark(series, value, low, high)


def _more(rows: int, shown: int) -> tuple[str, ...]:
    return (f"The first {shown} of {rows}.",) if shown < rows else ()
