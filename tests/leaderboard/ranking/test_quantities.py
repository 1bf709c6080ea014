"""The aggregates of the pages against sums by hand and scipy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.leaderboard.ranking import quantities
from bench.leaderboard.ranking.quantities import Standing, standings
from bench.leaderboard.ranking.rows import Row, aggregate, ceilings
from bench.leaderboard.tables import show
from bench.leaderboard.tables.load import load_results


@pytest.fixture
def rows_of(tmp_path: Path) -> Callable[[Any], tuple[tuple[Row, ...], dict[str, Standing]]]:
    """Rows and standings of a run."""

    def compute(run: Any) -> tuple[tuple[Row, ...], dict[str, Standing]]:
        rows, places = aggregate(load_results([run.write(tmp_path)]))
        return rows, {one.label: one for one in standings(places, rows)}

    return compute


def test_mean_rank_gives_each_dataset_the_same_weight(run: Any, rows_of: Any) -> None:
    # On d1 a wins at both epsilons, on d2 (one epsilon) b does; c takes part in d2 alone.
    for epsilon in (1.0, 3.0):
        run.add("a", 0.9, dataset="d1", eps_target=epsilon)
        run.add("b", 0.8, dataset="d1", eps_target=epsilon)
    for label, value in (("a", 0.5), ("b", 0.9), ("c", 0.7)):
        run.add(label, value, dataset="d2")
    _, found = rows_of(run)
    assert list(found) == ["a", "b", "c"]
    assert [one.mean_rank for one in found.values()] == [2.0, 1.5, 2.0]
    assert [one.among for one in found.values()] == [2.5, 2.5, 3.0]
    assert [one.beaten for one in found.values()] == [0.5, 0.5, 0.5]
    assert [one.datasets for one in found.values()] == [2, 2, 1]
    assert [one.groups for one in found.values()] == [3, 3, 1]
    assert [one.cells for one in found.values()] == [3, 3, 1]
    assert [one.low for one in found.values()] == [None] * 3


def test_no_ranks_at_all(run: Any, rows_of: Any) -> None:
    run.add("a", 0.9)
    assert not rows_of(run)[1]
    run.cells.clear()
    run.scores.clear()
    assert not rows_of(run)[1]


def test_the_interval_is_students_over_datasets() -> None:
    means = [1.0, 2.5, 2.0, 3.0, 1.5, 2.0]
    low, high = quantities.rank_interval(means, 5.0, 0.05)
    expected = stats.t.interval(0.95, 5, np.mean(means), stats.sem(means))
    assert (low, high) == pytest.approx(expected)
    assert quantities.rank_interval(means[:4], 5.0, 0.05) == (None, None)
    # Never beyond the first and the last place.
    assert quantities.rank_interval([1.0, 1.0, 1.0, 1.0, 2.0], 2.0, 0.05)[0] == 1.0
    assert quantities.rank_interval([2.0, 2.0, 2.0, 2.0, 1.0], 2.0, 0.05)[1] == 2.0


def test_real_is_all_of_real(run: Any, rows_of: Any, non_private: dict[str, Any]) -> None:
    """Issue 24: the row `real` was 1.007 of real, and one cell 94%, 0.938 and 93%."""
    for seed, utility in ((0, 0.9), (1, 0.92)):
        key = run.add("real", utility, seed=seed, ipc=None, **non_private)
        run.score(key, "auroc/ratio", 1.007)
        key = run.add("a", utility - 0.06, seed=seed)
        run.score(key, "auroc/ratio", 0.938)
    rows, _ = rows_of(run)
    tops = ceilings(rows)
    shares = {row.label: quantities.headline_of_real(row, tops) for row in rows}
    assert shares == {"real": 1.0, "a": pytest.approx(round(0.85 / 0.91, 3))}
    assert show.share(shares["real"]) == "100.0%"
    assert show.share(shares["a"]) == "93.4%"


@pytest.mark.parametrize(
    ("value", "real"), [(None, 0.9), (0.9, None), (0.9, 0.0), (0.9, -1.0), (float("inf"), 1.0)]
)
def test_a_share_without_meaning_is_absent(value: float | None, real: float | None) -> None:
    assert quantities.share_of_real(value, real) is None


def test_ratios_of_a_model_of_their_own_are_known() -> None:
    headlines = ["auroc", "c-index/cox", "accuracy/convnet"]
    ratios = ["auroc/ratio", "c-index/cox-ratio", "accuracy/ratio"]
    assert all(quantities.is_ratio_of(name, headlines) for name in ratios)
    others = ["auroc", "pmse/ratio", "cross-site/ratio", "c-index/aft-ratio", "auroc/forest"]
    assert not any(quantities.is_ratio_of(name, headlines) for name in others)


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (2.125, 2, "2.13"),  # Python's own formats print 2.12, a page's script 2.13
        (2.1249999999999996, 2, "2.13"),
        (0.9375, 3, "0.938"),
        (-0.9375, 3, "-0.938"),
        (1.005, 2, "1.00"),  # below a half as a double, in both
        (12.5, 0, "13"),
        (99.99, 1, "100.0"),
    ],
)
def test_halves_are_rounded_as_scripts_do(value: float, decimals: int, text: str) -> None:
    assert show.fixed(value, decimals) == text


def test_numbers_that_are_printed_equal_are_equal() -> None:
    rng = np.random.default_rng(3)
    for value in [*rng.uniform(0, 1, 200), *rng.uniform(-2e7, 2e7, 50), 1e-9, 0.0]:
        assert show.number(show.as_shown(float(value))) == show.number(float(value))
    assert np.isnan(show.as_shown(float("nan")))
    assert show.as_shown(float("inf")) == float("inf")


def test_being_last_of_two_helps_nobody(run: Any, rows_of: Any) -> None:
    """Ranks of groups of different sizes cannot be averaged: 2 of 2 is not as good as 2 of 6."""
    for place, label in enumerate(("b", "c", "a", "d", "e", "f")):
        run.add(label, 0.9 - 0.1 * place, dataset="d1")
    for place, label in enumerate(("d", "b", "a", "c", "e", "f")):
        run.add(label, 0.9 - 0.1 * place, dataset="d2")
    run.add("a", 0.5, dataset="d2", ipc=5)
    run.add("c", 0.6, dataset="d2", ipc=5)
    _, found = rows_of(run)
    # Without the group of two, a has the mean rank 3, and 60% of the others are beaten by it.
    assert found["a"].mean_rank == pytest.approx((3 + (3 + 2) / 2) / 2)
    assert found["a"].beaten == pytest.approx((0.6 + (0.6 + 0) / 2) / 2)
    assert list(found)[:2] == ["b", "c"]


def test_methods_with_equal_printed_win_rates_are_tied() -> None:
    def standing(label: str, wins: float, groups: int = 3) -> Standing:
        return Standing(label, "", 1.5, None, None, None, 2.0, wins, 1, groups, 3, 0)

    order = [standing("a", 0.5), standing("b", 0.5000000001), standing("c", 0.5, groups=2)]
    assert [one.label for one in quantities.leaders(order)] == ["a", "b"]
    assert quantities.leaders([]) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, show.ABSENT), (0.0, "0.000"), (0.000368, "<0.001"), (0.0005, "0.001"),
        (0.000989, "0.001"), (0.0123, "0.012"), (250.4, "250"),
    ],
)  # fmt: skip
def test_small_standard_deviations_have_no_more_decimals_than_the_means(
    value: float | None, text: str
) -> None:
    assert show.deviation(value) == text


def test_who_met_few_others_comes_last(run: Any, rows_of: Any) -> None:
    for dataset in ("d1", "d2", "d3"):
        run.add("a", 0.8, dataset=dataset)
        run.add("b", 0.7, dataset=dataset)
    run.add("once", 0.9, dataset="d1")
    run.add("model", 0.9, dataset="d1", ipc=None)
    run.add("other-model", 0.8, dataset="d1", ipc=None)
    _, found = rows_of(run)
    assert {label: one.apart for label, one in found.items()} == {
        "a": False,
        "b": False,
        "model": True,
        "once": True,
        "other-model": True,
    }
    assert list(found)[:2] == ["a", "b"]
    assert [one.label for one in quantities.leaders(tuple(found.values()))] == ["a"]


def test_half_of_the_datasets_are_enough(run: Any, rows_of: Any) -> None:
    for dataset in ("d1", "d2"):
        run.add("a", 0.8, dataset=dataset)
        run.add("b", 0.7, dataset=dataset)
    run.add("c", 0.9, dataset="d1")
    assert not any(one.apart for one in rows_of(run)[1].values())
