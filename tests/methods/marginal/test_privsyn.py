"""PrivSyn's steps on tables that can be checked by hand or by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bench import InputError
from bench.methods.marginal.privsyn import (
    PrivSyn,
    combined,
    consistent,
    dense_marginals,
    update,
    updated,
)
from bench.privacy.trusted.smartnoise import NoisyMarginal


def table(columns: tuple[int, ...], counts: object, deviation: float = 1.0) -> NoisyMarginal:
    cells = np.asarray(counts, dtype=np.float64)
    return NoisyMarginal(columns, cells, np.full(cells.shape, deviation))


def error(chosen: list[int], cells: np.ndarray, lost: np.ndarray, rho: float) -> float:
    """The paper's objective, with rho split by its formula and not by the closed form."""
    shares = cells[chosen] ** (2 / 3)
    noise = sum(
        c / math.sqrt(math.pi * rho * share / shares.sum())
        for c, share in zip(cells[chosen], shares, strict=True)
    )
    return float(noise + sum(lost[i] for i in range(len(cells)) if i not in chosen))


def test_every_choice_of_pairs_is_the_best_next_one_of_the_objective() -> None:
    rng = np.random.default_rng(0)
    for rho in (1e-4, 1e-2, 1.0):
        cells, lost = rng.integers(4, 300, 8).astype(float), rng.uniform(-5, 3000, 8)
        chosen = dense_marginals(cells, lost, rho)
        for length in range(len(chosen) + 1):
            now = error(chosen[:length], cells, lost, rho)
            steps = {
                other: error([*chosen[:length], other], cells, lost, rho)
                for other in range(8)
                if other not in chosen[:length]
            }
            if length < len(chosen):
                assert steps[chosen[length]] == pytest.approx(min(steps.values()))
                assert min(steps.values()) < now
            else:
                assert all(step >= now for step in steps.values())


def test_cliques_replace_their_pairs_where_they_are_small_and_overlap_little() -> None:
    triangle = [(0, 1), (0, 2), (1, 2)]
    sizes = (2, 3, 4, 5, 6)
    assert combined([*triangle, (2, 3)], sizes, 24) == [(0, 1, 2), (2, 3)]
    assert combined([*triangle, (2, 3)], sizes, 23) == [(0, 1), (0, 2), (1, 2), (2, 3)]
    everything = list(itertools.combinations(range(5), 2))
    assert combined(everything, sizes, 720) == [(0, 1, 2, 3, 4)]
    # Of five columns, four fit; the pairs of the fifth are left.
    assert combined(everything, sizes, 120) == [(0, 1, 2, 3), (0, 1, 4), *[(2, 4), (3, 4)]]
    assert combined([], sizes, 100) == []


def test_consistent_tables_agree_and_precise_ones_count_for_more() -> None:
    tables = [table((0,), [30.0, 70.0], 1e-3), table((1,), [50.0, 50.0], 10.0)]
    pair = table((0, 1), [[20.0, 35.0], [15.0, 30.0]], 1.0)
    first, second, joint = (one.counts for one in consistent([*tables, pair], 100.0))
    assert joint.sum(axis=1) == pytest.approx(first, abs=1e-6)
    assert joint.sum(axis=0) == pytest.approx(second, abs=1e-6)
    # The pair's margin was 55 to 45, the precise column's is 30 to 70.
    assert first == pytest.approx([30.0, 70.0], abs=0.01)
    # Column 1: 50 of variance 100, and 35 of variance 2.
    assert second[0] == pytest.approx((50 / 100 + 35 / 2) / (1 / 100 + 1 / 2))
    negative = consistent([table((0,), [-20.0, 90.0, 40.0])], 100.0)[0].counts
    assert negative == pytest.approx([0.0, 75.0, 25.0])


def test_an_update_moves_records_and_no_more_than_it_may() -> None:
    rng = np.random.default_rng(0)
    records = np.zeros((1000, 3), dtype=np.int64)
    records[900:, 0] = 1
    records[:, 2] = np.arange(1000)
    target = np.array([[400.0], [600.0]])
    update(records, (0, 1), target, 0.5, rng)
    # Cell (1, 0) has 100 records, and grows by a half of them.
    assert np.bincount(records[:, 0]).tolist() == [850, 150]
    # Half of the moved records are copies of records of that cell.
    copied = 1000 - len(np.unique(records[:, 2]))
    assert 10 <= copied <= 40
    for _ in range(10):
        update(records, (0, 1), target, 1.0, rng)
    assert np.bincount(records[:, 0]) == pytest.approx([400, 600], abs=2)


def test_records_reach_marginals_that_contain_each_other_in_part() -> None:
    rng = np.random.default_rng(1)
    joint = rng.dirichlet(np.full(27, 0.3)).reshape(3, 3, 3) * 4000
    singles = [table((0,), joint.sum((1, 2))), table((1,), joint.sum((0, 2)))]
    singles.append(table((2,), joint.sum((0, 1))))
    pairs = [table((0, 1), joint.sum(2)), table((1, 2), joint.sum(0))]
    records = updated([*singles, *pairs], 4000, 60, 1.0, rng)
    for one in pairs:
        made = np.zeros((3, 3))
        np.add.at(made, tuple(records[:, column] for column in one.columns), 1.0)
        assert np.abs(made - one.counts).sum() < 0.02 * 2 * 4000


@pytest.mark.parametrize(
    "wrong", [{"columns_share": 0.0}, {"choice_share": 0.95}, {"alpha": 0.0}, {"records": 0}]
)
def test_parameters_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected positive numbers"):
        PrivSyn(**wrong)  # type: ignore[arg-type]
