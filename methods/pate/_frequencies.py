"""Frequencies of categories and intervals in each class: where CTGAN's conditions come from.

Every column of the encoder's layout becomes one of a few cells: its categories, or equal intervals
between the public bounds of a number (CTGAN's modes are a mixture fitted to the rows instead).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from bench import EncodedRows, Encoder, Numeric

Array = npt.NDArray[np.float64]

_UNSEEN = 1e-6
"""Least probability of a cell: the generator starts from its logarithm."""


@final
@dataclass(frozen=True)
class Cells:
    """How rows map to cells and back, by the schema alone."""

    encoder: Encoder
    bins: int
    """Intervals of a number."""
    sizes: tuple[int, ...] = field(init=False)
    """Cells of each column."""

    def __post_init__(self) -> None:
        sizes = tuple(
            self.bins if isinstance(block.column, Numeric) else max(2, block.stop - block.start)
            for block in self.encoder.blocks
        )
        object.__setattr__(self, "sizes", sizes)

    @property
    def most(self) -> int:
        """Cells of the column that has most of them."""
        return max(self.sizes)

    def codes(self, rows: EncodedRows) -> npt.NDArray[np.int64]:
        """(rows, columns) numbers of cells; acts row by row."""
        codes = np.empty((len(rows), len(self.sizes)), dtype=np.int64)
        for number, block in enumerate(self.encoder.blocks):
            values = rows.values[:, block.slice]
            if isinstance(block.column, Numeric):
                codes[:, number] = np.clip((values[:, 0] + 1.0) / 2.0 * self.bins, 0, self.bins - 1)
            elif block.stop - block.start == 1:
                codes[:, number] = values[:, 0] > 0
            else:
                codes[:, number] = np.argmax(values, axis=1)
        return codes

    def centres(self) -> Array:
        """(columns, most, width): the encoded values that a cell adds to a row."""
        centres = np.zeros((len(self.sizes), self.most, self.encoder.width))
        for number, block in enumerate(self.encoder.blocks):
            size = self.sizes[number]
            if isinstance(block.column, Numeric):
                centres[number, :size, block.start] = 2.0 * (np.arange(size) + 0.5) / size - 1.0
            elif block.stop - block.start == 1:
                centres[number, :2, block.start] = (-1.0, 1.0)
            else:
                centres[number, np.arange(size), block.start + np.arange(size)] = 1.0
        return centres


def frequencies(counts: list[Array], total: int, most: int) -> Array:
    """(columns, most) probabilities nearest to noisy counts of `total` rows; 0 beyond a column.

    Each column's counts over the declared total are projected onto the simplex, which subtracts
    the same number everywhere and cuts at 0: cells that hold noise only are mostly emptied.
    """
    table = np.zeros((len(counts), most))
    for number, noisy in enumerate(counts):
        chances = on_simplex(noisy / max(1, total))
        table[number, : len(noisy)] = (chances + _UNSEEN) / (1.0 + _UNSEEN * len(noisy))
    return table


def on_simplex(vector: Array) -> Array:
    """The nearest vector of probabilities (Duchi et al. 2008, figure 1)."""
    falling = np.sort(vector)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, len(vector) + 1)
    threshold = excess[np.flatnonzero(falling > excess)[-1]]
    result: Array = np.maximum(vector - threshold, 0.0)
    return result
