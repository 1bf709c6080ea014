"""Figures of a cell: known numbers at known places, and reasons where there are none."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from bench.leaderboard.charts import cell_panels
from bench.leaderboard.charts import cell_svg as svg
from bench.leaderboard.tables.details import CellFiles, NoSuchFile, Unavailable
from tests.support.cell_files import new_files, only, points, sides, tree, write

EVIL = '<script>alert("1")</script>'


@pytest.fixture
def files(tmp_path) -> CellFiles:
    return new_files(tmp_path)


# Scales -------------------------------------------------------------------------------------------


def test_a_scale_has_known_places_and_ticks():
    scale = svg.ArrayScale(0.0, 10.0, 100.0, 200.0)
    assert scale(np.array([0.0, 5.0, 10.0])).tolist() == [100, 150, 200]
    assert scale.at(5.0) == 150
    assert scale.at(1e90) == 200  # at the end, not beyond
    assert scale.ticks() == (0, 2, 4, 6, 8, 10)
    ratio = svg.ArrayScale(0.1, 10.0, 0.0, 100.0, logarithmic=True)
    assert ratio.at(1.0) == pytest.approx(50)
    assert ratio(np.array([0.1, 1.0, 10.0])) == pytest.approx([0, 50, 100])
    assert ratio.ticks() == pytest.approx((0.1, 0.2, 0.5, 1, 2, 5, 10))


@pytest.mark.parametrize(
    "values", [[0.0], [1e90, -1e90], [5.0, 5.0], [1e-300, 2e-300], [1e15, 1e15 + 1]]
)
def test_a_scale_over_odd_numbers_is_drawn(values):
    scale = svg.scale_over(np.array(values), 0, 100)
    assert np.isfinite(scale(np.array(values))).all()
    assert len(scale.ticks()) < 12


def test_thinning_keeps_both_ends():
    assert svg.thinned(5).tolist() == [0, 1, 2, 3, 4]
    kept = svg.thinned(10_000, 50)
    assert (kept[0], kept[-1], len(kept)) == (0, 9_999, 50)


# Curves -------------------------------------------------------------------------------------------


def test_survival_curves_are_steps_at_the_times_of_the_table(files):
    write(files, "km", time=[0.0, 5.0, 10.0], real=[1.0, 0.5, 0.25], released=[1.0, 1.0, 0.0])
    (panel,) = cell_panels.kaplan_meier(files).panels
    left, right, bottom, top = 44, 328, 196, 10
    path = only(panel.drawing, "line real").get("d")
    half, quarter = (bottom + top) / 2, bottom - (bottom - top) / 4
    assert path == f"M{left}.0 {top}.0H186.0V{half:.1f}H{right}.0V{quarter:.1f}"
    assert only(panel.drawing, "line released").get("d") == "M44.0 10.0H186.0H328.0V196.0"


def test_roc_is_that_of_scikit_learn_and_its_band_holds_it():
    rng = np.random.default_rng(2)
    label = rng.random(300) < 0.3
    score = np.round(rng.normal(size=300) + label, 1)  # with ties
    curve, low, high, area = cell_panels.roc_with_band(label, score)
    alarms, found, _ = roc_curve(label, score, drop_intermediate=False)
    assert curve == pytest.approx(np.interp(np.linspace(0, 1, 101), alarms, found))
    assert area == pytest.approx(roc_auc_score(label, score))
    assert (low <= curve + 0.02).all() and (curve <= high + 0.02).all()
    assert (high - low)[20:60].mean() > 0.05


def test_the_band_is_as_wide_as_the_binomial_one():
    """At a score of two values, TPR is a share of 100 positives: +-1.96 sqrt(p q / n)."""
    label = np.repeat([True, False], [100, 10_000])
    score = np.concatenate([np.repeat([1.0, 0.0], [60, 40]), np.repeat([1.0, 0.0], [2000, 8000])])
    _, low, high, _ = cell_panels.roc_with_band(label, score)
    half = 1.96 * np.sqrt(0.6 * 0.4 / 100)
    assert (high - low)[20] / 2 == pytest.approx(half, rel=0.2)


def test_roc_of_many_rows_keeps_its_area():
    rng = np.random.default_rng(3)
    label = rng.random(20_000) < 0.1
    score = rng.normal(size=20_000) + 1.5 * label
    area = cell_panels.roc_with_band(label, score)[3]
    assert area == pytest.approx(roc_auc_score(label, score), abs=1e-4)


def test_roc_figure_with_and_without_the_real_curve(files):
    write(files, "predictions", label=[0, 1, 0, 1], score=[0.1, 0.9, 0.2, 0.8])
    drawn = cell_panels.roc(files)
    assert [series.style for series in drawn.legend] == ["released"]
    assert "area 1.000" in drawn.panels[0].drawing
    write(files, "roc-real", fpr=[0.0, 1.0], tpr=[0.0, 1.0])
    drawn = cell_panels.roc(files)
    assert points(only(drawn.panels[0].drawing, "line real")).tolist() == [[44, 196], [328, 10]]
    write(files, "roc-real", fpr=["no"], tpr=[0.0])
    assert len(cell_panels.roc(files).legend) == 1


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
        cell_panels.roc(files)


def test_attacks_draw_those_that_are_there(files):
    with pytest.raises(NoSuchFile):
        cell_panels.attacks(files)
    write(files, "domias-roc", fpr=[0.0, 0.5, 1.0], tpr=[0.0, 1.0, 1.0])
    drawn = cell_panels.attacks(files)
    assert [series.style for series in drawn.legend] == ["second"]
    assert points(only(drawn.panels[0].drawing, "line second"))[1].tolist() == [186, 10]


def test_confusion_counts(files):
    write(files, "predictions-convnet", label=[0, 0, 0, 1], predicted=[0, 0, 1, 1])
    drawing = cell_panels.confusion(files).panels[0].drawing
    numbers = [part.text for part in tree(drawing).iter() if part.get("class") == "tick on"]
    assert numbers == ["2", "1", "1"]
    write(files, "predictions-convnet", label=[0, 10**9], predicted=[0, 0])
    with pytest.raises(Unavailable, match="0 to 99"):
        cell_panels.confusion(files)


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
    drawn = cell_panels.marginals(files)
    assert [panel.title for panel in drawn.panels] == ["bmi (1.00)", "sex (0.30)", "age (0.00)"]
    # All real rows lie in the left half: from the floor to the top, down again in the middle.
    path = only(drawn.panels[0].drawing, "area real").get("d")
    assert path == "M8.0 98.0V6.0H95.0V98.0H182.0V98.0"
    titles = [part.text for part in tree(drawn.panels[1].drawing).iter() if part.tag == "title"]
    assert titles == ["m: real 40.0%, released 70.0%", "f: real 60.0%, released 30.0%"]


def test_marginals_of_one_kind_only_say_so(files):
    with pytest.raises(NoSuchFile):
        cell_panels.marginals(files)
    write(files, "shares", column=["sex"], category=["f"], real=[1.0], released=[1.0])
    assert any("numeric" in line for line in cell_panels.marginals(files).lines)


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
    drawn = cell_panels.marginals(files)
    assert len(drawn.panels) == cell_panels.MOST_COLUMNS
    assert "24 of 41 columns" in drawn.lines[-1]
    titles = [part.text for part in tree(drawn.panels[0].drawing).iter() if part.tag == "title"]
    assert len(titles) == 9
    assert titles[-1] == "42 more: real 84.0%, released 68.0%"


def test_correlations_as_colours(files):
    """One pair: 1 on the diagonal, 0.5 real, -0.5 released, so a difference of -1."""
    write(files, "correlations", first=["a"], second=["b"], real=[0.5], released=[-0.5])
    real, released, difference = (p.drawing for p in cell_panels.correlations(files).panels)

    def fields(drawing: str) -> dict[str, int]:
        styles = {part.get("class"): part.get("d") or "" for part in tree(drawing).iter()}
        return {style: d.count("M") for style, d in styles.items() if style and "heat" in style}

    assert fields(real) == {"heat up l5": 2, "heat up l10": 2}
    assert fields(released) == {"heat down l5": 2, "heat up l10": 2}
    assert fields(difference) == {"heat down l10": 2}
    lines = cell_panels.correlations(files).lines
    assert lines[-1] == "Largest differences (real → released): a with b 0.50 → -0.50."


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
    drawn = cell_panels.correlations(files)
    assert "32 of 60 columns" in drawn.lines[0]
    assert "c07" in drawn.lines[1]
    assert sum(len(panel.drawing) for panel in drawn.panels) < 60_000


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
    drawn = cell_panels.closest(files)
    assert [panel.title for panel in drawn.panels] == [
        "Training rows against control rows",
        "Released rows against real rows",
    ]
    assert "20.0% (released to training rows), 0.0% (released to control rows)" in drawn.lines[0]
    assert "50.0% (released to training rows), 0.0% (training to other" in drawn.lines[1]
    # Ten bars would be 30 bins: half of the released rows in the first, half in the upper half.
    path = only(drawn.panels[1].drawing, "area released").get("d") or ""
    tops = re.findall(r"V([\d.]+)H", path)
    assert len(tops) == 30
    assert tops[0] == tops[22]
    assert float(tops[0]) < 120


@pytest.mark.parametrize(
    ("counts", "said"), [([1, -1], "negative"), ([0, 0], "empty"), ([1, 1], "no two populations")]
)
def test_distances_that_are_none(files, counts, said):
    write(files, "dcr-distribution", rows=["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], count=counts)
    with pytest.raises(Unavailable, match=said):
        cell_panels.closest(files)


def test_embedding_points_are_at_their_places(files):
    write(
        files,
        "embedding",
        x=[0.0, 10.0, 5.0],
        y=[0.0, 10.0, 5.0],
        rows=["real", "released", "real"],
    )
    drawing = cell_panels.embedding(files).panels[0].drawing
    assert only(drawing, "dots real").get("d") == "M8.0 224.0h0M170.0 116.0h0"
    assert only(drawing, "dots released").get("d") == "M332.0 8.0h0"
    write(files, "embedding", x=[0.0], y=[0.0], rows=["real"])
    with pytest.raises(Unavailable, match="no released rows"):
        cell_panels.embedding(files)


# Effects ------------------------------------------------------------------------------------------


def test_importance_shows_both_ranks(files):
    write(files, "shap", column=["a", "b", "c"], **sides([3.0, 1.0, 2.0], [1.0, 3.0, 0.0]))
    drawing = cell_panels.importance(files).panels[0].drawing
    texts = [part.text for part in tree(drawing).iter() if part.tag == "text"]
    assert texts[:6] == ["a", "1 → 2", "c", "2 → 3", "b", "3 → 1"]
    hints = [part.text for part in tree(drawing).iter() if part.tag == "title"]
    assert "a, real rows: 0.5 [0.45, 0.55]" in hints


def test_hazard_ratios_on_a_logarithmic_axis(files):
    write(
        files,
        "hazards",
        covariate=["age", "stage"],
        per=["standard deviation", "III against I"],
        **sides([2.0, 1.0], [0.5, 1.0], spread=0.0),
    )
    drawn = cell_panels.hazards(files)
    texts = [part.text for part in tree(drawn.panels[0].drawing).iter() if part.tag == "text"]
    assert texts[:2] == ["age", "stage: III agai…"]
    dots = [p for p in tree(drawn.panels[0].drawing).iter() if "dots" in (p.get("class") or "")]
    places = [float((dot.get("d") or "")[1:].split()[0]) for dot in dots]
    # 2 and 1/2 lie as far to the right of 1 as to the left.
    assert places[0] - places[2] == pytest.approx(places[2] - places[1], abs=0.2)
    assert places[2] == places[3]
    write(files, "hazard-contrasts", covariate=["x"], per=["b against a"], **sides([1e6], [1e-6]))
    assert any("clipped" in line for line in cell_panels.hazards(files).lines)
    write(files, "hazard-contrasts", covariate=["x"], per=["y"], **sides([0.0], [-1.0]))
    with pytest.raises(Unavailable, match="hazard ratio"):
        cell_panels.hazards(files)


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
    drawn = cell_panels.attributes(files)
    assert [panel.title for panel in drawn.panels] == ["Categories", "Numbers"]
    names = [part.text for part in tree(drawn.panels[0].drawing).iter() if part.tag == "text"]
    assert names[:2] == ["race", "sex"]
    numbers = [part.text for part in tree(drawn.panels[1].drawing).iter() if part.tag == "text"]
    assert numbers[0] == "bmi"
    assert numbers[1] == "-1"  # race has a category already; then the axis begins
    hints = [part.text for part in tree(drawn.panels[0].drawing).iter() if part.tag == "title"]
    assert "race, with released rows: 0.9" in hints
