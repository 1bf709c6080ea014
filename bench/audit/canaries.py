"""Canaries: rows that an attacker would plant, made from the public schema alone.

A two-world audit compares a table with the same table plus one canary. Any fixed pair of
neighbours gives a valid bound; a good canary gives a large one. Which rows are far from the others
cannot be known without reading them, so that several canaries are tried, and the first half of the
trials shows which one is most visible in the releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.dataset import Dataset, Split
from bench.data.encoder import EncodedRows, Encoder
from bench.data.schema import Categorical, Numeric, Task

Array = npt.NDArray[np.float64]

POSITION = 0.0
"""Fixed position of the canary: the lowest one, so that a method that takes the first row of a part
takes the canary. Guarantees hold for any fixed position."""

_NO_UNITS = pd.DataFrame()
"""Placeholder: trials need no table in units."""
_PATTERN = 20_230_711
"""Seed of the public signs of the adversarial direction."""


@final
@dataclass(frozen=True)
class Canary:
    """One encoded row with its label and site."""

    name: str
    values: npt.NDArray[np.float32]
    label: int
    site: int


def canaries(dataset: Dataset) -> tuple[Canary, ...]:
    """Return the canaries of a dataset, from its schema and declared counts, never its rows."""
    encoder = dataset.encoder
    site = _smallest_site(dataset)
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
    return tuple(
        Canary(name, _legal(encoder, values, label, site), label, site)
        for name, values, label in made
    )


def many_canaries(dataset: Dataset, count: int, rng: np.random.Generator) -> tuple[Canary, ...]:
    """Return random corners of the schema with random labels: canaries of a one-run audit.

    Random signs are nearly orthogonal, so that one canary carries little information on another.
    """
    encoder, site = dataset.encoder, _smallest_site(dataset)
    corners: dict[bytes, Canary] = {}
    for attempt in range(20 * count):
        if len(corners) == count:
            break
        # Bounds and categories are in the schema already: nothing to make legal.
        values = _signs(encoder, int(rng.integers(2**62))).astype(np.float32)
        label = int(rng.integers(len(encoder.schema.classes)))
        # Two canaries with the same values could not be distinguished.
        corners.setdefault(values.tobytes(), Canary(f"corner {attempt}", values, label, site))
    return tuple(corners.values())


def with_canaries(
    dataset: Dataset, chosen: Sequence[Canary], positions: Sequence[float] | None = None
) -> Dataset:
    """Return the dataset with canaries as training rows; declared counts and other rows stay.

    The canaries are added after the split, at fixed positions: no other row moves to another part.
    """
    if not chosen:
        return dataset
    rows = dataset.train.rows
    where = np.full(len(chosen), POSITION) if positions is None else np.asarray(positions)
    together = EncodedRows(
        np.concatenate([rows.values, np.stack([canary.values for canary in chosen])]),
        np.concatenate([rows.labels, [canary.label for canary in chosen]]).astype(
            rows.labels.dtype
        ),
        np.concatenate([rows.sites, [canary.site for canary in chosen]]).astype(rows.sites.dtype),
        np.concatenate([rows.positions, where]),
    )
    return replace(dataset, train=Split(_NO_UNITS, together))


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


def _legal(encoder: Encoder, values: Array, label: int, site: int) -> npt.NDArray[np.float32]:
    """Return the nearest row that the schema allows, with integers rounded."""
    frame = encoder.decode(values[None, :], np.array([label]))
    column = encoder.schema.site
    if column is not None:
        frame[column.name] = column.categories[site]
    rows, _ = encoder.encode(frame)
    return np.array(rows.values[0], dtype=np.float32)


def _smallest_site(dataset: Dataset) -> int:
    column = dataset.schema.site
    if column is None:
        return 0
    counts = {name: rows for name, rows in dataset.counts.by_site.items() if rows > 0}
    return column.categories.index(min(counts, key=lambda name: counts[name])) if counts else 0
