"""GATS, geometrically aggregated training samples (Yang, Thakur, Soltan and Clifton, section 3).

A row of class C is a random convex combination of N real rows, the constituents:

    x = sum_i c_i x_i,   c_i >= 0,   sum_i c_i = 1                                (eq. 1)

A class-wise row takes all N from class C and has the label C (eq. 2). A mixed-label row takes a
share q of them from other classes; its label, like any discrete column, is the majority of the
constituents' values (eq. 3 and 4). A share p of the rows is mixed. Rows that correlate above 0.75
with real rows are thrown away and built again. No noise is added: the rows are read as they are.

What the paper leaves open, what is done here, and the alternative:

- Law of the coefficients ("randomly sampled while enforcing the simplicial constraint"):
  Dirichlet(1), which is uniform on the simplex; or, with `coefficients="uniform"`, uniform numbers
  divided by their sum, which stay closer to 1/N.
- Majority votes count heads, as eq. 3 and 4 are written; weighting by c_i would be the
  alternative. The coefficients only break ties of discrete columns, which has no favourite
  category, unlike taking the first. Binary columns stay in {-1, 1} and one-hot blocks one-hot.
- q may be 0.5 at most, and at most floor(N/2) constituents are foreign: the own class then wins
  the vote or ties, and a tie goes to the class being made. So every row made for C has the label
  C, and each class has exactly the asked-for number of rows. A larger q would, by eq. 3, make rows
  of the other class instead.
- q N that is not whole is rounded up or down at random, so that q holds on average (the defaults
  give 1.5 of 5). The paper's example, 25 of 100, is unaffected; always rounding would give 0.2 or
  0.4.
- p and q hold for every class alike, majority and minority. The paper shows q for its minority
  class only, and one could mix negatives into positives but not the reverse.
- Several other classes: foreign constituents are drawn from all their rows together, not class by
  class.
- The batch b: rows are cut at random into batches of at most b, and all constituents of a row come
  from one batch (None: from all rows). A batch without rows of other classes gives class-wise
  rows.
- Constituents are drawn without replacement, unless there are fewer rows than needed (see the
  notes of the release).
- Correlation: Pearson's, across the encoded columns (time included, label not) of two rows, each
  column standardised over the training rows, since the paper standardises its data. It is taken
  with its sign: a row that is the reverse of a patient does not resemble the patient. With the N
  constituents (`filter="constituents"`), or, as the text says, with every real row (`"all"`),
  which rejects almost everything at small N. After `max_retries` the least correlated attempt is
  kept and counted in `rows_over_threshold`; the paper does not say when to stop.
- Time of a survival task is a numeric column; the event is the label. Pixels are numeric columns;
  the paper doubts that mixed images mean anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from bench.core.encode import EncodedRows, Encoder
from bench.core.errors import InputError, NotApplicable
from bench.core.method import Method, Spec
from bench.core.privacy import PrivateData
from bench.core.release import Release, Rows
from bench.core.schema import Numeric

Array = npt.NDArray[np.float64]
Single = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_DRAWS_AT_ONCE = 2_000_000
"""Constituents held in memory at once."""
_NUMBERS_AT_ONCE = 4_000_000
"""Numbers that a comparison with real rows holds in memory at once."""


@final
@dataclass(frozen=True)
class Gats(Method):
    """Convex combinations of real rows, class-wise and with mixed labels."""

    name: ClassVar[str] = "gats"
    title: ClassVar[str] = "Geometrically aggregated training samples"
    paper: ClassVar[str] = (
        "Yang et al., Geometrically-aggregated training samples: Leveraging summary statistics to "
        "enable healthcare data democratization, section 3"
    )
    uses_budget: ClassVar[bool] = False

    constituents: int = 5
    """N: real rows combined into one."""
    mixed_share: float = 0.25
    """p: share of mixed-label rows."""
    mixed_ratio: float = 0.3
    """q: share of a mixed-label row's constituents that come from other classes."""
    batch: int | None = None
    """b: constituents of one row come from one random batch of at most so many rows."""
    filter: Literal["constituents", "all", "off"] = "constituents"
    threshold: float = 0.75
    coefficients: Literal["dirichlet", "uniform"] = "dirichlet"
    max_retries: int = 50

    def __post_init__(self) -> None:
        batch = self.batch
        self._require(self.constituents >= 1, "constituents", "1 or more")
        self._require(0.0 <= self.mixed_share <= 1.0, "mixed_share", "between 0 and 1")
        self._require(
            0.0 <= self.mixed_ratio <= 0.5,
            "mixed_ratio",
            "0 to 0.5 (a larger share would outvote the class that is made)",
        )
        self._require(
            batch is None or batch >= self.constituents,
            "batch",
            "`constituents` or more, or absent",
        )
        self._require(
            self.filter in ("constituents", "all", "off"), "filter", "constituents, all or off"
        )
        self._require(-1.0 <= self.threshold <= 1.0, "threshold", "a correlation, from -1 to 1")
        self._require(
            self.coefficients in ("dirichlet", "uniform"), "coefficients", "dirichlet or uniform"
        )
        self._require(self.max_retries >= 0, "max_retries", "0 or more")

    def _require(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise InputError(f"gats: {name}={getattr(self, name)!r} is not {expected}")

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        rows = private.raw("convex combinations of the real training rows, without noise")
        if not len(rows):
            raise NotApplicable("gats combines real rows, and there are none")
        classes = private.schema.classes
        pools = _Pools.cut(rows.labels, len(classes), self.batch, rng)
        present = pools.sizes.any(axis=0)
        sizes = np.where(present, spec.rows_per_class(private.counts), 0)
        labels = np.repeat(np.arange(len(classes)), sizes)
        if not labels.size:
            raise NotApplicable("gats finds no real row of any class that was asked for")
        mixed = np.concatenate([np.arange(size) < round(self.mixed_share * size) for size in sizes])

        values, over, acceptance = self._build(rows, private.encoder, pools, labels, mixed, rng)
        notes: dict[str, float | str] = {
            "acceptance_rate": acceptance,
            "rows_over_threshold": "not measured" if self.filter == "off" else float(over),
        }
        foreign = math.ceil(self.mixed_ratio * self.constituents) if mixed.any() else 0
        small = pools.too_small(self.constituents, min(foreign, self.constituents // 2))
        for name, flags in (("with_replacement", small), ("classes_without_rows", ~present)):
            if flags.any():
                notes[name] = ", ".join(np.asarray(classes)[flags])
        return Release(Rows(values, labels), notes=notes)

    def _build(
        self,
        rows: EncodedRows,
        encoder: Encoder,
        pools: _Pools,
        labels: Index,
        mixed: Flags,
        rng: np.random.Generator,
    ) -> tuple[Single, int, float]:
        """The rows, how many of them are over the threshold, and the share of accepted attempts."""
        combiner = _Combiner.of(rows.values.astype(np.float64), encoder)
        real = _Directions.of(rows.values)
        values = np.empty((len(labels), encoder.width), dtype=np.float32)
        closest = np.full(len(labels), np.inf)
        pending = np.arange(len(labels))
        step = max(1, _DRAWS_AT_ONCE // self.constituents)
        attempts = 0
        for _ in range(self.max_retries + 1):
            attempts += len(pending)
            for start in range(0, len(pending), step):
                here = pending[start : start + step]
                index = self._draw(pools, labels[here], mixed[here], rng)
                made = combiner.combine(index, self._weights(index.shape, rng))
                correlation = self._resemblance(real, made, index)
                better = correlation < closest[here]
                values[here[better]] = made[better]
                closest[here[better]] = correlation[better]
            pending = pending[closest[pending] > self.threshold]
            if not pending.size:
                break
        return values, len(pending), (len(labels) - len(pending)) / attempts

    def _draw(self, pools: _Pools, labels: Index, mixed: Flags, rng: np.random.Generator) -> Index:
        """Constituents of each row to be made, as positions in the table."""
        batches = pools.batches(labels, rng)
        index = pools.own(batches, labels, self.constituents, rng)
        share = self.mixed_ratio * self.constituents
        foreign = np.floor(share) + (rng.random(len(labels)) < share - math.floor(share))
        foreign = np.minimum(foreign, self.constituents // 2)
        foreign[~mixed | (pools.foreign_sizes(batches, labels) == 0)] = 0
        most = int(foreign.max())
        if most:
            replaced = np.arange(most) < foreign[:, None]
            other = pools.foreign(batches, labels, most, rng)
            index[:, :most] = np.where(replaced, other, index[:, :most])
        return index

    def _weights(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        weights: Array
        if self.coefficients == "uniform":
            weights = 1.0 - rng.random(shape)  # in (0, 1]: the sum is never zero
        else:
            weights = rng.standard_exponential(shape)
        weights /= weights.sum(axis=1, keepdims=True)
        return weights

    def _resemblance(self, real: _Directions, made: Single, index: Index) -> Array:
        """Largest correlation of each made row with the real rows it must not resemble."""
        if self.filter == "off":
            return np.full(len(made), -np.inf)
        if self.filter == "all":
            return real.closest(made)
        return real.closest_of(made, index)


@final
@dataclass(frozen=True)
class _Pools:
    """Where the rows of each batch and class lie, in an order that puts them side by side."""

    order: Index
    """Positions in the table, by batch, then class."""
    starts: Index
    """(batches, classes): where a class begins in `order`."""
    sizes: Index
    """(batches, classes)"""

    @classmethod
    def cut(
        cls,
        labels: npt.NDArray[np.integer],
        classes: int,
        batch: int | None,
        rng: np.random.Generator,
    ) -> _Pools:
        """Cut the rows at random into batches of at most `batch` rows, as equal as can be."""
        count = 1 if batch is None else math.ceil(len(labels) / batch)
        batch_of = np.empty(len(labels), dtype=np.int64)
        for number, members in enumerate(np.array_split(rng.permutation(len(labels)), count)):
            batch_of[members] = number
        keys = batch_of * classes + labels
        sizes = np.bincount(keys, minlength=count * classes).reshape(count, classes)
        starts = (np.cumsum(sizes) - sizes.ravel()).reshape(count, classes)
        return cls(np.argsort(keys, kind="stable"), starts, sizes)

    def batches(self, labels: Index, rng: np.random.Generator) -> Index:
        """A random batch for each row to be made, among those that hold its class."""
        chosen = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            here = labels == label
            chosen[here] = rng.choice(np.flatnonzero(self.sizes[:, label]), size=here.sum())
        return chosen

    def own(self, batches: Index, labels: Index, count: int, rng: np.random.Generator) -> Index:
        """`count` rows of the same class in the same batch."""
        chosen = _subsets(self.sizes[batches, labels], count, rng)
        index: Index = self.order[self.starts[batches, labels][:, None] + chosen]
        return index

    def foreign_sizes(self, batches: Index, labels: Index) -> Index:
        """How many rows of other classes the batch holds."""
        sizes: Index = self.sizes.sum(axis=1)[batches] - self.sizes[batches, labels]
        return sizes

    def foreign(self, batches: Index, labels: Index, count: int, rng: np.random.Generator) -> Index:
        """`count` rows of other classes in the same batch; any rows where there are none."""
        chosen = _subsets(self.foreign_sizes(batches, labels), count, rng)
        begin = self.starts[batches, 0][:, None]
        # The batch lies in one piece, and the own class is cut out of it.
        before = self.starts[batches, labels][:, None] - begin
        skip = np.where(chosen >= before, self.sizes[batches, labels][:, None], 0)
        index: Index = self.order[np.minimum(begin + chosen + skip, len(self.order) - 1)]
        return index

    def too_small(self, own: int, foreign: int) -> Flags:
        """Classes that are drawn with replacement in some batch."""
        others = self.sizes.sum(axis=1, keepdims=True) - self.sizes
        short = (self.sizes < own) | ((others > 0) & (others < foreign))
        flags: Flags = (short & (self.sizes > 0)).any(axis=0)
        return flags


def _subsets(sizes: Index, count: int, rng: np.random.Generator) -> Index:
    """For each size s, `count` distinct numbers below s; with repetition where s < count.

    Floyd's algorithm (Bentley and Floyd, Communications of the ACM 30:754, 1987), a column a step:
    every subset is equally likely, at a cost that does not depend on s. Floyd's order is not
    random, and callers replace leading columns, so that columns are shuffled in the end.
    """
    chosen = np.empty((len(sizes), count), dtype=np.int64)
    for step in range(count):
        last = np.maximum(sizes - count + step, 0)
        drawn = rng.integers(0, last + 1)
        taken = (chosen[:, :step] == drawn[:, None]).any(axis=1)
        chosen[:, step] = np.where(taken, last, drawn)
    short = sizes < count
    if short.any():
        highest = np.maximum(sizes[short], 1)[:, None]
        chosen[short] = rng.integers(0, highest, size=(len(highest), count))
    return rng.permuted(chosen, axis=1)


@final
@dataclass(frozen=True)
class _Combiner:
    """Equations 1 and 3 on encoded rows."""

    values: Array
    encoder: Encoder
    numeric: Flags

    @classmethod
    def of(cls, values: Array, encoder: Encoder) -> _Combiner:
        numeric = np.zeros(encoder.width, dtype=bool)
        for block in encoder.blocks:
            numeric[block.slice] = isinstance(block.column, Numeric)
        return cls(values, encoder, numeric)

    def combine(self, index: Index, weights: Array) -> Single:
        """One row for each row of `index`: convex in numeric columns, a majority in the others."""
        made = np.empty((len(index), len(self.numeric)), dtype=np.float32)
        made[:, self.numeric] = self._sums(index, weights, self.numeric)
        # Heads count whole; the coefficients, less than a head in all, only break ties.
        votes = self._sums(index, 1.0 + weights / 2.0, ~self.numeric)
        positions = np.cumsum(~self.numeric) - 1
        for block in self.encoder.blocks:
            if self.numeric[block.start]:
                continue
            cast = votes[:, positions[block.start] : positions[block.stop - 1] + 1]
            if block.stop - block.start == 1:
                made[:, block.start] = np.where(cast[:, 0] >= 0.0, 1.0, -1.0)
            else:
                made[:, block.slice] = 0.0
                made[np.arange(len(made)), block.start + np.argmax(cast, axis=1)] = 1.0
        return made

    def _sums(self, index: Index, weights: Array, columns: Flags) -> Array:
        """Weighted sums of real rows as a sparse product: nothing of size rows x N x columns."""
        from scipy.sparse import csr_array

        count = index.shape[1]
        pointers = np.arange(0, index.size + 1, count)
        matrix = csr_array(
            (weights.ravel(), index.ravel(), pointers), shape=(len(index), len(self.values))
        )
        sums: Array = matrix @ self.values[:, columns]
        return sums


@final
@dataclass(frozen=True)
class _Directions:
    """Real rows as unit vectors, so that a correlation of two rows is their inner product."""

    units: Single
    mean: Array
    spread: Array

    @classmethod
    def of(cls, values: npt.NDArray[np.floating]) -> _Directions:
        mean = values.mean(axis=0, dtype=np.float64)
        spread = values.std(axis=0, dtype=np.float64)
        # A constant column says nothing about resemblance.
        spread[spread < 1e-9] = np.inf
        return cls(_unit((values - mean) / spread), mean, spread)

    def closest_of(self, made: Single, index: Index) -> Array:
        """Largest correlation with the rows at `index`."""
        units = _unit((made - self.mean) / self.spread)
        largest = np.empty(len(made))
        step = max(1, _NUMBERS_AT_ONCE // (index.shape[1] * units.shape[1]))
        for start in range(0, len(made), step):
            here = slice(start, start + step)
            # Not a matrix product: its last digits depend on the number of threads.
            products = np.einsum("ijk,ik->ij", self.units[index[here]], units[here])
            largest[here] = products.max(axis=1)
        return largest

    def closest(self, made: Single) -> Array:
        """Largest correlation with any real row."""
        units = _unit((made - self.mean) / self.spread)
        largest = np.empty(len(made))
        step = max(1, _NUMBERS_AT_ONCE // len(self.units))
        for start in range(0, len(made), step):
            here = slice(start, start + step)
            largest[here] = (units[here] @ self.units.T).max(axis=1)
        return largest


def _unit(values: Array) -> Single:
    """Rows centred and of length one; a row without variation becomes zero, correlated to none."""
    centred = values - values.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    units: Single = (centred / np.where(length > 1e-9, length, np.inf)).astype(np.float32)
    return units
