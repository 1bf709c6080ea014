"""A pool of rows that keep the schema's rules, and which class each of them is offered to.

All of it is post-processing of private answers; see `_condense`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bench import PrivacyContractError
from bench.methods.private_teacher._bins import ClassCounts, Grid
from bench.methods.private_teacher._feature_rules import FeatureRules
from bench.methods.private_teacher._kinds import probabilities

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_DRAWS = 100
"""How often the columns of a broken rule are drawn again."""
_NEWTON_STEPS, _HALVINGS = 200, 40
_SHARE_ERROR = 1e-6
"""Of the shares of the classes over the pool."""


def bin_chances(counts: ClassCounts, shares: Array) -> list[Array]:
    """Of each feature, how a mixture of the classes is spread over its bins."""
    mixed = (shares @ counts.shares(column) for column in range(len(counts.grid.columns)))
    return [own / own.sum() for own in mixed]


def draw_pool(grid: Grid, chances: list[Array], rows: int, rng: np.random.Generator) -> Array:
    """Rows of independent features with these chances of bins, inside the schema's rules.

    A row that breaks a rule gets new values in the columns which it and rules beside it read, and
    keeps the others: with many rules hardly a whole row that is drawn again would keep them all.
    After half of the draws any bin is as likely as what was counted, since noise may have left
    nothing that keeps a rule. Rows that still break one after all draws are left out.
    """
    places = {column.block.column.name: number for number, column in enumerate(grid.columns)}
    codes = np.column_stack([rng.choice(len(own), size=rows, p=own) for own in chances])
    values = grid.values(codes, rng)
    rules, wrong = FeatureRules.of(grid.encoder), np.arange(rows)
    for turn in range(_DRAWS):
        if 2 * turn == _DRAWS:
            chances = [0.5 * own + 0.5 / len(own) for own in chances]
        broken_rules = _broken_together(rules, values[wrong])
        any_rule = np.logical_or.reduce([np.zeros(len(wrong), dtype=bool), *broken_rules.values()])
        for rule, breaks in broken_rules.items():
            for number in sorted(places[name] for name in rule):
                own = chances[number]
                codes[wrong[breaks], number] = rng.choice(len(own), size=breaks.sum(), p=own)
        wrong = wrong[any_rule]
        if not len(wrong):
            return values
        values[wrong] = grid.values(codes[wrong], rng)
    kept = np.ones(rows, dtype=bool)
    kept[wrong[rules.broken(values[wrong])]] = False
    if not kept.any():
        raise PrivacyContractError(
            f"none of {rows} rows drawn from the noisy marginals keeps the schema's rules, with "
            f"up to {_DRAWS} draws each; the rules contradict each other, or leave too little of "
            "the table"
        )
    return np.asarray(values[kept])


def broken(counts: ClassCounts, values: Array) -> npt.NDArray[np.bool_]:
    """True for rows that break a rule of the schema, as far as it speaks about features."""
    return FeatureRules.of(counts.grid.encoder).broken(values)


def _broken_together(
    rules: FeatureRules, values: Array
) -> dict[frozenset[str], npt.NDArray[np.bool_]]:
    """By the columns that rules read: which rows break one of them.

    Rules that share a column count as one. Drawing all their columns again until none is broken is
    rejection sampling, exact for independent columns; mending them one by one would prefer what
    few of them speak about.
    """
    found: dict[frozenset[str], npt.NDArray[np.bool_]] = {}
    for names, breaks in rules.each(values):
        read, mask = names, breaks
        for other in [known for known in found if known & read]:
            mask, read = mask | found.pop(other), read | other
        found[read] = mask
    return found


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
