"""Panels: where things stand, and that what is missing shows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.leaderboard.charts import panels, svg
from bench.leaderboard.charts.audit import audit_panels
from bench.leaderboard.charts.draw import draw
from bench.leaderboard.charts.panels import (
    PanelContent,
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
)
from bench.leaderboard.ranking.rows import Row, aggregate
from bench.leaderboard.tables.load import load_results

Stage = tuple[Scene, tuple[Row, ...]]


@pytest.fixture
def stage(tmp_path: Path) -> Callable[[Any], Stage]:
    """The rows of a run, sorted for its panels."""

    def compute(run: Any) -> Stage:
        rows, _ = aggregate(load_results([run.write(tmp_path)]))
        return scene(rows, panels.styles(rows)), rows

    return compute


def _drawn(setting: Scene, panels: Iterable[PanelContent]) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(str(draw(p, setting.numbers).markup)) for p in panels]


def _texts(panel: ElementTree.Element, tag: str = "title") -> list[str]:
    return ["".join(element.itertext()) for element in panel.iter(tag)]


def _marks(panel: ElementTree.Element) -> dict[str, tuple[float, float]]:
    """Places of the points in the foreground, by the tooltip up to the colon."""
    return {
        "".join(mark.itertext()).split(":")[0]: (
            float(mark.get("x") or ""),
            float(mark.get("y") or ""),
        )
        for mark in panel.iter("use")
        if "".join(mark.itertext())
    }


def test_a_scale_puts_its_ends_where_they_belong() -> None:
    scale = svg.chosen([svg.Tick(1.0, "1"), svg.Tick(100.0, "100")], 50, 150)
    assert [scale.place(value) for value in (1.0, 10.0, 100.0)] == pytest.approx([50, 100, 150])
    assert scale.place(1e9) == 150  # at the end of the axis, never outside
    full = svg.chosen([svg.Tick(1.0, "1"), svg.Tick(100.0, "100")], 50, 150, "full")
    assert [full.place(value) for value in (1.0, 100.0, math.inf)] == pytest.approx([50, 110, 150])


def test_an_upright_scale_grows_upwards() -> None:
    scale = svg.linear([0.0, 1.0], 184, 34)
    # A margin of 0.08 on both sides: 150 * 0.08 / 1.16.
    assert scale.place(0.0) == pytest.approx(184 - 150 * 0.08 / 1.16)
    assert scale.place(1.0) == pytest.approx(34 + 150 * 0.08 / 1.16)


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0.9, 11.0, (1.0, 2.0, 5.0, 10.0)),
        (0.05, 60.0, (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)),
        (1e-3, 1e4, (1e-3, 0.1, 10.0, 1000.0)),
    ],
)
def test_logarithmic_ticks(low: float, high: float, expected: tuple[float, ...]) -> None:
    assert svg.log_ticks(low, high) == pytest.approx(expected)


def test_points_stand_at_their_epsilon_and_utility(run: Any, stage: Any) -> None:
    for epsilon, value in ((1.0, 0.5), (10.0, 0.7), (100.0, 0.9)):
        run.add("a", value, eps_target=epsilon, eps_proven=epsilon)
    setting, _ = stage(run)
    (panel,) = _drawn(setting, against_epsilon(setting, "50"))
    marks = _marks(panel)
    left, right = svg.LEFT + 28, svg.RIGHT - 28
    # Intervals of +-0.02 belong to the axis, which then has a margin of 8%.
    low, high = 0.48 - 0.08 * 0.44, 0.92 + 0.08 * 0.44
    top, bottom = svg.TOP + 6, svg.BOTTOM

    def height(value: float) -> float:
        return top + (bottom - top) * (high - value) / (high - low)

    for epsilon, x, value in (
        (1, left, 0.5),
        (10, (left + right) / 2, 0.7),
        (100, right, 0.9),
    ):
        found = marks[f"a, target ε {epsilon} (proven {epsilon})"]
        assert found == pytest.approx((x, height(value)), abs=0.06)
    (whiskers,) = [p.get("d") or "" for p in panel.iter("path") if p.get("class") == "w"]
    first = re.match(r"M([\d.]+) ([\d.]+)V([\d.]+)", whiskers)
    assert first is not None
    assert [float(part) for part in first.groups()] == pytest.approx(
        [left, height(0.48), height(0.52)], abs=0.06
    )


def test_the_front_takes_sound_methods_only(run: Any, stage: Any, unproven: Any) -> None:
    for epsilon, good, poor in ((1.0, 0.6, 0.5), (10.0, 0.55, 0.8)):
        spent = {"eps_target": epsilon, "eps_proven": epsilon}
        run.add("good", good, **spent)
        run.add("poor", poor, **spent)
        run.add("loud", 0.95, **{**spent, **unproven})
    setting, _ = stage(run)
    (panel,) = against_epsilon(setting, "50")
    drawing = draw(panel, setting.numbers)
    assert [(m.label, m.x, m.y) for m in drawing.front] == [
        ("good", 1.0, pytest.approx(0.6)),
        ("poor", 10.0, pytest.approx(0.8)),
    ]
    parsed = ElementTree.fromstring(str(drawing.markup))
    assert "good 0.6 at 1, poor 0.8 at 10." in (parsed.get("aria-label") or "")
    hollow = [mark for mark in parsed.iter("use") if mark.get("class") == "h"]
    assert [text.split(",")[0] for text in map("".join, (m.itertext() for m in hollow))] == [
        "loud",
        "loud",
    ]


def test_references_are_lines(mixed_run: Any, stage: Any, non_private: Any) -> None:
    mixed_run.add("subset", 0.85, **non_private)
    setting, _ = stage(mixed_run)
    panel = _drawn(setting, against_epsilon(setting, "50"))[0]
    level = {
        title.split(":")[0]
        for group in panel.iter("g")
        if any(path.get("class") == "v" for path in group.iter("path"))
        for title in _texts(group)[:1]
    }
    assert level == {"real", "subset", "gats"}
    named = [t for t in _texts(panel, "text") if t in ("real", "subset", "gats")]
    assert sorted(named) == ["real", "subset"]
    assert "real 0.905" in (panel.get("aria-label") or "")


def test_what_failed_and_what_was_skipped_show(mixed_run: Any, stage: Any) -> None:
    mixed_run.fail("broken", reason="it broke")
    setting, _ = stage(mixed_run)
    panel = _drawn(setting, against_epsilon(setting, "50"))[0]
    marks = {
        title: path.get("d") or ""
        for group in panel.iter("g")
        if (group.get("class") or "").startswith("x ")
        for title, path in zip(_texts(group), group.iter("path"), strict=True)
    }
    assert "l6 6" in marks["broken, target ε 1: no value. it broke"]
    assert "h6" in marks["picky, target ε 1: no value. takes images only"]
    assert "3 without a value." in (panel.get("aria-label") or "")


def test_utility_against_size(run: Any, stage: Any, non_private: Any) -> None:
    for ipc, value in ((10, 0.6), (100, 0.8)):
        run.add("a", value, ipc=ipc)
        run.add("free", value + 0.1, ipc=ipc, **non_private)
    run.add("a", 0.85, ipc=None, full_size=True)
    run.add("own", 0.5, ipc=None)
    setting, _ = stage(run)
    (panel,) = _drawn(setting, against_ipc(setting, 1.0))
    places = _marks(panel)
    assert not [name for name in places if name.startswith("own")]
    assert len(places) == 2  # tooltips up to the colon: a and free
    path = next(p.get("d") or "" for p in panel.iter("path") if p.get("class") == "l")
    xs = [float(pair.split()[0]) for pair in path[1:].split("L")]
    left, right = svg.LEFT + 28, svg.RIGHT - 28
    # Dodged by 3 to the left, as the first of two; full size stands apart at the end.
    assert xs == pytest.approx([left - 3, right - 43, right - 3], abs=0.06)
    assert "full" in _texts(panel, "text")


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
    drawing = draw(panel, setting.numbers)
    assert [member.label for member in drawing.front] == ["plain", "leaky"]
    parsed = ElementTree.fromstring(str(drawing.markup))
    marks = {name.split(",")[0]: place for name, place in _marks(parsed).items()}
    assert marks["lucky"][0] < marks["plain"][0] < marks["leaky"][0]
    assert "chance" in _texts(parsed, "text")
    whiskers = [p.get("d") or "" for p in parsed.iter("path") if p.get("class") == "w"]
    assert all("V" in path and "H" in path for path in whiskers)


def test_real_rows_do_not_stretch_the_axis_of_attacks(run: Any, stage: Any) -> None:
    for name, attack, target in (("a", 0.5, 1.0), ("b", 0.55, 1.0), ("real", 1.0, None)):
        key = run.add(name, 0.5, eps_target=target)
        run.score(key, "mia/auroc", attack, direction="lower", family="privacy")
    setting, rows = stage(run)
    (panel,) = against_attack(setting, "50", attacks(rows)[0])
    assert panel.horizontal.end < 0.6
    parsed = ElementTree.fromstring(str(draw(panel, setting.numbers).markup))
    assert _marks(parsed)["real"][0] == svg.RIGHT
    assert "at 1 →" in _texts(parsed, "text")


def test_seconds_are_logarithmic_and_zero_is_drawn(run: Any, stage: Any) -> None:
    for name, seconds in (("a", 0.1), ("b", 1.0), ("c", 10.0), ("zero", 0.0)):
        run.add(name, 0.5, fit_seconds=seconds)
    run.add("gone", 0.5, fit_seconds=None)
    setting, _ = stage(run)
    (panel,) = _drawn(setting, against_cost(setting, "50", SECONDS))
    x = {name.split(",")[0]: place[0] for name, place in _marks(panel).items()}
    assert x["b"] - x["a"] == pytest.approx(x["c"] - x["b"], abs=0.2)
    assert x["a"] - x["zero"] == pytest.approx(2 * (x["b"] - x["a"]), abs=0.3)
    assert "✕ 1 without a value" in " ".join(_texts(panel, "text"))


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
    drawings = _drawn(setting, against_epsilon(setting, "50"))
    in_front = [[g for g in p.iter("g") if g.get("class", "").startswith("s ")] for p in drawings]
    assert [len(groups) for groups in in_front] == [7, 6]  # marginals on the first only
    assert "m00" in _texts(drawings[1], "text")
    assert "m00" not in _texts(drawings[0], "text")
    assert "m13" in _texts(drawings[0])


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
    drawn = [
        *against_epsilon(setting, "10"),
        *against_epsilon(setting, "20"),
        *against_ipc(setting, 1.0),
        *against_attack(setting, "20", attacks(rows)[0]),
        *against_cost(setting, "20", SECONDS),
    ]
    assert len(drawn) == 4  # at IPC 10 no value can be drawn
    panels = _drawn(setting, drawn)
    panels += [ElementTree.fromstring(str(p)) for p in audit_panels(setting, rows).panels]
    for panel in panels:
        for element in panel.iter():
            for name in ("x", "y", "d"):
                for number in re.findall(r"[^\sMLHVlhvmz]+", element.get(name) or ""):
                    assert -20 < float(number) < 340


def test_a_constant_utility_has_an_axis(run: Any, stage: Any) -> None:
    key = run.add("a")
    run.score(key, "auroc", 0.0)
    setting, _ = stage(run)
    (panel,) = _drawn(setting, against_epsilon(setting, "50"))
    assert len(_marks(panel)) == 1


def test_the_first_facets_are_those_with_most_results(run: Any, stage: Any) -> None:
    for ipc, epsilon in ((10, 1.0), (50, 1.0), (50, 8.0), (100, 8.0)):
        run.add("a", 0.5, ipc=ipc, eps_target=epsilon)
    run.add("b", 0.5, ipc=None, full_size=True, eps_target=0.5)
    setting, _ = stage(run)
    assert ipcs_first_to_last(setting) == ("50", "full", "100", "10")
    assert targets_first_to_last(setting) == (1.0, 0.5, 8.0)


def test_nobody_was_audited(mixed_run: Any, stage: Any) -> None:
    setting, rows = stage(mixed_run)
    found = audit_panels(setting, rows)
    assert found.panels == ()
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
    found = audit_panels(setting, rows)
    assert "1 of 2 exceed the claimed epsilon. 0 of 2 exceed the proven" in found.words
    claimed, proven = (ElementTree.fromstring(str(panel)) for panel in found.panels)
    assert "breaks on breast-cancer: audited 1, claimed 0.1" in (claimed.get("aria-label") or "")
    places = {
        "".join(group.itertext()).split(" ")[0]: group.find("use") for group in claimed.iter("g")
    }

    def share(value: float) -> float:
        return math.log1p(10 * value) / math.log1p(100)

    width, height = svg.RIGHT - 12 - svg.LEFT, svg.BOTTOM - svg.TOP - 6
    for name, x, y in (("keeps", 10.0, 0.1), ("breaks", 0.1, 1.0)):
        mark = places[name]
        assert mark is not None
        assert float(mark.get("x") or "") == pytest.approx(svg.LEFT + width * share(x), abs=0.06)
        assert float(mark.get("y") or "") == pytest.approx(svg.BOTTOM - height * share(y), abs=0.06)
    assert "∞" in _texts(proven, "text")
    assert any("(maximum detectable 1)" in title for title in _texts(claimed))


def test_one_audit_of_many_rows_is_one_mark(run: Any, stage: Any) -> None:
    for ipc in (10, 20, 50):
        run.add("a", 0.5, ipc=ipc, eps_audited=2.0)
    setting, rows = stage(run)
    found = audit_panels(setting, rows)
    assert "3 of 3 exceed the claimed epsilon" in found.words
    assert len(list(ElementTree.fromstring(str(found.panels[0])).iter("use"))) == 1
