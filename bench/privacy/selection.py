"""Choosing one of several public candidates: the exponential mechanism, sampled exactly.

A candidate is a set of columns of a coded table with a score. The kernel computes the scores from
exact counts, so that their sensitivity is a theorem here and not a promise of the method:

* `Distance`: w (|N - e|_1 - o), where N are the counts of the candidate's columns, e is a public
  estimate of them, w a weight and o an offset. One row more moves one count by one, so that the
  sensitivity is w. It is the score of MWEM, AIM, RAP, GEM and Private-GSD.
* `Dependence`: w/2 |N_xp - N_x N_p / N|_1, where N_xp are the counts of a column x and its parents
  p, N_x and N_p their margins and N the number of rows: PrivBayes' score R (Zhang et al. 2017,
  section 4.2) in units of rows. One row (x, p) more moves the difference by

      e_x e_p n/(n+1) - N_x e_p/(n+1) - e_x N_p/(n+1) + N_x N_p / (n (n+1)),

  four tables of L1 norm at most n/(n+1) each: the sensitivity is below 2 w, and not smaller (for a
  new x and a new p among independent columns, all four add up). Zhang et al. state 3/n + 2/n^2 for
  the score divided by n, where one row is replaced and n is fixed.

With sensitivity D (the largest of the candidates) the mechanism returns candidate c with
probability proportional to exp(epsilon q_c / (2 D)). It is epsilon-DP, has bounded range epsilon,
and therefore is (epsilon^2 / 8)-zCDP (Cesar and Rogers 2021, Lemma 3.2; Dong, Durfee and Rogers
2020): the event that is recorded. Report-noisy-max with Gumbel noise is the same distribution.
Permute-and-flip, which is report-noisy-max with exponential noise, has smaller errors at equal
epsilon, but its range is not bounded like this: at equal zCDP it would have to halve its epsilon,
so that it is not offered.

**Exactness.** No double decides: scores are fractions of integers, estimates are rounded to
multiples of 2^-10 (they are public, so that this is a choice of the score), and the candidate is
drawn by rejection. A uniform candidate c is accepted with probability exp(-epsilon (q_max - q_c) /
(2 D)), a coin that is flipped exactly for a fraction (Canonne, Kamath and Steinke 2020, Algorithm
1). The number of tries is at most the number of candidates in expectation. It depends on the rows:
attacks that measure time are not covered.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

import numpy as np
import numpy.typing as npt

from bench.errors import PrivacyContractError
from bench.privacy.noise import Words

Table = npt.NDArray[np.int64]
Columns = tuple[int, ...]

_UNIT = 1024
"""Estimates are multiples of 1 / 1024."""
_MOST_CELLS = 1 << 22
"""Cells of one table at most: distances of so many cells stay within 63 bits."""
_KEPT_CELLS = 1 << 24
"""Cells of exact counts that are kept for the next selection (128 MB)."""


@final
class CodedRows:
    """Codes of private rows in the columns of a public domain; they stay inside the kernel.

    `PrivateData.coded` makes one. It has no public content but the sizes.
    """

    def __init__(
        self, owner: object, codes: npt.NDArray[np.float64], sizes: tuple[int, ...]
    ) -> None:
        self._owner = owner
        self.sizes = sizes
        """Number of codes of each column."""
        limits = np.asarray(sizes, dtype=np.float64)
        # Compared before it is converted: a conversion of NaN or 1e300 is not defined.
        inside = (codes >= 0.0) & (codes < limits)
        self._codes = np.where(inside, codes, -1.0).astype(np.int64)
        self._counts: dict[Columns, Table] = {}

    def checked(self, columns: Sequence[int]) -> Columns:
        """Return a set of columns as a tuple, or refuse it."""
        chosen = tuple(int(column) for column in columns)
        known = all(0 <= column < len(self.sizes) for column in chosen)
        if not known or len(set(chosen)) != len(chosen):
            raise PrivacyContractError(
                f"columns {chosen}: expected different numbers below {len(self.sizes)}"
            )
        cells = math.prod(self.sizes[column] for column in chosen)
        if cells > _MOST_CELLS:
            raise PrivacyContractError(
                f"the table of columns {chosen} has {cells} cells, more than {_MOST_CELLS}; use "
                "fewer columns, or fewer bins"
            )
        return chosen

    def _count(self, columns: Columns) -> Table:
        """Return the exact counts; a row with a code out of range is in no cell."""
        known = self._counts.get(columns)
        if known is not None:
            return known
        shape = tuple(self.sizes[column] for column in columns)
        cells = np.zeros(len(self._codes), dtype=np.int64)
        valid = np.ones(len(self._codes), dtype=bool)
        for column, size in zip(columns, shape, strict=True):
            cells = cells * size + self._codes[:, column]
            valid &= self._codes[:, column] >= 0
        counts = np.bincount(cells[valid], minlength=math.prod(shape)).astype(np.int64)
        table = counts.reshape(shape)
        if sum(one.size for one in self._counts.values()) + table.size <= _KEPT_CELLS:
            self._counts[columns] = table
        return table


class Candidate(ABC):
    """One of the public candidates of a selection; its score is computed inside the kernel."""

    @property
    @abstractmethod
    def sensitivity(self) -> Fraction:
        """How far one row more moves the score, at most."""

    @abstractmethod
    def check(self, rows: CodedRows) -> None:
        """Refuse a candidate that does not fit the columns."""

    @abstractmethod
    def score(self, rows: CodedRows) -> Fraction:
        """Return the exact score."""

    @abstractmethod
    def digest(self) -> str:
        """Return a text that differs for candidates with another score."""


@final
@dataclass(frozen=True)
class Distance(Candidate):
    """weight (|counts of the columns - estimate|_1 - offset): how wrong a public estimate is."""

    columns: Columns
    estimate: npt.NDArray[np.float64] = field(repr=False)
    """Public estimate of the counts, of the shape of the columns' table (or flat)."""
    weight: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        _check_weight(self.weight)
        if not (math.isfinite(self.offset) and np.isfinite(self.estimate).all()):
            raise PrivacyContractError("the estimate and the offset of a candidate must be finite")

    @property
    def sensitivity(self) -> Fraction:
        return Fraction(float(self.weight))

    def check(self, rows: CodedRows) -> None:
        cells = math.prod(rows.sizes[column] for column in rows.checked(self.columns))
        if np.size(self.estimate) != cells:
            raise PrivacyContractError(
                f"the estimate of columns {self.columns} has {np.size(self.estimate)} cells, not "
                f"{cells}"
            )

    def score(self, rows: CodedRows) -> Fraction:
        counts = rows._count(rows.checked(self.columns)).reshape(-1)
        apart = int(np.abs(counts * _UNIT - self._rounded()).sum())
        return self.sensitivity * (Fraction(apart, _UNIT) - Fraction(float(self.offset)))

    def digest(self) -> str:
        """Return the digest of columns, estimate, weight and offset."""
        words = f"{self.columns} {float(self.weight)!r} {float(self.offset)!r}"
        return hashlib.sha256(words.encode() + self._rounded().tobytes()).hexdigest()

    def _rounded(self) -> Table:
        scaled = np.clip(np.asarray(self.estimate, dtype=np.float64), -1e9, 1e9) * _UNIT
        return np.asarray(np.rint(scaled).reshape(-1), dtype=np.int64)


@final
@dataclass(frozen=True)
class Dependence(Candidate):
    """weight / 2 |N_xp - N_x N_p / N|_1: how far a column is from independent of its parents."""

    column: int
    parents: Columns
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_weight(self.weight)

    @property
    def sensitivity(self) -> Fraction:
        return 2 * Fraction(float(self.weight))

    def check(self, rows: CodedRows) -> None:
        rows.checked((self.column, *self.parents))

    def score(self, rows: CodedRows) -> Fraction:
        chosen = rows.checked((self.column, *self.parents))
        joint = rows._count(chosen).reshape(rows.sizes[self.column], -1)
        total = int(joint.sum())
        if total == 0:
            return Fraction(0)
        own, parents = joint.sum(axis=1), joint.sum(axis=0)
        # At most 2 N^2 each, which is below 2^62 for up to 10^9 rows.
        apart = np.abs(joint * total - own[:, None] * parents[None, :]).sum(axis=1)
        distance = Fraction(sum(int(part) for part in apart), total)
        return Fraction(float(self.weight)) / 2 * distance

    def digest(self) -> str:
        """Return column, parents and weight."""
        return f"{self.column} {self.parents} {float(self.weight)!r}"


def _check_weight(weight: float) -> None:
    if not (math.isfinite(weight) and 1e-100 <= weight <= 1e100):
        raise PrivacyContractError(
            f"the weight of a candidate must be a positive finite number, got {weight}"
        )


def check_candidates(rows: CodedRows, candidates: Sequence[Candidate]) -> None:
    """Refuse scores without a proof, and tables that do not fit the columns."""
    if not candidates or not all(isinstance(one, Distance | Dependence) for one in candidates):
        raise PrivacyContractError(
            "a selection needs one or more candidates, each a Distance or a Dependence: the "
            "sensitivities of other scores are not proven"
        )
    for candidate in candidates:
        candidate.check(rows)


def on_grid(scores: Sequence[Fraction], exponent: int) -> Table:
    """Return the scores as multiples of 2^exponent, rounded exactly; a limit keeps 63 bits."""
    unit, limit = Fraction(2) ** exponent, 1 << 61
    rounded = [max(-limit, min(limit, round(score / unit))) for score in scores]
    return np.array(rounded, dtype=np.int64)


def digest(candidates: Sequence[Candidate]) -> str:
    """Return the digest of all candidates in their order, for comparisons of two runs."""
    text = "\n".join(candidate.digest() for candidate in candidates)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def exponents(rows: CodedRows, candidates: Sequence[Candidate], epsilon: float) -> list[Fraction]:
    """Return epsilon (q_max - q_c) / (2 D): minus the log of each candidate's relative weight."""
    scores = [candidate.score(rows) for candidate in candidates]
    largest = max(scores)
    sensitivity = max(candidate.sensitivity for candidate in candidates)
    # Rounded down: the mechanism spends at most what was recorded.
    factor = Fraction(float(epsilon)) * (1 - Fraction(1, 1 << 50)) / (2 * sensitivity)
    return [factor * (largest - score) for score in scores]


def draw(exponents: Sequence[Fraction], words: Words) -> int:
    """Return c with probability proportional to exp(-exponents[c]), exactly; the least is zero."""
    coins = _Coins(words)
    while True:
        index = coins.below(len(exponents))
        if coins.exponential(exponents[index]):
            return index


@final
class _Coins:
    """Exact coins and numbers from random words, which are drawn many at a time."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._left: list[int] = []

    def _word(self) -> int:
        if not self._left:
            self._left = self._words(64).tolist()
        return self._left.pop()

    def below(self, size: int) -> int:
        """Return a uniform number below `size`."""
        limit = (1 << 64) - (1 << 64) % size
        while True:
            word = self._word()
            if word < limit:
                return word % size

    def fraction(self, top: int, bottom: int) -> bool:
        """Return True with probability top / bottom."""
        bits, drawn = self._word(), 64
        while True:
            # The uniform number lies in [bits, bits + 1) 2^-drawn.
            if (bits + 1) * bottom <= top << drawn:
                return True
            if bits * bottom >= top << drawn:
                return False
            bits, drawn = (bits << 64) | self._word(), drawn + 64

    def exponential(self, exponent: Fraction) -> bool:
        """Return True with probability exp(-exponent)."""
        whole, rest = divmod(exponent.numerator, exponent.denominator)
        for _ in range(whole):
            if not self._small(1, 1):
                return False
        return self._small(rest, exponent.denominator)

    def _small(self, top: int, bottom: int) -> bool:
        """Return True with probability exp(-top / bottom), for top / bottom in [0, 1]."""
        tries = 1
        while self.fraction(top, bottom * tries):
            tries += 1
        return tries % 2 == 1
