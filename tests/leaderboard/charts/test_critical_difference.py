"""The diagram is well-formed, complete and harmless."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.leaderboard.charts.critical_difference import diagram
from bench.leaderboard.charts.panels import PALETTE, MethodStyle
from bench.leaderboard.ranking.rank import place_blocks
from bench.leaderboard.ranking.significance import Blocks, RankComparison, compare_blocks

EVIL = "<script>alert(1)</script>\"'&"


def _compared(utility: np.ndarray, names: tuple[str, ...]) -> RankComparison:
    datasets = tuple(f"d{n}" for n in range(len(utility)))
    blocks = Blocks(names, datasets, place_blocks(utility)[0], utility, 0)
    return compare_blocks(blocks)


def _drawn(result: RankComparison) -> ElementTree.Element:
    return ElementTree.fromstring(str(diagram(result, {})))


@pytest.fixture
def four() -> RankComparison:
    """a and b take turns, then c, then d, over 12 blocks."""
    step = np.arange(12) / 1000
    turn = np.where(np.arange(12) % 2, 0.9, 0.8)
    utility = np.column_stack([turn + step, 1.7 - turn, 0.5 + step / 3, 0.2 - step])
    return _compared(utility, ("a", "b", "c", "d"))


def test_every_method_is_at_its_mean_rank(four: RankComparison) -> None:
    drawn = _drawn(four)
    labels = drawn.findall("g")
    assert [(g.findtext("text") or "").strip() for g in labels] == ["a", "b", "d", "c"]
    places = {g.findtext("text", "").strip(): g.find("circle").get("cx") for g in labels}  # type: ignore[union-attr]
    # The axis runs from rank 1 at 215 to rank 4 at 505.
    expected = {s.label: 215 + 290 * (s.mean_rank - 1) / 3 for s in four.standings}
    for name, x in places.items():
        assert float(x or "nan") == pytest.approx(expected[name], abs=0.06)


def test_bars_connect_indistinguishable_methods(four: RankComparison) -> None:
    (bar,) = _drawn(four).findall("line[@class='bar']")
    ends = sorted(215 + 290 * (s.mean_rank - 1) / 3 for s in four.standings[:2])
    assert float(bar.get("x1") or "nan") == pytest.approx(ends[0], abs=0.06)
    assert float(bar.get("x2") or "nan") == pytest.approx(ends[1], abs=0.06)


def test_bars_never_overlap() -> None:
    # Neighbours are indistinguishable, those further away are not.
    rng = np.random.default_rng(1)
    utility = np.arange(8) * 0.5 + rng.normal(0, 1.0, (30, 8))
    drawn = _drawn(_compared(utility, tuple("abcdefgh")))
    bars = [
        (float(b.get("y1") or 0), float(b.get("x1") or 0), float(b.get("x2") or 0))
        for b in drawn.findall("line[@class='bar']")
    ]
    assert len(bars) > 2
    for (y, low, high), (other_y, other_low, other_high) in itertools.combinations(bars, 2):
        assert y != other_y or high < other_low or other_high < low


def test_the_ruler_is_as_long_as_the_critical_difference(four: RankComparison) -> None:
    path = next(p.get("d") or "" for p in _drawn(four).findall("path"))
    end = float(path.split("H")[1].split("M")[0])
    assert end - 215 == pytest.approx(290 * four.critical_difference / 3, abs=0.06)
    few = _drawn(_compared(np.arange(6.0).reshape(2, 3), ("a", "b", "c")))
    assert "longer than the axis" in "".join(few.itertext())


def test_text_alternative(four: RankComparison) -> None:
    drawn = _drawn(four)
    words = drawn.get("aria-label") or ""
    assert drawn.get("role") == "img"
    assert "over 12 blocks, best first: a 1.50, b 1.50, c 3.00, d 4.00." in words
    assert words.endswith("Indistinguishable: a and b.")


def test_names_are_escaped_and_cut() -> None:
    long = "a name that is much longer than the room for it"
    drawn = _drawn(_compared(np.arange(12.0).reshape(6, 2), (EVIL, long)))
    assert not list(drawn.iter("script"))
    assert EVIL in (drawn.get("aria-label") or "")
    titles = [title.text or "" for title in drawn.iter("title")]
    assert any(title.startswith(EVIL) for title in titles)
    assert any(title.startswith(long) for title in titles)
    assert "a name that is much lon… " in "".join(drawn.itertext())


def test_colours_are_those_of_the_plots(four: RankComparison) -> None:
    text = str(diagram(four, {"d": MethodStyle(PALETTE[3], "circle")}))
    assert text.count(PALETTE[3]) == 2
