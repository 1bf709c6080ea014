"""Rows with one number per column: categories as their place in the order of the schema.

The NDPDC paper feeds Adult to a layer of 14 x 64: one input for each of its columns, where one-hot
codes would be about a hundred. A category of K then is -1 + 2 k / (K - 1), k its place in the
schema. The order of nominal categories means nothing, but the inputs are fewer, and so are the
numbers that a synthetic row has to learn. Both maps follow from the schema alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from bench import Encoder, Floats


def ordinal_projection(encoder: Encoder) -> torch.Tensor:
    """(encoded columns, blocks): the ordinal numbers of encoded rows are their product with it."""
    matrix = torch.zeros((encoder.width, len(encoder.blocks)))
    for at, block in enumerate(encoder.blocks):
        size = block.stop - block.start
        matrix[block.slice, at] = torch.linspace(-1.0, 1.0, size) if size > 1 else 1.0
    return matrix


def encoded(encoder: Encoder, ordinal: Floats) -> Floats:
    """Encoded rows of ordinal numbers; a category is the one whose place is nearest."""
    values: npt.NDArray[np.float32] = np.zeros((len(ordinal), encoder.width), dtype=np.float32)
    for at, block in enumerate(encoder.blocks):
        size = block.stop - block.start
        if size == 1:
            values[:, block.start] = ordinal[:, at]
            continue
        places = np.rint((ordinal[:, at] + 1.0) / 2.0 * (size - 1)).astype(int)
        values[np.arange(len(values)), block.start + np.clip(places, 0, size - 1)] = 1.0
    return values
