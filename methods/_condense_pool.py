"""A pool of rows that keep the schema's rules, and which class each of them is offered to.

All of it is post-processing of private answers; see `_condense`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bench.core.errors import PrivacyContractError
from bench.methods._teacher_bins import ClassCounts
from bench.methods._teacher_kinds import probabilities

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_DRAWS = 20
"""How often rows that break a rule are replaced."""
_NEWTON_STEPS, _HALVINGS = 200, 40
_SHARE_ERROR = 1e-6
"""Of the shares of the classes over the pool."""


def bin_chances(counts: ClassCounts, shares: Array) -> list[Array]:
    """Of each feature, how a mixture of the classes is spread over its bins."""
    mixed = (shares @ counts.shares(column) for column in range(len(counts.grid.columns)))
    return [own / own.sum() for own in mixed]


def draw_pool(counts: ClassCounts, shares: Array, rows: int, rng: np.random.Generator) -> Array:
    """Rows of independent features, the classes mixed by `shares`, inside the schema's rules."""
    chances = bin_chances(counts, shares)
    found: list[Array] = []
    missing = rows
    for _ in range(_DRAWS):
        codes = np.column_stack([rng.choice(len(own), size=missing, p=own) for own in chances])
        values = counts.grid.values(codes, rng)
        found.append(values[~broken(counts, values)])
        missing = rows - sum(map(len, found))
        if missing <= 0:
            break
    pool = np.concatenate(found)
    if not len(pool):
        raise PrivacyContractError(
            f"none of {_DRAWS * rows} rows drawn from the noisy marginals keeps the schema's rules"
            "; the rules contradict each other, or leave too little of the table"
        )
    return pool


def broken(counts: ClassCounts, values: Array) -> npt.NDArray[np.bool_]:
    """True for rows that break a rule of the schema, as far as it speaks about features."""
    encoder = counts.grid.encoder
    schema = encoder.schema
    names = {column.name for column in schema.features}
    declared = {column.name for column in schema}
    frame = None
    wrong = np.zeros(len(values), dtype=bool)
    for rule in schema.rules:
        sides = {side for part in (rule.then, *rule.when) for side in (part.left, part.right)}
        if sides & declared <= names:
            if frame is None:
                frame = encoder.decode(values, np.zeros(len(values), dtype=np.int64))
            wrong |= rule.broken(frame)
    return wrong


def offers(scores: Array, shares: Array, sharpness: float) -> Array:
    """(rows, classes): the chance that a row is offered to a class; see step 2 of `_condense`.

    The shift b is where mean softmax(a (s + b)) = shares: the minimum of the convex function
    mean over rows of logsumexp(a (s + b)) - a shares . b, found by damped Newton steps.
    """
    shift = np.log(shares) - np.log(probabilities(scores).mean(axis=0))
    chances, value = _shifted(scores, shift, shares, sharpness)
    for _ in range(_NEWTON_STEPS):
        excess = chances.mean(axis=0) - shares
        if np.abs(excess).max() < _SHARE_ERROR:
            break
        # A constant added to b changes nothing; the ridge also bounds steps where chances are 0, 1.
        curvature = np.diag(chances.mean(axis=0)) - chances.T @ chances / len(chances)
        curvature += 1e-3 * np.abs(excess).max() * np.eye(len(shares))
        step = np.linalg.solve(curvature, -excess) / sharpness
        for _ in range(_HALVINGS):
            moved, lower = _shifted(scores, shift + step, shares, sharpness)
            if lower <= value + 0.1 * sharpness * float(excess @ step):
                break
            step /= 2.0
        shift, chances, value = shift + step, moved, lower
    return chances


def _shifted(scores: Array, shift: Array, shares: Array, sharpness: float) -> tuple[Array, float]:
    """Chances of a shift, and the function that `offers` minimises."""
    raised = sharpness * (scores + shift)
    largest = raised.max(axis=1, keepdims=True)
    powers = np.exp(raised - largest)
    totals = powers.sum(axis=1, keepdims=True)
    value = float((np.log(totals) + largest).mean() - sharpness * shares @ shift)
    return powers / totals, value


def drawn(chances: Array, sizes: Sequence[int], rng: np.random.Generator) -> Rows:
    """Rows of the pool for each class in turn, without repeats as long as there are enough."""
    chosen = []
    for column, size in zip(chances.T, sizes, strict=True):
        if size > len(column):
            chosen.append(rng.choice(len(column), size, p=column / column.sum()))
            continue
        # Gumbel's trick: the largest of log chance + noise are a draw without replacement.
        keys = np.log(np.maximum(column, 1e-300)) + rng.gumbel(size=len(column))
        chosen.append(np.argpartition(keys, len(keys) - size)[len(keys) - size :])
    return np.concatenate(chosen).astype(np.int64)
