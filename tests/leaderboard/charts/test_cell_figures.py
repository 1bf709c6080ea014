"""Figures of a cell: known numbers at known places, and reasons where there are none."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from bench.leaderboard.charts import cell
from bench.leaderboard.charts.chart import Chart
from bench.leaderboard.tables.details import CellFiles, NoSuchFile, Unavailable
from tests.support.cell_files import new_files, sides, write
from tests.support.charts import drawing, table, texts, words

EVIL = '<script>alert("1")</script>'


def curve(chart: Chart, series: str) -> list[tuple[float, float]]:
    """The points of one curve."""
    return [(row["x"], row["y"]) for row in table(chart, "curves") if row["series"] == series]


@pytest.fixture
def files(tmp_path) -> CellFiles:
    return new_files(tmp_path)


def test_thinning_keeps_both_ends():
    assert cell.thinned(5).tolist() == [0, 1, 2, 3, 4]
    kept = cell.thinned(10_000, 50)
    assert (kept[0], kept[-1], len(kept)) == (0, 9_999, 50)


# Curves -------------------------------------------------------------------------------------------


def test_survival_curves_are_steps_at_the_times_of_the_table(files):
    write(files, "km", time=[0.0, 5.0, 10.0], real=[1.0, 0.5, 0.25], released=[1.0, 1.0, 0.0])
    (chart,) = cell.kaplan_meier(files).charts
    assert curve(chart, "real rows") == [(0, 1), (5, 0.5), (10, 0.25)]
    assert curve(chart, "released rows") == [(0, 1), (5, 1), (10, 0)]
    lines = [layer["mark"] for layer in chart.build(False)["layer"]]
    assert [line["interpolate"] for line in lines if line["type"] == "line"] == ["step-after"]
    assert {"time", "share without event"} <= set(words(drawing(chart)))


def test_roc_is_that_of_scikit_learn_and_its_band_holds_it():
    rng = np.random.default_rng(2)
    label = rng.random(300) < 0.3
    score = np.round(rng.normal(size=300) + label, 1)  # with ties
    curve, low, high, area = cell.roc_with_band(label, score)
    alarms, found, _ = roc_curve(label, score, drop_intermediate=False)
    assert curve == pytest.approx(np.interp(np.linspace(0, 1, 101), alarms, found))
    assert area == pytest.approx(roc_auc_score(label, score))
    assert (low <= curve + 0.02).all() and (curve <= high + 0.02).all()
    assert (high - low)[20:60].mean() > 0.05


def test_the_band_is_as_wide_as_the_binomial_one():
    """At a score of two values, TPR is a share of 100 positives: +-1.96 sqrt(p q / n)."""
    label = np.repeat([True, False], [100, 10_000])
    score = np.concatenate([np.repeat([1.0, 0.0], [60, 40]), np.repeat([1.0, 0.0], [2000, 8000])])
    _, low, high, _ = cell.roc_with_band(label, score)
    half = 1.96 * np.sqrt(0.6 * 0.4 / 100)
    assert (high - low)[20] / 2 == pytest.approx(half, rel=0.2)


def test_roc_of_many_rows_keeps_its_area():
    rng = np.random.default_rng(3)
    label = rng.random(20_000) < 0.1
    score = rng.normal(size=20_000) + 1.5 * label
    area = cell.roc_with_band(label, score)[3]
    assert area == pytest.approx(roc_auc_score(label, score), abs=1e-4)


def test_roc_figure_with_and_without_the_real_curve(files):
    write(files, "predictions", label=[0, 1, 0, 1], score=[0.1, 0.9, 0.2, 0.8])
    drawn = cell.roc(files)
    assert [series.hue for series in drawn.legend] == ["released"]
    assert drawn.lines == ("Area under the curve 1.000.",)
    band = [row for row in table(drawn.charts[0], "curves") if row["low"] is not None]
    assert len(band) == 101
    write(files, "roc-real", fpr=[0.0, 1.0], tpr=[0.0, 1.0])
    drawn = cell.roc(files)
    assert curve(drawn.charts[0], "trained on the real rows") == [(0, 0), (1, 1)]
    write(files, "roc-real", fpr=["no"], tpr=[0.0])
    assert len(cell.roc(files).legend) == 1


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"label": [1, 1], "score": [0.1, 0.2]}, "one class"),
        ({"label": [0, 1], "score": [0.1, float("nan")]}, "cannot be drawn"),
        ({"label": [0, 1, 2], **{f"score-{k}": [0.1, 0.2, 0.3] for k in range(3)}}, "two classes"),
        ({"label": [0, 1], "other": [0.1, 0.2]}, "missing"),
    ],
)
def test_predictions_without_a_curve(files, columns, said):
    write(files, "predictions", **columns)
    with pytest.raises(Unavailable, match=said):
        cell.roc(files)


def test_attacks_draw_those_that_are_there(files):
    with pytest.raises(NoSuchFile):
        cell.attacks(files)
    write(files, "domias-roc", fpr=[0.0, 0.5, 1.0], tpr=[0.0, 1.0, 1.0])
    drawn = cell.attacks(files)
    assert [series.label for series in drawn.legend] == ["density attack (domias)"]
    assert curve(drawn.charts[0], "density attack (domias)") == [(0, 0), (0.5, 1), (1, 1)]


def test_confusion_counts(files):
    write(files, "predictions-convnet", label=[0, 0, 0, 1], predicted=[0, 0, 1, 1])
    (chart,) = cell.confusion(files).charts
    fields = [(row["y"], row["x"], row["count"]) for row in table(chart, "fields")]
    assert fields == [("0", "0", 2), ("0", "1", 1), ("1", "1", 1)]
    assert [row["value"] for row in table(chart, "fields")] == pytest.approx([2 / 3, 1 / 3, 1])
    drawn = words(drawing(chart))
    assert sorted(drawn) == ["0", "0", "1", "1", "1", "1", "2", "predicted class", "true class"]
    write(files, "predictions-convnet", label=[0, 10**9], predicted=[0, 0])
    with pytest.raises(Unavailable, match="0 to 99"):
        cell.confusion(files)


# Columns ------------------------------------------------------------------------------------------


def test_marginals_most_different_first(files):
    write(
        files,
        "histograms",
        column=["age", "age", "bmi", "bmi"],
        low=[0.0, 1.0, 0.0, 1.0],
        high=[1.0, 2.0, 1.0, 2.0],
        real=[0.5, 0.5, 1.0, 0.0],
        released=[0.5, 0.5, 0.0, 1.0],
    )
    write(
        files,
        "shares",
        column=["sex"] * 2,
        category=["f", "m"],
        real=[0.6, 0.4],
        released=[0.3, 0.7],
    )
    drawn = cell.marginals(files)
    assert [chart.title for chart in drawn.charts] == ["bmi (1.00)", "sex (0.30)", "age (0.00)"]
    # All real rows lie in the left half.
    bins = [
        (row["low"], row["high"], row["share"])
        for row in table(drawn.charts[0], "bins")
        if row["series"] == "real rows"
    ]
    assert bins == [(0, 1, 1), (1, 2, 0)]
    shares = [(row["name"], row["series"], row["value"]) for row in table(drawn.charts[1], "rows")]
    assert shares == [
        ("m", "real rows", 0.4),
        ("m", "released rows", 0.7),
        ("f", "real rows", 0.6),
        ("f", "released rows", 0.3),
    ]


def test_marginals_of_one_kind_only_say_so(files):
    with pytest.raises(NoSuchFile):
        cell.marginals(files)
    write(files, "shares", column=["sex"], category=["f"], real=[1.0], released=[1.0])
    assert any("numeric" in line for line in cell.marginals(files).lines)


def test_many_columns_and_categories_are_cut(files):
    count = 40
    write(
        files,
        "shares",
        column=[f"c{k}" for k in range(count)] + ["wide"] * 50,
        category=["x"] * count + [f"v{k}" for k in range(50)],
        real=[1.0] * count + [0.02] * 50,
        released=[1.0] * count + [0.04, 0.0] * 25,
    )
    drawn = cell.marginals(files)
    assert len(drawn.charts) == cell.MOST_COLUMNS
    assert "24 of 41 columns" in drawn.lines[-1]
    shares = table(drawn.charts[0], "rows")
    assert len({row["name"] for row in shares}) == 9
    assert [(row["name"], row["value"]) for row in shares[-2:]] == [
        ("42 more", pytest.approx(0.84)),
        ("42 more", pytest.approx(0.68)),
    ]


def test_correlations_of_a_pair(files):
    """One pair: 1 on the diagonal, 0.5 real, -0.5 released, so a difference of -1."""
    write(files, "correlations", first=["a"], second=["b"], real=[0.5], released=[-0.5])
    figure = cell.correlations(files)
    values = [[row["value"] for row in table(chart, "fields")] for chart in figure.charts]
    assert values == [[1, 0.5, 0.5, 1], [1, -0.5, -0.5, 1], [0, -1, -1, 0]]
    assert figure.lines[-1] == "Largest differences (real → released): a with b 0.50 → -0.50."


def test_correlations_of_many_columns_keep_those_that_differ(files):
    names = [f"c{k:02d}" for k in range(60)]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    wrong = [0.9 if "c07" in pair else 0.0 for pair in pairs]
    write(
        files,
        "correlations",
        first=[pair[0] for pair in pairs],
        second=[pair[1] for pair in pairs],
        real=[0.0] * len(pairs),
        released=wrong,
    )
    drawn = cell.correlations(files)
    assert "32 of 60 columns" in drawn.lines[0]
    assert "c07" in drawn.lines[1]
    assert [len(table(chart, "fields")) for chart in drawn.charts] == [32 * 32] * 3


# Nearness -----------------------------------------------------------------------------------------


def test_distances_with_control_and_copies(files):
    kinds = ("released", "real", "matched", "control")
    write(
        files,
        "dcr-distribution",
        rows=[kind for kind in kinds for _ in range(3)],
        low=[0.0, 0.0, 1.0] * 4,
        high=[0.0, 1.0, 2.0] * 4,
        count=[5, 0, 5, 0, 10, 0, 2, 4, 4, 0, 0, 8],
    )
    drawn = cell.closest(files)
    assert [chart.title for chart in drawn.charts] == [
        "Training rows against control rows",
        "Released rows against real rows",
    ]
    assert "20.0% (released to training rows), 0.0% (released to control rows)" in drawn.lines[0]
    assert "50.0% (released to training rows), 0.0% (training to other" in drawn.lines[1]
    # 30 bins: half of the released rows in the first, half in the upper half.
    shares = [
        row["share"]
        for row in table(drawn.charts[1], "bins")
        if row["series"] == "released to training rows"
    ]
    assert len(shares) == 30
    assert shares[0] == shares[22] == 0.5
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize(
    ("counts", "said"), [([1, -1], "negative"), ([0, 0], "empty"), ([1, 1], "no two populations")]
)
def test_distances_that_are_none(files, counts, said):
    write(files, "dcr-distribution", rows=["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], count=counts)
    with pytest.raises(Unavailable, match=said):
        cell.closest(files)


def test_embedding_points_are_at_their_places(files):
    write(
        files,
        "embedding",
        x=[0.0, 10.0, 5.0],
        y=[0.0, 10.0, 5.0],
        rows=["real", "released", "real"],
    )
    (chart,) = cell.embedding(files).charts
    assert [tuple(row.values()) for row in table(chart, "dots")] == [
        ("real rows", 0, 0),
        ("real rows", 5, 5),
        ("released rows", 10, 10),
    ]
    write(files, "embedding", x=[0.0], y=[0.0], rows=["real"])
    with pytest.raises(Unavailable, match="no released rows"):
        cell.embedding(files)


# Effects ------------------------------------------------------------------------------------------


def test_importance_shows_both_ranks(files):
    write(files, "shap", column=["a", "b", "c"], **sides([3.0, 1.0, 2.0], [1.0, 3.0, 0.0]))
    (chart,) = cell.importance(files).charts
    notes = [(row["name"], row["note"]) for row in table(chart, "rows") if row["note"]]
    assert notes == [("a", "1 → 2"), ("c", "2 → 3"), ("b", "3 → 1")]
    assert texts(chart, "rows")[0] == "a, real rows: 0.5 [0.45, 0.55]"
    drawn = words(drawing(chart))
    assert [text for text in drawn if text in "abc"] == ["a", "c", "b"]  # from top to bottom


def test_hazard_ratios_on_a_logarithmic_axis(files):
    write(
        files,
        "hazards",
        covariate=["age", "stage"],
        per=["standard deviation", "III against I"],
        **sides([2.0, 1.0], [0.5, 1.0], spread=0.0),
    )
    (chart,) = cell.hazards(files).charts
    ratios = [(row["name"], row["value"]) for row in table(chart, "rows")]
    assert ratios == [
        ("age", 2),
        ("age", 0.5),
        ("stage: III against I", 1),
        ("stage: III against I", 1),
    ]
    scale = chart.build(False)["layer"][1]["encoding"]["x"]["scale"]
    assert scale["type"] == "log"
    # 2 and 1/2 lie as far to the right of 1 as to the left.
    assert scale["domain"][0] * scale["domain"][1] == pytest.approx(1)
    assert table(chart, "one") == [{"value": 1.0}]
    write(files, "hazard-contrasts", covariate=["x"], per=["b against a"], **sides([1e6], [1e-6]))
    assert any("clipped" in line for line in cell.hazards(files).lines)
    write(files, "hazard-contrasts", covariate=["x"], per=["y"], **sides([0.0], [-1.0]))
    with pytest.raises(Unavailable, match="hazard ratio"):
        cell.hazards(files)


def test_attributes_with_control_largest_excess_first(files):
    rows = [
        ("sex", "accuracy", 0.6),
        ("sex", "accuracy-control", 0.6),
        ("race", "accuracy", 0.9),
        ("race", "accuracy-control", 0.5),
        ("race", "r2", 0.4),
        ("race", "r2-control", 0.1),
        ("bmi", "r2", -12.0),
        ("bmi", "r2-control", 0.1),
        ("odd", "gap", 0.1),
    ]
    value = [row[2] for row in rows]
    write(
        files,
        "aia",
        attribute=[row[0] for row in rows],
        number=[row[1] for row in rows],
        value=value,
        low=[v - 0.1 for v in value],
        high=[float("nan") if v == 0.9 else v + 0.1 for v in value],
    )
    drawn = cell.attributes(files)
    assert [chart.title for chart in drawn.charts] == ["Categories", "Numbers"]
    categories, numbers = (table(chart, "rows") for chart in drawn.charts)
    assert [row["name"] for row in categories] == ["race", "race", "sex", "sex"]
    assert [row["name"] for row in numbers] == ["bmi", "bmi"]  # race has a category already
    assert categories[0]["text"] == "race, with released rows: 0.9"
    assert drawn.charts[1].build(False)["layer"][0]["encoding"]["x"]["scale"]["domain"] == [-1, 1]
