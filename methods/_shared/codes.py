"""Encoded rows as small integers, one code per column, by the public schema alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Block, EncodedRows, Encoder, Floats, Integers, Numeric

Codes = npt.NDArray[np.int64]


def category_codes(values: Floats) -> Codes:
    """Codes of one categorical block: the sign of a binary column, or the largest entry."""
    codes = values[:, 0] > 0 if values.shape[1] == 1 else np.argmax(values, axis=1)
    return np.asarray(codes, dtype=np.int64)


def put_categories(values: Floats, block: Block, codes: Integers) -> None:
    """Write the codes of one categorical block into encoded rows, which are zero there."""
    if block.stop - block.start == 1:
        values[:, block.start] = 2.0 * codes - 1.0
    else:
        values[np.arange(len(values)), block.start + codes] = 1.0


@final
@dataclass(frozen=True)
class EqualBins:
    """Categories, and bins of equal width between the public bounds of a number."""

    encoder: Encoder
    bins: int
    """Bins of a number."""
    sizes: tuple[int, ...] = field(init=False)
    """Number of codes of each column."""

    def __post_init__(self) -> None:
        sizes = tuple(
            self.bins if isinstance(block.column, Numeric) else max(2, block.stop - block.start)
            for block in self.encoder.blocks
        )
        object.__setattr__(self, "sizes", sizes)

    def codes(self, rows: EncodedRows) -> Codes:
        """(rows, columns) codes; acts row by row."""
        codes = np.empty((len(rows), len(self.sizes)), dtype=np.int64)
        for number, block in enumerate(self.encoder.blocks):
            values = rows.values[:, block.slice]
            if isinstance(block.column, Numeric):
                codes[:, number] = np.clip((values[:, 0] + 1.0) / 2.0 * self.bins, 0, self.bins - 1)
            else:
                codes[:, number] = category_codes(values)
        return codes
