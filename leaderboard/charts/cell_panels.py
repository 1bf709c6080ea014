"""Figures of one cell: curves, columns, effects, and how close released rows are to real ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from bench.leaderboard.charts import cell_svg as svg
from bench.leaderboard.charts.cell_svg import (
    CONTROL,
    REAL,
    RELEASED,
    ArrayScale,
    Mark,
    Rung,
    SeriesStyle,
    across,
    upright,
)
from bench.leaderboard.tables.details import Array, CellFiles, DetailTable, NoSuchFile, Unavailable
from bench.leaderboard.tables.show import shortened

RESAMPLES = 200
GROUPS = 400
"""Number of thresholds of a ROC curve: as many as a panel has pixels."""

_GRID = np.linspace(0.0, 1.0, 101)
_SQUARE = 270
"""Side length of a confusion matrix."""
_ATTACKS = (
    ("mia-roc", SeriesStyle("first", "distance attack (mia)")),
    ("domias-roc", SeriesStyle("second", "density attack (domias)")),
)


def kaplan_meier(files: CellFiles) -> CellFigure:
    """Draw the survival curves of training rows and released rows."""
    table = files.read("km", ("time", "real", "released"))
    time, real, released = table.finite("time", "real", "released")
    order = np.argsort(time, kind="stable")
    kept = order[svg.thinned(len(time), 2 * svg.MOST_POINTS)]
    x, y = svg.scale_over(time, svg.LEFT, svg.WIDTH - svg.RIGHT), upright(0.0, 1.0)
    parts = [
        svg.axes(x, y, "time", "share without event"),
        svg.steps(REAL, x(time[kept]), y(real[kept])),
        svg.steps(RELEASED, x(time[kept]), y(released[kept])),
    ]
    panel = CellPanel("", svg.picture("Kaplan-Meier curves of real and released rows", parts))
    text = (
        "Kaplan-Meier estimates of the training rows and of the released rows, weighted to the "
        "declared share of events."
    )
    return CellFigure(text, (panel,), (REAL, RELEASED))


def roc(files: CellFiles) -> CellFigure:
    """Draw the ROC curves of models trained on the release, with a band, and on real rows."""
    try:
        table = files.read("predictions", ("label", "score"))
    except Unavailable:
        # With more than two classes there is one score per class.
        files.read("predictions", ("label", "score-0", "score-1", "score-2"))
        raise Unavailable("there is no single ROC curve for more than two classes") from None
    label, score = table.finite("label", "score")
    curve, low, high, area = roc_with_band(label > 0.5, score)
    x, y = across(0.0, 1.0), upright(0.0, 1.0)
    parts = [
        svg.axes(x, y, "false-positive rate", "true-positive rate"),
        svg.line("chance", x(np.array([0.0, 1.0])), y(np.array([0.0, 1.0]))),
        svg.band(RELEASED, x(_GRID), y(low), y(high)),
    ]
    legend = [SeriesStyle(RELEASED.style, "trained on the released rows, with 95% band")]
    real = _real_curve(files)
    if real is not None:
        parts.append(svg.line(REAL, x(real.numbers["fpr"]), y(real.numbers["tpr"])))
        legend.insert(0, SeriesStyle(REAL.style, "trained on the real rows"))
    parts += [
        svg.line(RELEASED, x(_GRID), y(curve)),
        svg.text(
            svg.WIDTH - svg.RIGHT - 6, svg.HEIGHT - svg.BOTTOM - 8, f"area {area:.3f}", "", "end"
        ),
    ]
    text = (
        "XGBoost trained on the released rows, or the released model, evaluated on the real test "
        f"rows. Band: {RESAMPLES} bootstrap resamples of the test rows within each class, at each "
        "false-positive rate. Thin diagonal: guessing."
    )
    return CellFigure(
        text, (CellPanel("", svg.picture("ROC curve on real test rows", parts)),), tuple(legend)
    )


def _real_curve(files: CellFiles) -> DetailTable | None:
    try:
        table = files.read("roc-real", ("fpr", "tpr"))
        table.finite("fpr", "tpr")
    except (NoSuchFile, Unavailable):  # the other curve is still drawn
        return None
    return table.where(np.isin(np.arange(table.rows), svg.thinned(table.rows)))


def roc_with_band(
    positive: npt.NDArray[np.bool_], score: Array
) -> tuple[Array, Array, Array, float]:
    """Return true-positive rates at 101 false-positive rates (curve and band) and the area.

    Scores are cut at up to GROUPS of their quantiles; rows between two cuts are a straight piece.
    A resample of the rows within class is then a multinomial draw of the counts between cuts.
    """
    if positive.all() or not positive.any():
        raise Unavailable("the test rows have only one class")
    cuts = np.unique(score)
    if len(cuts) > GROUPS:
        cuts = np.unique(np.quantile(score, np.linspace(0, 1, GROUPS), method="lower"))
    group = len(cuts) - np.searchsorted(cuts, score, side="right")
    hits = np.bincount(group[positive], minlength=len(cuts))
    alarms = np.bincount(group[~positive], minlength=len(cuts))
    rng = np.random.default_rng(0)
    samples = np.array(
        [
            _curve(some_found, some_alarms)
            for some_found, some_alarms in zip(
                rng.multinomial(hits.sum(), hits / hits.sum(), RESAMPLES),
                rng.multinomial(alarms.sum(), alarms / alarms.sum(), RESAMPLES),
                strict=True,
            )
        ]
    )
    low, high = np.quantile(samples, [0.025, 0.975], axis=0)
    ends = np.append(0.0, np.cumsum(hits)) / hits.sum()
    area = float((alarms / alarms.sum() * (ends[1:] + ends[:-1]) / 2).sum())
    return _curve(hits, alarms), low, high, area


def _curve(hits: npt.NDArray[np.int64], alarms: npt.NDArray[np.int64]) -> Array:
    x = np.append(0.0, np.cumsum(alarms)) / alarms.sum()
    y = np.append(0.0, np.cumsum(hits)) / hits.sum()
    curve: Array = np.interp(_GRID, x, y)
    return curve


def attacks(files: CellFiles) -> CellFigure:
    """Draw the ROC curves of the membership attacks."""
    x, y = across(0.0, 1.0), upright(0.0, 1.0)
    parts = [
        svg.axes(x, y, "false-positive rate", "true-positive rate"),
        svg.line("chance", x(np.array([0.0, 1.0])), y(np.array([0.0, 1.0]))),
    ]
    legend = []
    absent: list[NoSuchFile] = []
    for name, series in _ATTACKS:
        try:
            fpr, tpr = files.read(name, ("fpr", "tpr")).finite("fpr", "tpr")
        except NoSuchFile as problem:
            absent.append(problem)
            continue
        kept = svg.thinned(len(fpr))
        parts.append(svg.line(series, x(fpr[kept]), y(tpr[kept])))
        legend.append(series)
    if not legend:
        raise absent[0]
    text = (
        "How well an attacker with the release distinguishes training rows from control rows, "
        "which no method saw. The thin diagonal is guessing. The far left matters most: members "
        "identified at few false positives."
    )
    return CellFigure(
        text,
        (CellPanel("", svg.picture("ROC curves of membership attacks", parts)),),
        tuple(legend),
    )


def confusion(files: CellFiles) -> CellFigure:
    """Draw the confusion matrix of a network trained on the released images."""
    table = files.read("predictions-convnet", ("label", "predicted"))
    label, predicted = (np.rint(values) for values in table.finite("label", "predicted"))
    classes = int(max(label.max(), predicted.max())) + 1
    if min(label.min(), predicted.min()) < 0 or not 2 <= classes <= 100:
        raise Unavailable("classes are not numbers from 0 to 99")
    counts = np.zeros((classes, classes))
    np.add.at(counts, (label.astype(np.int64), predicted.astype(np.int64)), 1)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    side = _SQUARE / classes
    levels = np.ceil(shares * 10).astype(np.int64)
    parts = []
    for level in range(1, 11):
        rows, columns = np.nonzero(levels == level)
        if len(rows):
            x = np.asarray(svg.LEFT + columns * side, dtype=np.float64)
            y = np.asarray(4 + rows * side, dtype=np.float64)
            parts.append(svg.squares(f"heat up l{level}", x, y, side))
    for mark in range(0, classes, 1 if classes <= 12 else 10):
        at = (mark + 0.5) * side
        parts.append(svg.text(svg.LEFT - 4, 7.5 + at, str(mark), "tick", "end"))
        parts.append(svg.text(svg.LEFT + at, _SQUARE + 16, str(mark), "tick", "middle"))
    middle = svg.LEFT + _SQUARE / 2
    parts.append(svg.text(middle, _SQUARE + 31, "predicted class", "tick", "middle"))
    if classes <= 12:
        for i, j in zip(*np.nonzero(counts), strict=True):
            right, below = svg.LEFT + (j + 0.5) * side, 7.5 + (i + 0.5) * side
            parts.append(svg.text(right, below, f"{counts[i, j]:.0f}", "tick on", "middle"))
    text = (
        "The ConvNet trained on the released images, evaluated on the real test images: one row "
        "per true class, one column per predicted class. Darker: a larger share of the row."
    )
    drawing = svg.picture("Confusion matrix of the ConvNet", parts, svg.WIDTH, _SQUARE + 38)
    return CellFigure(text, (CellPanel("", drawing),))


@final
@dataclass(frozen=True)
class CellPanel:
    """One drawing with its heading."""

    title: str
    drawing: Markup


@final
@dataclass(frozen=True)
class CellFigure:
    """A figure: panels, and how to read them."""

    text: str
    panels: tuple[CellPanel, ...]
    legend: tuple[SeriesStyle, ...] = ()
    small: bool = False
    """Whether the panels are small."""
    lines: tuple[str, ...] = ()
    """Remarks below the panels."""


# Columns: distributions side by side -------------------------------------------------------------


MOST_COLUMNS = 24
MOST_CATEGORIES = 8
MOST_CORRELATED = 32
LEVELS = 10
_PAIRS_LISTED = 6

_WIDTH, _HEIGHT = 190, 118
_HEAT = 336
"""Width and height of a heat map with its names."""


@final
@dataclass(frozen=True)
class _Marginal:
    """One column of both tables."""

    name: str
    difference: float
    """Total variation distance of the drawn distributions."""
    drawing: Markup


def marginals(files: CellFiles) -> CellFigure:
    """Draw the distribution of every column, real and released."""
    columns: list[_Marginal] = []
    lines: list[str] = []
    for read, what in ((_numeric, "numeric columns"), (_categories, "categories")):
        try:
            columns += read(files)
        except NoSuchFile:
            lines.append(f"No {what}: the release has none, or must be scored again.")
    if not columns:
        raise NoSuchFile("the run stores neither histograms nor shares of this cell")
    columns.sort(key=lambda each: -each.difference)
    panels = tuple(
        CellPanel(f"{each.name} ({each.difference:.2f})", each.drawing)
        for each in columns[:MOST_COLUMNS]
    )
    if len(columns) > MOST_COLUMNS:
        lines.append(f"{MOST_COLUMNS} of {len(columns)} columns, the most different ones.")
    text = (
        "Shares of training rows and of released rows, the latter weighted to the declared class "
        "shares; the most different columns first. In brackets: total variation distance, 0 for "
        "equal distributions, 1 for disjoint ones. The outer bins include values beyond the axis."
    )
    return CellFigure(text, panels, (REAL, RELEASED), small=True, lines=tuple(lines))


def _numeric(files: CellFiles) -> list[_Marginal]:
    table = files.read("histograms", ("low", "high", "real", "released"), ("column",))
    table.finite("low", "high", "real", "released")
    columns = []
    for name, rows in _by_name(table, "column"):
        low, high, real, released = rows.finite("low", "high", "real", "released")
        order = np.argsort(low, kind="stable")
        edges = np.append(low[order], high[order][-1])
        if not (np.diff(edges) > 0).all():
            raise Unavailable("histograms.parquet is malformed: bins overlap")
        x = svg.scale_over(edges, 8, _WIDTH - 8)
        y = ArrayScale(0.0, max(float(real.max()), float(released.max()), 1e-9), _HEIGHT - 20, 6)
        parts = [
            svg.outline(REAL, x(edges), y(real[order]), y.start),
            svg.outline(RELEASED, x(edges), y(released[order]), y.start),
            svg.baseline(x, y.start, ""),
        ]
        label = f"Histogram of {name}, real and released rows"
        drawing = svg.picture(label, parts, _WIDTH, _HEIGHT)
        columns.append(_Marginal(name, _difference(real, released), drawing))
    return columns


def _categories(files: CellFiles) -> list[_Marginal]:
    table = files.read("shares", ("real", "released"), ("column", "category"))
    table.finite("real", "released")
    columns = []
    for name, rows in _by_name(table, "column"):
        real, released = rows.finite("real", "released")
        order = np.argsort(-np.maximum(real, released), kind="stable")
        shown = order[:MOST_CATEGORIES] if len(order) > MOST_CATEGORIES + 1 else order
        bars = [(rows.texts["category"][k], real[k], released[k]) for k in shown]
        others = order[len(shown) :]
        if len(others):
            bars.append((f"{len(others)} more", real[others].sum(), released[others].sum()))
        drawing = _bars(f"Shares of {name}, real and released rows", bars)
        columns.append(_Marginal(name, _difference(real, released), drawing))
    return columns


def _bars(label: str, bars: Sequence[tuple[str, float, float]]) -> Markup:
    left, step = 66.0, min(40.0, (_HEIGHT - 26) / len(bars))
    thick = min(13.0, (step - 2) / 2)
    x = ArrayScale(0.0, max([1e-9, *(max(bar[1:]) for bar in bars)]), left, _WIDTH - 10)
    parts = []
    for place, (name, real, released) in enumerate(bars):
        top = 5 + place * step
        parts.append(
            svg.group(
                f"{name}: real {real:.1%}, released {released:.1%}",
                svg.text(left - 5, top + thick + 3, shortened(name, 9), "tick", "end"),
                svg.bar(REAL, left, top, x.at(real) - left, thick),
                svg.bar(RELEASED, left, top + thick, x.at(released) - left, thick),
            )
        )
    parts.append(svg.baseline(x, _HEIGHT - 20, ""))
    return svg.picture(label, parts, _WIDTH, _HEIGHT)


def _difference(real: Array, released: Array) -> float:
    return float(np.abs(real - released).sum() / 2)


def _by_name(table: DetailTable, column: str) -> list[tuple[str, DetailTable]]:
    names = np.array(table.texts[column])
    return [(name, table.where(names == name)) for name in dict.fromkeys(table.texts[column])]


# Correlations -------------------------------------------------------------------------------------


def correlations(files: CellFiles) -> CellFigure:
    """Draw the correlations of all pairs of columns: real, released, difference."""
    table = files.read("correlations", ("real", "released"), ("first", "second"))
    table.finite("real", "released")
    names = list(dict.fromkeys((*table.texts["first"], *table.texts["second"])))
    shown, lines = names, []
    if len(names) > MOST_CORRELATED:
        shown = _most_different(table, names)
        lines.append(
            f"{MOST_CORRELATED} of {len(names)} columns, those that differ most from the real rows."
        )
    place = {name: number for number, name in enumerate(shown)}
    size = len(shown)
    real, released = np.eye(size), np.eye(size)
    for k, pair in enumerate(zip(table.texts["first"], table.texts["second"], strict=True)):
        if pair[0] in place and pair[1] in place:
            i, j = place[pair[0]], place[pair[1]]
            real[i, j] = real[j, i] = table.numbers["real"][k]
            released[i, j] = released[j, i] = table.numbers["released"][k]
    panels = (
        CellPanel("Real rows", _heat("Correlations of real rows", real, shown)),
        CellPanel("Released rows", _heat("Correlations of released rows", released, shown)),
        CellPanel("Released minus real", _heat("Differences", released - real, shown)),
    )
    lines.append("Columns from top to bottom and from left to right: " + ", ".join(shown) + ".")
    lines += _largest(table)
    text = (
        "Pearson correlation of each pair of columns. Orange: positive, blue: negative; stronger "
        "colours are larger values, from none at 0 to full at 1 and -1."
    )
    return CellFigure(text, panels, lines=tuple(lines))


def _most_different(table: DetailTable, names: Sequence[str]) -> list[str]:
    difference = np.abs(table.numbers["released"] - table.numbers["real"])
    total = dict.fromkeys(names, 0.0)
    for first, second, amount in zip(
        table.texts["first"], table.texts["second"], difference.tolist(), strict=True
    ):
        total[first] += amount
        total[second] += amount
    kept = set(sorted(names, key=lambda name: -total[name])[:MOST_CORRELATED])
    return [name for name in names if name in kept]


def _heat(label: str, values: Array, names: Sequence[str]) -> Markup:
    left, top = 92.0, 4.0
    whole = _HEAT - left - 4
    side = whole / len(names)
    clipped = np.clip(values, -1.0, 1.0)
    levels = np.sign(clipped) * np.round(np.abs(clipped) * LEVELS)
    parts = [
        Markup(f'<rect class="empty" x="{left}" y="{top}" width="{whole}" height="{whole}"/>'),
    ]
    for level in range(1, LEVELS + 1):
        for sign, style in ((1, "up"), (-1, "down")):
            rows, columns = np.nonzero(levels == sign * level)
            if len(rows):
                x = np.asarray(left + columns * side, dtype=np.float64)
                y = np.asarray(top + rows * side, dtype=np.float64)
                parts.append(svg.squares(f"heat {style} l{level}", x, y, side))
    every = max(1, math.ceil(10 / side))
    parts += [
        svg.text(left - 4, top + (k + 0.5) * side + 3.5, shortened(names[k], 12), "tick", "end")
        for k in range(0, len(names), every)
    ]
    return svg.picture(label, parts, _HEAT, whole + 8)


def _largest(table: DetailTable) -> list[str]:
    real, released = table.numbers["real"], table.numbers["released"]
    order = np.argsort(-np.abs(released - real), kind="stable")[:_PAIRS_LISTED]
    said = (
        f"{table.texts['first'][k]} with {table.texts['second'][k]} "
        f"{real[k]:.2f} → {released[k]:.2f}"
        for k in order
    )
    return [f"Largest differences (real → released): {'; '.join(said)}."]


# What a reader would conclude ---------------------------------------------------------------------


MOST_RUNGS = 16
_LARGEST_RATIO = 20.0

_SIDES = tuple(f"{side}{end}" for side in ("real", "released") for end in ("", "-low", "-high"))


def importance(files: CellFiles) -> CellFigure:
    """Draw SHAP importances of columns for models trained on real and released rows."""
    table = files.read("shap", _SIDES, ("column",)).drawable("real", "released")
    if not table.rows:
        raise Unavailable("shap.parquet holds no values that can be drawn")
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
        "Share of the mean absolute SHAP value on real test rows, for a model trained on the real "
        "rows and one trained on the released rows. Right: rank by the real and by the released "
        "rows."
    )
    return CellFigure(
        text, (CellPanel("", drawing),), (REAL, RELEASED), lines=_more(table.rows, len(rungs))
    )


def _ranks(values: Array) -> Array:
    ranks = np.empty(len(values))
    ranks[np.argsort(-np.abs(values), kind="stable")] = np.arange(1, len(values) + 1)
    return ranks


def hazards(files: CellFiles) -> CellFigure:
    """Draw the hazard ratios of a Cox model on a logarithmic axis."""
    try:
        table = files.read("hazard-contrasts", _SIDES, ("covariate", "per"))
    except NoSuchFile:
        table = files.read("hazards", _SIDES, ("covariate", "per"))
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
            f"Values beyond {_LARGEST_RATIO:g} or 1/{_LARGEST_RATIO:g} are clipped.",
        )
    text = (
        "Cox model of the training rows and of the released rows, with 95% intervals; numeric "
        "columns per standard deviation of the training rows. 1: no effect."
    )
    return CellFigure(text, (CellPanel("", drawing),), (REAL, RELEASED), lines=lines)


def _covariate(name: str, per: str) -> str:
    return name if per == "standard deviation" else f"{name}: {per}"


def attributes(files: CellFiles) -> CellFigure:
    """Draw how well attributes are inferred from the release and from control rows."""
    table = files.read("aia", ("value", "low", "high"), ("attribute", "number")).drawable("value")
    places: dict[str, dict[str, int]] = {}
    for k, (attribute, number) in enumerate(
        zip(table.texts["attribute"], table.texts["number"], strict=True)
    ):
        places.setdefault(attribute, {})[number] = k
    train = SeriesStyle(RELEASED.style, "with released rows")
    control = SeriesStyle(CONTROL.style, "with control rows")
    panels: list[CellPanel] = []
    lines: list[str] = []
    taken: set[str] = set()
    for number, title, axis, lowest in (
        ("accuracy", "Categories", "accuracy", 0.0),
        ("r2", "Numbers", "R²", -1.0),
    ):
        attacked = [
            name
            for name, numbers in places.items()
            if number in numbers and f"{number}-control" in numbers and name not in taken
        ]
        taken |= set(attacked)
        attacked.sort(key=lambda name: -_excess(table, places[name], number))
        rungs = [
            Rung(
                name,
                (
                    _row_mark(train, table, places[name][number]),
                    _row_mark(control, table, places[name][f"{number}-control"]),
                ),
            )
            for name in attacked[:MOST_RUNGS]
        ]
        if not rungs:
            continue
        label = f"Attribute inference, {title.lower()}: {axis}"
        panels.append(
            CellPanel(title, svg.ladder(label, rungs, (lowest, 1.0), axis, 0.0, bars=True))
        )
        lines += _more(len(attacked), len(rungs))
        if number == "r2":
            lines.append(
                "An R² below -1 is drawn at -1; below 0 is worse than predicting the mean."
            )
    if not panels:
        raise Unavailable("no attribute was attacked with released rows and with control rows")
    text = (
        "An attacker who knows all other columns of a training row predicts the attribute with a "
        "model trained on the released rows, or on control rows, which no method saw. The accuracy "
        "with control rows is knowledge about the population; only the excess of the release is "
        "leakage. Largest excess (with equal numbers of rows) first. Whiskers: 95% intervals."
    )
    return CellFigure(text, tuple(panels), (train, control), lines=tuple(lines))


def _excess(table: DetailTable, numbers: dict[str, int], number: str) -> float:
    values = table.numbers["value"]
    given = numbers.get(f"{number}-excess")
    if given is not None:
        return float(values[given])
    return float(values[numbers[number]] - values[numbers[f"{number}-control"]])


def _mark(series: SeriesStyle, table: DetailTable, side: str, row: int, unit: float) -> Mark:
    value, low, high = (float(table.numbers[f"{side}{end}"][row]) for end in ("", "-low", "-high"))
    if not (math.isfinite(low) and math.isfinite(high)):
        return Mark(series, value * unit)
    return Mark(series, value * unit, low * unit, high * unit)


def _row_mark(series: SeriesStyle, table: DetailTable, row: int) -> Mark:
    value, low, high = (float(table.numbers[name][row]) for name in ("value", "low", "high"))
    if not (math.isfinite(low) and math.isfinite(high)):
        return Mark(series, value)
    return Mark(series, value, low, high)


def _more(rows: int, shown: int) -> tuple[str, ...]:
    return (f"The first {shown} of {rows}.",) if shown < rows else ()


# How close released rows lie to real ones ---------------------------------------------------------


MOST_BINS = 30
MOST_DOTS = 600
"""Maximum number of points per kind of row."""

_PAIRS = (
    ("Training rows against control rows", "matched", "control", "Equal numbers of rows"),
    ("Released rows against real rows", "released", "real", "All training rows"),
)


def closest(files: CellFiles) -> CellFigure:
    """Draw the distances to the closest record, with control rows."""
    table = files.read("dcr-distribution", ("low", "high", "count"), ("rows",))
    low, high, count = table.finite("low", "high", "count")
    if (count < 0).any() or (high < low).any():
        raise Unavailable("dcr-distribution.parquet is malformed: negative counts")
    kinds = np.array(table.texts["rows"])
    histograms = {
        kind: _Histogram(table.where(kinds == kind)) for kind in dict.fromkeys(kinds.tolist())
    }
    names = {
        "matched": SeriesStyle("released", "released to training rows"),
        "control": SeriesStyle("control", "released to control rows"),
        "released": SeriesStyle("released", "released to training rows"),
        "real": SeriesStyle("real", "training to other training rows"),
    }
    panels, lines = [], []
    for title, first, second, which in _PAIRS:
        pair = {kind: histograms[kind] for kind in (second, first) if kind in histograms}
        if len(pair) < 2:
            lines.append(f"{title}: not in this run.")
            continue
        panels.append(CellPanel(title, _histograms(title, {names[k]: pair[k] for k in pair})))
        copies = {names[kind].label: pair[kind].copies for kind in (first, second)}
        said = ", ".join(f"{share:.1%} ({name})" for name, share in copies.items())
        lines.append(f"{title}. {which}; at distance 0: {said}.")
    if not panels:
        raise Unavailable("dcr-distribution.parquet holds no two populations to compare")
    text = (
        "Distance of each row to its closest record. A release that copies training rows is closer "
        "to them than to control rows, which no method saw."
    )
    return CellFigure(text, tuple(panels), (RELEASED, CONTROL, REAL), lines=tuple(lines))


class _Histogram:
    """Shares in equal bins, and the share at distance 0."""

    def __init__(self, table: DetailTable) -> None:
        low, high, count = (table.numbers[name] for name in ("low", "high", "count"))
        order = np.argsort(low, kind="stable")
        low, high, count = low[order], high[order], count[order]
        total = count.sum()
        if total <= 0:
            raise Unavailable("a population of distances is empty")
        point = high == low
        self.copies = float(count[point & (low == 0)].sum() / total)
        # A bin of width zero belongs to the bin that starts there.
        middle = (low + high) / 2
        self.edges: Array = np.linspace(0.0, max(float(high.max()), 1e-12), MOST_BINS + 1)
        places = np.searchsorted(self.edges, middle, side="right") - 1
        sums = np.bincount(places.clip(0, MOST_BINS - 1), count, MOST_BINS)
        self.shares: Array = sums / total


def _histograms(title: str, histograms: dict[SeriesStyle, _Histogram]) -> Markup:
    most = max(float(each.shares.max()) for each in histograms.values())
    furthest = max(float(each.edges[-1]) for each in histograms.values())
    x, y = across(0.0, furthest), upright(0.0, 1.05 * most)
    parts = [svg.axes(x, y, "distance to the closest record", "share of rows")]
    parts += [
        svg.outline(series, x(each.edges), y(each.shares), y.start)
        for series, each in histograms.items()
    ]
    return svg.picture(f"Histogram of distances: {title}", parts)


def embedding(files: CellFiles) -> CellFigure:
    """Draw a t-SNE embedding of real and released rows."""
    table = files.read("embedding", ("x", "y"), ("rows",))
    across_, up = table.finite("x", "y")
    kinds = np.array(table.texts["rows"])
    x = svg.scale_over(across_, 8, svg.WIDTH - 8)
    y = svg.scale_over(up, svg.HEIGHT - 8, 8)
    parts = []
    for series in (REAL, RELEASED):
        shown = np.flatnonzero(kinds == series.style)[:MOST_DOTS]
        if not len(shown):
            raise Unavailable(f"embedding.parquet holds no {series.label}")
        parts.append(svg.dots(series, x(across_[shown]), y(up[shown])))
    text = (
        "t-SNE of equal numbers of training rows and released rows per class. Similar rows are "
        "drawn close together; distances between clusters and their sizes have no meaning. The "
        "metric `embedding` measures how well the rows mix."
    )
    drawing = svg.picture("Real and released rows in two dimensions", parts)
    return CellFigure(text, (CellPanel("", drawing),), (REAL, RELEASED))
