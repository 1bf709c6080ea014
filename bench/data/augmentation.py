"""Differentiable siamese augmentation of images (Zhao and Bilen, ICML 2021, section 3.2).

One of six transformations is drawn, then its numbers: colour, crop, cutout, flip, scale, rotate.
An `Augmentation` is the drawn transformation. Called on any images it does the same to each of
them (siamese: real and synthetic images of a class are moved alike), or, drawn for `images` > 1,
another transformation to each (training of a classifier). It is differentiable in the pixels, an
image's result depends on that image alone, and no images give no images.

Strengths are the authors': brightness +-0.5, saturation 0 to 2, contrast 0.5 to 1.5, shifts of an
eighth of the side, a hole of half the side, a flip with probability one half, scale 1/1.2 to 1.2
along each side, rotation by up to 15 degrees. What a shift uncovers and a hole covers is 0: the
middle of encoded pixels in [-1, 1], as in the NDPDC paper, whose pixels have the same range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import torch

KINDS = ("colour", "crop", "cutout", "flip", "scale", "rotate")

_SHIFT = 0.125
_HOLE = 0.5
_SCALE = 1.2
_ANGLE = math.radians(15.0)


@final
@dataclass(frozen=True)
class Augmentation:
    """A drawn transformation; call it on images (rows, channels, height, width)."""

    kind: str
    numbers: torch.Tensor
    """(1, 3), the same for all images, or (images, 3): uniform in [0, 1)."""

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the transformed images."""
        import torch

        if not len(pixels):
            return pixels
        first, second, third = (column[:, None, None, None] for column in self.numbers.unbind(1))
        match self.kind:
            case "colour":
                return _coloured(pixels, first, second, third)
            case "crop":
                return _shifted(pixels, first, second)
            case "cutout":
                return pixels * _outside_hole(pixels, first, second)
            case "flip":
                return torch.where(first < 0.5, pixels.flip(3), pixels)
            case "scale":
                low, high = 1.0 / _SCALE, _SCALE
                zero = torch.zeros_like(first)
                down, across = (low + (high - low) * number for number in (first, second))
                return _affine(pixels, across, zero, zero, down)
            case "rotate":
                angle = (2.0 * first - 1.0) * _ANGLE
                return _affine(pixels, angle.cos(), -angle.sin(), angle.sin(), angle.cos())
        raise ValueError(f"unknown augmentation {self.kind!r}; use one of {', '.join(KINDS)}")


def draw(generator: torch.Generator, images: int = 1) -> Augmentation:
    """Draw a transformation: the same numbers for all images, or others for each of `images`."""
    import torch

    kind = KINDS[int(torch.randint(len(KINDS), (), generator=generator))]
    return Augmentation(kind, torch.rand((images, 3), generator=generator))


def _coloured(
    pixels: torch.Tensor, first: torch.Tensor, second: torch.Tensor, third: torch.Tensor
) -> torch.Tensor:
    brighter = pixels + (first - 0.5)
    grey = brighter.mean(dim=1, keepdim=True)
    saturated = grey + (brighter - grey) * (2.0 * second)
    middle = saturated.mean(dim=(1, 2, 3), keepdim=True)
    return middle + (saturated - middle) * (0.5 + third)


def _shifted(pixels: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Shift by whole pixels up or down and left or right; new pixels are 0."""
    import torch
    from torch.nn import functional

    height, width = pixels.shape[2:]
    room_down, room_across = (int(side * _SHIFT + 0.5) for side in (height, width))
    down = (first * (2 * room_down + 1)).long()
    across = (second * (2 * room_across + 1)).long()
    padded = functional.pad(pixels, (room_across, room_across, room_down, room_down))
    if len(first) == 1:
        top, left = int(down), int(across)
        return padded[:, :, top : top + height, left : left + width]
    rows = torch.arange(len(pixels))[:, None, None, None]
    channels = torch.arange(pixels.shape[1])[:, None, None]
    lines = torch.arange(height)[:, None] + down
    return padded[rows, channels, lines, torch.arange(width) + across]


def _outside_hole(pixels: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return 0 inside a rectangle of half the sides that lies anywhere, and 1 outside it."""
    import torch

    inside = torch.ones((), dtype=torch.bool)
    for number, dimension in ((first, 2), (second, 3)):
        side = pixels.shape[dimension]
        size = int(side * _HOLE + 0.5)
        start = (number * (side + 1 - size % 2)).floor() - size // 2
        places = torch.arange(side).reshape([-1 if d == dimension else 1 for d in range(4)])
        inside = inside & (places >= start) & (places < start + size)
    return (~inside).to(pixels.dtype)


def _affine(
    pixels: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor
) -> torch.Tensor:
    """Map output pixel (x, y), seen from the middle, to input pixel (a x + b y, c x + d y)."""
    import torch
    from torch.nn import functional

    zero = torch.zeros_like(a)
    matrix = torch.cat([a, b, zero, c, d, zero], dim=1).reshape(-1, 2, 3)
    size = list(pixels.shape)
    grid = functional.affine_grid(matrix, [len(matrix), *size[1:]], align_corners=True)
    return functional.grid_sample(pixels, grid.expand(size[0], -1, -1, -1), align_corners=True)
