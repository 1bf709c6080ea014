"""Encoded rows as small integers, one code per column, by the public schema alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Block, EncodedRows, Encoder, Floats, Integers, Numeric, stand_in

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


def put_absent(
    values: npt.NDArray[np.floating], block: Block, indicator: Block, absent: npt.NDArray[np.bool_]
) -> None:
    """Write into encoded rows whether a number is present, and the stand-in where it is not."""
    column = block.column
    assert isinstance(column, Numeric)
    scaled = 2.0 * (stand_in(column) - column.low) / (column.high - column.low) - 1.0
    values[:, block.start] = np.where(absent, scaled, values[:, block.start])
    values[:, indicator.start] = np.where(absent, -1.0, 1.0)


@final
@dataclass(frozen=True)
class EqualBins:
    """Categories, and bins of equal width between the public bounds of a number.

    A number that can be missing has one bin more, the last, and the block that says so is no column
    here: its rows are not counted at the number that stands in.
    """

    encoder: Encoder
    bins: int
    """Bins of a number."""
    blocks: tuple[Block, ...] = field(init=False)
    """Those of declared columns."""
    sizes: tuple[int, ...] = field(init=False)
    """Number of codes of each column."""

    def __post_init__(self) -> None:
        blocks = tuple(block for block in self.encoder.blocks if not block.indicates)
        sizes = tuple(
            self.bins + block.column.missing
            if isinstance(block.column, Numeric)
            else max(2, block.stop - block.start)
            for block in blocks
        )
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "sizes", sizes)

    def codes(self, rows: EncodedRows) -> Codes:
        """(rows, columns) codes; acts row by row."""
        codes = np.empty((len(rows), len(self.sizes)), dtype=np.int64)
        for number, block in enumerate(self.blocks):
            values = rows.values[:, block.slice]
            if isinstance(block.column, Numeric):
                codes[:, number] = np.clip((values[:, 0] + 1.0) / 2.0 * self.bins, 0, self.bins - 1)
                indicator = self.encoder.indicator(block)
                if indicator is not None:
                    codes[rows.values[:, indicator.start] < 0, number] = self.bins
            else:
                codes[:, number] = category_codes(values)
        return codes
