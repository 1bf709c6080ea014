"""From cells to rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.leaderboard.ranking.rows import Row, aggregate
from bench.leaderboard.tables.load import load_results
from bench.leaderboard.tables.measures import Span


@pytest.fixture
def rows_of(tmp_path: Path) -> Callable[[Any], tuple[Row, ...]]:
    """The rows of a run."""
    return lambda run: aggregate(load_results([run.write(tmp_path)]))[0]


def test_mean_interval_and_spread_over_seeds(run: Any, rows_of: Any) -> None:
    for seed, value in enumerate((0.6, 0.7, 0.9)):
        run.score(run.add("a", seed=seed), "auroc", value, value - 0.1, value + 0.05)
    (row,) = rows_of(run)
    headline = row.headline
    assert headline.value == pytest.approx(2.2 / 3)
    assert (headline.low, headline.high) == pytest.approx((2.2 / 3 - 0.1, 2.2 / 3 + 0.05))
    assert headline.seeds == Span(0.6, 0.9)
    # Squared deviations from 0.7333: 0.01778 + 0.00111 + 0.02778, over n - 1 = 2.
    assert headline.deviation == pytest.approx(math.sqrt(0.046667 / 2), abs=1e-5)
    assert headline.count == 3
    assert row.seeds == (0, 1, 2)


def test_one_seed_has_no_spread(run: Any, rows_of: Any) -> None:
    run.add("a", 0.6)
    (row,) = rows_of(run)
    assert (row.headline.seeds, row.headline.deviation) == (None, None)


def test_an_interval_is_shown_only_if_every_seed_has_one(run: Any, rows_of: Any) -> None:
    run.score(run.add("a", seed=0), "auroc", 0.6, 0.5, 0.7)
    run.score(run.add("a", seed=1), "auroc", 0.8)
    (row,) = rows_of(run)
    assert (row.headline.value, row.headline.low) == (pytest.approx(0.7), None)


def test_failed_seeds_stay_in_the_row(run: Any, rows_of: Any) -> None:
    run.add("a", 0.6, seed=0)
    run.fail("a", "error", "it broke", seed=1)
    run.fail("a", "error", "it broke", seed=2)
    run.fail("a", "out-of-memory", "2 GB", seed=3)
    (row,) = rows_of(run)
    assert (row.finished, row.failed, row.skipped, row.cells) == (1, 3, 0, 4)
    assert (row.headline.value, row.headline.count) == (0.6, 1)
    found = [(problem.status, problem.reason, problem.seeds) for problem in row.problems]
    assert found == [("error", "it broke", (1, 2)), ("out-of-memory", "2 GB", (3,))]


def test_nothing_finished_is_still_a_row(run: Any, rows_of: Any) -> None:
    run.add("a", 0.6)
    run.fail("b")
    run.fail("c", "skipped", "takes images only")
    rows = {row.label: row for row in rows_of(run)}
    assert rows["b"].failed == 1
    assert (rows["b"].verdict, rows["b"].headline, rows["b"].epsilons.proven) == ("", None, None)
    assert (rows["c"].failed, rows["c"].skipped) == (0, 1)


def test_the_four_epsilons_stay_apart(run: Any, rows_of: Any, non_private: dict[str, Any]) -> None:
    for seed, proven in enumerate((0.7, 0.8)):
        run.add("a", 0.5, seed=seed, eps_claimed=0.95, eps_proven=proven, eps_audited=0.1)
    run.add("n", 0.5, **non_private)
    rows = {row.label: row.epsilons for row in rows_of(run)}
    assert rows["a"].target == 1.0
    assert rows["a"].claimed == Span(0.95, 0.95)
    assert rows["a"].proven == Span(0.7, 0.8)
    assert rows["a"].audited == Span(0.1, 0.1)
    assert rows["n"].target is None
    assert rows["n"].claimed is None
    assert rows["n"].proven == Span(math.inf, math.inf)
    assert rows["n"].audited is None


def test_the_worst_verdict_counts(run: Any, rows_of: Any, unproven: dict[str, Any]) -> None:
    run.add("a", 0.5, seed=0)
    run.add("a", 0.5, seed=1, **unproven)
    run.add("t", 0.5, verdict="sound, trusting interpret 0.7.8", verdict_reason="by PLD")
    run.add("x", 0.5, verdict="blessed", verdict_reason="because")
    rows = {row.label: row for row in rows_of(run)}
    assert rows["a"].verdict == "unproven"
    assert rows["a"].verdict_reasons[0].startswith("unproven: claims epsilon 1")
    assert rows["a"].verdict_reasons[1].startswith("sound: epsilon 0.75")
    assert rows["t"].verdict_kind == "sound, trusting"
    assert rows["t"].verdict_reasons == ("by PLD",)
    assert rows["x"].verdict_kind == "unknown"


def test_absent_scores_keep_their_reason(run: Any, rows_of: Any) -> None:
    key = run.add("a", 0.5)
    run.score(key, "dcr", None, reason="constant columns", direction="lower", family="privacy")
    (row,) = rows_of(run)
    assert row.measures["dcr"].value is None
    assert row.measures["dcr"].reasons == ("constant columns",)


def test_seeds_from_different_code_are_averaged_with_a_warning(run: Any, rows_of: Any) -> None:
    run.add("a", 0.5, seed=0, source_hash="old", warnings="delta is large")
    run.add("a", 0.7, seed=1, source_hash="new", warnings="delta is large")
    (row,) = rows_of(run)
    assert row.warnings == (
        "delta is large",
        "the seeds were computed with different versions of the method's source",
    )


def test_settings_that_differ_are_named(run: Any, rows_of: Any) -> None:
    run.add("a", 0.5)
    run.add("a", 0.5, delta=1e-6, private_counts=True)
    run.add("a", 0.5, dataset="other")
    variants = sorted((row.dataset, row.variant) for row in rows_of(run))
    assert variants == [
        ("breast-cancer", "delta 1e-05, public counts"),
        ("breast-cancer", "delta 1e-06, private counts"),
        ("other", ""),
    ]


def test_reading_order(mixed_run: Any, rows_of: Any) -> None:
    rows = [row for row in rows_of(mixed_run) if row.dataset == "breast-cancer"]
    assert [(row.label, row.epsilons.target) for row in rows] == [
        ("real", None),
        ("ldpdc", 1.0),
        ("marginals", 1.0),
        ("pate", 1.0),
        ("picky", 1.0),
        ("ldpdc", 10.0),
        ("marginals", 10.0),
        ("pate", 10.0),
        ("picky", 10.0),
        ("gats", None),
    ]
    assert [row.reference for row in rows[:3]] == ["ceiling", "", "floor"]
