"""Features whose mean embeds a distribution, of norm at most 1 for every row.

Random Fourier features of the Gaussian kernel exp(-|x - x'|^2 / (2 l^2)) (Rahimi and Recht 2007):
with frequencies w_j ~ N(0, I / l^2), j = 1..D/2,

    phi(x) = sqrt(2 / D) [cos(w_1 x), ..., cos(w_D/2 x), sin(w_1 x), ..., sin(w_D/2 x)].

|phi(x)| = 1 exactly, because cos^2 + sin^2 = 1: one row moves a sum of features by 1, whatever the
row is.

Rows with categories can have the sum kernel of DP-MERF (Harder et al., section 4.2): the features
of the numbers beside the one-hot codes divided by the root of the number of categorical columns.
Both parts have norm 1, so that together they are divided by sqrt(2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from bench import Categorical, Encoder, Floats

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float32]


@final
@dataclass(frozen=True)
class Embedding:
    """phi: encoded values to features of norm at most 1."""

    frequencies: Array
    """(D / 2, columns of the Gaussian kernel)."""
    smooth: npt.NDArray[np.intp]
    """Encoded columns that the Gaussian kernel sees."""
    linear: Array
    """(encoded width, further features): a linear map for the categories; may have no columns."""
    offset: Array
    """Added to the linear features."""

    @property
    def width(self) -> int:
        """Number of features."""
        return int(2 * len(self.frequencies) + self.linear.shape[1])

    @property
    def _scale(self) -> float:
        both = len(self.frequencies) > 0 and self.linear.shape[1] > 0
        return 1.0 / np.sqrt(2.0) if both else 1.0

    def of_rows(self, values: Floats) -> Array:
        """Features of encoded rows, one vector a row; of no rows as well."""
        features = np.empty((len(values), self.width), dtype=np.float32)
        half = len(self.frequencies)
        rows = np.asarray(values, dtype=np.float32)
        if half:
            angles = rows[:, self.smooth] @ self.frequencies.T
            # The same scale for both halves: this is where the norm of 1 comes from.
            scale = np.float32(self._scale / np.sqrt(half))
            features[:, :half] = scale * np.cos(angles)
            features[:, half : 2 * half] = scale * np.sin(angles)
        if self.linear.shape[1]:
            features[:, 2 * half :] = np.float32(self._scale) * (rows @ self.linear + self.offset)
        return features

    def of_tensor(self, values: torch.Tensor) -> torch.Tensor:
        """The same of generated rows, differentiable."""
        import torch

        pieces = []
        half = len(self.frequencies)
        if half:
            angles = values[:, self.smooth] @ torch.from_numpy(self.frequencies).T
            waves = torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)
            pieces.append(self._scale / np.sqrt(half) * waves)
        if self.linear.shape[1]:
            linear = values @ torch.from_numpy(self.linear) + torch.from_numpy(self.offset)
            pieces.append(self._scale * linear)
        return torch.cat(pieces, dim=1)


def joint_kernel(
    encoder: Encoder, features: int, length_scale: float, rng: np.random.Generator
) -> Embedding:
    """One Gaussian kernel over all encoded columns, one-hot codes included.

    Its length is `length_scale` times the root of the number of columns.
    """
    everything = np.arange(encoder.width)
    length = length_scale * encoder.max_norm
    nothing = np.zeros((encoder.width, 0), dtype=np.float32)
    return Embedding(
        _frequencies(encoder.width, features, length, rng), everything, nothing, nothing[0]
    )


def sum_kernel(
    encoder: Encoder, features: int, length_scale: float, rng: np.random.Generator
) -> Embedding:
    """A Gaussian kernel over the numbers plus a linear one over the categories (DP-MERF)."""
    categorical = [block for block in encoder.blocks if isinstance(block.column, Categorical)]
    smooth = np.array(
        [b.start for b in encoder.blocks if not isinstance(b.column, Categorical)], dtype=np.intp
    )
    count = len(smooth)
    frequencies = _frequencies(
        count, features if count else 0, length_scale * np.sqrt(max(1, count)), rng
    )
    codes = sum(max(2, block.stop - block.start) for block in categorical)
    linear = np.zeros((encoder.width, codes), dtype=np.float32)
    offset = np.zeros(codes, dtype=np.float32)
    root = np.sqrt(max(1, len(categorical)))
    at = 0
    for block in categorical:
        if block.stop - block.start == 1:
            # A binary column in {-1, 1} as the one-hot code ((1 - v) / 2, (1 + v) / 2).
            linear[block.start, at : at + 2] = (-0.5 / root, 0.5 / root)
            offset[at : at + 2] = 0.5 / root
            at += 2
        else:
            size = block.stop - block.start
            linear[block.slice, at : at + size] = np.eye(size) / root
            at += size
    return Embedding(frequencies, smooth, linear, offset)


def _frequencies(width: int, features: int, length: float, rng: np.random.Generator) -> Array:
    return (rng.normal(size=(features // 2, width)) / length).astype(np.float32)
