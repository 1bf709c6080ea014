"""Rows for smartnoise-synth's networks, and rows of each class out of them.

A network is given a table with one column for each of the encoder's and the label last: numbers as
the encoder scales them, to [-1, 1], and categories as codes. The library's transformers are fitted
to a public table that holds every declared category, so that nothing is learned from the rows and
no budget is spent on bounds.

Rows of a class are kept from what the network gives when asked for that class (where it can be
asked), by the label that it gives them itself. A class that it does not give often enough within
`TRIES` rows for each wanted one is filled with rows drawn uniformly from the schema, which is what
is known of the class without the model. Their number is in the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Categorical, EncodedRows, Encoder, Floats, Integers, Rows

TRIES = 50
_AT_LEAST = 2_000
_BATCH = 20_000

Draw = Callable[[int, int], tuple[Floats, Integers]]
"""(class, count) to encoded values and labels: of that class, where a model can be asked for it."""


@final
@dataclass(frozen=True)
class Drawn:
    """Rows with as many of each class as asked for."""

    rows: Rows
    tried: int
    from_schema: int
    """Rows that no try gave."""


def stratified(
    encoder: Encoder, draw: Draw, sizes: Sequence[int], rng: np.random.Generator
) -> Drawn:
    """`sizes[c]` rows whose own label is c, for each class c."""
    pieces: list[Floats] = []
    tried = missing = 0
    for label, size in enumerate(sizes):
        found, have = [np.zeros((0, encoder.width), dtype=np.float32)], 0
        asked, at_most = 0, TRIES * size + _AT_LEAST
        while have < size and asked < at_most:
            rate = max(have / asked if asked else 1.0, 1.0 / TRIES)
            count = int(min(max(1.2 * (size - have) / rate, 100), _BATCH, at_most - asked))
            values, labels = draw(label, count)
            fitting = values[labels == label][: size - have]
            found.append(fitting)
            have, asked = have + len(fitting), asked + count
        found.append(uniform_rows(encoder, size - have, rng))
        pieces.append(np.concatenate(found))
        tried, missing = tried + asked, missing + size - have
    labels = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    return Drawn(Rows(np.concatenate(pieces), labels), tried, missing)


def uniform_rows(encoder: Encoder, count: int, rng: np.random.Generator) -> Floats:
    """Encoded rows of which only the schema is known."""
    values = np.zeros((count, encoder.width), dtype=np.float32)
    for block in encoder.blocks:
        if isinstance(block.column, Categorical):
            codes = rng.integers(len(block.column.categories), size=count)
            _put(values, block.start, block.stop, codes)
        else:
            values[:, block.start] = rng.uniform(-1.0, 1.0, count)
    return values


def _put(values: Floats, start: int, stop: int, codes: Integers) -> None:
    if stop - start == 1:
        values[:, start] = 2.0 * codes - 1.0
    else:
        values[np.arange(len(values)), start + codes] = 1.0


def network_table(rows: EncodedRows, encoder: Encoder, with_label: bool = True) -> pd.DataFrame:
    """Encoded rows as the table that a network is given."""
    data: dict[str, npt.NDArray[Any]] = {}
    for block in encoder.blocks:
        values = rows.values[:, block.slice]
        if not isinstance(block.column, Categorical):
            data[block.column.name] = values[:, 0].astype(np.float64)
        elif block.stop - block.start == 1:
            data[block.column.name] = (values[:, 0] > 0).astype(np.int64)
        else:
            data[block.column.name] = np.argmax(values, axis=1).astype(np.int64)
    if with_label:
        data[encoder.schema.label.name] = rows.labels.astype(np.int64)
    return pd.DataFrame(data)


def encoded_table(table: pd.DataFrame, encoder: Encoder) -> Floats:
    """The inverse of `network_table`, without the label."""
    values = np.zeros((len(table), encoder.width), dtype=np.float32)
    for block in encoder.blocks:
        column = table[block.column.name].to_numpy()
        if isinstance(block.column, Categorical):
            _put(values, block.start, block.stop, column.astype(np.int64))
        else:
            values[:, block.start] = np.clip(column.astype(np.float64), -1.0, 1.0)
    return values


def from_network(outputs: Floats, encoder: Encoder) -> tuple[Floats, Integers]:
    """A network's outputs, one number or one block of K for each column, as rows and labels.

    The likeliest category is taken. Without a block for the label, all labels are zero.
    """
    values = np.zeros((len(outputs), encoder.width), dtype=np.float32)
    at = 0
    for block in encoder.blocks:
        if isinstance(block.column, Categorical):
            width = len(block.column.categories)
            codes = np.argmax(outputs[:, at : at + width], axis=1)
            _put(values, block.start, block.stop, codes)
            at += width
        else:
            values[:, block.start] = np.clip(outputs[:, at], -1.0, 1.0)
            at += 1
    if at == outputs.shape[1]:
        return values, np.zeros(len(outputs), dtype=np.int64)
    return values, np.argmax(outputs[:, at:], axis=1).astype(np.int64)


def public_transformer(encoder: Encoder, with_label: bool = True) -> Any:
    """The library's transformer of such a table, fitted to public rows."""
    from snsynth.transform import (
        ChainTransformer,
        LabelTransformer,
        MinMaxTransformer,
        OneHotEncoder,
    )
    from snsynth.transform.table import TableTransformer

    columns = [block.column for block in encoder.blocks]
    if with_label:
        columns.append(encoder.schema.label)
    transformers: list[Any] = []
    data: dict[str, npt.NDArray[Any]] = {}
    sizes = [len(column.categories) for column in columns if isinstance(column, Categorical)]
    rows = max([2, *sizes])
    for column in columns:
        if isinstance(column, Categorical):
            transformers.append(
                ChainTransformer([LabelTransformer(nullable=False), OneHotEncoder()])
            )
            data[column.name] = np.arange(rows) % len(column.categories)
        else:
            transformers.append(MinMaxTransformer(lower=-1.0, upper=1.0))
            data[column.name] = np.linspace(-1.0, 1.0, rows)
    transformer = TableTransformer(transformers)
    transformer.fit(pd.DataFrame(data))
    return transformer
