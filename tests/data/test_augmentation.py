"""Differentiable siamese augmentation: shared numbers, images apart, known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from bench.data.augmentation import KINDS, Augmentation, draw


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 4, channels: int = 3, height: int = 9, width: int = 8) -> torch.Tensor:
    return torch.rand(count, channels, height, width, generator=seeded(7)) * 2 - 1


def with_numbers(kind: str, *numbers: float) -> Augmentation:
    return Augmentation(kind, torch.tensor([[*numbers, 0.0, 0.0, 0.0][:3]]))


@pytest.mark.parametrize("kind", KINDS)
def test_siamese_images_are_moved_alike_and_others_differently(kind: str) -> None:
    augment = Augmentation(kind, torch.rand((1, 3), generator=seeded(3)))
    pixels = images()
    together = augment(pixels)
    assert together.shape == pixels.shape
    for number in range(len(pixels)):
        assert torch.allclose(augment(pixels[number : number + 1])[0], together[number], atol=1e-6)
    assert augment(pixels[:0]).shape == (0, *pixels.shape[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_for_each_image_are_the_siamese_ones_one_by_one(kind: str) -> None:
    numbers = torch.rand((4, 3), generator=seeded(3))
    pixels = images()
    each = Augmentation(kind, numbers)(pixels)
    for row in range(4):
        alone = Augmentation(kind, numbers[row : row + 1])(pixels[row : row + 1])
        assert torch.allclose(each[row], alone[0], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_the_pixels(kind: str) -> None:
    pixels = images().requires_grad_(True)
    Augmentation(kind, torch.full((1, 3), 0.3))(pixels)[1].sum().backward()
    assert pixels.grad is not None
    assert pixels.grad[1].abs().sum() > 0 and pixels.grad[0].abs().sum() == 0


def test_every_kind_is_drawn_and_a_seed_is_a_drawing() -> None:
    generator = seeded()
    before = torch.get_rng_state()
    drawn = [draw(generator) for _ in range(200)]
    assert {augment.kind for augment in drawn} == set(KINDS)
    again = draw(seeded())
    assert again.kind == drawn[0].kind and torch.equal(again.numbers, drawn[0].numbers)
    assert draw(seeded(), images=5).numbers.shape == (5, 3)
    assert torch.equal(before, torch.get_rng_state())


def test_colour_changes_brightness_saturation_and_contrast() -> None:
    pixels = images()
    unchanged = with_numbers("colour", 0.5, 0.5, 0.5)(pixels)
    assert torch.allclose(unchanged, pixels, atol=1e-6)
    brighter = with_numbers("colour", 1.0, 0.5, 0.5)(pixels)
    assert torch.allclose(brighter, pixels + 0.5, atol=1e-6)
    grey = with_numbers("colour", 0.5, 0.0, 0.5)(pixels)
    assert torch.allclose(grey, pixels.mean(dim=1, keepdim=True).expand_as(pixels), atol=1e-6)
    flat = with_numbers("colour", 0.5, 0.5, 0.0)(pixels)
    assert torch.allclose(flat.std(dim=(1, 2, 3)), pixels.std(dim=(1, 2, 3)) / 2, atol=1e-6)


def test_crop_shifts_by_an_eighth_at_most_and_brings_in_zeros() -> None:
    pixels = images(height=16, width=8)
    far = with_numbers("crop", 0.999, 0.0)(pixels)  # two lines up, one column to the right
    assert torch.equal(far[:, :, :14, 1:], pixels[:, :, 2:, :7])
    assert far[:, :, 14:].abs().sum() == 0 and far[:, :, :, 0].abs().sum() == 0
    assert torch.equal(with_numbers("crop", 0.5, 0.5)(pixels), pixels)


def test_cutout_leaves_a_hole_of_half_the_sides() -> None:
    pixels = torch.ones(2, 1, 8, 8)
    middle = with_numbers("cutout", 0.5, 0.5)(pixels)
    expected = torch.ones(8, 8)
    expected[2:6, 2:6] = 0
    assert torch.equal(middle[1, 0], expected)
    corner = with_numbers("cutout", 0.0, 0.0)(pixels)
    assert (corner[0, 0] == 0).sum() == 4 and corner[0, 0, :2, :2].sum() == 0


def test_flip_mirrors_half_of_the_time() -> None:
    pixels = images()
    assert torch.equal(with_numbers("flip", 0.2)(pixels), pixels.flip(3))
    assert torch.equal(with_numbers("flip", 0.7)(pixels), pixels)


def test_rotation_and_scale_are_those_of_scipy() -> None:
    pixels = images(1, 1, 9, 9)
    middle = np.array([4.0, 4.0])
    for kind, number in (("rotate", 0.9), ("scale", 0.25)):
        if kind == "rotate":
            angle = math.radians(15 * (2 * number - 1))
            matrix = np.array(
                [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
            )
        else:
            matrix = np.eye(2) * (1 / 1.2 + number * (1.2 - 1 / 1.2))
        expected = ndimage.affine_transform(
            pixels[0, 0].numpy(),
            matrix,
            offset=middle - matrix @ middle,
            order=1,
            mode="grid-constant",
        )
        ours = with_numbers(kind, number, number)(pixels)[0, 0].numpy()
        assert np.abs(ours - expected).max() < 1e-5


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown augmentation"):
        with_numbers("blur")(images())
