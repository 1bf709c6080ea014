"""Few rows from which students learn what the teacher knows.

1. A pool: every feature is drawn independently from its noisy counts, the classes mixed as they are
   asked for, and rows that break a rule of the schema are drawn again. Independent features make a
   better design than correlated ones: the effect of each can be estimated from few rows. (On Adult,
   200 rows: trees 0.889 from independent features, 0.878 from features drawn by class.)
2. Labels: a row is offered to class c with the chance softmax(a (s(x) + b))_c, where s are the
   teacher's scores and b makes the shares of the classes over the pool those of the release. At
   a = 1 that is the teacher's probability; a large `a` gives a row the class that is likeliest at
   those shares, without the noise of a draw. Which `a` serves best depends on how many rows there
   are: each of `SHARPNESSES` is tried, and the students decide.
3. Rows are not drawn at random but balanced (`herded`): each class has the means of all rows that
   are offered to it. Of several such draws the students keep the best.
4. Search: some rows, a quarter at first and few at last, are taken out and others of their class
   put in: drawn from the pool so that the class stays balanced, or, every other step, the old ones
   with some columns of a drawn row (so that single categories and numbers move). A step is kept
   where the students agree better with the teacher (`_students`).

Where the table is so small, or has so many features, that hardly a bin is worth the noise of a
teacher's sums, the whole budget buys counts, and there is no teacher to search with. Rows of each
class are then drawn from its counts, balanced in the same way (`draw_by_class`).

The teacher was fitted with privacy, so nothing here touches the private rows: the number of queries
is not limited by any budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from bench.methods.private_teacher._bins import Array, ClassCounts, Codes, FeatureGrid, merged_bins
from bench.methods.private_teacher._pool import (
    FeatureRules,
    bin_chances,
    class_offers,
    draw_pool,
    draw_rows,
)
from bench.methods.private_teacher._students import Judges, agreement
from bench.methods.private_teacher._teachers import ScoreTeacher, probabilities

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]

SHARPNESSES = (1.0, 2.0, 4.0, 16.0)
STUDENT_ROWS = 4000
"""Students are shown a sample of larger releases, whose chance is small: they are not balanced."""
_FIRST_SHARE, _LAST_SHARE = 0.25, 0.02
"""Shares of the rows that the first and the last step replace."""
_CROSSED_SHARE = 0.2
"""Share of those rows that a step which mixes columns replaces."""
_CROSSED_COLUMNS = 3
_CANDIDATES = 16_000
"""Candidates for all places together, where places are many."""
_MOST, _LEAST = 40, 2
"""Candidates for one place, at most and at least."""
_FEWEST_BY_CLASS = 4
"""Candidates for one place of `draw_by_class`, where the pool is large enough."""
_SWEEPS = 12
_PARTS = 8
"""Coarse bins of a column hold an eighth of the pool each, or a category of that size."""
_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Quantiles of a class's scores between which rows are counted."""
_LEAST_DEVIATION = 0.1
"""Traits are divided by their deviation over the pool, or by this where it is smaller."""


# Balanced draws ---------------------------------------------------------------------------------


def candidates_per_place(places: int) -> int:
    """Number of candidates for each of this many places."""
    return int(np.clip(_CANDIDATES // max(1, places), _LEAST, _MOST))


def herded(centred: Array, rest: Array | None = None) -> Indices:
    """Candidate of each place, such that the sum of all traits comes closest to zero.

    Rows drawn at random miss the means of what they are drawn from by chance, and a model fitted to
    two hundred of them learns that chance. Of several candidates for every place one is kept so
    that the traits of all kept rows together have the mean of the distribution that was drawn from
    (herding; Welling, ICML 2009).

    `centred` is (places, candidates, traits), less the mean that is asked for; `rest` the sum over
    rows that stay as they are. Coordinate descent on |rest + sum over places of the kept|^2 from
    the first candidates: every step lowers it, and it ends where no single exchange helps.
    """
    kept = np.zeros(len(centred), dtype=np.intp)
    total = centred[:, 0].sum(axis=0)
    total = total if rest is None else total + rest
    for _ in range(_SWEEPS):
        changed = False
        for place, candidates in enumerate(centred):
            others = total - candidates[kept[place]]
            best = int(np.argmin(((others + candidates) ** 2).sum(axis=1)))
            changed |= best != kept[place]
            kept[place] = best
            total = others + candidates[best]
        if not changed:
            break
    return kept


def balanced_rows(
    candidates: Indices, table: Array, mean: Array, rest: Array | None = None
) -> Indices:
    """Row of each place among its (places, candidates) rows, herded on their traits in `table`."""
    kept = herded(table[candidates] - mean, rest)
    return np.asarray(candidates[np.arange(len(candidates)), kept])


@final
@dataclass(frozen=True)
class Traits:
    """What is balanced, because models depend on it: values, coarse bins and scores of rows."""

    grid: FeatureGrid
    coarse: tuple[Codes, ...]
    """Coarse bin of each fine one, for every feature."""
    levels: Array
    """(quantiles, classes) of the teacher's scores over the pool."""
    scale: Array

    @classmethod
    def of(cls, grid: FeatureGrid, chances: Sequence[Array], pool: Array, scores: Array) -> Traits:
        """Traits by the chances of the bins that the pool was drawn with, and by its scores."""
        coarse = tuple(
            merged_bins(bins / bins.sum(), column.ordered, 1.0 / _PARTS)
            for bins, column in zip(chances, grid.columns, strict=True)
        )
        levels = np.quantile(_margins(scores), _LEVELS, axis=0)
        plain = cls(grid, coarse, levels, np.ones(1)).rows(pool, scores)
        return cls(grid, coarse, levels, np.maximum(plain.std(axis=0), _LEAST_DEVIATION))

    def rows(self, values: Array, scores: Array) -> Array:
        """(rows, traits)."""
        codes, parts = self.grid.codes(values), [values]
        for number, coarse in enumerate(self.coarse):
            if coarse.max() > 0:
                parts.append(np.eye(int(coarse.max()) + 1)[coarse[codes[:, number]]])
        margins = _margins(scores)
        for level, margin in zip(self.levels.T, margins.T, strict=True):
            parts.append(np.eye(len(_LEVELS) + 1)[np.searchsorted(level, margin)])
        return np.asarray(np.hstack([*parts, margins]) / self.scale)


def _margins(scores: Array) -> Array:
    """Excess of a class's score over the mean of all; for two classes, of the second alone."""
    centred: Array = scores - scores.mean(axis=1, keepdims=True)
    return centred[:, 1:] if scores.shape[1] == 2 else centred


# Without a teacher ------------------------------------------------------------------------------


def draw_by_class(
    grid: FeatureGrid,
    tables: Sequence[Array],
    sizes: Sequence[int],
    pool: int,
    rng: np.random.Generator,
    *,
    balanced: bool = True,
) -> tuple[Array, Labels]:
    """`sizes[c]` rows of each class c from a pool of that class; and their labels.

    `tables` holds the (classes, bins) chances of each feature. More than `STUDENT_ROWS` rows of a
    class are not balanced: their chance is small.
    """
    values = []
    for label, size in enumerate(sizes):
        chances = [table[label] for table in tables]
        offered = draw_pool(grid, chances, max(pool // len(sizes), _FEWEST_BY_CLASS * size), rng)
        if balanced and 0 < size <= min(STUDENT_ROWS, len(offered)):
            unscored = np.zeros((len(offered), 1))
            table = Traits.of(grid, chances, offered, unscored).rows(offered, unscored)
            # No row is a candidate for two places.
            each = min(_MOST, len(offered) // size)
            candidates = rng.permutation(len(offered))[: size * each].reshape(size, each)
            chosen = balanced_rows(candidates, table, table.mean(axis=0))
        else:
            # Rows that break a rule are left out of a pool: it may be too small.
            chosen = rng.choice(len(offered), size, replace=size > len(offered))
        values.append(offered[chosen])
    return np.concatenate(values), np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)


# With a teacher ---------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Condensed:
    """Chosen rows, and how well the students agree with the teacher."""

    values: Array
    labels: Labels
    sharpness: float
    start: float
    """Agreement before the search."""
    end: float
    teacher: float
    """Agreement of the teacher with itself: the highest possible."""
    kept: int
    """Number of steps that were an improvement."""


@final
@dataclass(frozen=True)
class _Selection:
    """Rows of a release, with their traits; these have no columns in a large release."""

    values: Array
    traits: Array


@final
@dataclass(frozen=True)
class _ClassOffers:
    """Which rows of the pool each class is drawn from."""

    chances: Array
    """(pool, classes)."""
    cumulated: Array
    """Cumulated chances of each class, from 0 to 1."""
    traits: Traits | None
    table: Array
    """(pool, traits)."""
    means: Array
    """(classes, traits): means over all rows that a class is offered."""

    @classmethod
    def of(cls, chances: Array, traits: Traits | None, table: Array) -> _ClassOffers:
        """Offers with these chances."""
        shares = chances / np.maximum(chances.sum(axis=0), 1e-300)
        return cls(chances, np.cumsum(shares, axis=0), traits, table, shares.T @ table)

    def draw(self, label: int, shape: tuple[int, ...], rng: np.random.Generator) -> Indices:
        """Rows of the pool for a class."""
        index = np.searchsorted(self.cumulated[:, label], rng.random(shape))
        return np.minimum(index, len(self.cumulated) - 1)


@final
class Condenser:
    """Draws and searches for one teacher."""

    def __init__(
        self,
        teacher: ScoreTeacher,
        counts: ClassCounts,
        priors: Array,
        sizes: Sequence[int],
        pool: int,
        rng: np.random.Generator,
    ) -> None:
        self._teacher, self._counts, self._rng = teacher, counts, rng
        self._grid, self._rules = counts.grid, FeatureRules.of(counts.grid.encoder)
        self._sizes = tuple(sizes)
        classes = len(self._sizes)
        self._labels = np.repeat(np.arange(classes, dtype=np.int64), self._sizes)
        # One row more of each class, so that a class without rows to release has a positive share.
        asked = np.asarray(self._sizes, dtype=np.float64) + 1.0
        self._shares = asked / asked.sum()
        self._tilt = np.log(self._shares / priors)
        self._chances = bin_chances(counts, self._shares)
        rows = max(pool, 2 * len(self._labels))
        self._pool = draw_pool(self._grid, self._chances, rows, rng)
        self._scores = teacher.scores(self._pool) + self._tilt
        self._even = np.full(classes, 1.0 / classes) / priors

    def plain(self) -> tuple[Array, Labels]:
        """Rows without condensation: labels drawn from the teacher's probabilities."""
        chances = class_offers(self._scores, self._shares, 1.0)
        return self._pool[draw_rows(chances, self._sizes, self._rng)], self._labels

    def condense(self, steps: int, judges: int) -> Condensed:
        """Search from the best start of all sharpnesses.

        `steps` is for 200 rows, and fewer are taken for more, in proportion: a step's cost grows
        with the rows.
        """
        with threadpool_limits(1):
            rows = max(1, len(self._labels))
            return self._search(round(steps * min(1.0, 200.0 / rows)), self._judges(judges))

    def _search(self, steps: int, judges: Judges) -> Condensed:
        seed = int(self._rng.integers(2**31))
        rows = len(self._labels)
        traits, table = self._traits()
        best: tuple[float, float, _Selection, _ClassOffers] | None = None
        for sharpness in SHARPNESSES:
            chances = class_offers(self._scores, self._shares, sharpness)
            offers = _ClassOffers.of(chances, traits, table)
            for _ in range(max(1, steps // 20)):
                selection = self._start(offers)
                value = self._agreement(selection.values, judges, seed)
                if best is None or value > best[0]:
                    best = (value, sharpness, selection, offers)
        assert best is not None
        start, sharpness, selection, offers = best
        end, kept = start, 0
        for step in range(steps):
            left = 1.0 - step / steps
            share = _LAST_SHARE + (_FIRST_SHARE - _LAST_SHARE) * left
            if step % 2 == 0 and traits is not None:
                places = self._rng.choice(rows, max(2, round(share * rows)), replace=False)
                moved = self._balanced(selection, offers, places)
            else:
                count = max(1, round(_CROSSED_SHARE * share * rows))
                moved = self._crossed(selection, offers, count)
            value = self._agreement(moved.values, judges, seed)
            if value > end:
                selection, end, kept = moved, value, kept + 1
        highest = judges.agreement(judges.chances)
        return Condensed(selection.values, self._labels, sharpness, start, end, highest, kept)

    def _traits(self) -> tuple[Traits | None, Array]:
        """Traits to balance, and those of the pool; none for a large release."""
        if len(self._labels) > STUDENT_ROWS:
            return None, np.empty((len(self._pool), 0))
        traits = Traits.of(self._grid, self._chances, self._pool, self._scores)
        return traits, traits.rows(self._pool, self._scores)

    def _judges(self, count: int) -> Judges:
        """Rows in equal numbers per class, with the teacher's probabilities at equal shares."""
        classes = len(self._sizes)
        each = max(1, count // classes)
        values = np.concatenate(
            [
                draw_pool(self._grid, bin_chances(self._counts, only), each, self._rng)
                for only in np.eye(classes)
            ]
        )
        return Judges.of(values, probabilities(self._teacher.scores(values) + np.log(self._even)))

    def _agreement(self, values: Array, judges: Judges, seed: int) -> float:
        labels = self._labels
        if len(labels) > STUDENT_ROWS:
            shown = np.random.default_rng(seed).choice(len(labels), STUDENT_ROWS, replace=False)
            values, labels = values[shown], labels[shown]
        return agreement(values, labels, len(self._sizes), judges, seed)

    def _start(self, offers: _ClassOffers) -> _Selection:
        """A draw: balanced, unless the release is large."""
        if offers.traits is None:
            index = draw_rows(offers.chances, self._sizes, self._rng)
            return _Selection(self._pool[index], np.empty((len(index), 0)))
        rows = len(self._labels)
        empty = _Selection(
            np.empty((rows, self._pool.shape[1])), np.zeros((rows, offers.table.shape[1]))
        )
        return self._balanced(empty, offers, np.arange(rows))

    def _balanced(self, selection: _Selection, offers: _ClassOffers, places: Labels) -> _Selection:
        """These places drawn anew, such that each class stays balanced."""
        table, each = offers.table, candidates_per_place(len(places))
        values, traits = selection.values.copy(), selection.traits.copy()
        fresh = np.zeros(len(values), dtype=bool)
        fresh[places] = True
        for label, mean in enumerate(offers.means):
            redrawn = np.flatnonzero((self._labels == label) & fresh)
            if not len(redrawn):
                continue
            stay = (self._labels == label) & ~fresh
            rest = (traits[stay] - mean).sum(axis=0)
            candidates = offers.draw(label, (len(redrawn), each), self._rng)
            chosen = balanced_rows(candidates, table, mean, rest)
            values[redrawn], traits[redrawn] = self._pool[chosen], table[chosen]
        return _Selection(values, traits)

    def _crossed(self, selection: _Selection, offers: _ClassOffers, count: int) -> _Selection:
        """Some rows get a few columns of a drawn row of their class."""
        rng, columns = self._rng, self._grid.columns
        places = rng.choice(len(self._labels), count, replace=False)
        labels = self._labels[places]
        index = np.array([int(offers.draw(label, (1,), rng)[0]) for label in labels])
        new, crossed = self._pool[index], selection.values[places]
        most = min(len(columns), _CROSSED_COLUMNS)
        for row in range(count):
            for number in rng.choice(len(columns), most, replace=False):
                part = columns[number].block.slice
                crossed[row, part] = new[row, part]
        # A crossed row may break a rule, or be another class to the teacher: then the drawn one.
        scores = self._teacher.scores(crossed) + self._tilt
        wrong = self._rules.broken(crossed) | (scores.argmax(axis=1) != labels)
        crossed[wrong], scores[wrong] = new[wrong], self._scores[index[wrong]]
        values, traits = selection.values.copy(), selection.traits.copy()
        values[places] = crossed
        if offers.traits is not None:
            traits[places] = offers.traits.rows(crossed, scores)
        return _Selection(values, traits)
