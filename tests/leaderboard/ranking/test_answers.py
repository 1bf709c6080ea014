"""The best sound method of a task: who, by how much, how sure; against scipy and by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.leaderboard.pages.board import compile_board
from bench.leaderboard.ranking.answers import Answer, answers

WIDTH = 2 * stats.norm.ppf(0.975)


def found(run: Any, tmp_path: Path) -> tuple[Answer, ...]:
    board = compile_board([run.write(tmp_path / "run")], cells=0)
    return answers(board.results, board.rows, board.places)


def add(run: Any, label: str, value: float, error: float = math.nan, **changes: Any) -> None:
    """A cell whose score has this standard error over test rows; NaN for no interval."""
    key = run.add(label, **changes)
    half = WIDTH / 2 * error
    ends = (None, None) if math.isnan(error) else (value - half, value + half)
    run.score(key, "auroc", value, *ends)


def test_without_intervals_one_dataset_is_a_paired_t_test(run: Any, tmp_path: Path) -> None:
    one, two = np.array([0.91, 0.93, 0.9, 0.915]), np.array([0.9, 0.905, 0.895, 0.88])
    for seed, (a, b) in enumerate(zip(one, two, strict=True)):
        add(run, "a", a, seed=seed)
        add(run, "b", b, seed=seed)
    (answer,) = found(run, tmp_path)
    expected = stats.ttest_rel(one, two)
    interval = expected.confidence_interval(0.95)
    assert answer.best is not None and answer.best.label == "a"
    (against,) = answer.against
    assert against.difference == pytest.approx((one - two).mean())
    assert against.p == against.p_holm == pytest.approx(expected.pvalue)
    assert (against.low, against.high) == pytest.approx((interval.low, interval.high))
    assert (against.datasets, against.seeds, against.one_seed) == (1, 4, False)
    assert answer.tied == ("b",) and answer.beaten == ()


def test_one_seed_has_the_test_rows_alone(run: Any, tmp_path: Path) -> None:
    add(run, "a", 0.9, 0.01)
    add(run, "b", 0.86, 0.02)
    (answer,) = found(run, tmp_path)
    (against,) = answer.against
    error = math.hypot(0.01, 0.02)
    assert against.p == pytest.approx(2 * stats.norm.sf(0.04 / error))
    assert against.low == pytest.approx(0.04 - WIDTH / 2 * error)
    assert answer.one_seed and answer.tied == ("b",)


def test_errors_of_datasets_are_independent_and_those_of_sizes_are_not(
    run: Any, tmp_path: Path
) -> None:
    for dataset in ("d1", "d2", "d3", "d4"):
        for ipc in (10, 50, 100):
            add(run, "a", 0.9, 0.01, dataset=dataset, ipc=ipc)
            add(run, "b", 0.88, 0.01, dataset=dataset, ipc=ipc)
    (answer,) = found(run, tmp_path)
    (against,) = answer.against
    # Twelve groups, four sets of test rows.
    error = math.hypot(0.01, 0.01) / math.sqrt(4)
    assert against.high - against.difference == pytest.approx(WIDTH / 2 * error)
    assert (against.datasets, answer.pairs) == (4, 1)


def test_datasets_weigh_the_same_whatever_their_sizes(run: Any, tmp_path: Path) -> None:
    for ipc in (10, 50, 100):
        add(run, "a", 0.9, 0.01, dataset="d1", ipc=ipc)
        add(run, "b", 0.8, 0.01, dataset="d1", ipc=ipc)
    add(run, "a", 0.7, 0.01, dataset="d2")
    add(run, "b", 0.68, 0.01, dataset="d2")
    (answer,) = found(run, tmp_path)
    assert answer.against[0].difference == pytest.approx((0.1 + 0.02) / 2)


def test_only_seeds_that_both_have_are_compared(run: Any, tmp_path: Path) -> None:
    for seed in range(5):
        add(run, "a", 0.9 + 0.01 * seed, 0.01, seed=seed)
    for seed in range(3):
        add(run, "b", 0.85, 0.01, seed=seed)
    run.fail("b", seed=3)
    (answer,) = found(run, tmp_path)
    (against,) = answer.against
    assert against.seeds == 3 and against.difference == pytest.approx(0.06)


def test_all_pairs_are_corrected_for(run: Any, tmp_path: Path) -> None:
    """Holm over the pairs of all three, also those without the best."""
    values = {"a": 0.9, "b": 0.88, "c": 0.85}
    for label, value in values.items():
        add(run, label, value, 0.006)
    (answer,) = found(run, tmp_path)
    error = math.hypot(0.006, 0.006)
    gaps = {("a", "b"): 0.02, ("a", "c"): 0.05, ("b", "c"): 0.03}
    plain = {pair: 2 * stats.norm.sf(gap / error) for pair, gap in gaps.items()}
    first, second, third = sorted(plain, key=lambda pair: plain[pair])
    expected = {first: 3 * plain[first]}
    expected[second] = max(expected[first], 2 * plain[second])
    expected[third] = max(expected[second], plain[third])
    assert answer.pairs == 3
    assert [one.label for one in answer.against] == ["b", "c"]
    for one in answer.against:
        assert one.p_holm == pytest.approx(expected["a", one.label])
    assert answer.beaten == ("b", "c")


def test_a_method_with_a_rank_on_few_datasets_is_not_the_best(run: Any, tmp_path: Path) -> None:
    for dataset in ("d1", "d2", "d3"):
        add(run, "a", 0.9, 0.001, dataset=dataset)
        add(run, "b", 0.8, 0.001, dataset=dataset)
    add(run, "once", 0.99, 0.001, dataset="d1")
    (answer,) = found(run, tmp_path)
    assert answer.best is not None and answer.best.label == "a"
    assert answer.not_compared == ("once",)


def test_a_method_without_a_proof_is_never_the_answer(
    run: Any, tmp_path: Path, unproven: dict[str, Any]
) -> None:
    add(run, "bold", 0.99, 0.001, **unproven)
    add(run, "a", 0.9, 0.001)
    add(run, "b", 0.8, 0.001)
    (answer,) = found(run, tmp_path)
    assert answer.best is not None and answer.best.label == "a"
    assert "bold" not in {one.label for one in answer.against} | set(answer.not_compared)


def test_a_method_that_was_tuned_on_all_datasets_is_named(run: Any, tmp_path: Path) -> None:
    from bench.plugins.description import FILE, Descriptions, MethodDescription

    for label, value in (("a", 0.9), ("b", 0.8), ("fitted", 0.99)):
        add(run, label, value, 0.001)
    add(run, "model", 0.99, 0.001, ipc=None)  # left out for another reason than its tuning
    directory = run.write(tmp_path / "run")
    cards = tuple(
        MethodDescription(name, name, tuned_on=() if name in "ab" else ("breast-cancer",))
        for name in ("a", "b", "fitted", "model")
    )
    (directory / FILE).write_text(Descriptions(methods=cards).to_json(), encoding="utf-8")
    board = compile_board([directory], cells=0)
    (answer,) = answers(board.results, board.rows, board.places)
    assert answer.best is not None and answer.best.label == "a"
    assert answer.tuned == ("fitted",) and answer.pairs == 1


def test_more_utility_with_a_worse_mean_rank_is_said(run: Any, tmp_path: Path) -> None:
    for dataset in ("d1", "d2"):
        add(run, "a", 0.8, 0.0001, dataset=dataset)
        add(run, "b", 0.799, 0.0001, dataset=dataset)
    add(run, "a", 0.6, 0.0001, dataset="d3")
    add(run, "b", 0.9, 0.0001, dataset="d3")
    (answer,) = found(run, tmp_path)
    assert answer.best is not None and answer.best.label == "a"
    assert answer.ahead == ("b",) and answer.beaten == answer.tied == ()


def test_other_targets_are_other_questions(run: Any, tmp_path: Path) -> None:
    add(run, "a", 0.9, 0.001, eps_target=3.0)
    add(run, "b", 0.8, 0.001, eps_target=3.0)
    assert found(run, tmp_path) == ()


def test_tasks_are_told_in_their_order(run: Any, tmp_path: Path) -> None:
    for dataset, task in (("i", "image"), ("s", "survival"), ("c", "classification")):
        for label in ("a", "b"):
            add(run, label, 0.9, 0.001, dataset=dataset, task=task)
    assert [one.what for one in found(run, tmp_path)] == ["tables", "survival cohorts", "images"]


def test_equal_methods_are_rarely_called_different(tmp_path: Path, new_run: Any) -> None:
    """Over simulated runs of equal methods, one error or more in at most 5% of them."""
    rng = np.random.default_rng(29)
    runs, wrong = 24, 0
    for number in range(runs):
        run = new_run()
        for dataset in ("d1", "d2", "d3"):
            # The same test rows for all methods: their errors are correlated.
            shared = rng.normal(0, 0.01)
            for label in "abcd":
                own = rng.normal(0, 0.004)
                for seed in range(3):
                    value = 0.85 + shared + own + rng.normal(0, 0.01)
                    add(run, label, value, 0.0108, dataset=dataset, seed=seed)
        (answer,) = found(run, tmp_path / str(number))
        wrong += bool(answer.beaten or answer.ahead)
    # More than 5 of 24 at a level of 5% has a probability below 0.005.
    assert stats.binom.sf(5, runs, 0.05) < 0.005
    assert wrong <= 5


def test_models_do_not_win_by_a_rank_among_models(run: Any, tmp_path: Path) -> None:
    """Models have no size and are ranked among themselves: first of two is not first of all."""
    for label, value in {"a-model": 0.75, "b-model": 0.7}.items():
        add(run, label, value, 0.01, ipc=None)
    for label, value in {"rows": 0.9, "worse": 0.8, "worst": 0.7}.items():
        add(run, label, value, 0.01)
    (answer,) = found(run, tmp_path)
    assert answer.best is not None and answer.best.label == "rows"
    assert [one.label for one in answer.against] == ["worse", "worst"]
    assert answer.not_compared == ()


def test_models_are_compared_where_there_is_nothing_else(run: Any, tmp_path: Path) -> None:
    for label, value in {"a-model": 0.75, "b-model": 0.7}.items():
        add(run, label, value, 0.01, ipc=None)
    (answer,) = found(run, tmp_path)
    assert answer.best is not None and answer.best.label == "a-model"
