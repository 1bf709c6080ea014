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
3. Rows are not drawn at random but balanced (`_condense_herding`): each class has the means of all
   rows that are offered to it. Of several such draws the students keep the best.
4. Search: some rows, a quarter at first and few at last, are taken out and others of their class
   put in: drawn from the pool so that the class stays balanced, or, every other step, the old ones
   with some columns of a drawn row (so that single categories and numbers move). Kept where the
   students agree better with the teacher (`_condense_students`).

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

from bench.methods.private_teacher._bins import ClassCounts
from bench.methods.private_teacher._herding import Traits, herded
from bench.methods.private_teacher._kinds import ScoreTeacher, probabilities
from bench.methods.private_teacher._pool import bin_chances, broken, draw_pool, drawn, offers
from bench.methods.private_teacher._students import Judges, agreement

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

SHARPNESSES = (1.0, 2.0, 4.0, 16.0)
STUDENT_ROWS = 4000
"""Students are shown a sample of larger releases, whose chance is small: they are not balanced."""
_FIRST_SHARE, _LAST_SHARE = 0.25, 0.02
"""Of the rows that a step replaces."""
_CROSSED_SHARE = 0.2
"""Of those, how many a step that mixes columns replaces."""
_CROSSED_COLUMNS = 3
_COHORT = 16_000
_MOST, _LEAST = 40, 2
"""Candidates of a place: up to `_MOST`, and `_COHORT` for all places together."""


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

    def starts_for(self, rows: int) -> int:
        """Draws at each sharpness, of which the best is searched from."""
        return max(1, self.steps_for(rows) // 20)


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


@final
@dataclass(frozen=True)
class _State:
    """Rows of a release, with their traits; these have no columns in a large release."""

    values: Array
    traits: Array


@final
@dataclass(frozen=True)
class _Offers:
    """Which rows of the pool each class is drawn from."""

    chances: Array
    """(pool, classes)."""
    cumulated: Array
    """The same, each class from 0 to 1."""
    traits: Traits | None
    table: Array
    """(pool, traits)."""
    means: Array
    """(classes, traits): of all rows that a class is offered."""

    @classmethod
    def of(cls, chances: Array, traits: Traits | None, table: Array) -> _Offers:
        """Of these chances."""
        shares = chances / np.maximum(chances.sum(axis=0), 1e-300)
        return cls(chances, np.cumsum(shares, axis=0), traits, table, shares.T @ table)

    def draw(
        self, label: int, shape: tuple[int, ...], rng: np.random.Generator
    ) -> npt.NDArray[np.intp]:
        """Rows of the pool for a class."""
        found = np.searchsorted(self.cumulated[:, label], rng.random(shape))
        return np.minimum(found, len(self.cumulated) - 1)


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
        self._pool = draw_pool(counts.grid, bin_chances(counts, self._shares), wanted, rng)
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
        rows = len(self._labels)
        traits, table = self._traits()
        best: tuple[float, float, _State, _Offers] | None = None
        for sharpness in SHARPNESSES:
            offered = _Offers.of(offers(self._scores, self._shares, sharpness), traits, table)
            for _ in range(self._search.starts_for(rows)):
                state = self._start(offered)
                value = self._agreement(state.values, judges, seed)
                if best is None or value > best[0]:
                    best = (value, sharpness, state, offered)
        assert best is not None
        start, sharpness, state, offered = best
        steps, end, kept = self._search.steps_for(rows), start, 0
        for step in range(steps):
            left = 1.0 - step / steps
            share = _LAST_SHARE + (_FIRST_SHARE - _LAST_SHARE) * left
            if step % 2 == 0 and traits is not None:
                moved = self._redrawn(state, offered, max(2, round(share * rows)))
            else:
                moved = self._crossed(state, offered, max(1, round(_CROSSED_SHARE * share * rows)))
            value = self._agreement(moved.values, judges, seed)
            if value > end:
                state, end, kept = moved, value, kept + 1
        own = judges.agreement(judges.chances)
        return Condensed(state.values, self._labels, sharpness, start, end, own, kept)

    def _traits(self) -> tuple[Traits | None, Array]:
        """What is balanced, and that of the pool; nothing for a large release."""
        if len(self._labels) > STUDENT_ROWS:
            return None, np.empty((len(self._pool), 0))
        chances = bin_chances(self._counts, self._shares)
        traits = Traits.of(self._counts.grid, chances, self._pool, self._scores)
        return traits, traits.rows(self._pool, self._scores)

    def _judges(self) -> Judges:
        """Rows drawn class by class, as many of each, with the teacher's chances at such shares."""
        classes = len(self._sizes)
        each = max(1, self._search.judges // classes)
        drawn_rows = [
            draw_pool(self._counts.grid, bin_chances(self._counts, only), each, self._rng)
            for only in np.eye(classes)
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

    def _start(self, offered: _Offers) -> _State:
        """A draw: balanced, unless the release is large."""
        if offered.traits is None:
            index = drawn(offered.chances, self._sizes, self._rng)
            return _State(self._pool[index], np.empty((len(index), 0)))
        empty = _State(np.empty((len(self._labels), self._pool.shape[1])), np.empty(0))
        return self._balanced(empty, offered, np.arange(len(self._labels)))

    def _redrawn(self, state: _State, offered: _Offers, count: int) -> _State:
        """Some places drawn anew, such that each class stays balanced."""
        places = self._rng.choice(len(self._labels), count, replace=False)
        return self._balanced(state, offered, places)

    def _balanced(self, state: _State, offered: _Offers, places: Labels) -> _State:
        table = offered.table
        each = int(np.clip(_COHORT // len(places), _LEAST, _MOST))
        values = state.values.copy()
        traits = (
            state.traits.copy() if state.traits.size else np.zeros((len(values), table.shape[1]))
        )
        fresh = np.zeros(len(values), dtype=bool)
        fresh[places] = True
        for label, mean in enumerate(offered.means):
            own = np.flatnonzero((self._labels == label) & fresh)
            if not len(own):
                continue
            stay = (self._labels == label) & ~fresh
            rest = (traits[stay] - mean).sum(axis=0)
            index = offered.draw(label, (len(own), each), self._rng)
            chosen = index[np.arange(len(own)), herded(table[index] - mean, rest)]
            values[own], traits[own] = self._pool[chosen], table[chosen]
        return _State(values, traits)

    def _crossed(self, state: _State, offered: _Offers, count: int) -> _State:
        """Some rows get a few columns of a drawn row of their class."""
        rng, blocks = self._rng, self._counts.grid.columns
        places = rng.choice(len(self._labels), count, replace=False)
        labels = self._labels[places]
        index = np.array([int(offered.draw(label, (1,), rng)[0]) for label in labels])
        new, crossed = self._pool[index], state.values[places]
        for row in range(count):
            for number in rng.choice(
                len(blocks), min(len(blocks), _CROSSED_COLUMNS), replace=False
            ):
                own = blocks[number].block.slice
                crossed[row, own] = new[row, own]
        # A crossed row may break a rule, or be another class to the teacher: then the drawn one.
        scores = self._teacher.scores(crossed) + self._tilt
        wrong = broken(self._counts, crossed) | (scores.argmax(axis=1) != labels)
        crossed[wrong], scores[wrong] = new[wrong], self._scores[index[wrong]]
        values, traits = state.values.copy(), state.traits.copy()
        values[places] = crossed
        if offered.traits is not None:
            traits[places] = offered.traits.rows(crossed, scores)
        return _State(values, traits)
