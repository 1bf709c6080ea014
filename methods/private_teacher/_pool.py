"""Rows of a pool that follow the schema's rules, and which class each of them is offered to.

Rows of a pool are drawn before their labels, status or time, so that only rules about features can
be checked on them (`FeatureRules`). All of it is post-processing of private answers; see
`_condense`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Encoder, PrivacyContractError, Rule
from bench.methods.private_teacher._bins import Array, ClassCounts, Codes, FeatureGrid
from bench.methods.private_teacher._teachers import probabilities

Mask = npt.NDArray[np.bool_]

_DRAWS = 100
"""How often the columns of a broken rule are drawn again."""
_NEWTON_STEPS, _HALVINGS = 200, 40
_SHARE_ERROR = 1e-6
"""Largest error of the classes' shares over the pool."""


@final
@dataclass(frozen=True)
class FeatureRules:
    """Rules of a schema that concern features alone, each with the columns that it reads."""

    encoder: Encoder
    rules: tuple[tuple[frozenset[str], Rule], ...]

    @classmethod
    def of(cls, encoder: Encoder) -> FeatureRules:
        """Rules of the encoder's schema."""
        features = {column.name for column in encoder.schema.features}
        read = [(_columns(encoder, rule), rule) for rule in encoder.schema.rules]
        return cls(encoder, tuple((names, rule) for names, rule in read if names <= features))

    @property
    def columns(self) -> frozenset[str]:
        """Columns that any rule reads."""
        return frozenset().union(*(names for names, _ in self.rules))

    def each(self, values: Array) -> Sequence[tuple[frozenset[str], Mask]]:
        """Columns of every rule, and which rows break it. Values may lack the time.

        Rows are checked as they will be read: in single precision, and decoded.
        """
        if not self.rules:
            return ()
        encoder = self.encoder
        whole = np.zeros((len(values), encoder.width), dtype=np.float32)
        whole[:, : encoder.feature_width] = values[:, : encoder.feature_width]
        frame = encoder.decode(whole, np.zeros(len(values), dtype=np.int64))
        return [(names, np.asarray(rule.broken(frame), dtype=bool)) for names, rule in self.rules]

    def broken(self, values: Array) -> Mask:
        """True for rows that break a rule."""
        masks = [mask for _, mask in self.each(values)]
        return np.asarray(np.logical_or.reduce([np.zeros(len(values), dtype=bool), *masks]))

    def broken_together(self, values: Array) -> dict[frozenset[str], Mask]:
        """By the columns that rules read: which rows break one of them.

        Rules that share a column count as one. Drawing all their columns again until none is broken
        is rejection sampling, exact for independent columns; fixing them one by one would prefer
        values that few of them concern.
        """
        together: dict[frozenset[str], Mask] = {}
        for names, breaks in self.each(values):
            read, mask = names, breaks
            for other in [known for known in together if known & read]:
                mask, read = mask | together.pop(other), read | other
            together[read] = mask
        return together


def _columns(encoder: Encoder, rule: Rule) -> frozenset[str]:
    """Declared columns that a rule reads; its other sides are constants."""
    declared = {column.name for column in encoder.schema}
    sides = {side for part in (rule.then, *rule.when) for side in (part.left, part.right)}
    return frozenset(sides & declared)


def bin_chances(counts: ClassCounts, shares: Array) -> list[Array]:
    """Distribution of a mixture of the classes over the bins of each feature."""
    mixtures = (shares @ counts.shares(column) for column in range(len(counts.grid.columns)))
    return [mixture / mixture.sum() for mixture in mixtures]


def draw_pool(
    grid: FeatureGrid, chances: Sequence[Array], rows: int, rng: np.random.Generator
) -> Array:
    """Rows of independent features with these chances of bins, within the schema's rules.

    A row that breaks a rule gets new values in the columns which that rule and overlapping rules
    read, and keeps the others: with many rules, hardly any whole row would follow them all. After
    half of the draws any bin is as likely as what was counted, since noise may have left nothing
    that follows a rule. Rows that still break one after all draws are left out.
    """
    numbers = {column.block.column.name: number for number, column in enumerate(grid.columns)}
    codes = np.column_stack([rng.choice(len(bins), size=rows, p=bins) for bins in chances])
    values = grid.draw(codes, rng)
    rules, wrong = FeatureRules.of(grid.encoder), np.arange(rows)
    for turn in range(_DRAWS):
        if 2 * turn == _DRAWS:
            chances = [0.5 * bins + 0.5 / len(bins) for bins in chances]
        broken_rules = rules.broken_together(values[wrong])
        any_rule = np.logical_or.reduce([np.zeros(len(wrong), dtype=bool), *broken_rules.values()])
        for names, breaks in broken_rules.items():
            for number in sorted(numbers[name] for name in names):
                bins = chances[number]
                codes[wrong[breaks], number] = rng.choice(len(bins), size=breaks.sum(), p=bins)
        wrong = wrong[any_rule]
        if not len(wrong):
            return values
        values[wrong] = grid.draw(codes[wrong], rng)
    kept = np.ones(rows, dtype=bool)
    kept[wrong[rules.broken(values[wrong])]] = False
    if not kept.any():
        raise PrivacyContractError(
            f"none of {rows} rows drawn from the noisy marginals follows the schema's rules, with "
            f"up to {_DRAWS} draws each; the rules contradict each other, or leave too little of "
            "the table: check the rules in the dataset's schema"
        )
    return np.asarray(values[kept])


def class_offers(scores: Array, shares: Array, sharpness: float) -> Array:
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
    """Chances of a shift, and the function that `class_offers` minimises."""
    raised = sharpness * (scores + shift)
    largest = raised.max(axis=1, keepdims=True)
    powers = np.exp(raised - largest)
    totals = powers.sum(axis=1, keepdims=True)
    value = float((np.log(totals) + largest).mean() - sharpness * shares @ shift)
    return powers / totals, value


def draw_rows(chances: Array, sizes: Sequence[int], rng: np.random.Generator) -> Codes:
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
