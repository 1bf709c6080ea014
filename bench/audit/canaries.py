"""Canaries: rows that an attacker would plant, made from the public schema alone.

A two-world audit compares a table with the same table plus one canary. Any fixed pair of
neighbours gives a valid bound; a good canary gives a large one. Which rows are far from the others
cannot be known without reading them, so that several canaries are tried, and the first half of the
trials shows which one is most visible in the releases.

A canary is a row of the *table*: it is added before everything that the harness does with a table,
and goes through the same split and encoding as the other rows. Its split follows from its content,
so that a canary is moved by as little as it takes to make it a training row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.dataset import Dataset, rule_of_new_rows, with_rows
from bench.data.encoder import Encoder
from bench.data.schema import Categorical, Numeric, Task
from bench.errors import BenchError

Array = npt.NDArray[np.float64]

_ATTEMPTS = 64
"""A row is a training row with a probability of at least one half."""
_STEP = 2.0**-20
"""Smallest step of a number of an encoded row: single precision distinguishes it near 1."""
_PATTERN = 20_230_711
"""Seed of the public signs of the adversarial direction."""


@final
@dataclass(frozen=True)
class Canary:
    """One encoded row with its label and site, and the same row in the units of the schema."""

    name: str
    values: npt.NDArray[np.float32]
    label: int
    site: int
    frame: pd.DataFrame


def canaries(dataset: Dataset) -> tuple[Canary, ...]:
    """Return the canaries of a dataset: extreme rows of its schema, as training rows."""
    site, rule = _smallest_site(dataset), rule_of_new_rows(dataset)
    return tuple(
        _placed(dataset, rule, name, values, label, site)
        for name, values, label in extreme_rows(dataset)
    )


def extreme_rows(dataset: Dataset) -> list[tuple[str, Array, int]]:
    """Return encoded rows with names and labels, from schema and declared counts, never rows."""
    encoder = dataset.encoder
    by_class = dataset.counts.by_class
    # One row among fewer weighs more.
    rare, common = int(np.argmin(by_class)), int(np.argmax(by_class))
    if encoder.schema.task is Task.SURVIVAL:
        made = _survival(encoder)
    else:
        common = common if common != rare else (rare + 1) % len(by_class)
        made = [
            ("mislabelled outlier, high", _corner(encoder, 1.0), rare),
            ("mislabelled outlier, low", _corner(encoder, -1.0), rare),
            ("mislabelled outlier, high, common class", _corner(encoder, 1.0), common),
        ]
    shape = encoder.schema.image_shape
    if shape is not None:
        rows, columns = np.indices(shape[1:])
        board = np.where((rows + columns) % 2 == 0, 1.0, -1.0)
        made.append(("extreme image", np.tile(board.reshape(-1), shape[0]), rare))
    else:
        made.append(("adversarial direction", _signs(encoder, _PATTERN), rare))
    if any(_wide(block.column) for block in encoder.blocks):
        made.append(("rare categories", _rare_categories(encoder), rare))
    return made


def many_canaries(dataset: Dataset, count: int, rng: np.random.Generator) -> tuple[Canary, ...]:
    """Return random corners of the schema with random labels: canaries of a one-run audit.

    Random signs are nearly orthogonal, so that one canary carries little information on another.
    """
    encoder, site, rule = dataset.encoder, _smallest_site(dataset), rule_of_new_rows(dataset)
    corners: dict[bytes, Canary] = {}
    for attempt in range(20 * count):
        if len(corners) == count:
            break
        values = _signs(encoder, int(rng.integers(2**62)))
        # Two canaries with the same values could not be distinguished.
        label, mark = int(rng.integers(len(encoder.schema.classes))), values.tobytes()
        if mark not in corners:
            corners[mark] = _placed(dataset, rule, f"corner {attempt}", values, label, site)
    return tuple(corners.values())


def with_canaries(dataset: Dataset, chosen: Sequence[Canary]) -> Dataset:
    """Return the dataset of the table with these canaries; declared counts stay."""
    if not chosen:
        return dataset
    return with_rows(dataset, pd.concat([canary.frame for canary in chosen], ignore_index=True))


def _placed(
    dataset: Dataset,
    rule: Callable[[pd.DataFrame], str],
    name: str,
    values: Array,
    label: int,
    site: int,
) -> Canary:
    """Return the canary at the first of some neighbouring places where it is a training row."""
    encoder = dataset.encoder
    for attempt in range(_ATTEMPTS):
        frame = encoder.decode(_moved(encoder, values, attempt)[None, :], np.array([label]))
        column = encoder.schema.site
        if column is not None:
            frame[column.name] = column.categories[site]
        if dataset.declaration.id:
            frame[dataset.declaration.id] = f"canary {attempt}: {name}"
        if rule(frame) == "train":
            break
    else:
        raise BenchError(f"canary {name!r}: none of {_ATTEMPTS} similar rows is a training row")
    rows, _ = encoder.encode(frame)
    return Canary(name, np.array(rows.values[0], dtype=np.float32), label, site, frame)


def _moved(encoder: Encoder, values: Array, attempt: int) -> Array:
    """Return a row that differs as little as the schema allows; attempt 0 is the row itself."""
    moved, numbers = values.copy(), []
    for block in encoder.blocks:
        if isinstance(block.column, Numeric):
            whole = 2.0 / (block.column.high - block.column.low) if block.column.integer else 0.0
            numbers.append((max(whole, _STEP), block.start))
    if attempt and numbers:
        step, place = min(numbers)
        moved[place] -= np.copysign(attempt * step, moved[place])
    elif attempt:
        block = encoder.blocks[attempt % len(encoder.blocks)]
        if _wide(block.column):
            moved[block.slice] = np.roll(moved[block.slice], 1 + attempt // len(encoder.blocks))
        else:
            moved[block.start] *= -1.0
    return moved


def _survival(encoder: Encoder) -> list[tuple[str, Array, int]]:
    """Return the earliest event at either end of the risk, and the latest possible censoring.

    Which end of a feature means a low risk is not public; at one of the two corners an early event
    is unexpected.
    """
    made = []
    for name, sign, time, event in (
        ("survival outlier, earliest event, low", -1.0, -1.0, 1),
        ("survival outlier, earliest event, high", 1.0, -1.0, 1),
        ("survival outlier, latest censoring", 1.0, 1.0, 0),
    ):
        values = _corner(encoder, sign)
        values[-1] = time
        made.append((name, values, event))
    return made


def _corner(encoder: Encoder, sign: float) -> Array:
    """Set every number to its bound; the last category for the upper corner, else the first."""
    values = np.zeros(encoder.width)
    for block in encoder.blocks:
        if _wide(block.column):
            values[block.stop - 1 if sign > 0 else block.start] = 1.0
        else:
            values[block.start] = sign
    return values


def _signs(encoder: Encoder, seed: int) -> Array:
    """Set numbers to one of their bounds at random: the largest norm that a row can have.

    A sum of rows moves by the whole norm along it, while real rows, whose columns are correlated,
    have little variance along such a direction.
    """
    rng = np.random.default_rng(seed)
    values = np.zeros(encoder.width)
    for block in encoder.blocks:
        if _wide(block.column):
            values[block.start + int(rng.integers(block.stop - block.start))] = 1.0
        else:
            values[block.start] = rng.choice([-1.0, 1.0])
    return values


def _rare_categories(encoder: Encoder) -> Array:
    """Set every column to the last category of the schema, and numbers to unusual values.

    Lists of categories mostly end with the rare ones; no other row has all of them together.
    """
    values = _corner(encoder, 1.0)
    for number, block in enumerate(encoder.blocks):
        if isinstance(block.column, Numeric):
            values[block.start] = (0.137 * (number + 1)) % 1.0
    return values


def _wide(column: object) -> bool:
    return isinstance(column, Categorical) and not column.binary


def _smallest_site(dataset: Dataset) -> int:
    column = dataset.schema.site
    if column is None:
        return 0
    counts = {name: rows for name, rows in dataset.counts.by_site.items() if rows > 0}
    return column.categories.index(min(counts, key=lambda name: counts[name])) if counts else 0
