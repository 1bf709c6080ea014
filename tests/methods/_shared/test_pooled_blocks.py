"""Normalisation, ReLU and pooling in one pass are those of torch, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bench.methods._shared.extractors import extractor
from bench.methods._shared.pooled_blocks import pooled_block


def by_torch(hidden: torch.Tensor) -> torch.Tensor:
    channels = hidden.shape[1]
    return functional.avg_pool2d(functional.relu(functional.group_norm(hidden, channels)), 2)


@pytest.mark.parametrize("shape", [(3, 5, 8, 6), (2, 4, 7, 9), (1, 1, 28, 28)])
def test_values_and_gradients_are_those_of_torch(shape) -> None:
    generator = torch.Generator().manual_seed(3)
    hidden = (4.0 * torch.randn(shape, generator=generator) + 2.0).requires_grad_(True)
    expected, got = by_torch(hidden), pooled_block(hidden)
    assert torch.allclose(got, expected, atol=1e-5)
    weights = torch.randn(expected.shape, generator=generator)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), hidden)
    (found,) = torch.autograd.grad((got * weights).sum(), hidden)
    assert torch.allclose(found, wanted, atol=1e-5)


def test_neighbours_change_no_bit() -> None:
    hidden = torch.randn(9, 3, 10, 10, generator=torch.Generator().manual_seed(4))
    together = pooled_block(hidden)
    for number in range(9):
        assert torch.equal(pooled_block(hidden[number : number + 1])[0], together[number])


def test_convolutions_in_bfloat16_round_features_and_no_more() -> None:
    rows = torch.randn(6, 1, 28, 28, generator=torch.Generator().manual_seed(5))
    full, short = (
        extractor("convnet", (1, 28, 28), 32, torch.Generator().manual_seed(6), number)(rows)
        for number in (torch.float32, torch.bfloat16)
    )
    assert short.dtype == torch.float32
    assert not torch.equal(full, short)
    assert float((full - short).norm() / full.norm()) < 0.02
