"""Formats of numbers and lists."""

from __future__ import annotations

import pytest

from bench.leaderboard.tables import show


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0%"), (0.0046, "<1%"), (0.005, "1%"), (0.33, "33%"), (0.997, ">99%"), (1.0, "100%")],
)
def test_what_is_not_zero_is_not_printed_as_zero(value: float, text: str) -> None:
    assert show.percent(value) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b", "c", "d"], "a, b, c, d"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_long_lists_are_shortened(names: list[str], text: str) -> None:
    assert show.some(names) == text
