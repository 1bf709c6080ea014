"""Random feature extractors: rows do not see each other, and a seed is an extractor."""

from __future__ import annotations

import pytest
import torch

from bench.methods._shared.extractors import extractor

KINDS = [("convnet", (1, 8, 8)), ("convnet", (3, 12, 9)), ("linear", (5,)), ("mlp", (5,))]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("kind", "inputs"), KINDS)
def test_a_rows_features_depend_on_that_row_alone(kind, inputs) -> None:
    rows = torch.randn(7, *inputs, generator=seeded(1))
    features = extractor(kind, inputs, 16, seeded())
    together = features(rows)
    for number in range(7):
        assert torch.allclose(features(rows[number : number + 1])[0], together[number], atol=1e-5)
    assert features(rows[:0]).shape == (0, together.shape[1])


@pytest.mark.parametrize(("kind", "inputs"), KINDS)
def test_flat_rows_and_shaped_rows_are_the_same(kind, inputs) -> None:
    rows = torch.randn(4, *inputs, generator=seeded(1))
    features = extractor(kind, inputs, 6, seeded())
    assert torch.equal(features(rows), features(rows.flatten(1)))


@pytest.mark.parametrize(("kind", "inputs"), KINDS)
def test_the_same_seed_is_the_same_extractor_and_the_next_one_is_another(kind, inputs) -> None:
    rows = torch.randn(4, *inputs, generator=seeded(1))
    generator = seeded()
    before = torch.get_rng_state()
    first, second = (extractor(kind, inputs, 6, generator)(rows) for _ in range(2))
    assert torch.equal(first, extractor(kind, inputs, 6, seeded())(rows))
    assert not torch.allclose(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_the_convnet_is_the_one_of_torch_layers() -> None:
    """The same numbers in layers of torch have the same features."""
    width, shape = 6, (2, 9, 8)
    generator = seeded()
    layers: list[torch.nn.Module] = []
    channels = shape[0]
    for _ in range(3):
        layer = torch.nn.Conv2d(channels, width, 3, padding=1)
        bound = (9 * channels) ** -0.5
        with torch.no_grad():
            layer.weight.copy_(torch.rand(layer.weight.shape, generator=generator) * 2 - 1)
            layer.bias.copy_(torch.rand(layer.bias.shape, generator=generator) * 2 - 1)
            layer.weight *= bound
            layer.bias *= bound
        layers += [layer, torch.nn.InstanceNorm2d(width), torch.nn.ReLU(), torch.nn.AvgPool2d(2)]
        channels = width
    expected = torch.nn.Sequential(*layers, torch.nn.Flatten())
    rows = torch.randn(5, *shape, generator=seeded(1))
    assert torch.allclose(extractor("convnet", shape, width, seeded())(rows), expected(rows))


def test_a_linear_extractor_is_affine_and_the_other_kinds_are_not() -> None:
    one, two = torch.randn(2, 5, generator=seeded(1)).unsqueeze(1)
    for kind, affine in (("linear", True), ("mlp", False)):
        features = extractor(kind, (5,), 64, seeded())
        middle = (features(one) + features(two)) / 2
        assert torch.allclose(features((one + two) / 2), middle, atol=1e-6) is affine


@pytest.mark.parametrize(("kind", "inputs"), KINDS)
def test_gradients_reach_the_rows(kind, inputs) -> None:
    rows = torch.randn(3, *inputs, generator=seeded(1)).requires_grad_(True)
    extractor(kind, inputs, 6, seeded())(rows)[1].square().sum().backward()
    assert rows.grad is not None and rows.grad[1].abs().sum() > 0
    assert rows.grad[0].abs().sum() == 0


def test_tiny_images_have_fewer_blocks() -> None:
    rows = torch.randn(3, 1, 5, 4, generator=seeded(1))
    features = extractor("convnet", (1, 5, 4), 6, seeded())(rows)
    assert features.shape == (3, 6)
    assert features.std(dim=0).min() > 0


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown extractor"):
        extractor("resnet", (5,), 6, seeded())
