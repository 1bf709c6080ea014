"""Instance normalisation, ReLU and 2x2 average pooling of a convolution's output, in one pass.

Import lazily: it brings in numba. As three operations of torch these read and write the largest
arrays of a ConvNet some ten times, which on one core takes longer than the convolutions do. Here a
plane (one channel of one image) stays in the processor's cache from its mean to its pooled values:
with z = (x - mean) / sqrt(variance + 1e-5),

    y[a, b] = 1/4 sum over the 2x2 pixels of max(z, 0)
    dx = (g - mean(g) - z mean(g z)) / sqrt(variance + 1e-5),   g = dy / 4 where z > 0, else 0

A last odd row or column is normalised and not pooled, as in torch. A plane is computed alone and in
one order: what its neighbours are, and where in memory it lies, changes no bit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from numba import njit

Array = npt.NDArray[np.float32]

_EPSILON: Final = np.float32(1e-5)
_QUARTER: Final = np.float32(0.25)
# Sums may be reordered, so that they use vector instructions; NaN and infinity stay what they are.
_REORDER: Final = {"reassoc", "contract", "nsz"}


def pooled_block(hidden: torch.Tensor) -> torch.Tensor:
    """Return avg_pool2d(relu(instance_norm(hidden)), 2) of (rows, channels, height, width).

    The arithmetic is that of single precision; the result has the type of `hidden`.
    """
    made: torch.Tensor = _PooledBlock.apply(hidden)
    return made


class _PooledBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor) -> torch.Tensor:
        rows, channels, height, width = hidden.shape
        planes = hidden.float().contiguous().view(rows * channels, height * width)
        pooled = planes.new_empty((len(planes), (height // 2) * (width // 2)))
        mean, scale = planes.new_empty(len(planes)), planes.new_empty(len(planes))
        _forward(planes.numpy(), pooled.numpy(), mean.numpy(), scale.numpy(), width)
        ctx.save_for_backward(planes, mean, scale)
        ctx.like = hidden.shape, hidden.dtype
        return pooled.view(rows, channels, height // 2, width // 2).to(hidden.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        planes, mean, scale = ctx.saved_tensors
        shape, dtype = ctx.like
        pooled = gradients[0].float().contiguous().view(len(planes), -1)
        gradient = torch.zeros_like(planes)
        _backward(
            planes.numpy(), mean.numpy(), scale.numpy(), pooled.numpy(), gradient.numpy(), shape[3]
        )
        return gradient.view(shape).to(dtype)


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _forward(planes: Array, pooled: Array, mean: Array, scale: Array, width: int) -> None:
    pixels = planes.shape[1]
    high, wide = pixels // width // 2, width // 2
    zero = np.float32(0)
    for at in range(planes.shape[0]):
        plane = planes[at]
        total = zero
        for pixel in range(pixels):
            total += plane[pixel]
        middle = total / np.float32(pixels)
        squares = zero
        for pixel in range(pixels):
            apart = plane[pixel] - middle
            squares += apart * apart
        inverse = np.float32(1) / np.sqrt(squares / np.float32(pixels) + _EPSILON)
        mean[at], scale[at] = middle, inverse
        share = _QUARTER * inverse
        for row in range(high):
            top = plane[2 * row * width : (2 * row + 1) * width]
            below = plane[(2 * row + 1) * width : (2 * row + 2) * width]
            out = pooled[at, row * wide : (row + 1) * wide]
            for column in range(wide):
                left, right = 2 * column, 2 * column + 1
                out[column] = share * (
                    max(top[left] - middle, zero)
                    + max(top[right] - middle, zero)
                    + max(below[left] - middle, zero)
                    + max(below[right] - middle, zero)
                )


@njit(cache=True, nogil=True, fastmath=_REORDER)
def _backward(
    planes: Array, mean: Array, scale: Array, pooled: Array, gradient: Array, width: int
) -> None:
    pixels = planes.shape[1]
    high, wide = pixels // width // 2, width // 2
    zero = np.float32(0)
    for at in range(planes.shape[0]):
        plane, middle, inverse, out = planes[at], mean[at], scale[at], gradient[at]
        total, along = zero, zero
        for row in range(2 * high):
            line = plane[row * width : (row + 1) * width]
            moved = out[row * width : (row + 1) * width]
            given = pooled[at, row // 2 * wide : (row // 2 + 1) * wide]
            for column in range(wide):
                share = given[column] * _QUARTER
                left, right = line[2 * column] - middle, line[2 * column + 1] - middle
                first = share if left > zero else zero
                second = share if right > zero else zero
                moved[2 * column], moved[2 * column + 1] = first, second
                total += first + second
                along += first * left + second * right
        total = total / np.float32(pixels)
        along = along * inverse * inverse / np.float32(pixels)
        for pixel in range(pixels):
            out[pixel] = inverse * (out[pixel] - total - (plane[pixel] - middle) * along)
