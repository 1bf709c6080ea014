"""Hermite features against scipy's polynomials and the kernels that they expand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import eval_hermite

from bench.methods.generative.dp_hp import (
    ProductKernel,
    hermite,
    product_kernels,
    rho_of,
    sum_kernel,
)
from bench.plugins.source import build_dataset
from tests.support.tables import ToyImages, ToySurvival, ToyTable

ENCODER = build_dataset(ToyTable()).encoder


@pytest.mark.parametrize("length", [0.05, 0.5, 3.0])
def test_rho_belongs_to_the_length(length: float) -> None:
    rho = rho_of(length)
    assert 0.0 < rho < 1.0
    assert rho / (1.0 - rho**2) == pytest.approx(1.0 / (2.0 * length**2))


def test_the_recursion_gives_hermite_polynomials() -> None:
    rho, numbers = 0.7, np.linspace(-1.5, 1.5, 13)
    ours = hermite(torch.tensor(numbers), 12, rho)
    for degree in range(13):
        scale = math.sqrt(rho**degree / (2.0**degree * math.factorial(degree)))
        wanted = (
            (1 - rho**2) ** 0.25
            * scale
            * eval_hermite(degree, numbers)
            * np.exp(-rho / (1 + rho) * numbers**2)
        )
        assert ours[:, degree].numpy() == pytest.approx(wanted, abs=1e-12)


def test_the_features_expand_the_gaussian_kernel() -> None:
    numbers = torch.linspace(-1.0, 1.0, 9, dtype=torch.float64)
    features = hermite(numbers, 60, rho_of(0.5))
    kernel = torch.exp(-(numbers[:, None] - numbers).square() / (2 * 0.5**2))
    assert torch.allclose(features @ features.T, kernel, atol=1e-6)


@pytest.mark.parametrize("order", [0, 3, 100])
@pytest.mark.parametrize("length", [0.1, 0.5, 2.0])
def test_no_number_has_features_longer_than_one(order: int, length: float) -> None:
    """Also far outside of [-1, 1], and in single precision up to rounding."""
    numbers = torch.linspace(-30.0, 30.0, 5001)
    norms = hermite(numbers, order, rho_of(length)).norm(dim=-1)
    assert torch.isfinite(norms).all() and float(norms.max()) <= 1.0 + 1e-5


def test_the_sum_kernel_is_the_mean_of_the_columns_kernels() -> None:
    """Two rows: age 0 and 0.5, marker 0 both, smoker differs, stage equal."""
    rows = torch.tensor(
        [[0.0, 0.0, -1.0, 0.0, 1.0, 0.0], [0.5, 0.0, 1.0, 0.0, 1.0, 0.0]], dtype=torch.float64
    )
    (kernel,) = sum_kernel(ENCODER, 60, rho_of(0.5), at_most=10_000)
    features = kernel(rows)
    assert features.shape == (2, 2 * 61 + 2 + 3)
    assert (features @ features.T)[0].tolist() == pytest.approx(
        [1.0, (math.exp(-0.5) + 1.0 + 0.0 + 1.0) / 4.0], abs=1e-6
    )


def test_groups_of_columns_hold_the_same_features_and_share_the_norm() -> None:
    encoder = build_dataset(ToyImages()).encoder
    rows = torch.rand(5, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    (whole,) = sum_kernel(encoder, 9, 0.6, at_most=10_000)
    groups = sum_kernel(encoder, 9, 0.6, at_most=100)
    assert [len(group.blocks) for group in groups] == [10] * 6 + [4]
    assert torch.allclose(torch.cat([group(rows) for group in groups], dim=1), whole(rows))
    assert sum(group.norm**2 for group in groups) == pytest.approx(1.0)
    for group in groups:
        assert float(group(rows).norm(dim=1).max()) <= group.norm * (1 + 1e-6)


def test_a_product_kernel_is_the_product_of_its_columns_kernels() -> None:
    rows = torch.tensor(
        [[0.0, 0.3, -1.0, 0.0, 1.0, 0.0], [0.5, -0.1, -1.0, 1.0, 0.0, 0.0]], dtype=torch.float64
    )
    apart = {"age": 0.5, "marker": 0.4}
    for kernel in product_kernels(ENCODER, 60, rho_of(0.5), 3, 8, np.random.default_rng(0)):
        features = kernel(rows)
        expected = 1.0
        for block in kernel.blocks:
            name = block.column.name
            if name in apart:
                expected *= math.exp(-(apart[name] ** 2) / (2 * 0.5**2))
            else:
                expected *= {"smoker": 1.0, "stage": 0.0}[name]
        assert float(features[0] @ features[1]) == pytest.approx(expected, abs=1e-6)
        assert float(features.norm(dim=1).max()) <= 1.0 + 1e-9


def test_columns_of_products_are_drawn_without_replacement_and_anew() -> None:
    kernels = product_kernels(ENCODER, 2, 0.5, 2, 30, np.random.default_rng(0))
    chosen = [tuple(block.column.name for block in kernel.blocks) for kernel in kernels]
    assert len(set(chosen)) == 6  # all pairs of four columns
    assert all(len(set(names)) == 2 for names in chosen)
    survival = build_dataset(ToySurvival()).encoder
    (everything,) = product_kernels(survival, 2, 0.5, 9, 1, np.random.default_rng(0))
    assert len(everything.blocks) == 3


def test_only_the_product_kernel_sees_dependence() -> None:
    """Equal marginals: one table has both columns alike, the other has them opposed."""
    numbers = torch.linspace(-0.9, 0.9, 20)
    alike, opposed = torch.zeros(2, 20, ENCODER.width).unbind()
    alike[:, 0] = alike[:, 1] = opposed[:, 0] = numbers
    opposed[:, 1] = -numbers
    (whole,) = sum_kernel(ENCODER, 20, 0.7, 1000)
    assert torch.allclose(whole(alike).mean(dim=0), whole(opposed).mean(dim=0), atol=1e-6)
    pair = ProductKernel(ENCODER.blocks[:2], 20, 0.7)
    assert float((pair(alike).mean(dim=0) - pair(opposed).mean(dim=0)).norm()) > 0.1


def test_no_rows_have_no_features() -> None:
    nothing = torch.zeros(0, ENCODER.width)
    assert sum_kernel(ENCODER, 4, 0.5, 100)[0](nothing).shape == (0, 2 * 5 + 2 + 3)
    for kernel in product_kernels(ENCODER, 4, 0.5, 2, 5, np.random.default_rng(0)):
        assert kernel(nothing).shape[0] == 0
