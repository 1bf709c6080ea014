"""The shared encoder between tables and numbers in [-1, 1], which learns nothing from rows.

Layout of the encoded values: every feature column in schema order, then the time column of a
survival task. A numeric column becomes one number scaled from its public bounds to [-1, 1]; a
binary column one number in {-1, 1}; a column with K > 2 categories K numbers in {0, 1}, one of
them 1. The label (class, or event indicator) is kept apart as an integer code. A method that
works on `values` and `labels` therefore works unchanged on tables, survival cohorts and images.

A number that can be missing (`missing = true` in the schema) has a second block right behind its
own: a binary column that says whether it is present. Where it is absent the number itself is a
public stand-in, the declared `fill` or else the middle of the bounds. To a method the second block
is a binary column like any other; one that counts cells has a better place for it, a bin of the
number (`Encoder.indicator`). Decoding turns an absent number into a missing one again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.schema import Categorical, Column, Numeric, Schema, presence_of
from bench.errors import DataError, SchemaError

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.integer]

MISSING_CATEGORY = "(missing)"
"""Category that stands for a missing entry."""

ABSENT, PRESENT = "no", "yes"
"""Categories of the block that says whether a number is present; an undecided 0 is read as yes."""


@final
@dataclass(frozen=True)
class EncodedRows:
    """Encoded rows of one table: what a per-row function of a method receives."""

    values: Floats
    labels: Integers
    sites: Integers
    """Site codes; all zero where the schema declares no site."""
    positions: Floats
    """One fixed uniform number per row, drawn by the Dataset: random parts are cut along it."""

    def __post_init__(self) -> None:
        # A row function that writes in place would change the data of every later call.
        for array in (self.values, self.labels, self.sites, self.positions):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.labels)

    def copy(self) -> EncodedRows:
        """Return the same rows in other memory.

        The flag against writing stops NumPy only: `torch.from_numpy` writes through it. Code that
        must not be able to change the rows gets a copy.
        """
        return EncodedRows(
            self.values.copy(), self.labels.copy(), self.sites.copy(), self.positions.copy()
        )

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> EncodedRows:
        """Return a copy of the rows at `index`."""
        return EncodedRows(
            self.values[index], self.labels[index], self.sites[index], self.positions[index]
        )


@final
@dataclass(frozen=True)
class Block:
    """Where one column sits in the encoded values."""

    column: Column
    start: int
    stop: int
    indicates: str = ""
    """Name of the number whose presence this block encodes; empty for a declared column."""

    @property
    def slice(self) -> slice:
        """The block as a slice over encoded columns."""
        return slice(self.start, self.stop)


@final
@dataclass(frozen=True)
class Encoder:
    """Encodes and decodes by the schema alone."""

    schema: Schema
    blocks: tuple[Block, ...] = field(init=False)

    def __post_init__(self) -> None:
        columns = list(self.schema.features)
        if self.schema.time is not None:
            columns.append(self.schema.time)
        blocks: list[Block] = []
        start = 0
        for column in columns:
            wide = isinstance(column, Categorical) and not column.binary
            stop = start + (len(column.categories) if wide else 1)  # type: ignore[attr-defined]
            blocks.append(Block(column, start, stop))
            start = stop
            if isinstance(column, Numeric) and column.missing:
                present = Categorical(name=presence_of(column), categories=(ABSENT, PRESENT))
                blocks.append(Block(present, start, start + 1, column.name))
                start += 1
        object.__setattr__(self, "blocks", tuple(blocks))

    @property
    def width(self) -> int:
        """Number of encoded columns, time included."""
        return self.blocks[-1].stop

    @property
    def feature_width(self) -> int:
        """Number of encoded columns without the time."""
        return self.width - (self.schema.time is not None)

    @property
    def feature_blocks(self) -> tuple[Block, ...]:
        """The blocks without that of the time: features, and whether those are present."""
        return self.blocks[: len(self.blocks) - (self.schema.time is not None)]

    def indicator(self, block: Block) -> Block | None:
        """Return the block that says whether this number is present; None where it always is."""
        if not (isinstance(block.column, Numeric) and block.column.missing):
            return None
        return self.blocks[self.blocks.index(block) + 1]

    @property
    def max_norm(self) -> float:
        """Largest Euclidean norm of an encoded row, by the schema: sqrt(number of blocks).

        Each numeric or binary block contributes at most 1 and each one-hot block exactly 1. For
        all-numeric data in [-1, 1]^d this is sqrt(d), the sensitivity of NDPDC's Theorem III.1.
        """
        return float(np.sqrt(len(self.blocks)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        names: list[str] = []
        for block in self.blocks:
            if block.stop - block.start == 1:
                names.append(block.column.name)
            elif isinstance(block.column, Categorical):
                names += [f"{block.column.name}={value}" for value in block.column.categories]
        return tuple(names)

    def encode(
        self, frame: pd.DataFrame, positions: Floats | None = None
    ) -> tuple[EncodedRows, Mapping[str, int]]:
        """Encode a table; the second value counts clipped values by column.

        The counts are non-private access to the rows: for the evaluator, never for a method.
        """
        values = np.zeros((len(frame), self.width), dtype=np.float32)
        clipped: dict[str, int] = {}
        for block in self.blocks:
            column = block.column
            if block.indicates:
                values[:, block.start] = np.where(self._absent(frame, block), -1.0, 1.0)
                continue
            series = self._series(frame, column)
            if isinstance(column, Numeric):
                try:
                    numbers = series.to_numpy(dtype=np.float64)
                except (TypeError, ValueError):
                    raise SchemaError(
                        f"column {column.name!r}: declared numeric, but it holds text"
                    ) from None
                indicator = self.indicator(block)
                if indicator is not None:
                    absent = self._absent(frame, indicator)
                    numbers = np.where(absent, stand_in(column), numbers)
                inside = np.clip(numbers, column.low, column.high)
                clipped[column.name] = int(np.count_nonzero(inside != numbers))
                span = column.high - column.low
                values[:, block.start] = 2.0 * (inside - column.low) / span - 1.0
            elif isinstance(column, Categorical):
                codes = category_codes(series, column)
                if column.binary:
                    values[:, block.start] = 2.0 * codes - 1.0
                else:
                    values[np.arange(len(frame)), block.start + codes] = 1.0
        labels = category_codes(self._series(frame, self.schema.label), self.schema.label)
        site = self.schema.site
        sites = (
            np.zeros(len(frame), dtype=np.int64)
            if site is None
            else category_codes(self._series(frame, site), site)
        )
        if positions is None:
            positions = np.zeros(len(frame))
        return EncodedRows(values, labels, sites, positions), clipped

    def _series(self, frame: pd.DataFrame, column: Column) -> pd.Series:
        if column.name not in frame.columns:
            raise SchemaError(
                f"the table lacks the column {column.name!r} that its schema declares"
            )
        series = frame[column.name]
        missing = int(series.isna().sum())
        if missing and not (isinstance(column, Numeric) and column.missing):
            if column.fill is None:
                raise SchemaError(
                    f"column {column.name!r}: {missing} missing values and no public `fill` value "
                    "declared; add one to the schema"
                )
            series = series.fillna(column.fill)
        return series

    def _absent(self, frame: pd.DataFrame, indicator: Block) -> npt.NDArray[np.bool_]:
        """Return where a number is missing: in its column, or by the one of its presence.

        A complete table (`decode`) has both.
        """
        absent = frame[indicator.indicates].isna().to_numpy(dtype=bool)
        if indicator.column.name in frame.columns:
            absent |= (frame[indicator.column.name] == ABSENT).to_numpy(dtype=bool)
        return absent

    def decode(self, values: Floats, labels: Integers, *, complete: bool = False) -> pd.DataFrame:
        """Decode to the units of the schema.

        Numbers are clipped to their bounds and integers rounded; a one-hot block becomes its
        largest entry (the first one on ties) and a binary column its sign (0 counts as positive).

        A number that its second block calls absent is missing. In a `complete` table it is the
        stand-in instead, and the second block is a column of the table: nothing is missing there,
        every block has its column, and whether a value is present is compared like any category.
        """
        data: dict[str, npt.NDArray[np.float64] | pd.Categorical[str]] = {}
        for block in self.blocks:
            column = block.column
            if isinstance(column, Numeric):
                inside = np.clip(values[:, block.start].astype(np.float64), -1.0, 1.0)
                numbers = column.low + (inside + 1.0) / 2.0 * (column.high - column.low)
                numbers = np.rint(numbers) if column.integer else numbers
                indicator = self.indicator(block)
                if indicator is not None:
                    other = stand_in(column) if complete else np.nan
                    numbers = np.where(values[:, indicator.start] < 0, other, numbers)
                data[column.name] = numbers
            elif block.indicates and not complete:
                continue
            elif isinstance(column, Categorical):
                if column.binary:
                    codes = (values[:, block.start] >= 0).astype(np.int64)
                else:
                    codes = np.argmax(values[:, block.slice], axis=1)
                data[column.name] = pd.Categorical.from_codes(
                    codes, categories=pd.Index(column.categories)
                )
        label = self.schema.label
        data[label.name] = pd.Categorical.from_codes(labels, categories=pd.Index(label.categories))
        return pd.DataFrame(data)


def stand_in(column: Numeric) -> float:
    """Return the public number that stands where an entry is missing."""
    if column.fill is not None:
        return min(max(float(column.fill), column.low), column.high)
    middle = column.low + (column.high - column.low) / 2.0
    return float(np.rint(middle)) if column.integer else middle


def coerce_columns(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the table with its columns as declared: numbers parsed, categories as stripped text.

    For the loaders of shipped datasets: what contradicts the schema is an error. Rows of a user's
    table, where an error would reveal a row, are made to conform instead (`bench.data.conform`).
    A missing entry becomes `MISSING_CATEGORY` where the column declares that category.
    """
    frame = frame.copy()
    for column in schema:
        if isinstance(column, Categorical):
            text = spelled(frame[column.name])
            declared = MISSING_CATEGORY in column.categories
            frame[column.name] = text.fillna(MISSING_CATEGORY) if declared else text
        else:
            numbers = pd.to_numeric(frame[column.name], errors="coerce")
            wrong = (numbers.isna() & frame[column.name].notna()).to_numpy(dtype=bool)
            if wrong.any():
                raise DataError(
                    f"column {column.name!r}: {int(wrong.sum())} entries are not numbers, the "
                    f"first in row {int(wrong.argmax()) + 1}; declare it categorical or fix the "
                    "file"
                )
            frame[column.name] = numbers
    return frame


def category_codes(
    series: pd.Series,
    column: Categorical,
) -> npt.NDArray[np.int64]:
    """Return integer codes by the declared order; an undeclared value is an error."""
    text = spelled(series)
    codes = pd.Categorical(text, categories=list(column.categories)).codes.astype(np.int64)
    if (codes < 0).any():
        # The entries themselves are private rows' and are not shown.
        raise SchemaError(
            f"column {column.name!r}: {int((codes < 0).sum())} values are not among the declared "
            f"categories {list(column.categories)}"
        )
    return codes


def spelled(series: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column as text, with missing values left missing; a value is spelled once.

    How an entry is spelled depends on that entry alone, never on the other rows.
    """
    if series.dtype == object and pd.api.types.infer_dtype(series).startswith("mixed"):
        # True, 1 and 1.0 are equal: spelled once, all would be spelled as the first of them.
        missing = series.isna()
        return series.map(spell).mask(missing, None)
    codes, values = pd.factorize(series)
    texts = np.array([spell(value) for value in values] + [None], dtype=object)
    return pd.Series(texts[codes], index=series.index)


def spell(value: object) -> str:
    """Return a category as text; 1.0 becomes "1", as missing values turn integers into floats."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
