"""Charts of one cell: curves, columns, effects, and how close released rows are to real ones.

Each is drawn from tables that the run stores for the cell, or the reason is given why it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import numpy.typing as npt

from bench.data.schema import Task
from bench.leaderboard.charts import shapes
from bench.leaderboard.charts.chart import Chart, Columns, Spec, array
from bench.leaderboard.charts.shapes import CONTROL, OTHER, REAL, RELEASED, Series
from bench.leaderboard.tables.details import Array, CellFiles, DetailTable, NoSuchFile, Unavailable
from bench.plugins.metric import Family
from bench.results.records import ScoreRow

RESAMPLES = 200
GROUPS = 400
"""Number of thresholds of a ROC curve: as many as a chart has pixels."""
MOST_POINTS = 160
"""Points per curve: more cannot be seen at this width."""

_GRID = np.linspace(0.0, 1.0, 101)
_ATTACKS = (
    ("mia-roc", RELEASED.named("distance attack (mia)")),
    ("domias-roc", OTHER.named("density attack (domias)")),
)
_DIAGONAL: Columns = {"x": [0.0, 1.0], "y": [0.0, 1.0]}


@final
@dataclass(frozen=True)
class CellFigure:
    """A figure: charts, and how to read them."""

    text: str
    charts: tuple[Chart, ...]
    legend: tuple[Series, ...] = ()
    small: bool = False
    """Whether the charts are small."""
    lines: tuple[str, ...] = ()
    """Remarks below the charts."""


def _chart(
    text: str,
    build: Callable[[bool], Spec],
    data: Mapping[str, Columns],
    headings: Mapping[str, str],
    title: str = "",
) -> Chart:
    return Chart(title, "", text, build, data, headings)


def _curves(
    text: str,
    lines: Sequence[tuple[Series, Array, Array]],
    titles: tuple[str, str],
    ends: tuple[float, float] | None,
    *,
    steps: bool = False,
    band: tuple[Series, Array, Array] | None = None,
) -> Chart:
    """Return curves over two axes; the band belongs to one of them and has its positions."""
    names: list[str] = []
    x: list[Any] = []
    y: list[Any] = []
    low: list[Any] = []
    high: list[Any] = []
    for series, across, up in lines:
        names += [series.label] * len(across)
        x += array(across)
        y += array(up)
        own = band is not None and band[0] is series
        low += array(band[1]) if own and band is not None else [None] * len(across)
        high += array(band[2]) if own and band is not None else [None] * len(across)
    table: dict[str, list[Any]] = {"series": names, "x": x, "y": y}
    headings = {"series": "curve", "x": titles[0], "y": titles[1]}
    if band is not None:
        table |= {"low": low, "high": high}
        headings |= {"low": "low", "high": "high"}
    tables: dict[str, Columns] = {"curves": table}
    if not steps:
        tables["diagonal"] = _DIAGONAL
    used = tuple(series for series, _, _ in lines)
    shape = "step-after" if steps else "linear"
    build = partial(shapes.curves, used, *titles, ends, shape, not steps)
    return _chart(text, build, tables, headings)


def thinned(count: int, most: int = MOST_POINTS) -> npt.NDArray[np.int64]:
    """Return indices of at most `most` of `count` points, including the first and the last."""
    places = np.arange(count) if count <= most else np.linspace(0, count - 1, most).round()
    return places.astype(np.int64)


def kaplan_meier(files: CellFiles) -> CellFigure:
    """Draw the survival curves of training rows and released rows."""
    table = files.read("km", ("time", "real", "released"))
    time, real, released = table.finite("time", "real", "released")
    order = np.argsort(time, kind="stable")
    kept = order[thinned(len(time), 2 * MOST_POINTS)]
    chart = _curves(
        "Kaplan-Meier curves of real and released rows",
        ((REAL, time[kept], real[kept]), (RELEASED, time[kept], released[kept])),
        ("time", "share without event"),
        None,
        steps=True,
    )
    text = (
        "Kaplan-Meier estimates of the training rows and of the released rows, weighted to the "
        "declared share of events."
    )
    return CellFigure(text, (chart,), (REAL, RELEASED))


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
    released = RELEASED.named("trained on the released rows, with 95% band")
    lines = [(released, _GRID, curve)]
    real = _real_curve(files)
    if real is not None:
        there = REAL.named("trained on the real rows")
        lines.insert(0, (there, real.numbers["fpr"], real.numbers["tpr"]))
    chart = _curves(
        f"ROC curve on real test rows, area {area:.3f}",
        lines,
        ("false-positive rate", "true-positive rate"),
        (0.0, 1.0),
        band=(released, low, high),
    )
    text = (
        "XGBoost trained on the released rows, or the released model, evaluated on the real test "
        f"rows. Band: {RESAMPLES} bootstrap resamples of the test rows within each class, at each "
        "false-positive rate. Thin diagonal: guessing."
    )
    legend = tuple(series for series, _, _ in lines)
    return CellFigure(text, (chart,), legend, lines=(f"Area under the curve {area:.3f}.",))


def _real_curve(files: CellFiles) -> DetailTable | None:
    try:
        table = files.read("roc-real", ("fpr", "tpr"))
        table.finite("fpr", "tpr")
    except (NoSuchFile, Unavailable):  # the other curve is still drawn
        return None
    return table.where(np.isin(np.arange(table.rows), thinned(table.rows)))


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
    lines = []
    absent: list[NoSuchFile] = []
    for name, series in _ATTACKS:
        try:
            fpr, tpr = files.read(name, ("fpr", "tpr")).finite("fpr", "tpr")
        except NoSuchFile as problem:
            absent.append(problem)
            continue
        kept = thinned(len(fpr))
        lines.append((series, fpr[kept], tpr[kept]))
    if not lines:
        raise absent[0]
    chart = _curves(
        "ROC curves of membership attacks",
        lines,
        ("false-positive rate", "true-positive rate"),
        (0.0, 1.0),
    )
    text = (
        "How well an attacker with the release distinguishes training rows from control rows, "
        "which no method saw. The thin diagonal is guessing. The far left matters most: members "
        "identified at few false positives."
    )
    return CellFigure(text, (chart,), tuple(series for series, _, _ in lines))


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
    rows, columns = np.nonzero(counts)
    found = counts[rows, columns].astype(np.int64).tolist()
    fields: Columns = {
        "x": [str(k) for k in columns],
        "y": [str(k) for k in rows],
        "value": array(shares[rows, columns]),
        "count": found,
        "text": [
            f"class {i} predicted as {j}: {count}, {shares[i, j]:.1%} of the class"
            for i, j, count in zip(rows, columns, found, strict=True)
        ],
    }
    names = tuple(map(str, range(classes)))
    build = partial(shapes.heat, names, "predicted class", "true class", False, classes <= 12)
    headings = {"y": "true class", "x": "predicted class", "count": "images", "value": "share"}
    text = (
        "The ConvNet trained on the released images, evaluated on the real test images: one row "
        "per true class, one column per predicted class. Darker: a larger share of the row."
    )
    chart = _chart("Confusion matrix of the ConvNet", build, {"fields": fields}, headings)
    return CellFigure(text, (chart,))


# Columns: distributions side by side -------------------------------------------------------------


MOST_COLUMNS = 24
MOST_CATEGORIES = 8
MOST_CORRELATED = 32
_PAIRS_LISTED = 6
_BOTH = (REAL, RELEASED)


@final
@dataclass(frozen=True)
class _Marginal:
    """One column of both tables."""

    difference: float
    """Total variation distance of the drawn distributions."""
    chart: Chart


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
    charts = tuple(each.chart for each in columns[:MOST_COLUMNS])
    if len(columns) > MOST_COLUMNS:
        lines.append(f"{MOST_COLUMNS} of {len(columns)} columns, the most different ones.")
    text = (
        "Shares of training rows and of released rows, the latter weighted to the declared class "
        "shares; the most different columns first. In brackets: total variation distance, 0 for "
        "equal distributions, 1 for disjoint ones. The outer bins include values beyond the axis."
    )
    return CellFigure(text, charts, _BOTH, small=True, lines=tuple(lines))


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
        bins = _bins(edges, {REAL: real[order], RELEASED: released[order]})
        text = f"Histogram of {name}, real and released rows"
        build = partial(shapes.histogram, _BOTH, "", "", True)
        difference = _difference(real, released)
        title = f"{name} ({difference:.2f})"
        chart = _chart(text, build, {"bins": bins}, _BIN_HEADINGS, title)
        columns.append(_Marginal(difference, chart))
    return columns


_BIN_HEADINGS = {"series": "rows", "low": "from", "high": "to", "share": "share"}


def _bins(edges: Array, shares: Mapping[Series, Array]) -> Columns:
    """Return histograms as a table; the last edge closes the outline of each."""
    table: dict[str, list[Any]] = {"series": [], "low": [], "high": [], "share": []}
    for series, values in shares.items():
        table["series"] += [series.label] * len(values)
        table["low"] += array(edges[:-1])
        table["high"] += array(edges[1:])
        table["share"] += array(values)
    return table


def _categories(files: CellFiles) -> list[_Marginal]:
    table = files.read("shares", ("real", "released"), ("column", "category"))
    table.finite("real", "released")
    columns = []
    for name, rows in _by_name(table, "column"):
        real, released = rows.finite("real", "released")
        order = np.argsort(-np.maximum(real, released), kind="stable")
        shown = order[:MOST_CATEGORIES] if len(order) > MOST_CATEGORIES + 1 else order
        bars = [(rows.texts["category"][k], float(real[k]), float(released[k])) for k in shown]
        others = order[len(shown) :]
        if len(others):
            sums = (float(real[others].sum()), float(released[others].sum()))
            bars.append((f"{len(others)} more", *sums))
        rungs = [
            Rung(label, (Mark(REAL, first), Mark(RELEASED, second)))
            for label, first, second in bars
        ]
        most = max([1e-9, *(max(bar[1:]) for bar in bars)])
        difference = _difference(real, released)
        text = f"Shares of {name}, real and released rows"
        title = f"{name} ({difference:.2f})"
        chart = _ladder(text, rungs, (0.0, most), "", "bars", title=title, small=True)
        columns.append(_Marginal(difference, chart))
    return columns


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
    charts = tuple(
        _heat(title, values, shown)
        for title, values in (
            ("Real rows", real),
            ("Released rows", released),
            ("Released minus real", released - real),
        )
    )
    lines.append("Columns from top to bottom and from left to right: " + ", ".join(shown) + ".")
    lines += _largest(table)
    text = (
        "Pearson correlation of each pair of columns. Orange: positive, blue: negative; stronger "
        "colours are larger values, from none at 0 to full at 1 and -1."
    )
    return CellFigure(text, charts, lines=tuple(lines))


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


def _heat(title: str, values: Array, names: Sequence[str]) -> Chart:
    """Return all pairs; the values of one triangle are those of the other."""
    rows, columns = np.nonzero(np.ones_like(values))
    clipped = np.clip(values, -2.0, 2.0)
    # Equal names would be one row of the chart.
    labels = [name if names.index(name) == k else f"{name} {k}" for k, name in enumerate(names)]
    fields: Columns = {
        "x": [labels[k] for k in columns],
        "y": [labels[k] for k in rows],
        "value": [round(float(value), 3) for value in clipped[rows, columns]],
    }
    build = partial(shapes.heat, tuple(labels), "", "", True, False)
    headings = {"y": "column", "x": "with", "value": title.lower()}
    return _chart(f"Correlations: {title.lower()}", build, {"fields": fields}, headings, title)


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
_NAMES = {"real": REAL, "released": RELEASED}


@final
@dataclass(frozen=True)
class Mark:
    """One value of a row with its optional interval."""

    series: Series
    value: float
    low: float | None = None
    high: float | None = None


@final
@dataclass(frozen=True)
class Rung:
    """A named row with a note at its right end."""

    name: str
    marks: tuple[Mark, ...]
    note: str = ""


def _ladder(
    text: str,
    rungs: Sequence[Rung],
    ends: tuple[float, float],
    axis: str,
    form: str,
    *,
    title: str = "",
    small: bool = False,
) -> Chart:
    """Return named rows, each with a bar or a point per series, and whiskers."""
    used = tuple(mark.series for mark in rungs[0].marks)
    table: dict[str, list[Any]] = {
        name: [] for name in ("series", "name", "order", "value", "low", "high", "text", "note")
    }
    for order, rung in enumerate(rungs):
        for turn, mark in enumerate(rung.marks):
            interval = ""
            if mark.low is not None and mark.high is not None:
                interval = f" [{mark.low:.3g}, {mark.high:.3g}]"
            values = (mark.series.label, rung.name, order, *array([mark.value]))
            whisker = [None if end is None else array([end])[0] for end in (mark.low, mark.high)]
            said = f"{rung.name}, {mark.series.label}: {mark.value:.3g}{interval}"
            note = rung.note if rung.note and not turn else None
            for name, value in zip(table, (*values, *whisker, said, note), strict=True):
                table[name].append(value)
    kept = {name: column for name, column in table.items() if any(v is not None for v in column)}
    headings = {"name": "", "series": "rows", "value": axis or "share"}
    headings |= {"low": "low", "high": "high"} if "low" in kept else {}
    tables: dict[str, Columns] = {"rows": kept}
    if form == "ratios":
        tables["one"] = {"value": [1.0]}
    # The height follows from the number of names: equal names are one row.
    names = len({rung.name for rung in rungs})
    build = partial(shapes.bars, used, names, axis, ends, form, small)
    return _chart(text, build, tables, headings, title)


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
            tuple(_mark(_NAMES[side], table, side, k, 1 / totals[side]) for side in _NAMES),
            f"{ranks['real'][k]:.0f} → {ranks['released'][k]:.0f}",
        )
        for k in order
    ]
    most = max(
        mark.high if mark.high is not None else mark.value for r in rungs for mark in r.marks
    )
    chart = _ladder(
        "Importance of columns to models trained on real and on released rows",
        rungs,
        (0.0, max(1.15 * most, 1e-6)),
        "share of the mean |SHAP value|",
        "bars",
    )
    text = (
        "Share of the mean absolute SHAP value on real test rows, for a model trained on the real "
        "rows and one trained on the released rows. Right: rank by the real and by the released "
        "rows."
    )
    return CellFigure(text, (chart,), _BOTH, lines=_more(table.rows, len(rungs)))


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
            tuple(_mark(_NAMES[side], table, side, k, 1.0) for side in _NAMES),
        )
        for k in range(min(table.rows, MOST_RUNGS))
    ]
    ends = [end for r in rungs for m in r.marks for end in (m.value, m.low, m.high)]
    furthest = max([2.0, *(max(end, 1 / end) for end in ends if end is not None and end > 0)])
    furthest = min(furthest * 1.05, _LARGEST_RATIO)
    chart = _ladder(
        "Hazard ratios of real and released rows",
        rungs,
        (1 / furthest, furthest),
        "hazard ratio",
        "ratios",
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
    return CellFigure(text, (chart,), _BOTH, lines=lines)


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
    train = RELEASED.named("with released rows")
    control = CONTROL.named("with control rows")
    charts: list[Chart] = []
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
        charts.append(_ladder(label, rungs, (lowest, 1.0), axis, "bars", title=title))
        lines += _more(len(attacked), len(rungs))
        if number == "r2":
            lines.append(
                "An R² below -1 is drawn at -1; below 0 is worse than predicting the mean."
            )
    if not charts:
        raise Unavailable("no attribute was attacked with released rows and with control rows")
    text = (
        "An attacker who knows all other columns of a training row predicts the attribute with a "
        "model trained on the released rows, or on control rows, which no method saw. The accuracy "
        "with control rows is knowledge about the population; only the excess of the release is "
        "leakage. Largest excess (with equal numbers of rows) first. Whiskers: 95% intervals."
    )
    return CellFigure(text, tuple(charts), (train, control), lines=tuple(lines))


def _excess(table: DetailTable, numbers: dict[str, int], number: str) -> float:
    values = table.numbers["value"]
    given = numbers.get(f"{number}-excess")
    if given is not None:
        return float(values[given])
    return float(values[numbers[number]] - values[numbers[f"{number}-control"]])


def _mark(series: Series, table: DetailTable, side: str, row: int, unit: float) -> Mark:
    value, low, high = (float(table.numbers[f"{side}{end}"][row]) for end in ("", "-low", "-high"))
    if not (math.isfinite(low) and math.isfinite(high)):
        return Mark(series, value * unit)
    return Mark(series, value * unit, low * unit, high * unit)


def _row_mark(series: Series, table: DetailTable, row: int) -> Mark:
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
        "matched": RELEASED.named("released to training rows"),
        "control": CONTROL.named("released to control rows"),
        "released": RELEASED.named("released to training rows"),
        "real": REAL.named("training to other training rows"),
    }
    charts, lines = [], []
    for title, first, second, which in _PAIRS:
        pair = {kind: histograms[kind] for kind in (second, first) if kind in histograms}
        if len(pair) < 2:
            lines.append(f"{title}: not in this run.")
            continue
        charts.append(_histograms(title, {names[k]: pair[k] for k in pair}))
        copies = {names[kind].label: pair[kind].copies for kind in (first, second)}
        said = ", ".join(f"{share:.1%} ({name})" for name, share in copies.items())
        lines.append(f"{title}. {which}; at distance 0: {said}.")
    if not charts:
        raise Unavailable("dcr-distribution.parquet holds no two populations to compare")
    text = (
        "Distance of each row to its closest record. A release that copies training rows is closer "
        "to them than to control rows, which no method saw."
    )
    legend = (names["matched"], names["control"], names["real"])
    return CellFigure(text, tuple(charts), legend, lines=tuple(lines))


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


def _histograms(title: str, histograms: dict[Series, _Histogram]) -> Chart:
    table: dict[str, list[Any]] = {"series": [], "low": [], "high": [], "share": []}
    for series, each in histograms.items():
        for name, values in _bins(each.edges, {series: each.shares}).items():
            table[name] += values
    build = partial(
        shapes.histogram,
        tuple(histograms),
        "distance to the closest record",
        "share of rows",
        False,
    )
    return _chart(f"Histogram of distances: {title}", build, {"bins": table}, _BIN_HEADINGS, title)


def embedding(files: CellFiles) -> CellFigure:
    """Draw a t-SNE embedding of real and released rows."""
    table = files.read("embedding", ("x", "y"), ("rows",))
    across, up = table.finite("x", "y")
    kinds = np.array(table.texts["rows"])
    dots: dict[str, list[Any]] = {"series": [], "x": [], "y": []}
    for side, series in _NAMES.items():
        shown = np.flatnonzero(kinds == side)[:MOST_DOTS]
        if not len(shown):
            raise Unavailable(f"embedding.parquet holds no {series.label}")
        dots["series"] += [series.label] * len(shown)
        dots["x"] += array(across[shown])
        dots["y"] += array(up[shown])
    text = (
        "t-SNE of equal numbers of training rows and released rows per class. Similar rows are "
        "drawn close together; distances between clusters and their sizes have no meaning. The "
        "metric `embedding` measures how well the rows mix."
    )
    headings = {"series": "rows", "x": "x", "y": "y"}
    words = "Real and released rows in two dimensions"
    chart = _chart(words, partial(shapes.dots, _BOTH), {"dots": dots}, headings)
    return CellFigure(text, (chart,), _BOTH)


# All figures of a cell ----------------------------------------------------------------------------


_TABLES = (Task.CLASSIFICATION.value, Task.SURVIVAL.value)


@final
@dataclass(frozen=True)
class FigureKind:
    """A kind of figure that a cell may have."""

    name: str
    """Anchor on the page."""
    title: str
    family: Family
    metric: str
    """Metric whose details are drawn; its scores give the reason if there are none."""
    draw: Callable[[CellFiles], CellFigure]
    tasks: tuple[str, ...] = tuple(task.value for task in Task)


KINDS = (
    FigureKind(
        "survival",
        "Survival curves",
        Family.FIDELITY,
        "km",
        kaplan_meier,
        (Task.SURVIVAL.value,),
    ),
    FigureKind(
        "roc",
        "ROC of the downstream model",
        Family.UTILITY,
        "auroc",
        roc,
        (Task.CLASSIFICATION.value,),
    ),
    FigureKind(
        "confusion",
        "Confusion matrix",
        Family.UTILITY,
        "accuracy/convnet",
        confusion,
        (Task.IMAGE.value,),
    ),
    FigureKind(
        "hazards",
        "Hazard ratios",
        Family.UTILITY,
        "hazard",
        hazards,
        (Task.SURVIVAL.value,),
    ),
    FigureKind(
        "importance",
        "Feature importance",
        Family.UTILITY,
        "shap",
        importance,
        _TABLES,
    ),
    FigureKind(
        "marginals",
        "Column distributions",
        Family.FIDELITY,
        "moments",
        marginals,
        _TABLES,
    ),
    FigureKind(
        "correlations",
        "Correlations",
        Family.FIDELITY,
        "pcd",
        correlations,
        _TABLES,
    ),
    FigureKind(
        "embedding",
        "Real and released rows in two dimensions",
        Family.FIDELITY,
        "embedding",
        embedding,
    ),
    FigureKind(
        "closest",
        "Distance to the closest record",
        Family.PRIVACY,
        "dcr-distribution",
        closest,
    ),
    FigureKind("attacks", "Membership attacks", Family.PRIVACY, "mia", attacks),
    FigureKind(
        "attributes",
        "Attribute inference",
        Family.PRIVACY,
        "aia",
        attributes,
        _TABLES,
    ),
)


@final
@dataclass(frozen=True)
class FigureOrReason:
    """A figure, or the reason why it is not available."""

    kind: FigureKind
    figure: CellFigure | None
    reason: str = ""


def figures(
    files: CellFiles, task: str, scores: Sequence[ScoreRow], asked: Sequence[str]
) -> tuple[FigureOrReason, ...]:
    """Return all figures of a task; `asked` are the metrics that scored the release."""
    results = []
    for kind in KINDS:
        if task and task not in kind.tasks:
            continue
        try:
            results.append(FigureOrReason(kind, kind.draw(files)))
        except Unavailable as problem:
            results.append(FigureOrReason(kind, None, str(problem)))
        except NoSuchFile as problem:
            results.append(FigureOrReason(kind, None, _why(kind, scores, asked) or str(problem)))
    return tuple(results)


def _why(kind: FigureKind, scores: Sequence[ScoreRow], asked: Sequence[str]) -> str:
    """Return the reason given by the metric, or that it was not requested."""
    related = [
        s for s in scores if s.metric == kind.metric or s.metric.startswith(f"{kind.metric}/")
    ]
    said = dict.fromkeys(score.reason for score in related if score.value is None and score.reason)
    if said:
        return "; ".join(said)
    if not related and kind.metric not in asked:
        return f"not computed: bench score RUN --metrics {kind.metric} adds it"
    return ""
