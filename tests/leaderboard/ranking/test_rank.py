"""Ranks on tables whose answers are known."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bench.leaderboard.ranking.rank import (
    CHOSEN_HERE,
    DETECTOR,
    headline_metrics,
    place_blocks,
    placements,
    ranking_table,
)
from bench.leaderboard.tables.about import About, mark_tuned
from bench.leaderboard.tables.load import load_results
from bench.plugins.description import MethodDescription
from bench.plugins.metric import Evaluation


@pytest.fixture
def place(tmp_path: Path) -> Callable[[Any], pd.DataFrame]:
    """Placements of a run, indexed by label where each has one."""

    def compute(run: Any) -> pd.DataFrame:
        results = load_results([run.write(tmp_path)])
        return placements(ranking_table(results.cells, results.scores)).set_index("shown_label")

    return compute


def test_a_detector_of_anomalies_is_not_ranked_as_failed(run: Any, place: Any) -> None:
    """It has no AUROC because it answers another question; a score that is missing is a failure."""
    run.add("a", 0.9)
    run.add("b", 0.8)
    for label, reason in (("detector", f"{DETECTOR}: no label"), ("broken", "one class only")):
        run.score(run.add(label), "auroc", None, reason=reason)
    found = place(run)
    assert found["rank"].to_dict() == {
        "a": 1.0,
        "b": 2.0,
        "broken": 3.0,
        "detector": pytest.approx(math.nan, nan_ok=True),
    }
    assert found.loc["detector", "reason"] == "it detects anomalies, and predicts no label"
    assert found.loc["broken", "failing"] == 1


def test_detectors_are_known_by_what_the_metrics_say() -> None:
    source = inspect.getsource(Evaluation)
    assert f'NotComputable("{DETECTOR}' in source


def test_ranks_agree_with_scipy() -> None:
    rng = np.random.default_rng(5)
    utility = rng.integers(0, 4, (200, 6)).astype(float)  # many ties
    ranks, shares = place_blocks(utility)
    np.testing.assert_allclose(ranks, stats.rankdata(-utility, axis=1))
    # With n labels a rank r beats n - r of the n - 1 others, ties counting half.
    np.testing.assert_allclose(shares, (6 - ranks) / 5)


def test_failing_takes_the_last_place_also_in_company() -> None:
    ranks, shares = place_blocks(np.array([[0.9, math.nan, math.nan, 0.7]]))
    assert ranks.tolist() == [[1, 4, 4, 2]]
    np.testing.assert_allclose(shares, [[1, 0, 0, 2 / 3]])


def test_ranks_by_hand(run: Any, place: Any) -> None:
    # Seed 0: a > b > c. Seed 1: b > c > a. Seed 2: b > a = c.
    for seed, values in enumerate([(0.9, 0.8, 0.7), (0.5, 0.8, 0.7), (0.6, 0.8, 0.6)]):
        for label, value in zip("abc", values, strict=True):
            run.add(label, value, seed=seed)
    places = place(run)
    assert places["rank"].to_dict() == pytest.approx(
        {"a": (1 + 3 + 2.5) / 3, "b": (2 + 1 + 1) / 3, "c": (3 + 2 + 2.5) / 3}
    )
    assert places["beaten"]["b"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert set(places["among"]) == {3}
    assert set(places["cells"]) == {3}


def test_a_failed_seed_counts_as_last(run: Any, place: Any) -> None:
    for seed in (0, 1):
        run.add("b", 0.6, seed=seed)
        run.add("c", 0.5, seed=seed)
    run.add("a", 0.9, seed=0)
    run.fail("a", seed=1)
    places = place(run)
    assert places["rank"].to_dict() == {"a": 2.0, "b": 1.5, "c": 2.5}
    assert places["failing"].to_dict() == {"a": 1, "b": 0, "c": 0}


def test_finished_without_a_utility_score_is_failing(run: Any, place: Any) -> None:
    run.add("a", 0.6)
    run.score(run.add("b"), "auroc", None, reason="one class only")
    places = place(run)
    assert places["rank"].to_dict() == {"a": 1.0, "b": 2.0}
    assert places["failing"]["b"] == 1


def test_a_broken_side_metric_does_not_cost_the_rank(run: Any, place: Any) -> None:
    run.add("a", 0.6, status="error", reason="metric ks: it broke")
    run.add("b", 0.5)
    assert place(run)["rank"].to_dict() == {"a": 1.0, "b": 2.0}


def test_only_sound_methods_are_ranked(
    run: Any, place: Any, non_private: dict[str, Any], unproven: dict[str, Any]
) -> None:
    run.add("a", 0.6)
    run.add("b", 0.5, verdict="sound, trusting diffprivlib 0.6.6")
    run.add("u", 0.9, **unproven)
    run.add("r", 0.9, verdict="claim refuted")
    run.add("n", 0.9, **non_private)
    run.fail("s", "skipped", "takes images only")
    places = place(run)
    assert places["rank"].dropna().to_dict() == {"a": 1.0, "b": 2.0}
    reasons = places.loc[places["rank"].isna(), "reason"].to_dict()
    assert reasons == {
        "u": "unproven",
        "r": "claim refuted",
        "n": "non-private",
        "s": "skipped",
    }


@pytest.mark.parametrize("proven", [1.01, math.inf, None])
def test_a_table_that_contradicts_itself_is_not_believed(
    run: Any, place: Any, proven: float | None
) -> None:
    run.add("a", 0.6)
    run.add("b", 0.5)
    run.add("liar", 0.9, eps_proven=proven)
    places = place(run)
    assert math.isnan(places["rank"]["liar"])
    assert places["reason"]["liar"] == "proven epsilon is not within the target"
    assert places["rank"]["a"] == 1.0


def test_one_unsound_seed_is_enough(run: Any, place: Any, unproven: dict[str, Any]) -> None:
    for label in "ab":
        for seed in (0, 1):
            doubtful = unproven if label == "a" and seed else {}
            run.add(label, 0.6, seed=seed, **doubtful)
    run.add("c", 0.4, seed=0)
    run.add("c", 0.4, seed=1)
    assert place(run)["rank"].dropna().to_dict() == {"b": 1.0, "c": 2.0}


def test_failing_methods_rank_last_unless_they_are_never_sound(
    run: Any, place: Any, unproven: dict[str, Any]
) -> None:
    for label in "ab":
        run.add(label, 0.6)
    run.fail("fails everywhere")
    run.fail("unproven elsewhere")
    run.add("unproven elsewhere", 0.9, dataset="other", **unproven)
    places = (
        place(run).reset_index().query("shown_dataset == 'breast-cancer'").set_index("shown_label")
    )
    assert places["rank"]["fails everywhere"] == 3.0
    assert places["rank"]["a"] == 1.5
    assert math.isnan(places["rank"]["unproven elsewhere"])
    assert places["reason"]["unproven elsewhere"] == "failed, and not sound where it finished"


def test_groups_do_not_mix(run: Any, place: Any) -> None:
    run.add("a", 0.6, eps_target=1.0)
    run.add("b", 0.9, eps_target=3.0)
    run.add("c", 0.9, ipc=100)
    run.add("d", 0.9, ipc=None, full_size=True)
    run.add("e", 0.9, delta=1e-6)
    run.add("f", 0.9, dataset="other")
    run.add("g", 0.9, unit="patient")
    run.add("h", 0.9, split="paper")
    places = place(run)
    assert places["rank"].isna().all()
    assert set(places["reason"]) == {"no other sound method to compare with here"}


def test_seeds_that_not_all_have_run_are_left_out(run: Any, place: Any) -> None:
    for seed in (0, 1, 2):
        run.add("a", 0.9 if seed else 0.1, seed=seed)
    run.add("b", 0.5, seed=0)
    places = place(run)
    assert places["rank"].to_dict() == {"a": 2.0, "b": 1.0}
    assert set(places["cells"]) == {1}


def test_no_seed_in_common(run: Any, place: Any) -> None:
    run.add("a", 0.9, seed=0)
    run.add("b", 0.5, seed=1)
    assert set(place(run)["reason"]) == {"no seed in common with the other sound methods"}


def test_sound_without_a_target(run: Any, place: Any) -> None:
    for label in "ab":
        run.add(label, 0.9, eps_target=None, eps_proven=0.0)
    assert set(place(run)["reason"]) == {"no target epsilon"}


def test_what_is_printed_equal_is_tied(run: Any, place: Any) -> None:
    """Issue 24: "Another is better" compared 0.981 with 0.981."""
    run.add("a", 0.9811)
    run.add("b", 0.9809)
    run.add("c", 0.9804)
    places = place(run)
    assert places["rank"].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert places["beaten"].to_dict() == {"a": 0.75, "b": 0.75, "c": 0.0}


def test_a_method_is_not_ranked_where_its_defaults_were_chosen(run: Any, tmp_path: Path) -> None:
    for label, value in (("a", 0.9), ("b", 0.8), ("c", 0.7)):
        run.add(label, value, dataset="seen")
        run.add(label, value, dataset="unseen")
    results = load_results([run.write(tmp_path)])
    about = About(methods={"a": MethodDescription("a", "A", tuned_on=("seen", "unknown"))})
    cells = mark_tuned(results, about).cells
    places = placements(ranking_table(cells, results.scores))
    places = places.set_index(["shown_dataset", "shown_label"])
    assert places["rank"]["unseen"].to_dict() == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert places["rank"]["seen"].drop("a").to_dict() == {"b": 1.0, "c": 2.0}
    assert places["reason"]["seen", "a"] == CHOSEN_HERE


def test_headline_of_each_task(run: Any, tmp_path: Path) -> None:
    for task, metrics in (
        ("classification", ("accuracy/xgboost", "auroc")),
        ("survival", ("c-index/aft", "c-index/cox")),
        ("image", ("accuracy/convnet", "accuracy/a")),
        ("unheard-of", ("zeta", "eta")),
    ):
        key = run.add("a", dataset=task, task=task)
        for metric in metrics:
            run.score(key, metric, 0.5)
        run.score(key, "a-neutral", 0.5, direction="neutral")
        run.score(key, "a-fidelity", 0.5, direction="lower", family="fidelity")
    nothing = run.add("a", dataset="no utility")
    run.score(nothing, "a-fidelity", 0.5, direction="lower", family="fidelity")
    results = load_results([run.write(tmp_path)])
    assert headline_metrics(results.cells, results.scores) == {
        "classification": "auroc",
        "survival": "c-index/cox",
        "image": "accuracy/convnet",
        "unheard-of": "eta",
    }


def test_lower_can_be_better(run: Any, place: Any) -> None:
    for label, error in (("a", 0.3), ("b", 0.1)):
        run.score(run.add(label), "error", error, direction="lower")
    assert place(run)["rank"].to_dict() == {"a": 2.0, "b": 1.0}
