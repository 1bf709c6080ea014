"""Rows for the networks of smartnoise-synth, and rows of each class from them.

A network is given a table with one column for each of the encoder's and the label last: numbers as
the encoder scales them, to [-1, 1], and categories as codes. The library's transformers are fitted
to a public table that holds every declared category, so that nothing is learned from the rows and
no budget is spent on bounds.

The library's `sample` conditions the generator of PATE-CTGAN on categories of real rows, and that
of DP-CTGAN by their exact frequencies. Here the condition is the class that is asked for, or any
category of any column with the same chance. Rows of a class are kept from what the network returns
when asked for that class (where it can be asked), by the label that it gives them itself. A class
that it does not return often enough within `TRIES` rows for each wanted one is filled with rows
drawn uniformly from the schema, which is what is known of the class without the model. Their number
is in the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Budget,
    Categorical,
    Claim,
    EncodedRows,
    Encoder,
    Floats,
    Integers,
    Method,
    Release,
    Rows,
)
from bench.methods._shared.codes import category_codes, put_categories
from bench.methods._shared.smartnoise import vote_noise

TRIES = 50
_AT_LEAST = 2_000
_BATCH = 20_000
_GENERATED_AT_ONCE = 2_000

Draw = Callable[[int, int], tuple[Floats, Integers]]
"""(class, count) to encoded values and labels: of that class, where a model can be asked for it."""


@final
@dataclass(frozen=True)
class StratifiedRows:
    """Rows with as many of each class as asked for."""

    rows: Rows
    tried: int
    from_schema: int
    """Rows drawn from the schema, because no try produced them."""

    def release(self, budget: Budget, source: str, **notes: float) -> Release:
        """Return the release, with the library's claim."""
        counts = {"rows_tried": self.tried, "rows_from_schema": self.from_schema}
        return Release(self.rows, claim=Claim.of(budget, source), notes={**counts, **notes})


def stratified(
    encoder: Encoder, draw: Draw, sizes: Sequence[int], rng: np.random.Generator
) -> StratifiedRows:
    """Draw `sizes[c]` rows whose generated label is c, for each class c."""
    pieces: list[Floats] = []
    tried = missing = 0
    for label, size in enumerate(sizes):
        kept, have = [np.zeros((0, encoder.width), dtype=np.float32)], 0
        asked, at_most = 0, TRIES * size + _AT_LEAST
        while have < size and asked < at_most:
            rate = max(have / asked if asked else 1.0, 1.0 / TRIES)
            count = int(min(max(1.2 * (size - have) / rate, 100), _BATCH, at_most - asked))
            values, labels = draw(label, count)
            fitting = values[labels == label][: size - have]
            kept.append(fitting)
            have, asked = have + len(fitting), asked + count
        kept.append(uniform_rows(encoder, size - have, rng))
        pieces.append(np.concatenate(kept))
        tried, missing = tried + asked, missing + size - have
    labels = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    return StratifiedRows(Rows(np.concatenate(pieces), labels), tried, missing)


def uniform_rows(encoder: Encoder, count: int, rng: np.random.Generator) -> Floats:
    """Encoded rows of which only the schema is known."""
    values = np.zeros((count, encoder.width), dtype=np.float32)
    for block in encoder.blocks:
        if isinstance(block.column, Categorical):
            codes = rng.integers(len(block.column.categories), size=count)
            put_categories(values, block, codes)
        else:
            values[:, block.start] = rng.uniform(-1.0, 1.0, count)
    return values


def network_table(rows: EncodedRows, encoder: Encoder, with_label: bool = True) -> pd.DataFrame:
    """Encoded rows as the table that a network is given."""
    data: dict[str, npt.NDArray[Any]] = {}
    for block in encoder.blocks:
        values = rows.values[:, block.slice]
        if not isinstance(block.column, Categorical):
            data[block.column.name] = values[:, 0].astype(np.float64)
        else:
            data[block.column.name] = category_codes(values)
    if with_label:
        data[encoder.schema.label.name] = rows.labels.astype(np.int64)
    return pd.DataFrame(data)


def encoded_table(table: pd.DataFrame, encoder: Encoder) -> Floats:
    """The inverse of `network_table`, without the label."""
    values = np.zeros((len(table), encoder.width), dtype=np.float32)
    for block in encoder.blocks:
        column = table[block.column.name].to_numpy()
        if isinstance(block.column, Categorical):
            put_categories(values, block, column.astype(np.int64))
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
            put_categories(values, block, codes)
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


# Conditional networks: PATE-CTGAN and DP-CTGAN ---------------------------------------------------


@dataclass(frozen=True)
class TrainsPateCtgan(Method):
    """Abstract: a method that trains the library's PATE-CTGAN, by itself or inside QUAIL."""

    batch: int = 500
    teacher_steps: int = 1
    student_steps: int = 1
    rows_per_teacher: int = 5000
    steps: int = 80
    """Steps of the generator: the noise on votes is chosen so that the budget pays for them."""
    orders: int = 100
    """Orders of its moments accountant."""

    def vote_noise(self, budget: Budget, share: float) -> float:
        """Scale of the noise on votes for that share of epsilon."""
        votes = self.batch * self.student_steps
        return vote_noise(budget, share, self.steps, votes, self.orders)

    def network(self, epsilon: float, delta: float, noise: float) -> Any:
        """Return the library's PATE-CTGAN, untrained; `noise` is the scale on votes."""
        from snsynth.pytorch.nn import PATECTGAN

        return PATECTGAN(
            epsilon=epsilon,
            delta=delta,
            batch_size=self.batch,
            teacher_iters=self.teacher_steps,
            student_iters=self.student_steps,
            sample_per_teacher=self.rows_per_teacher,
            noise_multiplier=1.0 / noise,
            moments_order=self.orders,
            verbose=False,
            cuda=False,
        )


def drawn_by_class(network: Any, encoder: Encoder, rng: np.random.Generator) -> Draw:
    """Draw rows from a conditional network, given the class."""

    def draw(label: int, count: int) -> tuple[Floats, Integers]:
        condition = class_condition(encoder, label, count)
        return from_network(generated(network, condition, rng), encoder)

    return draw


def class_condition(encoder: Encoder, label: int, count: int) -> npt.NDArray[np.float32]:
    """The condition "the label is this class": label last of all categorical columns."""
    widths = [*_widths(encoder), len(encoder.schema.classes)]
    condition = np.zeros((count, sum(widths)), dtype=np.float32)
    condition[:, sum(widths[:-1]) + label] = 1.0
    return condition


def any_condition(
    encoder: Encoder, count: int, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """One category of one feature column, all columns and its categories equally likely."""
    widths = np.array(_widths(encoder), dtype=np.int64)
    condition = np.zeros((count, int(widths.sum())), dtype=np.float32)
    if len(widths):
        column = rng.integers(len(widths), size=count)
        category = (rng.random(count) * widths[column]).astype(np.int64)
        condition[np.arange(count), (np.cumsum(widths) - widths)[column] + category] = 1.0
    return condition


def _widths(encoder: Encoder) -> list[int]:
    return [
        len(block.column.categories)
        for block in encoder.blocks
        if isinstance(block.column, Categorical)
    ]


def generated(network: Any, condition: npt.NDArray[np.float32], rng: np.random.Generator) -> Floats:
    """Return outputs of the generator: one number or one block for each column."""
    import torch

    random = torch.Generator().manual_seed(int(rng.integers(2**63)))
    generator = network._generator  # library internals
    generator.eval()
    pieces: list[Floats] = []
    with torch.no_grad():
        for start in range(0, len(condition), _GENERATED_AT_ONCE):
            part = torch.from_numpy(condition[start : start + _GENERATED_AT_ONCE])
            width = network._embedding_dim  # library internals
            noise = torch.randn(len(part), width, generator=random)
            inputs = torch.cat([noise, part], dim=1)
            outputs = network._apply_activate(generator(inputs))  # library internals
            pieces.append(outputs.numpy())
    return np.concatenate(pieces)
