"""Curves of one cell: survival, ROC of the downstream model, ROC of the membership attacks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench.leaderboard.charts import cell_svg as svg
from bench.leaderboard.charts.cell_drawn import Drawn, Panel
from bench.leaderboard.charts.cell_svg import REAL, RELEASED, Series, across, upright
from bench.leaderboard.tables.details import Array, Columns, Files, NoSuchFile, Unavailable

RESAMPLES = 200
GROUPS = 400
"""Thresholds at which a ROC curve is looked at: as many as a screen has pixels across."""

_GRID = np.linspace(0.0, 1.0, 101)
_SQUARE = 270
"""Of a confusion matrix."""
_ATTACKS = (
    ("mia-roc", Series("first", "distance attack (mia)")),
    ("domias-roc", Series("second", "density attack (domias)")),
)


def kaplan_meier(files: Files) -> Drawn:
    """Survival of the training rows and of the released rows."""
    table = files.table("km", ("time", "real", "released"))
    time, real, released = table.finite("time", "real", "released")
    order = np.argsort(time, kind="stable")
    kept = order[svg.thinned(len(time), 2 * svg.MOST_POINTS)]
    x, y = svg.scale_over(time, svg.LEFT, svg.WIDTH - svg.RIGHT), upright(0.0, 1.0)
    parts = [
        svg.axes(x, y, "time", "share without event"),
        svg.steps(REAL, x(time[kept]), y(real[kept])),
        svg.steps(RELEASED, x(time[kept]), y(released[kept])),
    ]
    panel = Panel("", svg.picture("Kaplan-Meier curves of real and released rows", parts))
    text = (
        "Kaplan-Meier estimates of the training rows and of the released rows, weighted to the "
        "declared share of events."
    )
    return Drawn(text, (panel,), (REAL, RELEASED))


def roc(files: Files) -> Drawn:
    """ROC of the model trained on the release, with a band, and of that trained on real rows."""
    try:
        table = files.table("predictions", ("label", "score"))
    except Unavailable:
        # More than two classes have one score a class.
        files.table("predictions", ("label", "score-0", "score-1", "score-2"))
        raise Unavailable("more than two classes have no single ROC curve") from None
    label, score = table.finite("label", "score")
    curve, low, high, area = roc_with_band(label > 0.5, score)
    x, y = across(0.0, 1.0), upright(0.0, 1.0)
    parts = [
        svg.axes(x, y, "false-positive rate", "true-positive rate"),
        svg.line("chance", x(np.array([0.0, 1.0])), y(np.array([0.0, 1.0]))),
        svg.band(RELEASED, x(_GRID), y(low), y(high)),
    ]
    legend = [Series(RELEASED.style, "trained on the released rows, with 95% band")]
    real = _real_curve(files)
    if real is not None:
        parts.append(svg.line(REAL, x(real.numbers["fpr"]), y(real.numbers["tpr"])))
        legend.insert(0, Series(REAL.style, "trained on the real rows"))
    parts += [
        svg.line(RELEASED, x(_GRID), y(curve)),
        svg.text(
            svg.WIDTH - svg.RIGHT - 6, svg.HEIGHT - svg.BOTTOM - 8, f"area {area:.3f}", "", "end"
        ),
    ]
    text = (
        "XGBoost trained on the released rows, or the model that was released, asked about the "
        f"real test rows. Band: {RESAMPLES} bootstrap resamples of the test rows within class, at "
        "each false-positive rate. Thin diagonal: guessing."
    )
    return Drawn(
        text, (Panel("", svg.picture("ROC curve on real test rows", parts)),), tuple(legend)
    )


def _real_curve(files: Files) -> Columns | None:
    try:
        table = files.table("roc-real", ("fpr", "tpr"))
        table.finite("fpr", "tpr")
    except (NoSuchFile, Unavailable):  # the curve beside it is drawn all the same
        return None
    return table.where(np.isin(np.arange(table.rows), svg.thinned(table.rows)))


def roc_with_band(
    positive: npt.NDArray[np.bool_], score: Array
) -> tuple[Array, Array, Array, float]:
    """True-positive rates at 101 false-positive rates: the curve, the band's ends; and the area.

    Scores are cut at up to GROUPS of their quantiles; rows between two cuts are a straight piece.
    A resample of the rows within class is then a multinomial draw of the counts between cuts.
    """
    if positive.all() or not positive.any():
        raise Unavailable("the test rows have one class only")
    cuts = np.unique(score)
    if len(cuts) > GROUPS:
        cuts = np.unique(np.quantile(score, np.linspace(0, 1, GROUPS), method="lower"))
    group = len(cuts) - np.searchsorted(cuts, score, side="right")
    found = np.bincount(group[positive], minlength=len(cuts))
    alarms = np.bincount(group[~positive], minlength=len(cuts))
    rng = np.random.default_rng(0)
    samples = np.array(
        [
            _curve(some_found, some_alarms)
            for some_found, some_alarms in zip(
                rng.multinomial(found.sum(), found / found.sum(), RESAMPLES),
                rng.multinomial(alarms.sum(), alarms / alarms.sum(), RESAMPLES),
                strict=True,
            )
        ]
    )
    low, high = np.quantile(samples, [0.025, 0.975], axis=0)
    ends = np.append(0.0, np.cumsum(found)) / found.sum()
    area = float((alarms / alarms.sum() * (ends[1:] + ends[:-1]) / 2).sum())
    return _curve(found, alarms), low, high, area


def _curve(found: npt.NDArray[np.int64], alarms: npt.NDArray[np.int64]) -> Array:
    x = np.append(0.0, np.cumsum(alarms)) / alarms.sum()
    y = np.append(0.0, np.cumsum(found)) / found.sum()
    curve: Array = np.interp(_GRID, x, y)
    return curve


def attacks(files: Files) -> Drawn:
    """ROC of the membership attacks."""
    x, y = across(0.0, 1.0), upright(0.0, 1.0)
    parts = [
        svg.axes(x, y, "false-positive rate", "true-positive rate"),
        svg.line("chance", x(np.array([0.0, 1.0])), y(np.array([0.0, 1.0]))),
    ]
    legend = []
    absent: list[NoSuchFile] = []
    for name, series in _ATTACKS:
        try:
            fpr, tpr = files.table(name, ("fpr", "tpr")).finite("fpr", "tpr")
        except NoSuchFile as problem:
            absent.append(problem)
            continue
        kept = svg.thinned(len(fpr))
        parts.append(svg.line(series, x(fpr[kept]), y(tpr[kept])))
        legend.append(series)
    if not legend:
        raise absent[0]
    text = (
        "Can an attacker who has the release tell training rows from rows that no method saw? On "
        "the thin diagonal: no better than guessing. Far left is what matters: members found while "
        "hardly anybody is accused in error."
    )
    return Drawn(
        text, (Panel("", svg.picture("ROC curves of membership attacks", parts)),), tuple(legend)
    )


def confusion(files: Files) -> Drawn:
    """Which classes a network trained on the released images takes for which."""
    table = files.table("predictions-convnet", ("label", "predicted"))
    label, predicted = (np.rint(values) for values in table.finite("label", "predicted"))
    classes = int(max(label.max(), predicted.max())) + 1
    if min(label.min(), predicted.min()) < 0 or not 2 <= classes <= 100:
        raise Unavailable("classes are no numbers from 0 to 99")
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
    parts.append(svg.text(middle, _SQUARE + 31, "class that was answered", "tick", "middle"))
    if classes <= 12:
        for i, j in zip(*np.nonzero(counts), strict=True):
            right, below = svg.LEFT + (j + 0.5) * side, 7.5 + (i + 0.5) * side
            parts.append(svg.text(right, below, f"{counts[i, j]:.0f}", "tick on", "middle"))
    text = (
        "The ConvNet trained on the released images, asked about the real test images: a row for "
        "each true class, a column for each answer. Darker: a larger share of the row."
    )
    drawing = svg.picture("Confusion matrix of the ConvNet", parts, svg.WIDTH, _SQUARE + 38)
    return Drawn(text, (Panel("", drawing),))
