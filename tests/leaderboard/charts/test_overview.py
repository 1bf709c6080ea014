"""Charts over all datasets: means by hand, intervals by SciPy, ranks as the tests have them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.leaderboard.charts import panels
from bench.leaderboard.charts.gallery import Results, run_files
from bench.leaderboard.charts.overview import (
    aggregate,
    by_epsilon,
    front_picture,
    pareto_picture,
    rank_intervals,
    student,
)
from bench.leaderboard.charts.panels import MethodStyle, Scene, scene
from bench.leaderboard.ranking.rank import place_blocks
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.ranking.rows import aggregate as rows_of
from bench.leaderboard.ranking.significance import Blocks, RankComparison, compare_blocks
from bench.leaderboard.tables.load import load_results
from tests.support.charts import drawing, table, texts, words

EVIL = "<script>alert(1)</script>\"'&"
Stage = tuple[Scene, tuple[Row, ...]]


@pytest.fixture
def stage(tmp_path: Path) -> Callable[[Any], Stage]:
    """The rows of a run, sorted for its panels."""

    def compute(run: Any) -> Stage:
        rows, _ = rows_of(load_results([run.write(tmp_path)]))
        return scene(rows, panels.styles(rows)), rows

    return compute


@pytest.fixture
def three(run: Any, non_private: Any, unproven: Any) -> Any:
    """Two sound methods and one that is not, on three datasets at two epsilons."""
    for dataset, top in (("one", 0.8), ("two", 0.5), ("three", 1.0)):
        run.add("real", top, dataset=dataset, ipc=None, **non_private)
        for epsilon in (1.0, 10.0):
            spent = {"dataset": dataset, "eps_target": epsilon, "eps_proven": 0.9 * epsilon}
            run.add("a", 0.4, **spent, eps_audited=0.1 * epsilon)
            run.add("b", 0.3 + 0.01 * epsilon, **spent)
            run.add("c", 0.45, **{**spent, **unproven})
    return run


def test_means_and_intervals_over_datasets(three: Any, stage: Any) -> None:
    setting, rows = stage(three)
    found = aggregate(setting, rows)
    assert found is not None
    shares = [0.4 / 0.8, 0.4 / 0.5, 0.4 / 1.0]
    (first,) = [item for item in found.members if (item.series, item.target) == ("a", 1.0)]
    assert first.share == pytest.approx(np.mean(shares))
    # Student's interval of two or three datasets would be as wide as the axis.
    assert (first.low, first.high) == (None, None)
    assert (first.proven, first.audited, first.sound, first.datasets) == (0.9, 0.1, True, 3)
    assert found.words.startswith("mean over 3 datasets, 50 rows per class; no intervals")


def test_intervals_are_students_over_five_datasets_or_more() -> None:
    shares = [0.5, 0.8, 0.4, 0.6, 0.9]
    low, high = stats.t.interval(0.95, 4, np.mean(shares), stats.sem(shares))
    assert student(shares) == pytest.approx((low, high))
    assert student(shares[:4]) == student([0.5]) == (None, None)


def test_one_dataset_has_the_interval_of_its_test_rows(
    run: Any, stage: Any, non_private: Any
) -> None:
    run.add("real", 0.8, ipc=None, **non_private)
    run.add("a", 0.4)
    found = aggregate(*stage(run))
    assert found is not None
    (only,) = found.members
    assert (only.low, only.share, only.high) == pytest.approx((0.38 / 0.8, 0.5, 0.42 / 0.8))
    assert "intervals are those of the test rows" in found.words


def test_methods_are_compared_on_the_same_datasets(three: Any, stage: Any) -> None:
    three.add("narrow", 0.9, dataset="one")
    found = aggregate(*stage(three))
    assert found is not None
    assert found.datasets == ("one", "three", "two")
    assert found.left_out == ("narrow",)
    assert "not on all of them, so not drawn: narrow" in found.words


def test_a_method_that_does_not_fit_one_dataset_is_kept(
    run: Any, stage: Any, non_private: Any
) -> None:
    for dataset in ("one", "two", "three", "images"):
        run.add("real", 0.8, dataset=dataset, ipc=None, **non_private)
        run.add("a", 0.4, dataset=dataset)
        if dataset != "images":
            run.add("tables-only", 0.6, dataset=dataset)
    found = aggregate(*stage(run))
    assert found is not None
    # Two methods on three datasets are more results than one on four.
    assert found.datasets == ("one", "three", "two")
    assert {item.series for item in found.members} == {"a", "tables-only"}


def test_utility_at_each_target(three: Any, stage: Any) -> None:
    chart = by_epsilon(*stage(three))
    assert chart is not None
    assert {row["x"] for row in table(chart, "points")} == {1.0, 10.0}
    assert len(table(chart, "points")) == 6
    assert "% of real utility ↑" in words(drawing(chart))


def test_the_pareto_picture(three: Any, stage: Any) -> None:
    chart = pareto_picture(*stage(three))
    assert chart is not None
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in table(chart, "points"):
        by_name.setdefault(row["series"], []).append(row)
    assert [row["x"] for row in by_name["a"]] == [0.9, 9.0]
    # From the audited to the proven epsilon.
    assert [(row["left"], row["right"]) for row in by_name["a"]] == [(0.1, 0.9), (1.0, 9.0)]
    assert [row["x"] for row in by_name["c"]] == ["∞", "∞"]
    assert [row["sound"] for row in by_name["c"]] == [False, False]
    # c has more utility than a, and no proof: it is not on the front.
    a, c = by_name["a"][0]["y"], by_name["c"][0]["y"]
    assert c > a
    assert {row["y"] for row in table(chart, "front")} == {a}
    assert "∞" in words(drawing(chart))
    assert "audited 0.1" in texts(chart, "points")[0]


def test_epsilons_are_where_they_belong_and_the_ends_are_named(
    run: Any, stage: Any, non_private: Any
) -> None:
    """12 was drawn at the mark of 10, and nothing was written near 0.4997."""
    run.add("real", 0.9, ipc=None, **non_private)
    for target, proven in ((0.5, 0.4997), (3.0, 2.998), (12.0, 12.0)):
        run.add("a", 0.8, eps_target=target, eps_proven=proven)
    chart = pareto_picture(*stage(run))
    assert chart is not None
    assert [row["at"] for row in table(chart, "points")] == pytest.approx([0.4997, 2.998, 12.0])
    labels = words(drawing(chart))
    assert all(mark in labels for mark in ("0.5", "1", "3", "10"))


def test_without_real_rows_there_is_a_reason(run: Any, stage: Any) -> None:
    run.add("a", 0.5)
    setting, rows = stage(run)
    assert pareto_picture(setting, rows) is None
    assert "No picture of utility and epsilon" in front_picture(rows, setting.styles)


def test_the_picture_of_the_front_page_is_whole(three: Any, stage: Any) -> None:
    setting, rows = stage(three)
    markup = front_picture(rows, setting.styles)
    assert markup.count("<figure") == 1
    assert markup.count('<script type="application/json" class="charts"') == 1
    assert "<noscript><svg" in markup
    assert markup.count("data-series=") == 3


def _tuned(rows: tuple[Row, ...], label: str, dataset: str) -> tuple[Row, ...]:
    return tuple(
        replace(row, tuned=(row.label, row.dataset) == (label, dataset) or row.tuned)
        for row in rows
    )


def test_results_where_defaults_were_chosen_are_left_out(three: Any, stage: Any) -> None:
    setting, rows = stage(three)
    rows = _tuned(rows, "a", "one")
    found = aggregate(setting, rows)
    assert found is not None
    # Six results on two datasets are as many as four on three: the former have more methods.
    assert found.datasets == ("three", "two")
    share = {(item.series, item.target): item.share for item in found.members}
    assert share["a", 1.0] == pytest.approx(np.mean([0.4 / 0.5, 0.4 / 1.0]))
    assert share["b", 1.0] == pytest.approx(np.mean([0.31 / 0.5, 0.31 / 1.0]))
    assert found.words.endswith("; without results where defaults were chosen: a on one")
    both = aggregate(setting, rows, with_tuned=True)
    assert both is not None
    (first,) = [item for item in both.members if (item.series, item.target) == ("a", 1.0)]
    assert first.share == pytest.approx(np.mean([0.4 / 0.8, 0.4 / 0.5, 0.4 / 1.0]))
    assert "defaults" not in both.words
    everywhere = _tuned(_tuned(rows, "a", "two"), "a", "three")
    drawn = aggregate(setting, everywhere)
    assert drawn is not None
    assert {item.series for item in drawn.members} == {"b", "c"}
    assert "a on one, three, two" in drawn.words


def test_every_chart_of_a_run_as_files(three: Any, stage: Any) -> None:
    setting, rows = stage(three)
    files = dict(run_files(Results(rows, setting.styles, ())))
    kinds = ("pareto", "epsilon", "datasets", "time", "memory", "audit")
    # One size, no attack, and no comparison: there is nothing to draw of these.
    assert set(files) == {f"{kind}.{ending}" for kind in kinds for ending in ("svg", "json")}
    for kind in kinds:
        assert files[f"{kind}.svg"].startswith(b"<svg")
        spec = json.loads(files[f"{kind}.json"])
        assert "vega-lite" in spec["$schema"] and spec["datasets"]


# Ranks --------------------------------------------------------------------------------------------


def _compared(utility: np.ndarray, names: tuple[str, ...]) -> RankComparison:
    datasets = tuple(f"d{n}" for n in range(len(utility)))
    blocks = Blocks(names, datasets, place_blocks(utility)[0], utility, 0)
    return compare_blocks(blocks)


@pytest.fixture
def four() -> RankComparison:
    """a and b take turns, then c, then d, over 12 blocks."""
    step = np.arange(12) / 1000
    turn = np.where(np.arange(12) % 2, 0.9, 0.8)
    utility = np.column_stack([turn + step, 1.7 - turn, 0.5 + step / 3, 0.2 - step])
    return _compared(utility, ("a", "b", "c", "d"))


def test_every_method_is_at_its_mean_rank(four: RankComparison) -> None:
    chart = rank_intervals(four, {"d": MethodStyle("c3", "circle")})
    found = {row["series"]: (row["rank"], row["low"], row["high"]) for row in table(chart, "ranks")}
    assert list(found) == ["a", "b", "c", "d"]
    for standing in four.standings:
        expected = (standing.mean_rank, standing.low, standing.high)
        assert found[standing.label] == pytest.approx(expected, rel=1e-5)
    drawn = drawing(chart)
    assert [text for text in words(drawn) if text in "abcd"] == ["a", "b", "c", "d"]
    assert "var(--chart-c3)" in {part.get("fill") for part in drawn.iter()}


def test_bars_connect_indistinguishable_methods(four: RankComparison) -> None:
    chart = rank_intervals(four, {})
    bars = table(chart, "bars")
    assert [(row["series"], row["text"]) for row in bars] == [
        ("a", "indistinguishable: a, b"),
        ("b", "indistinguishable: a, b"),
    ]
    assert all(row["at"] > 4 for row in bars)  # to the right of all ranks


def test_bars_never_overlap() -> None:
    # Neighbours are indistinguishable, those further away are not.
    rng = np.random.default_rng(1)
    utility = np.arange(8) * 0.5 + rng.normal(0, 1.0, (30, 8))
    bars = table(rank_intervals(_compared(utility, tuple("abcdefgh")), {}), "bars")
    places = {row["clique"]: row["at"] for row in bars}
    assert len(places) > 2
    assert len(set(places.values())) == len(places)


def test_the_ruler_is_as_long_as_the_critical_difference(four: RankComparison) -> None:
    (ruler,) = table(rank_intervals(four, {}), "ruler")
    length = ruler["end"] - ruler["rank"]
    assert length == pytest.approx(four.critical_difference, rel=1e-5)
    (cut,) = table(
        rank_intervals(_compared(np.arange(6.0).reshape(2, 3), tuple("abc")), {}), "ruler"
    )
    assert cut["end"] == 3  # the end of the axis; the text has the number
    assert math.isfinite(float(cut["text"].rpartition(" ")[2]))


def test_text_alternative_and_strange_names(four: RankComparison) -> None:
    text = rank_intervals(four, {}).text
    assert "over 12 blocks, best first: a 1.50, b 1.50, c 3.00, d 4.00." in text
    assert text.endswith("Indistinguishable: a and b.")
    chart = rank_intervals(_compared(np.arange(12.0).reshape(6, 2), (EVIL, "plain")), {})
    assert EVIL in chart.text
    drawn = drawing(chart)
    assert not [part for part in drawn.iter() if part.tag.endswith("script")]
