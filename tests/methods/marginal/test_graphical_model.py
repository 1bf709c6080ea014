"""The graphical model behind MST and AIM, against brute force and closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bench import Budget
from bench.errors import NotApplicable
from bench.methods._shared.smartnoise import vote_noise
from bench.methods.marginal._graphical_model import (
    GraphicalModel,
    JunctionTree,
    check_columns,
    conditional_draw,
    draw_rows,
    estimated_total,
    fit,
    largest_rho,
    merged,
    unmerged,
)
from bench.methods.marginal.mwem import draw_groups, groups_within
from bench.plugins.source import build_dataset
from bench.privacy.accounting import rdp_epsilon
from bench.privacy.events import flattened
from bench.privacy.trusted.mwem import choices_and_counts, iterations_of
from bench.privacy.trusted.smartnoise import (
    NoisyMarginal,
    NoisyMarginals,
    nearest_counts,
    on_grid,
    zero_concentrated,
)
from tests.support.kernel import opened
from tests.support.tables import ToyImages, ToyTable

SIZES = (2, 3, 2, 4)
CYCLE = ((0, 1), (1, 2), (2, 3), (0, 3))


def random_model() -> tuple[GraphicalModel, np.ndarray]:
    """A loop of four columns with random potentials, and its whole distribution."""
    rng = np.random.default_rng(3)
    tree = JunctionTree(SIZES, CYCLE)
    potentials = tuple(
        rng.normal(size=[SIZES[column] for column in clique]) for clique in tree.cliques
    )
    logs = np.zeros(SIZES)
    for clique, table in zip(tree.cliques, potentials, strict=True):
        logs = logs + table.reshape([SIZES[c] if c in clique else 1 for c in range(4)])
    joint = np.exp(logs) / np.exp(logs).sum()
    return GraphicalModel(tree, potentials, 1.0, tuple(tree.shares(potentials))), joint


def marginal(joint: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    return joint.sum(axis=tuple(c for c in range(joint.ndim) if c not in columns))


def test_messages_give_the_marginals_of_brute_force() -> None:
    model, joint = random_model()
    assert len(model.tree.cliques) == 2  # a loop of four is two triangles
    for clique, shares in zip(model.tree.cliques, model.clique_shares, strict=True):
        assert np.allclose(shares, marginal(joint, clique))
    for pair in itertools.combinations(range(4), 2):
        assert np.allclose(model.counts(pair), marginal(joint, pair))


def test_pairs_in_no_common_clique_are_chained() -> None:
    rng = np.random.default_rng(0)
    tree = JunctionTree((2, 3, 4, 2, 3), [(0, 1), (1, 2), (2, 3)])  # column 4 stands alone
    potentials = tuple(rng.normal(size=[tree.sizes[c] for c in clique]) for clique in tree.cliques)
    model = GraphicalModel(tree, potentials, 10.0, tuple(tree.shares(potentials)))
    logs = np.zeros(tree.sizes)
    for clique, table in zip(tree.cliques, potentials, strict=True):
        logs = logs + table.reshape([tree.sizes[c] if c in clique else 1 for c in range(5)])
    joint = 10.0 * np.exp(logs) / np.exp(logs).sum()
    for length in (1, 2, 3, 4):
        for columns in itertools.combinations(range(5), length):
            assert np.allclose(model.counts(columns), marginal(joint, columns))
    assert np.allclose(model.counts((3, 0)), marginal(joint, (0, 3)).T)
    assert np.allclose(model.counts((1, 0)), marginal(joint, (0, 1)).T)


def test_rows_follow_the_model_given_a_label() -> None:
    model, joint = random_model()
    rows = model.draw(40_000, (3, 2), np.random.default_rng(1))
    assert (rows[:, 3] == 2).all()
    expected = joint[..., 2] / joint[..., 2].sum()
    seen = np.zeros_like(expected)
    np.add.at(seen, tuple(rows[:, :3].T), 1 / 40_000)
    assert np.abs(seen - expected).max() < 4 * math.sqrt(0.25 / 40_000)


def test_a_chain_fitted_to_exact_pairs_is_the_chain() -> None:
    rng = np.random.default_rng(5)
    first, second = rng.dirichlet(np.ones(6)).reshape(2, 3), rng.dirichlet(np.ones(4), 3)
    joint = 1000.0 * first[:, :, None] * second[None]
    pairs = [
        NoisyMarginal(pair, marginal(joint, pair), np.ones(marginal(joint, pair).shape))
        for pair in ((0, 1), (1, 2))
    ]
    model = fit((2, 3, 4), pairs, 1000.0, 2000)
    assert np.allclose(model.counts((0, 1)), marginal(joint, (0, 1)), atol=0.1)
    assert np.allclose(model.counts((0, 2)), marginal(joint, (0, 2)), atol=0.1)
    again = fit((2, 3, 4), pairs, None, 0, start=model)
    assert np.allclose(again.counts((1, 2)), model.counts((1, 2)))


def test_the_total_is_weighted_by_precision() -> None:
    sure = NoisyMarginal((0,), np.array([4.0, 6.0]), np.array([1.0, 1.0]))
    vague = NoisyMarginal((1,), np.array([9.0, 9.0]), np.array([2.0, 2.0]))
    assert estimated_total([sure, vague]) == pytest.approx((10 / 2 + 18 / 8) / (1 / 2 + 1 / 8))


def test_nearest_counts_by_hand() -> None:
    assert nearest_counts(np.array([3.0, 1.0, -1.0]), 3.0).tolist() == [2.5, 0.5, 0.0]
    assert nearest_counts(np.array([-5.0, -5.0]), 4.0).tolist() == [2.0, 2.0]


def test_a_draw_follows_its_row() -> None:
    weights = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 1.0]])
    given = np.repeat([0, 1, 2], 3000)
    drawn = conditional_draw(weights, given, np.random.default_rng(0)).reshape(3, 3000)
    assert (drawn[0] == 1).all()
    assert np.allclose(np.bincount(drawn[1], minlength=3) / 3000, 1 / 3, atol=0.04)
    assert np.allclose(np.bincount(drawn[2], minlength=3) / 3000, [0.75, 0, 0.25], atol=0.04)


def test_rare_codes_share_the_last_and_come_back() -> None:
    kept = np.array([True, False, True, False])
    assert [merged(kept, code) for code in range(4)] == [0, 2, 1, 2]
    back = unmerged(kept, np.array([0, 1] + [2] * 400), np.random.default_rng(0))
    assert back[:2].tolist() == [0, 2] and set(back[2:]) == {1, 3}
    assert 140 < (back[2:] == 1).sum() < 260


def test_one_model_a_class_gives_rows_of_that_class() -> None:
    models, released = [], []
    for code in (0, 1):
        counts = np.zeros(2)
        counts[code] = 100.0
        one = NoisyMarginal((0,), counts, np.ones(2))
        models.append(fit((2,), [one], 100.0, 200))
        released.append(NoisyMarginals((one,), (np.ones(2, dtype=bool),)))
    codes = draw_rows(models, released, (3, 4), np.random.default_rng(0))
    assert codes.tolist() == [[0, 0]] * 3 + [[1, 1]] * 4


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 10.0])
def test_rho_uses_the_budget_and_is_larger_than_the_textbook_allows(epsilon: float) -> None:
    private, _ = opened(Budget(epsilon, 1e-5))
    rho = largest_rho(private)
    spent = rdp_epsilon(((zero_concentrated({"rho": rho}), 1),), 1e-5)
    assert 0.998 * epsilon < spent <= epsilon
    # Bun and Steinke 2016, Proposition 1.3: epsilon = rho + 2 sqrt(rho ln(1 / delta)).
    log = math.log(1e5)
    assert rho > (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def test_wide_tables_are_refused_with_the_reason() -> None:
    with pytest.raises(NotApplicable, match="images"):
        check_columns(build_dataset(ToyImages()).schema)
    check_columns(build_dataset(ToyTable()).schema)


def test_mwem_groups_are_filled_in_order() -> None:
    assert groups_within((3, 4, 5, 100, 2), 60) == ((0, 1, 2), (3,), (4,))
    assert groups_within((3, 4, 5), 12) == ((0, 1), (2,))


def test_mwem_is_charged_for_every_choice_and_count() -> None:
    assert [iterations_of((0, 1, 2), width, 5) for width in (1, 2)] == [3, 5]
    event = choices_and_counts(
        {"groups": ((0, 1, 2), (3,)), "width": 2, "iterations": 5, "epsilon": 0.1}
    )
    charged = {type(single).__name__: (single, count) for single, count in flattened(event, 1)}
    choice, choices = charged["ZCDpEvent"]
    count, counts = charged["LaplaceDpEvent"]
    assert (choices, counts) == (6, 6)
    assert choice.rho == pytest.approx(0.1**2 / 8) and count.noise_multiplier == pytest.approx(10)


def test_mwem_rows_come_from_their_class_and_group() -> None:
    first, second = np.zeros((2, 2)), np.zeros(3)
    first[1, 0] = second[2] = 5.0
    other, last = np.zeros((2, 2)), np.zeros(3)
    other[0, 1] = last[0] = 5.0
    groups = ((0, 1), (2,))
    rows = draw_groups([[first, second], [other, last]], groups, (2, 1), np.random.default_rng(0))
    assert rows.tolist() == [[1, 0, 2, 0], [1, 0, 2, 0], [0, 1, 0, 1]]


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_the_noise_of_votes_is_what_the_moments_allow(share: float) -> None:
    budget = Budget(2.0, 1e-5)
    scale = vote_noise(budget, share, steps=40, votes=500, orders=100)
    stated = min(
        (40 * 500 * 2 / scale**2 * order * (order + 1) + math.log(1e5)) / order
        for order in range(1, 101)
    )
    assert stated == pytest.approx(share * 2.0)
    with pytest.raises(NotApplicable, match="before the first step"):
        vote_noise(Budget(0.1, 1e-5), 1.0, 40, 500, 100)


def test_no_bit_of_a_noisy_count_tells_the_count() -> None:
    """Noise added in doubles to 1 loses bits that it keeps on 0; on the grid both keep the same."""
    noise = np.random.default_rng(0).normal(0.0, 2.0, 20_000)
    for count in (0.0, 1.0, 12345.0):
        rounded = on_grid(noise)
        assert ((count + rounded) - count == rounded).all()  # the sum is exact
        assert (np.abs(on_grid(count + noise) - (count + noise)) <= 0.5 / 1024).all()
    assert ((1.0 + noise) - 1.0 != noise).any()
