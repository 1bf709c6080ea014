"""Entropic transport against known plans, and the mechanism that DP-Sinkhorn claims."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bench.data.encoder import EncodedRows
from bench.methods.generative.dp_sinkhorn import (
    GeneratedBatch,
    NoisyGradient,
    SinkhornLoss,
    cost,
    cut,
    transport_plan,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def real_rows(count: int, width: int = 3, seed: int = 0) -> EncodedRows:
    rng = np.random.default_rng(seed)
    return EncodedRows(
        rng.uniform(-1, 1, (count, width)).astype(np.float32),
        rng.integers(0, 2, count),
        np.zeros(count, dtype=np.int64),
        np.zeros(count),
    )


def mechanism(**settings: float) -> NoisyGradient:
    chosen = {"rate": 0.5, "clip": 0.5, "noise_multiplier": 1.0, **settings}
    return NoisyGradient(SinkhornLoss(2, 1.0, 0.05, 15.0), **chosen)


def batch(size: int = 8, again: int = 2, width: int = 3, seed: int = 0) -> GeneratedBatch:
    labels = torch.arange(size) % 2
    made = torch.rand(size + again, width, generator=seeded(seed)) * 2 - 1
    return GeneratedBatch(made[:size], labels, made[size:])


# Transport ----------------------------------------------------------------------------------------


def test_the_cost_mixes_squares_and_absolute_values() -> None:
    first, second = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    assert cost(first, second, 0.0)[0].tolist() == pytest.approx([25.0, 1.0])
    assert cost(first, second, 2.0)[0].tolist() == pytest.approx([25.0 + 14.0, 1.0 + 2.0])


def test_a_plan_has_uniform_marginals() -> None:
    costs = torch.rand(7, 5, generator=seeded())
    plan = transport_plan(costs, 0.05)
    assert plan.sum(dim=1).tolist() == pytest.approx([1 / 7] * 7, abs=1e-6)
    assert plan.sum(dim=0).tolist() == pytest.approx([1 / 5] * 5, abs=2e-3)


def test_two_points_by_hand() -> None:
    """Costs 0 on the diagonal and 1 off it: the plan is proportional to exp(-cost / blur)."""
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    plan = transport_plan(costs, 0.5)
    other = math.exp(-2.0)
    expected = 0.5 / (1 + other)
    assert plan.flatten().tolist() == pytest.approx(
        [expected, expected * other, expected * other, expected], abs=1e-6
    )


def test_the_plan_is_that_of_many_plain_iterations() -> None:
    """Scaling the rows and columns of exp(-cost / blur) in turn, 10,000 times."""
    costs = cost(
        torch.randn(12, 4, generator=seeded(1)), torch.randn(9, 4, generator=seeded(2)), 1.0
    )
    plan = np.exp(-costs.double().numpy() / 3.0)
    for _ in range(10_000):
        plan /= 9 * plan.sum(axis=0)
        plan /= 12 * plan.sum(axis=1, keepdims=True)
    assert transport_plan(costs, 3.0).numpy() == pytest.approx(plan, abs=1e-4)


def test_with_little_regularisation_sorted_numbers_are_moved_in_order() -> None:
    """In one dimension with a convex cost the best plan keeps the order."""
    first = torch.tensor([[0.0], [1.0], [2.0]])
    plan = transport_plan(cost(first, first.flip(0) + 0.3, 0.0), 0.02)
    assert (3 * plan).numpy() == pytest.approx(np.eye(3)[::-1], abs=0.01)


def test_one_point_each_has_its_own_gradient() -> None:
    """The plan is 1, so that the gradient is that of the cost: 2 (x - y) + m sign(x - y)."""
    rows = torch.tensor([[0.5, -0.5]], requires_grad=True)
    label = torch.tensor([0])
    loss = SinkhornLoss(2, 3.0, 0.05, 15.0)
    loss(rows, label, torch.tensor([[0.25, 0.5]]), label).backward()
    assert rows.grad is not None
    assert rows.grad[0].tolist() == pytest.approx([0.5 + 3.0, -2.0 - 3.0], abs=1e-5)


def test_the_gradient_is_that_of_the_regularised_minimum() -> None:
    """Against differences of the transport cost plus blur times the divergence of the plan."""
    first = torch.randn(4, 2, generator=seeded(3), dtype=torch.float64)
    second = torch.randn(4, 2, generator=seeded(4), dtype=torch.float64)

    def minimum(rows: torch.Tensor) -> float:
        costs = cost(rows, second, 0.0)
        plan = transport_plan(costs, 2.0)
        return float((plan * costs).sum() + 2.0 * (plan * torch.log(plan * 16)).sum())

    moving = first.clone().requires_grad_(True)
    costs = cost(moving, second, 0.0)
    (transport_plan(costs.detach(), 2.0) * costs).sum().backward()
    assert moving.grad is not None
    step = torch.zeros_like(first)
    step[1, 0] = 1e-4
    difference = (minimum(first + step) - minimum(first - step)) / 2e-4
    assert float(moving.grad[1, 0]) == pytest.approx(difference, rel=1e-3)


def test_labels_keep_rows_within_their_class() -> None:
    """Swapped positions: without labels nothing would have to move."""
    rows, other = torch.tensor([[1.0], [-1.0]]), torch.tensor([[-1.0], [1.0]])
    labels = torch.tensor([0, 1])
    assert float(SinkhornLoss(2, 1.0, 0.05, 0.0)(rows, labels, other, labels)) < 0.01
    apart = float(SinkhornLoss(2, 1.0, 0.05, 15.0)(rows, labels, other, labels))
    assert apart == pytest.approx(2.0**2 + 2.0, rel=1e-3)


# The claimed mechanism ----------------------------------------------------------------------------


def test_the_whole_gradient_is_cut_as_one_vector() -> None:
    long = cut(torch.full((2, 8), 3.0), 0.5)
    assert float(long.norm()) == pytest.approx(0.5)
    short = torch.full((2, 8), 0.01)
    assert torch.equal(cut(short, 0.5), short)
    assert torch.equal(cut(torch.tensor([1.0, math.nan]), 0.5), torch.zeros(2))
    assert torch.equal(cut(torch.tensor([1.0, math.inf]), 0.5), torch.zeros(2))


def test_no_row_moves_the_gradient_by_more_than_twice_the_clip() -> None:
    asked = mechanism(clip=0.3)
    everything = real_rows(9)
    base, _ = asked.gradients(everything.take(np.arange(8)), batch())
    more, _ = asked.gradients(everything, batch())
    none, _ = asked.gradients(everything.take(np.arange(0)), batch())
    for gradient in (base, more, none):
        assert float(gradient.norm()) <= 0.3 * (1 + 1e-6)
    assert 0.0 < float((more - base).norm()) <= 0.6


def test_rows_generated_again_get_a_gradient_without_private_rows() -> None:
    asked = mechanism()
    _, one = asked.gradients(real_rows(6, seed=1), batch())
    _, other = asked.gradients(real_rows(20, seed=2), batch())
    assert torch.equal(one, other) and float(one.norm()) > 0


def test_noise_has_twice_the_clip_times_the_multiplier() -> None:
    asked = mechanism(clip=0.2, noise_multiplier=5.0, rate=1.0)
    generated = batch(size=40, width=50)
    rows = real_rows(10, width=50)
    noisy, _ = asked(rows, generated, np.random.default_rng(0))
    clean, _ = asked.gradients(rows, generated)
    assert noisy.shape == (40, 50)
    assert float((noisy - clean).std()) == pytest.approx(2.0, rel=0.05)


def test_rows_are_sampled_one_by_one_with_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def spy(
        self: NoisyGradient, sample: EncodedRows, made: GeneratedBatch
    ) -> tuple[torch.Tensor, ...]:
        sizes.append(len(sample))
        return torch.zeros_like(made.rows), torch.zeros_like(made.again)

    monkeypatch.setattr(NoisyGradient, "gradients", spy)
    rng, rows = np.random.default_rng(0), real_rows(200)
    for _ in range(500):
        mechanism(rate=0.1)(rows, batch(), rng)
    # Binomial(200, 0.1): mean 20, variance 18.
    assert np.mean(sizes) == pytest.approx(20.0, abs=0.8)
    assert np.var(sizes) == pytest.approx(18.0, rel=0.25)


def test_an_empty_sample_gives_noise_of_the_same_shape() -> None:
    noisy, again = mechanism()(real_rows(0), batch(), np.random.default_rng(0))
    assert noisy.shape == (8, 3) and again.shape == (2, 3)
    assert torch.isfinite(noisy).all()
