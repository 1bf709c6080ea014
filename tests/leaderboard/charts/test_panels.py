"""Panels: every result is in the data of its chart, and what is missing shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.charts import panels
from bench.leaderboard.charts.audit import audit_charts
from bench.leaderboard.charts.chart import Chart
from bench.leaderboard.charts.draw import Panel, chosen, draw
from bench.leaderboard.charts.overview import method_legend
from bench.leaderboard.charts.panels import (
    Prominence,
    Scene,
    ipcs_first_to_last,
    scene,
    targets_first_to_last,
)
from bench.leaderboard.charts.tradeoffs import (
    SECONDS,
    against_attack,
    against_cost,
    against_epsilon,
    against_ipc,
    attacks,
    utility_figures,
)
from bench.leaderboard.ranking.rows import Row, aggregate
from bench.leaderboard.tables.load import load_results
from tests.support.charts import axis, drawing, table, texts, words

Stage = tuple[Scene, tuple[Row, ...]]


@pytest.fixture
def stage(tmp_path: Path) -> Callable[[Any], Stage]:
    """The rows of a run, sorted for its panels."""

    def compute(run: Any) -> Stage:
        rows, _ = aggregate(load_results([run.write(tmp_path)]))
        return scene(rows, panels.styles(rows)), rows

    return compute


def _drawn(setting: Scene, contents: Iterable[Panel]) -> list[Chart]:
    return [draw(setting, panel) for panel in contents]


def _points(chart: Chart) -> dict[str, list[tuple[Any, float]]]:
    """Values of the highlighted methods, in the order in which a line joins them."""
    found: dict[str, list[tuple[Any, float]]] = {}
    for row in table(chart, "points"):
        found.setdefault(row["series"], []).append((row["x"], row["y"]))
    return found


def test_an_axis_with_chosen_ticks() -> None:
    line = chosen({1.0: "1", 100.0: "100"}, "rows", "full")
    assert line.labels == ("1", "100", "full")
    # A quarter of the axis beyond the last number, and a margin on both sides.
    ends = [math.log(value) for value in (*line.ticks, *(line.domain or ()))]
    span = math.log(100)
    assert ends[:3] == pytest.approx([0, span, 1.25 * span])
    assert ends[3:] == pytest.approx([-0.11 * 1.25 * span, 1.36 * 1.25 * span - 0.25 * 1.25 * span])


def test_points_have_their_epsilon_utility_and_interval(run: Any, stage: Any) -> None:
    for epsilon, value in ((1.0, 0.5), (10.0, 0.7), (100.0, 0.9)):
        run.add("a", value, eps_target=epsilon, eps_proven=epsilon)
    setting, _ = stage(run)
    (chart,) = _drawn(setting, against_epsilon(setting, "50"))
    found = table(chart, "points")
    assert [(row["x"], row["at"], row["y"]) for row in found] == [
        (1.0, 1.0, 0.5),
        (10.0, 10.0, 0.7),
        (100.0, 100.0, 0.9),
    ]
    assert [(row["low"], row["high"]) for row in found] == [
        (0.48, 0.52),
        (0.68, 0.72),
        (0.88, 0.92),
    ]
    assert (
        texts(chart, "points")[1] == "a, target ε 10 (proven 10): auroc 0.700 [0.680, 0.720]; sound"
    )
    assert axis(chart, "x")["axis"]["values"] == [1.0, 10.0, 100.0]
    assert axis(chart, "x")["scale"]["type"] == "log"
    drawn = words(drawing(chart))
    assert [text for text in drawn if text in ("1", "10", "100", "target ε", "auroc ↑")] == [
        "1", "10", "100", "target ε", "auroc ↑",
    ]  # fmt: skip


def test_points_of_one_epsilon_stand_beside_each_other(run: Any, stage: Any) -> None:
    for name in ("a", "b", "c"):
        run.add(name, 0.5)
    setting, _ = stage(run)
    (chart,) = _drawn(setting, against_epsilon(setting, "50"))
    places = {row["series"]: row["at"] for row in table(chart, "points")}
    assert places["a"] < places["b"] < places["c"]
    assert places["b"] == 1.0
    assert {row["x"] for row in table(chart, "points")} == {1.0}


def test_the_front_takes_sound_methods_only(run: Any, stage: Any, unproven: Any) -> None:
    for epsilon, good, poor in ((1.0, 0.6, 0.5), (10.0, 0.55, 0.8)):
        spent = {"eps_target": epsilon, "eps_proven": epsilon}
        run.add("good", good, **spent)
        run.add("poor", poor, **spent)
        run.add("loud", 0.95, **{**spent, **unproven})
    setting, _ = stage(run)
    (panel,) = against_epsilon(setting, "50")
    assert [(m.label, m.x, m.y) for m in panel.members] == [
        ("good", 1.0, pytest.approx(0.6)),
        ("poor", 10.0, pytest.approx(0.8)),
    ]
    chart = draw(setting, panel)
    assert "good 0.6 at 1, poor 0.8 at 10." in chart.text
    assert [row["y"] for row in table(chart, "front")] == pytest.approx([0.6, 0.8, 0.8])
    hollow = [row["series"] for row in table(chart, "points") if not row["sound"]]
    assert hollow == ["loud", "loud"]


def test_references_are_lines(mixed_run: Any, stage: Any, non_private: Any) -> None:
    mixed_run.add("subset", 0.85, **non_private)
    setting, _ = stage(mixed_run)
    chart = _drawn(setting, against_epsilon(setting, "50"))[0]
    levels = {row["series"]: row for row in table(chart, "levels")}
    assert set(levels) == {"real", "subset", "gats"}
    assert levels["real"]["y"] == pytest.approx(0.905)
    named = [name for name in words(drawing(chart)) if name in levels]
    assert sorted(set(named)) == ["gats", "real", "subset"]  # gats in the legend only
    assert named.count("real") == named.count("subset") == 2
    assert "real 0.905" in chart.text


def test_what_failed_and_what_was_skipped_show(mixed_run: Any, stage: Any) -> None:
    mixed_run.fail("broken", reason="it broke")
    setting, _ = stage(mixed_run)
    chart = _drawn(setting, against_epsilon(setting, "50"))[0]
    marks = {row["text"]: (row["x"], row["skipped"]) for row in table(chart, "missing")}
    assert marks["broken, target ε 1: no value; it broke"] == (1.0, False)
    assert marks["picky, target ε 1: no value; takes images only"] == (1.0, True)
    assert "3 without a value." in chart.text


def test_utility_against_size(run: Any, stage: Any, non_private: Any) -> None:
    for ipc, value in ((10, 0.6), (100, 0.8)):
        run.add("a", value, ipc=ipc)
        run.add("free", value + 0.1, ipc=ipc, **non_private)
    run.add("a", 0.85, ipc=None, full_size=True)
    run.add("own", 0.5, ipc=None)
    setting, _ = stage(run)
    (chart,) = _drawn(setting, against_ipc(setting, 1.0))
    assert _points(chart) == {
        "a": [(10.0, 0.6), (100.0, 0.8), ("full", 0.85)],
        "free": [(10.0, pytest.approx(0.7)), (100.0, pytest.approx(0.9))],
    }
    assert "full" in words(drawing(chart))


def test_one_size_gives_no_panel(mixed_run: Any, stage: Any) -> None:
    setting, _ = stage(mixed_run)
    assert list(against_ipc(setting, 1.0)) == []


def test_attacks_are_chosen_by_family_and_direction(run: Any, stage: Any) -> None:
    for place in range(3):
        key = run.add(f"m{place}", 0.5)
        run.score(key, "b/risk", 0.1, direction="lower", family="privacy")
        run.score(key, "mia/auroc", 0.5, direction="lower", family="privacy")
        run.score(key, "dcr/median", 0.5, direction="higher", family="privacy")
        run.score(key, "a/control", 0.5, direction="neutral", family="privacy")
        run.score(key, "ks", 0.5, direction="lower", family="fidelity")
        if place:
            run.score(key, "rare/auroc", 0.5, direction="lower", family="privacy")
    _, rows = stage(run)
    assert [(a.metric, a.results, a.chance) for a in attacks(rows)] == [
        ("mia/auroc", 3, 0.5),
        ("b/risk", 3, None),
        ("rare/auroc", 2, 0.5),
    ]


def test_worse_than_guessing_counts_as_guessing(run: Any, stage: Any) -> None:
    for name, utility, attack in (("lucky", 0.6, 0.3), ("plain", 0.7, 0.5), ("leaky", 0.9, 0.8)):
        key = run.add(name, utility)
        run.score(key, "mia/auroc", attack, attack - 0.1, attack + 0.1, "lower", "privacy")
    setting, rows = stage(run)
    (panel,) = against_attack(setting, "50", attacks(rows)[0])
    assert [member.label for member in panel.members] == ["plain", "leaky"]
    chart = draw(setting, panel)
    marks = {row["series"]: row for row in table(chart, "points")}
    assert marks["lucky"]["x"] < marks["plain"]["x"] < marks["leaky"]["x"]
    assert (marks["plain"]["left"], marks["plain"]["right"]) == pytest.approx((0.4, 0.6))
    assert table(chart, "uprights") == [{"at": 0.5, "text": "chance"}]
    assert "chance" in words(drawing(chart))


def test_real_rows_do_not_stretch_the_axis_of_attacks(run: Any, stage: Any) -> None:
    for name, attack, target in (("a", 0.5, 1.0), ("b", 0.55, 1.0), ("real", 1.0, None)):
        key = run.add(name, 0.5, eps_target=target)
        run.score(key, "mia/auroc", attack, direction="lower", family="privacy")
    setting, rows = stage(run)
    (panel,) = against_attack(setting, "50", attacks(rows)[0])
    assert panel.axis.domain is not None and panel.axis.domain[1] < 0.6
    chart = draw(setting, panel)
    assert _points(chart)["real"] == [(1.0, 0.5)]
    assert axis(chart, "x")["scale"]["clamp"] is True
    assert "at 1 →" in words(drawing(chart))


def test_seconds_are_logarithmic_and_zero_is_drawn(run: Any, stage: Any) -> None:
    for name, seconds in (("a", 0.1), ("b", 1.0), ("c", 10.0), ("zero", 0.0)):
        run.add(name, 0.5, fit_seconds=seconds)
    run.add("gone", 0.5, fit_seconds=None)
    setting, _ = stage(run)
    (chart,) = _drawn(setting, against_cost(setting, "50", SECONDS))
    x = {name: places[0][0] for name, places in _points(chart).items()}
    assert x == {"a": 0.1, "b": 1.0, "c": 10.0, "zero": 0.001}
    assert axis(chart, "x")["scale"] == {"type": "log"}
    assert chart.note == "✕ Not drawn: gone."


def test_many_methods_stand_in_the_background(run: Any, stage: Any) -> None:
    for number in range(20):
        for dataset in ("one", "two"):
            run.add(f"m{number:02}", 0.5 + 0.01 * number, dataset=dataset)
    run.add("marginals", 0.4, dataset="one")
    # Best on one dataset only: on its front, though not among the best by mean rank.
    run.add("m00", 0.99, dataset="two", eps_target=0.5, eps_proven=0.5)
    setting, rows = stage(run)
    leading = [name for name, role in setting.roles.items() if role is Prominence.LEADING]
    assert leading == ["m19", "m18", "m17", "m16", "m15", "m14"]
    assert setting.roles["marginals"] is Prominence.REFERENCE
    styles = panels.styles(rows)
    assert len({styles[name].colour for name in leading}) == 6
    first, second = _drawn(setting, against_epsilon(setting, "50"))
    assert [len(_points(chart)) for chart in (first, second)] == [7, 6]  # marginals on the first
    assert {row["series"] for row in table(first, "others")} == {f"m{k:02}" for k in range(14)}
    assert [row["text"] for row in table(second, "names")] == ["m00"]
    assert table(first, "names") == []
    assert [entry.name for entry in method_legend(setting, rows)] == [*leading, "marginals"]


def test_nothing_that_is_not_finite_is_drawn(run: Any, stage: Any) -> None:
    strange = (math.inf, -math.inf, 1e300, -1e300, 0.0)
    for number, value in enumerate(strange):
        key = run.add(
            f"m{number}", ipc=10, fit_seconds=abs(value), eps_audited=abs(value), eps_claimed=1e308
        )
        run.score(key, "auroc", value, -math.inf, math.inf)
        run.score(key, "mia/auroc", value, direction="lower", family="privacy")
        key = run.add(f"m{number}", 0.5, ipc=20, eps_audited=0.5, eps_claimed=abs(value))
        run.score(key, "mia/auroc", value, direction="lower", family="privacy")
    setting, rows = stage(run)
    found = [
        *against_epsilon(setting, "10"),
        *against_epsilon(setting, "20"),
        *against_ipc(setting, 1.0),
        *against_attack(setting, "20", attacks(rows)[0]),
        *against_cost(setting, "20", SECONDS),
    ]
    assert len(found) == 4  # at IPC 10 no value can be drawn
    charts = [*_drawn(setting, found), *audit_charts(setting, rows).charts]
    for chart in charts:
        for name in chart.data:
            for row in table(chart, name):
                numbers = [value for value in row.values() if isinstance(value, float)]
                assert all(abs(number) < 1e100 for number in numbers)
        assert "NaN" not in str([part.attrib for part in drawing(chart).iter()])


def test_a_constant_utility_has_an_axis(run: Any, stage: Any) -> None:
    key = run.add("a")
    run.score(key, "auroc", 0.0)
    setting, _ = stage(run)
    (chart,) = _drawn(setting, against_epsilon(setting, "50"))
    assert _points(chart) == {"a": [(1.0, 0.0)]}
    assert drawing(chart) is not None


def test_a_chart_for_each_dataset_and_size(mixed_run: Any, stage: Any) -> None:
    mixed_run.add("ldpdc", 0.9, ipc=100)
    setting, _ = stage(mixed_run)
    figures = utility_figures(setting)
    assert [(figure.ipc, len(figure.charts)) for figure in figures] == [("100", 1), ("50", 2)]
    assert "front" not in figures[0].charts[0].data


def test_colours_and_markers_are_distinct(run: Any, tmp_path: Path) -> None:
    for number in range(30):
        run.add(f"method {number}", 0.5)
    rows, _ = aggregate(load_results([run.write(tmp_path)]))
    assert len(set(panels.styles(rows).values())) == 30


def test_the_first_facets_are_those_with_most_results(run: Any, stage: Any) -> None:
    for ipc, epsilon in ((10, 1.0), (50, 1.0), (50, 8.0), (100, 8.0)):
        run.add("a", 0.5, ipc=ipc, eps_target=epsilon)
    run.add("b", 0.5, ipc=None, full_size=True, eps_target=0.5)
    setting, _ = stage(run)
    assert ipcs_first_to_last(setting) == ("50", "full", "100", "10")
    assert targets_first_to_last(setting) == (1.0, 0.5, 8.0)


def test_nobody_was_audited(mixed_run: Any, stage: Any) -> None:
    setting, rows = stage(mixed_run)
    found = audit_charts(setting, rows)
    assert found.charts == ()
    assert "None of the 20 rows was audited" in found.words


def test_audited_against_claimed_and_proven(run: Any, stage: Any, unproven: Any) -> None:
    run.add("keeps", 0.5, eps_claimed=10.0, eps_proven=1.0, eps_audited=0.1)
    run.add("breaks", 0.5, eps_claimed=0.1, eps_audited=1.0, **unproven)
    setting, rows = stage(run)
    rows = [
        replace(row, epsilons=replace(row.epsilons, detectable=1.0))
        if row.label == "keeps"
        else row
        for row in rows
    ]
    found = audit_charts(setting, rows)
    assert "1 of 2 exceed the claimed epsilon. 0 of 2 exceed the proven" in found.words
    claimed, proven = found.charts
    assert "breaks on breast-cancer: audited 1, claimed 0.1" in claimed.text
    places = {row["series"]: (row["x"], row["y"]) for row in table(claimed, "points")}
    assert places == {"keeps": (10.0, 0.1), "breaks": (0.1, 1.0)}
    (endless,) = [row for row in table(proven, "points") if row["series"] == "breaks"]
    assert endless["x"] == "∞"
    assert "∞" in words(drawing(proven))
    assert any("(maximum detectable 1)" in text for text in texts(claimed, "points"))


def test_one_audit_of_many_rows_is_one_mark(run: Any, stage: Any) -> None:
    for ipc in (10, 20, 50):
        run.add("a", 0.5, ipc=ipc, eps_audited=2.0)
    setting, rows = stage(run)
    found = audit_charts(setting, rows)
    assert "3 of 3 exceed the claimed epsilon" in found.words
    assert len(table(found.charts[0], "points")) == 1
