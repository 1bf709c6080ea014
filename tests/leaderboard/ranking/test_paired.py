"""Paired tests over test rows, as the front page of a run with one dataset shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.leaderboard.pages import front
from bench.leaderboard.pages.board import compile_board
from bench.leaderboard.ranking.paired import PairedDifference, PairedTests


def _difference(first: str, second: str, value: float, p: float, target: float = 1.0) -> Any:
    return PairedDifference(
        "50", target, "auroc", first, second, 2, value, value - 0.02, value + 0.02, p, 0.4
    )


TESTS = PairedTests(
    0.05,
    (
        _difference("a", "b", 0.05, 0.024),
        _difference("a", "c", 0.03, 0.3),
        _difference("b", "c", -0.02, 0.01),
        _difference("a", "b", 0.04, 0.024, target=10.0),
    ),
)


def test_rivals_by_hand() -> None:
    b, c = TESTS.rivals("a")
    assert (b.label, b.won, b.lost, b.groups, b.largest_p) == ("b", 2, 0, 2, 0.024)
    assert (c.label, c.won, c.lost, c.groups) == ("c", 0, 0, 1)
    a, c = TESTS.rivals("b")
    assert (a.won, a.lost, c.won, c.lost) == (0, 2, 0, 1)


def test_the_finding_counts_comparisons() -> None:
    assert TESTS.finding(["a"]).startswith("a is significantly better in 2 of its 3 comparisons")
    assert TESTS.finding(["unknown"]) == "" == PairedTests(0.05, ()).finding(["a"])


def test_one_dataset_is_tested_over_its_test_rows(run: Any, tmp_path: Path) -> None:
    """Issue 24: the page said "could be chance" where `bench compare` had p = 0.024."""
    for target in (1.0, 10.0):
        for label, value in (("a", 0.95), ("b", 0.9), ("c", 0.92)):
            run.add(label, value, eps_target=target)
    directory = run.write(tmp_path / "run")
    (page,) = front.pages(compile_board([directory], paired=TESTS))
    text = page.content.decode()
    assert '<table class="sortable plain" id="paired">' in text
    assert "The uncertainty is that of the <b>test rows</b>" in text
    assert "0.024" in text and "not distinguished" in text
    # Two blocks of one dataset say nothing, and are not asked.
    assert "No pair of methods can be distinguished" not in text
    (plain,) = front.pages(compile_board([directory]))
    assert "No pair of methods can be distinguished" in plain.content.decode()


def test_why_there_are_none(run: Any, tmp_path: Path) -> None:
    run.add("a", 0.9)
    run.add("b", 0.8)
    tests = PairedTests(0.05, (), problem="no predictions were kept")
    (page,) = front.pages(compile_board([run.write(tmp_path / "run")], paired=tests))
    assert "are missing: no predictions were kept." in page.content.decode()
