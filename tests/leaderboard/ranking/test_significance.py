"""Tests over blocks against published numbers, other libraries, and tables made by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bench.leaderboard.ranking import inference
from bench.leaderboard.ranking.rank import place_blocks, ranking_table
from bench.leaderboard.ranking.significance import (
    Blocks,
    blocks_of,
    compare,
    compare_blocks,
    largest_set,
)
from bench.leaderboard.tables.load import load_results
from bench.stats.inference import holm

# Demsar (2006), table 6: AUC of C4.5, C4.5+m, C4.5+cf, C4.5+m+cf on 14 datasets.
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)

# Seven blocks, by hand: the mean ranks are 8/7, 14/7 and 20/7.
HAND = np.array(
    [
        [0.90, 0.80, 0.70],
        [0.85, 0.80, 0.60],
        [0.70, 0.75, 0.50],
        [0.90, 0.60, 0.65],
        [0.80, 0.70, 0.60],
        [0.95, 0.90, 0.70],
        [0.66, 0.60, 0.50],
    ]
)


def _blocks(utility: np.ndarray, datasets: tuple[str, ...] = ()) -> Blocks:
    names = tuple("abcdefghij"[: utility.shape[1]])
    own = datasets or tuple(f"d{n}" for n in range(len(utility)))
    return Blocks(names, own, place_blocks(utility)[0], utility, 0)


def _compared(utility: np.ndarray, datasets: tuple[str, ...] = (), alpha: float = 0.05) -> Any:
    return compare_blocks(_blocks(utility, datasets), alpha)


@pytest.fixture
def table_of(tmp_path: Path) -> Callable[[Any], pd.DataFrame]:
    """The ranking table of a run."""

    def compute(run: Any) -> pd.DataFrame:
        results = load_results([run.write(tmp_path)])
        return ranking_table(results.cells, results.scores)

    return compute


def test_the_published_example() -> None:
    result = _compared(DEMSAR)
    means = {standing.label: standing.mean_rank for standing in result.standings}
    assert means == pytest.approx({"a": 3.143, "b": 2.000, "c": 2.893, "d": 1.964}, abs=5e-4)
    # Published: 9.28 without the correction for ties, critical difference 1.25.
    plain = 12 * 14 / (4 * 5) * (sum(mean**2 for mean in means.values()) - 4 * 5**2 / 4)
    assert plain == pytest.approx(9.28, abs=5e-3)
    expected = stats.friedmanchisquare(*DEMSAR.T)
    assert result.friedman.statistic == pytest.approx(expected.statistic)
    assert result.friedman.p == pytest.approx(expected.pvalue)
    assert result.friedman.p == pytest.approx(0.0167216, abs=1e-6)
    assert result.critical_difference == pytest.approx(1.25, abs=5e-3)


def test_nemenyi_as_scikit_posthocs() -> None:
    # posthoc_nemenyi_friedman of scikit-posthocs 0.17.1 on the same tables.
    known = {(0, 1): 0.088673, (0, 2): 0.956177, (0, 3): 0.074185, (1, 2): 0.259228}
    known |= {(1, 3): 0.999859, (2, 3): 0.226697}
    means = place_blocks(DEMSAR)[0].mean(axis=0)
    for (i, j), p in known.items():
        assert inference.nemenyi_p(means[i] - means[j], 4, 14) == pytest.approx(p, abs=2e-4)
    means = place_blocks(HAND)[0].mean(axis=0)
    assert means == pytest.approx([8 / 7, 2, 20 / 7])
    assert inference.nemenyi_p(means[0] - means[1], 3, 7) == pytest.approx(0.24408, abs=2e-4)
    assert inference.nemenyi_p(means[0] - means[2], 3, 7) == pytest.approx(0.0038337, abs=2e-5)
    # The critical difference is where the p-value is alpha.
    width = inference.critical_difference(3, 7, 0.05)
    assert inference.nemenyi_p(width, 3, 7) == pytest.approx(0.05, abs=1e-6)


def test_critical_values_of_the_published_table() -> None:
    # Demsar (2006), table 5 (a): q for two to ten labels at 0.05.
    published = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]
    for labels, quantile in enumerate(published, 2):
        scale = math.sqrt(labels * (labels + 1) / (6 * 10))
        found = inference.critical_difference(labels, 10, 0.05) / scale
        assert found == pytest.approx(quantile, abs=1.1e-3)


def test_signed_ranks_are_exact() -> None:
    # Without ties as scipy counts them, with ties and zeros as all signs tried one by one.
    rng = np.random.default_rng(3)
    for count in (1, 2, 5, 9, 30):
        differences = rng.normal(0.3, 1.0, count)
        expected = stats.wilcoxon(differences, method="exact").pvalue
        assert inference.signed_rank_p(differences) == pytest.approx(expected)
    for _ in range(5):
        differences = rng.integers(-2, 4, 9).astype(float)
        ranks = stats.rankdata(np.abs(differences))
        sums = [
            ranks[differences != 0] @ np.array(signs)
            for signs in itertools.product((-1, 1), repeat=int((differences != 0).sum()))
        ]
        extreme = np.abs(sums) >= abs(inference.signed_rank_sum(differences)) - 1e-9
        assert inference.signed_rank_p(differences) == pytest.approx(extreme.mean())


def test_signed_ranks_of_the_published_example() -> None:
    # scipy 1.17: wilcoxon(zero_method="pratt", method=PermutationMethod) over all signs.
    known = [0.0078125, 0.865966796875, 0.01123046875, 0.052978515625, 0.4501953125, 0.033447265625]
    found = [
        inference.signed_rank_p((DEMSAR[:, i] - DEMSAR[:, j]).round(12))
        for i, j in itertools.combinations(range(4), 2)
    ]
    assert found == pytest.approx(known)


def test_many_blocks_use_the_normal_approximation() -> None:
    differences = np.random.default_rng(4).normal(0.2, 1.0, 101)
    exact = stats.wilcoxon(differences, method="exact").pvalue
    assert inference.signed_rank_p(differences) == pytest.approx(exact, rel=0.05)
    assert inference.signed_rank_p(np.zeros(101)) == 1.0


def test_no_block_can_give_less_than_the_smallest_p() -> None:
    for count in range(1, 9):
        won = np.arange(1.0, count + 1)
        assert inference.signed_rank_p(won) == pytest.approx(inference.smallest_p(count))
    assert inference.smallest_p(5) == 0.0625
    assert inference.smallest_p(6, pairs=3) == 0.09375


def test_holm_as_in_the_metrics() -> None:
    values = np.random.default_rng(2).random(20) ** 3
    # By its definition: the largest of (m + 1 - j) times the j-th smallest, up to each one's place.
    m, places = len(values), np.argsort(np.argsort(values))
    steps = [min(1.0, (m - j) * p) for j, p in enumerate(sorted(values))]
    np.testing.assert_allclose(holm(values), [max(steps[: k + 1]) for k in places])
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])


def test_shared_places_and_cliques() -> None:
    # a and b take turns before c, which is before d, in each of 12 blocks: 6 pairs, the smallest
    # corrected p-value is 6 / 2048.
    step = np.arange(12) / 1000
    turn = np.where(np.arange(12) % 2, 0.9, 0.8)
    result = _compared(np.column_stack([turn + step, 1.7 - turn, 0.5 + step / 3, 0.2 - step]))
    assert result.smallest_p == 6 / 2048
    assert {s.label: s.place for s in result.standings} == {
        "a": "1-2",
        "b": "1-2",
        "c": "3",
        "d": "4",
    }
    assert result.cliques == (("a", "b"),)
    assert result.finding == (
        "On these 12 datasets: a and b are better than all others; c is better than d; "
        "a and b are indistinguishable."
    )
    first, *_, last = result.standings
    assert first.wins == {"b": 0.5, "c": 1.0, "d": 1.0}
    assert last.wins == {"a": 0.0, "b": 0.0, "c": 0.0}
    assert (last.low, last.high) == (4.0, 4.0)


def test_ties_count_half() -> None:
    result = _compared(np.array([[1.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 2.0]]))
    assert result.pairs[0].wins == 0.5
    assert result.standings[0].wins == {"b": 0.5}


def test_a_tie_everywhere() -> None:
    result = _compared(np.ones((8, 3)))
    assert (result.friedman.statistic, result.friedman.p) == (0.0, 1.0)
    assert [standing.place for standing in result.standings] == ["1-3"] * 3
    assert result.finding.startswith(
        "All methods are statistically indistinguishable over 8 blocks"
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_few_blocks_tell_nothing(count: int) -> None:
    utility = np.column_stack([np.arange(count) + 10.0, np.arange(count) / 3.0])
    result = _compared(utility)
    assert result.powerless
    assert [standing.place for standing in result.standings] == ["1-2", "1-2"]
    assert f"p-value is {2.0 ** (1 - count):.2g}" in result.finding
    assert (result.standings[0].low is None) == (count < 5)
    assert _compared(np.arange(12.0).reshape(6, 2)).pairs[0].better == "b"


def test_pairs_wait_for_friedman() -> None:
    # Wilcoxon alone would distinguish the pair; among ten equal ones, Friedman's test does not.
    rng = np.random.default_rng(0)
    utility = rng.normal(size=(12, 10))
    utility[:, 1] = utility[:, 0] - 0.01 * np.arange(1, 13)
    result = _compared(utility)
    pair = next(pair for pair in result.pairs if {pair.first, pair.second} == {"a", "b"})
    assert pair.p_holm < 0.05 < result.friedman.p
    assert (pair.better, len(result.cliques[0])) == ("", 10)


def test_the_interval_of_the_mean_rank_is_that_of_the_standings() -> None:
    # Two labels on 20 datasets, of which a wins 14: its mean rank is that of 14 ones and 6 twos.
    wins = np.array([1.0] * 14 + [-1.0] * 6)
    result = _compared(np.column_stack([wins, np.zeros(20)]))
    ranks = np.where(wins > 0, 1.0, 2.0)
    expected = stats.t.interval(0.95, 19, ranks.mean(), stats.sem(ranks))
    assert result.standings[0].mean_rank == pytest.approx(1.3)
    assert (result.standings[0].low, result.standings[0].high) == pytest.approx(expected)


def test_every_dataset_weighs_the_same_in_the_mean_rank() -> None:
    # a wins the three blocks of d0 and loses the only one of d1: 1.5 and not 1.25.
    utility = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    result = _compared(utility, ("d0", "d0", "d0", "d1"))
    assert {one.label: one.mean_rank for one in result.standings} == {"a": 1.5, "b": 1.5}


def _false_findings(dataset_effect: float, repetitions: int = 50) -> tuple[int, int]:
    """Over blocks and over datasets, of 4 labels that are alike on average."""
    rng = np.random.default_rng(11)
    datasets = tuple(f"d{n // 3}" for n in range(30))
    over_blocks = over_datasets = 0
    for _ in range(repetitions):
        effects = dataset_effect * rng.normal(size=(10, 1, 4))
        utility = (effects + rng.normal(size=(10, 3, 4))).reshape(-1, 4)
        result = compare_blocks(_blocks(utility, datasets))
        over_blocks += any(pair.better for pair in result.pairs)
        over_datasets += bool(result.datasets_only.better)
    return over_blocks, over_datasets


def test_false_findings_keep_the_level() -> None:
    # More than 7 of 50 has a chance of 0.003 at a level of 0.05.
    independent, _ = _false_findings(0.0)
    assert independent <= 7
    over_blocks, over_datasets = _false_findings(3.0)
    assert over_datasets <= 7
    assert over_blocks > 7  # why each dataset is also counted once


def test_each_dataset_once() -> None:
    # 12 blocks of two datasets: clear over blocks, hopeless over datasets.
    utility = np.column_stack([np.arange(12) + 10.0, np.arange(12) / 3.0])
    result = _compared(utility, datasets=("d1", "d2") * 6)
    assert result.standings[0].better_than == ("b",)
    assert (result.datasets_only.blocks, result.datasets_only.better) == (2, frozenset())
    assert result.finding.startswith("On these 2 datasets: a is better than b")
    assert "corrected p-value with 2 datasets is 0.5" in result.caution
    assert "1 of these 1 differences are significant" in _compared(utility).caution
    three = np.column_stack([utility, utility[:, 1] - 5])
    assert _compared(three, datasets=("d1",) * 12).finding.startswith("On this dataset: a is")


def test_blocks_of_a_run(run: Any, table_of: Any, unproven: dict[str, Any]) -> None:
    # Dataset d0 has no c; d1 and d2 have all three; the unproven one takes no part.
    for number in range(3):
        for seed in (0, 1):
            shared = {"dataset": f"d{number}", "seed": seed}
            run.add("a", 0.9, **shared)
            run.add("b", 0.8 - 0.1 * seed, **shared)
            run.add("x", 0.99, **shared, **unproven)
            if number == 2 and seed == 1:
                run.fail("c", **shared)
            elif number:
                run.add("c", 0.85, **shared)
    blocks = blocks_of(table_of(run), ["a", "b", "c"])
    assert (blocks.labels, blocks.datasets) == (("a", "b", "c"), ("d1", "d2"))
    assert blocks.incomplete == 1
    # d2: c is second and then last, b last and then second.
    assert blocks.ranks.tolist() == [[1.0, 3.0, 2.0], [1.0, 2.5, 2.5]]
    # d2: from 0.7 to 0.9; a failing cell counts as 0.7 - 0.2.
    np.testing.assert_allclose(blocks.utility[1], [0.9, 0.75, (0.85 + 0.5) / 2])
    (result,), absent = compare(table_of(run))
    assert {standing.label for standing in result.standings} == {"a", "b", "c"}
    assert (result.blocks, result.incomplete, absent) == (2, 1, ())


def test_ranks_are_recomputed_for_those_who_are_shown(run: Any, table_of: Any) -> None:
    for label, value in (("a", 0.9), ("b", 0.8), ("c", 0.7)):
        run.add(label, value)
    assert blocks_of(table_of(run), ["a", "c"]).ranks.tolist() == [[1.0, 2.0]]


def test_who_takes_part_elsewhere_is_compared_there(run: Any, table_of: Any) -> None:
    for number in range(20):
        for place, label in enumerate("abcd" if number < 12 else "axy"):
            run.add(label, 0.9 - 0.1 * place + 0.001 * number, dataset=f"d{number:02}")
    run.add("rare", 0.9, dataset="d00")
    results, absent = compare(table_of(run))
    shown = [([s.label for s in result.standings], result.blocks) for result in results]
    assert shown == [(["a", "b", "c", "d"], 12), (["a", "x", "y"], 8)]
    assert [(item.label, item.blocks) for item in absent] == [("rare", 1)]


def test_the_largest_set_is_never_empty() -> None:
    assert largest_set([{"a", "x"}, {"b", "y"}, {"c", "z"}]) in [
        {"a", "x"},
        {"b", "y"},
        {"c", "z"},
    ]
    assert largest_set([{"a", "b", "c"}] * 2 + [{"a", "b"}] * 2) == {"a", "b"}
    assert largest_set([{"a", "b", "c"}] * 3 + [{"a", "b"}]) == {"a", "b", "c"}


def test_nobody_and_strange_values(run: Any, table_of: Any) -> None:
    assert compare(table_of(run)) == ((), ())
    for label, value in (("a", 1e308), ("b", -1e308), ("c", math.inf)):
        for number in range(6):
            run.add(label, dataset=f"d{number}", key=f"{label}{number}")
            run.score(f"{label}{number}", "auroc", value)
    (result,), _ = compare(table_of(run))
    assert [standing.label for standing in result.standings] == ["a", "b", "c"]
    assert all(0 <= pair.p <= 1 for pair in result.pairs)
