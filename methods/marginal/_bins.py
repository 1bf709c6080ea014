"""Tables of small integers, and back: what methods that count cells work on.

Every column is cut by the schema alone, or at noisy cuts that the kernel released (`_discretise`).
Columns in the encoder's order (a survival time is one of them), the label last:

* categories keep their order;
* a number is cut into `bins` bins of equal width between its public bounds, preceded by one bin for
  the lower bound itself: amounts, counts and lengths of stay are often exactly there, and a wide
  first bin would smear what is the largest part of such a column;
* a whole number with at most `bins` values has one bin per value;
* a number that can be missing has one bin more, the last: that it is missing. The block that says
  so (`Encoder.indicator`) is therefore no column here. As a column of its own, rows that lack the
  number would be counted at the stand-in as well, and rows that have it be drawn from there.

The way back draws uniformly within a bin, from public randomness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Block, Categorical, Column, EncodedRows, Encoder, Numeric, Rows
from bench.methods._shared.codes import Codes, category_codes


@final
@dataclass(frozen=True)
class Cut:
    """How one numeric column is cut: code i stands for lower[i] <= x < upper[i].

    Where both are the same, for that number.
    """

    column: Numeric
    lower: npt.NDArray[np.float64]
    upper: npt.NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of codes, that of a missing number included."""
        return len(self.lower) + self.column.missing

    @classmethod
    def of(cls, column: Numeric, bins: int) -> Cut:
        """The bins of a column, from its public bounds."""
        low, high = column.low, column.high
        if not column.integer:
            edges = np.linspace(low, high, bins + 1)
            return cls(column, np.r_[low, edges[:-1]], np.r_[low, edges[1:]])
        first, last = int(np.ceil(low)), int(np.floor(high))
        if last - first + 1 <= bins:
            values = np.arange(first, last + 1, dtype=np.float64)
            return cls(column, values, values)
        edges = np.unique(np.rint(np.linspace(first + 1, last + 1, bins + 1)))
        return cls(column, np.r_[first, edges[:-1]], np.r_[first, edges[1:]])

    @classmethod
    def at(cls, column: Numeric, shares: Sequence[float]) -> Cut:
        """Cut at these shares of the range, beside the bin of the lower bound itself."""
        inner = column.low + np.asarray(shares, dtype=np.float64) * (column.high - column.low)
        if not column.integer:
            edges = np.r_[column.low, inner, column.high]
            return cls(column, np.r_[column.low, edges[:-1]], np.r_[column.low, edges[1:]])
        first, last = int(np.ceil(column.low)), int(np.floor(column.high))
        # The first whole number that is not below a cut, but for rounding.
        whole = np.clip(np.ceil(inner - 1e-9 * (last - first)), first + 1, last + 1)
        edges = np.unique(np.r_[first + 1, whole, last + 1])
        return cls(column, np.r_[first, edges[:-1]], np.r_[first, edges[1:]])

    def codes(self, scaled: npt.NDArray[np.floating]) -> Codes:
        """Codes of encoded values, in [-1, 1]."""
        span = self.column.high - self.column.low
        numbers = self.column.low + (scaled.astype(np.float64) + 1.0) / 2.0 * span
        if self.column.integer:
            numbers = np.rint(numbers)
        codes = np.searchsorted(self.lower, numbers, side="right") - 1
        if self.upper[0] == self.lower[0] and not self.column.integer:
            # The two bins that begin at the lower bound: the number itself, and what lies above.
            codes = np.where(numbers <= self.lower[0], 0, codes)
        return np.clip(codes, 0, len(self.lower) - 1)

    def numbers(self, codes: Codes, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Draw one number per code, uniformly in its bin."""
        lower, upper = self.lower[codes], self.upper[codes]
        drawn = lower + rng.random(len(codes)) * (upper - lower)
        return np.floor(drawn) if self.column.integer else drawn


@final
@dataclass(frozen=True)
class Binning:
    """Encoded rows as codes, by the schema alone."""

    encoder: Encoder
    bins: int
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Inner ends, as shares of the range, of columns that are not cut into equal bins."""
    blocks: tuple[Block, ...] = field(init=False)
    """Those of declared columns."""
    cuts: tuple[Cut | None, ...] = field(init=False)
    """One per declared column; None for categories."""

    def __post_init__(self) -> None:
        blocks = tuple(block for block in self.encoder.blocks if not block.indicates)
        cuts = tuple(
            self._cut(block.column) if isinstance(block.column, Numeric) else None
            for block in blocks
        )
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "cuts", cuts)

    def _cut(self, column: Numeric) -> Cut:
        shares = self.edges.get(column.name)
        return Cut.of(column, self.bins) if shares is None else Cut.at(column, shares)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each column, the label's last."""
        sizes = [
            cut.size if cut is not None else _categories(block.column)
            for cut, block in zip(self.cuts, self.blocks, strict=True)
        ]
        return (*sizes, len(self.encoder.schema.classes))

    def codes(self, rows: EncodedRows) -> Codes:
        """(rows, columns) codes, the label last. Acts row by row."""
        table = np.empty((len(rows), len(self.cuts) + 1), dtype=np.int64)
        for number, (cut, block) in enumerate(zip(self.cuts, self.blocks, strict=True)):
            values = rows.values[:, block.slice]
            if cut is not None:
                table[:, number] = cut.codes(values[:, 0])
                indicator = self.encoder.indicator(block)
                if indicator is not None:
                    table[rows.values[:, indicator.start] < 0, number] = len(cut.lower)
            else:
                table[:, number] = category_codes(values)
        table[:, -1] = rows.labels
        return table

    def rows(self, table: Codes, rng: np.random.Generator) -> Rows:
        """Rows in the encoder's layout, numbers drawn within their bins."""
        data: dict[str, npt.NDArray[np.float64] | pd.Categorical[str]] = {}
        for number, (cut, block) in enumerate(zip(self.cuts, self.blocks, strict=True)):
            column = block.column
            if cut is not None:
                codes = table[:, number]
                absent = codes == len(cut.lower)
                drawn = cut.numbers(np.minimum(codes, len(cut.lower) - 1), rng)
                data[column.name] = np.where(absent, np.nan, drawn) if absent.any() else drawn
            elif isinstance(column, Categorical):
                data[column.name] = _named(table[:, number], column)
        label = self.encoder.schema.label
        data[label.name] = _named(table[:, -1], label)
        frame, site = pd.DataFrame(data), self.encoder.schema.site
        if site is not None:
            # Sites are not released, but the encoder asks for the column.
            frame = frame.assign(**{site.name: site.categories[0]})
        rows, _ = self.encoder.encode(frame)
        return Rows(rows.values, rows.labels)


def shares_of(
    encoder: Encoder, rows: EncodedRows, block: Block
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return numbers as shares of their range, and which are present and above the lower bound."""
    column = block.column
    assert isinstance(column, Numeric)
    shares = (rows.values[:, block.start].astype(np.float64) + 1.0) / 2.0
    if column.integer:
        span = column.high - column.low
        shares = (np.rint(column.low + shares * span) - column.low) / span
        inside = shares * span > np.ceil(column.low) - column.low
    else:
        inside = shares > 0.0
    indicator = encoder.indicator(block)
    if indicator is not None:
        inside &= rows.values[:, indicator.start] >= 0
    return shares, inside


def _named(codes: Codes, column: Categorical) -> pd.Categorical[str]:
    return pd.Categorical.from_codes(codes, categories=pd.Index(column.categories))


def _categories(column: Column) -> int:
    return len(column.categories) if isinstance(column, Categorical) else 1
