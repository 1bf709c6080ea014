"""What MST and AIM share: calibration, estimation, and rows of any class from what was released.

By class (`by_class`), each class is a table of its own without the label: classes are disjoint and
their counts public, so that each has the whole budget, and a class is drawn from its own model.
Otherwise one model holds the label as a column, as published, and a class is asked for by
conditioning the model on its label. Either way nothing is rejected, no class is too rare to be
drawn, and no row is looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from bench import NotApplicable, PrivateData, Schema, Task
from bench.methods.marginal._tree import Codes, GraphicalModel, JunctionTree, fit
from bench.privacy.trusted.smartnoise import (
    Columns,
    NoisyMarginal,
    NoisyMarginals,
    zero_concentrated,
)

_COLUMNS_AT_MOST = 50
"""All pairs are looked at: their number grows with the square of the columns'."""


def check_columns(schema: Schema) -> None:
    """Refuse tables that are too wide for methods that look at all pairs of columns."""
    columns = len(schema.features) + 1 + (schema.time is not None)
    if schema.task is Task.IMAGE or columns > _COLUMNS_AT_MOST:
        what = "images" if schema.task is Task.IMAGE else f"{columns} columns"
        raise NotApplicable(
            f"it compares all pairs of columns, which {what} have too many of; it is for tables of "
            f"at most {_COLUMNS_AT_MOST} columns"
        )


def largest_rho(private: PrivateData) -> float:
    """The largest rho whose zero-concentrated DP the harness's accountant lets the budget pay.

    rho = 1 / (2 s^2) is the zCDP of a Gaussian mechanism of noise multiplier s: calibrated as that.
    """
    noise = private.calibrate(
        lambda noise: [private.plan(zero_concentrated({"rho": 0.5 / noise**2}))]
    )
    return 0.5 / noise**2


def totals(private: PrivateData, by_class: bool) -> tuple[int, ...]:
    """Declared rows of the tables that are measured: the whole, or one a class."""
    counts = private.counts.by_class if by_class else (private.counts.total,)
    return tuple(max(1, count) for count in counts)


def noisy_marginals(released: object) -> tuple[NoisyMarginals, ...]:
    """What the kernel handed back from a mechanism, as what it is."""
    if not isinstance(released, tuple) or not all(
        isinstance(noisy, NoisyMarginals) for noisy in released
    ):
        raise TypeError(f"expected noisy marginals, got {type(released).__name__}")
    return released


@final
@dataclass
class Estimation:
    """AIM's models of one table: each starts from the last."""

    sizes: Sequence[int]
    total: float
    steps: int
    cells: int
    """Of all cliques of a model, at most."""
    model: GraphicalModel | None = field(default=None, init=False)

    def fit(self, measured: Sequence[NoisyMarginal]) -> GraphicalModel:
        """A model of these answers."""
        self.model = fit(self.sizes, measured, self.total, self.steps, self.model)
        return self.model

    def last(self, measured: Sequence[NoisyMarginal], steps: int) -> GraphicalModel:
        """The model to draw from, fitted for longer."""
        return fit(self.sizes, measured, self.total, steps, self.model)

    def affordable(self, sets: Sequence[Columns]) -> bool:
        """Whether the junction tree of these sets is small enough."""
        return JunctionTree(self.sizes, sets).cells <= self.cells


def draw_rows(
    models: Sequence[GraphicalModel],
    released: Sequence[NoisyMarginals],
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> Codes:
    """`sizes[c]` rows of codes of each class c, the label last: from one model, or one a class."""
    tables: list[Codes] = []
    for label, count in enumerate(sizes):
        one_a_class = len(models) > 1
        number = label if one_a_class else 0
        model, kept = models[number], released[number].kept
        given = None if one_a_class else (len(kept) - 1, merged(kept[-1], label))
        drawn = model.draw(count, given, rng)
        columns = [unmerged(mask, drawn[:, place], rng) for place, mask in enumerate(kept)]
        features = columns if one_a_class else columns[:-1]
        tables.append(np.stack([*features, np.full(count, label)], axis=1))
    return np.concatenate(tables)


def merged(kept: npt.NDArray[np.bool_], code: int) -> int:
    """A code after rare ones were given one code, the last."""
    return int(kept[:code].sum()) if kept[code] else int(kept.sum())


def unmerged(kept: npt.NDArray[np.bool_], codes: Codes, rng: np.random.Generator) -> Codes:
    """Codes as they were before rare ones shared the last; of those, any with the same chance."""
    own, others = np.flatnonzero(kept), np.flatnonzero(~kept)
    if not len(others):
        return own[codes]
    shared = codes >= len(own)
    chance = rng.choice(others, size=len(codes))
    return np.where(shared, chance, own[np.minimum(codes, len(own) - 1)])
