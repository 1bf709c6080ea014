"""Random feature extractors, never trained, in which methods compare real and synthetic rows.

`extractor(kind, inputs, width, generator)` draws new parameters from the generator and returns a
function from encoded rows to features, one vector per row, differentiable by torch. A row's
features depend on that row alone: there is no batch normalisation, and no rows have no features.

* `convnet`, for images: three times 3x3 convolution, instance normalisation, ReLU and 2x2 average
  pooling, flattened (Zhao and Bilen, Dataset Condensation with Distribution Matching; 128 channels
  there). Images below 8 pixels per side get as many blocks as they have halvings: a normalisation
  over a single pixel would erase it.
* `linear`, for tables: one linear layer (NDPDC paper, section V.D: 14x64 on Adult).
* `mlp`, for tables: a linear layer, ReLU, and another linear layer, all of one width.

Weights and biases are uniform in +-1/sqrt(inputs), as the layers of torch start. Whether inputs are
flat rows (rows, d) or images (rows, channels, height, width) makes no difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch.nn import functional

Extractor = Callable[[torch.Tensor], torch.Tensor]
"""(rows, ...) encoded values to (rows, k) features."""

Kind = Literal["convnet", "linear", "mlp"]

_BLOCKS = 3


def extractor(
    kind: Kind,
    inputs: Sequence[int],
    width: int,
    generator: torch.Generator,
    convolutions: torch.dtype = torch.float32,
) -> Extractor:
    """A new random extractor.

    `inputs` is the shape of one row: (channels, height, width) of an image, (d,) of a table row.
    `width` is the number of channels (convnet) or of outputs per layer (linear, mlp).
    `convolutions` is the number type of a ConvNet's convolutions; features are float32.
    """
    if kind == "convnet":
        return _convnet(inputs, width, generator, convolutions)
    if kind == "linear":
        return _linear(math.prod(inputs), width, generator)
    if kind == "mlp":
        first = _linear(math.prod(inputs), width, generator)
        second = _linear(width, width, generator)
        return lambda rows: second(functional.relu(first(rows)))
    raise ValueError(f"unknown extractor {kind!r}; use convnet, linear or mlp")


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> Extractor:
    weight = _uniform((outputs, inputs), inputs, generator)
    bias = _uniform((outputs,), inputs, generator)
    return lambda rows: functional.linear(rows.reshape(-1, inputs), weight, bias)


def _convnet(
    shape: Sequence[int], width: int, generator: torch.Generator, number: torch.dtype
) -> Extractor:
    from bench.methods._shared.pooled_blocks import pooled_block

    channels, height, across = shape
    blocks = min(_BLOCKS, min(height, across).bit_length() - 1)
    layers: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(blocks):
        inputs = 9 * channels
        kernel = _uniform((width, channels, 3, 3), inputs, generator)
        bias = _uniform((width,), inputs, generator)
        layers.append((kernel.to(number), bias.to(number)))
        channels = width
    outputs = channels * (height >> blocks) * (across >> blocks)

    def features(rows: torch.Tensor) -> torch.Tensor:
        hidden = rows.reshape(-1, *shape)
        if not len(hidden):
            return hidden.new_zeros((0, outputs))
        hidden = hidden.to(number)
        for kernel, bias in layers:
            hidden = pooled_block(functional.conv2d(hidden, kernel, bias, padding=1))
        return hidden.flatten(1).float()

    return features


def _uniform(size: Sequence[int], inputs: int, generator: torch.Generator) -> torch.Tensor:
    numbers: torch.Tensor = (torch.rand(size, generator=generator) * 2 - 1) / inputs**0.5
    return numbers
