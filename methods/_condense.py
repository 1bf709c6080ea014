"""Few rows from which students learn what the teacher knows.

1. A pool: every feature is drawn on its own from its noisy counts, the classes mixed as they are
   asked for, and rows that break a rule of the schema are drawn again. Independent features make a
   better design than correlated ones: what each of them does can be told apart from few rows. (On
   Adult, 200 rows: trees 0.889 from independent features, 0.878 from features drawn by class.)
2. Labels: a row is offered to class c with the chance softmax(a (s(x) + b))_c, where s are the
   teacher's scores and b makes the shares of the classes over the pool those of the release. At
   a = 1 that is the teacher's own probability; a large `a` gives a row the class that is likeliest
   at those shares, without the noise of a draw. Which `a` serves best depends on how many rows
   there are: each of `SHARPNESSES` is tried, and the students decide.
3. Search: some rows, 10% at first and one at last, are taken out and others of their class put in;
   half of the new ones are drawn from the pool, half are the old ones with some columns of a drawn
   row (so that single categories and numbers move). Kept where the students agree better with the
   teacher (`_condense_students`).

The teacher was fitted with privacy, so nothing here touches the private rows: the number of looks
is not limited by any budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from bench.core.errors import PrivacyContractError
from bench.methods._condense_students import Judges, agreement
from bench.methods._teacher_bins import ClassCounts
from bench.methods._teacher_kinds import ScoreTeacher, probabilities

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

SHARPNESSES = (1.0, 2.0, 4.0, 16.0)
FIRST_SHARE = 0.1
STUDENT_ROWS = 4000
"""Students are shown a sample of larger releases."""
_DRAWS = 20
"""How often rows that break a rule are replaced."""
_NEWTON_STEPS, _HALVINGS = 200, 40
_SHARE_ERROR = 1e-6
"""Of the shares of the classes over the pool."""


@final
@dataclass(frozen=True)
class Search:
    """How hard to look."""

    steps: int = 150
    """For 200 rows; fewer for more, in proportion: a step's cost grows with the rows."""
    pool: int = 20_000
    judges: int = 3000

    def steps_for(self, rows: int) -> int:
        """Of a release of so many rows."""
        return round(self.steps * min(1.0, 200.0 / max(1, rows)))


@final
@dataclass(frozen=True)
class Condensed:
    """Chosen rows, and what the students thought of them."""

    values: Array
    labels: Labels
    sharpness: float
    start: float
    """Agreement before the search."""
    end: float
    teacher: float
    """The teacher's own: the best there is."""
    kept: int
    """Steps that were an improvement."""


def draw_pool(counts: ClassCounts, shares: Array, rows: int, rng: np.random.Generator) -> Array:
    """Rows of independent features, the classes mixed by `shares`, inside the schema's rules."""
    chances = [shares @ counts.shares(column) for column in range(len(counts.grid.columns))]
    found: list[Array] = []
    missing = rows
    for _ in range(_DRAWS):
        codes = np.column_stack(
            [rng.choice(len(own), size=missing, p=own / own.sum()) for own in chances]
        )
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
    """(rows, classes): the chance that a row is offered to a class; see step 2 above.

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


def drawn(chances: Array, sizes: Sequence[int], rng: np.random.Generator) -> Labels:
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


@final
class Condenser:
    """Draws and searches for one teacher."""

    def __init__(
        self,
        teacher: ScoreTeacher,
        counts: ClassCounts,
        priors: Array,
        sizes: Sequence[int],
        search: Search,
        rng: np.random.Generator,
    ) -> None:
        self._teacher, self._counts, self._search, self._rng = teacher, counts, search, rng
        self._sizes = tuple(sizes)
        classes = len(self._sizes)
        self._labels = np.repeat(np.arange(classes, dtype=np.int64), self._sizes)
        # One row more of each class: a class that nobody asked for has a chance all the same.
        asked = np.asarray(self._sizes, dtype=np.float64) + 1.0
        self._shares = asked / asked.sum()
        self._tilt = np.log(self._shares / priors)
        wanted = max(search.pool, 2 * len(self._labels))
        self._pool = draw_pool(counts, self._shares, wanted, rng)
        self._scores = teacher.scores(self._pool) + self._tilt
        self._even = np.full(classes, 1.0 / classes) / priors

    def plain(self) -> tuple[Array, Labels]:
        """Without condensation: labels drawn from the teacher's probabilities."""
        index = drawn(offers(self._scores, self._shares, 1.0), self._sizes, self._rng)
        return self._pool[index], self._labels

    def condense(self) -> Condensed:
        """The best start of all sharpnesses, then the search."""
        with threadpool_limits(1):
            return self._condense()

    def _condense(self) -> Condensed:
        judges = self._judges()
        seed = int(self._rng.integers(2**31))
        best: tuple[float, float, Array, Array] | None = None
        for sharpness in SHARPNESSES:
            chances = offers(self._scores, self._shares, sharpness)
            values = self._pool[drawn(chances, self._sizes, self._rng)]
            value = self._agreement(values, judges, seed)
            if best is None or value > best[0]:
                best = (value, sharpness, values, chances)
        assert best is not None
        start, sharpness, values, chances = best
        totals = np.maximum(chances.sum(axis=0), 1e-300)
        proposals = np.cumsum(chances / totals, axis=0)
        steps, end, kept = self._search.steps_for(len(self._labels)), start, 0
        for step in range(steps):
            share = FIRST_SHARE * (1.0 - step / steps)
            moved = self._moved(values, proposals, max(1, round(share * len(values))))
            value = self._agreement(moved, judges, seed)
            if value > end:
                values, end, kept = moved, value, kept + 1
        own = judges.agreement(judges.chances)
        return Condensed(values, self._labels, sharpness, start, end, own, kept)

    def _judges(self) -> Judges:
        """Rows drawn class by class, as many of each, with the teacher's chances at such shares."""
        classes = len(self._sizes)
        each = max(1, self._search.judges // classes)
        drawn_rows = [
            draw_pool(self._counts, shares, each, self._rng) for shares in np.eye(classes)
        ]
        values = np.concatenate(drawn_rows)
        chances = probabilities(self._teacher.scores(values) + np.log(self._even))
        width = self._counts.grid.encoder.feature_width
        return Judges.of(values[:, :width], chances)

    def _agreement(self, values: Array, judges: Judges, seed: int) -> float:
        labels = self._labels
        if len(labels) > STUDENT_ROWS:
            shown = np.random.default_rng(seed).choice(len(labels), STUDENT_ROWS, replace=False)
            values, labels = values[shown], labels[shown]
        width = judges.values.shape[1]
        return agreement(values[:, :width], labels, len(self._sizes), judges, seed)

    def _moved(self, values: Array, proposals: Array, count: int) -> Array:
        """Some rows replaced; see step 3 above."""
        rng = self._rng
        places = rng.choice(len(values), count, replace=False)
        labels = self._labels[places]
        points = rng.random(count)
        fresh = np.array(
            [
                np.searchsorted(proposals[:, label], point)
                for label, point in zip(labels, points, strict=True)
            ]
        )
        new = self._pool[np.minimum(fresh, len(self._pool) - 1)]
        blocks = self._counts.grid.columns
        crossed = new.copy()
        for row in np.flatnonzero(rng.random(count) < 0.5):
            taken = rng.choice(len(blocks), min(len(blocks), 3), replace=False)
            crossed[row] = values[places[row]]
            for number in taken:
                own = blocks[number].block.slice
                crossed[row, own] = new[row, own]
        # A crossed row may break a rule, or be another class to the teacher: then the drawn one.
        scores = self._teacher.scores(crossed) + self._tilt
        wrong = broken(self._counts, crossed) | (scores.argmax(axis=1) != labels)
        crossed[wrong] = new[wrong]
        moved = values.copy()
        moved[places] = crossed
        return moved
