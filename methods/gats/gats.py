"""GATS, geometrically aggregated training samples (Yang, Thakur, Soltan and Clifton, section 3).

A row of class C is a random convex combination of N real rows, the constituents:

    x = sum_i c_i x_i,   c_i >= 0,   sum_i c_i = 1                                (eq. 1)

A class-wise row takes all N from class C and has the label C (eq. 2). A mixed-label row takes a
share q of them from other classes; its label, like any discrete column, is the majority of the
constituents' values (eq. 3 and 4). A share p of the rows is mixed. Rows that correlate above 0.75
with real rows are thrown away and built again. No noise is added: the rows are read as they are.

What the paper leaves open, what is done here, and the alternative:

- Distribution of the coefficients ("randomly sampled while enforcing the simplicial constraint"):
  Dirichlet(1), which is uniform on the simplex; or, with `coefficients="uniform"`, uniform numbers
  divided by their sum, which stay closer to 1/N; or, with `concentration` a below 1,
  Dirichlet(a), under which few constituents carry a row: the mean of sum_i c_i^2 is
  (1 + a) / (1 + N a); or, with `coefficients="mixup"`, those of mixup, which the paper cites,
  iterated over the constituents: x <- lambda x + (1 - lambda) x_i, lambda from Beta(a, a), with
  foreign constituents first and the class's rows last; or, with `"stick-breaking"`, shares from
  Beta(1, a) of what is left, the class's rows first.
- Majority votes count heads, as eq. 3 and 4 are written; `votes="weights"` counts coefficients
  in discrete columns instead (labels always go by heads). Under `heads` the coefficients only
  break ties, which has no favourite category, unlike taking the first. Binary columns stay in
  {-1, 1} and one-hot blocks one-hot.
- Uniform coefficients do not give the paper's results. Its table 3 has AUROC 0.909 to 0.913 on
  Adult up to N = 100. Averages of 100 rows keep little but means and covariances, and a linear
  discriminant on the real rows themselves has 0.893. The quartiles printed for figure 1 hardly move
  (CRP: -0.583, -0.477, 0.109 before and -0.570, -0.437, 0.189 after), while Dirichlet(1) at N = 5
  would move them to about -0.42, -0.16, 0.29. Such values come out where few constituents carry a
  row. The reading that fits the table, flat in N as published, is `coefficients="mixup",
  concentration=0.1, votes="weights", filter="off"`: the last constituents dominate whatever N is,
  and many rows are copies of patients, which the filter would reject (docs/reproduction.md has the
  shares). The defaults keep to the equations and the filter.
- q may be 0.5 at most, and at most floor(N/2) constituents are foreign: class C then wins
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
  which rejects almost everything at small N: nearly every person who is not among Adult's training
  rows correlates above 0.75 with one of them, too. After `max_retries` the least correlated
  attempt is kept and counted in `rows_over_threshold`; the paper does not say when to stop.
- Time of a survival task is a numeric column; the event is the label. Pixels are numeric columns;
  the paper doubts that mixed images mean anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np

from bench import (
    EncodedRows,
    Encoder,
    Method,
    NotApplicable,
    PrivateData,
    Release,
    Rows,
    Spec,
)
from bench.methods._shared.parameters import check_parameters
from bench.methods.gats._filter import Directions
from bench.methods.gats._rows import (
    Array,
    Combiner,
    Flags,
    Index,
    Pools,
    Single,
    dirichlet,
    mixup,
    normalised_uniform,
    stick_breaking,
)

_DRAWS_AT_ONCE = 2_000_000
"""Constituents held in memory at once."""


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
    family: ClassVar[str] = "mixing"
    tuned_on: ClassVar[tuple[str, ...]] = ("curial", "unknown")
    uses_budget: ClassVar[bool] = False

    constituents: int = 5
    """N: real rows combined into one."""
    mixed_share: float = 0.25
    """p: share of mixed-label rows."""
    mixed_ratio: float = 0.3
    """q: share of a mixed-label row's constituents that come from other classes."""
    batch: int | None = None
    """b: constituents of one row come from one random batch of at most this many rows."""
    filter: Literal["constituents", "all", "off"] = "constituents"
    threshold: float = 0.75
    coefficients: Literal["dirichlet", "uniform", "mixup", "stick-breaking"] = "dirichlet"
    concentration: float = 1.0
    """a of Dirichlet(a, ..., a), Beta(a, a) of mixup or Beta(1, a) of stick-breaking. Dirichlet(1)
    is uniform on the simplex; near 0 one constituent has nearly all the weight."""
    votes: Literal["heads", "weights"] = "heads"
    """What counts in the majority vote of a discrete column: constituents, or coefficients."""
    max_retries: int = 50

    def __post_init__(self) -> None:
        finite = math.isfinite(self.concentration) and self.concentration > 0.0
        used = self.coefficients != "uniform" or self.concentration == 1.0
        check_parameters(
            self,
            self.name,
            {
                "constituents": (self.constituents >= 1, "1 or more"),
                "mixed_share": (0.0 <= self.mixed_share <= 1.0, "between 0 and 1"),
                "mixed_ratio": (
                    0.0 <= self.mixed_ratio <= 0.5,
                    "0 to 0.5 (a larger share would outvote the class that is made)",
                ),
                "batch": (
                    self.batch is None or self.batch >= self.constituents,
                    "`constituents` or more, or absent",
                ),
                "threshold": (-1.0 <= self.threshold <= 1.0, "a correlation, from -1 to 1"),
                "concentration": (
                    finite and used,
                    "a positive number"
                    if used
                    else "1, the only value with `coefficients='uniform'`",
                ),
                "max_retries": (self.max_retries >= 0, "0 or more"),
            },
        )

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        rows = private.raw("convex combinations of the real training rows, without noise")
        if not len(rows):
            raise NotApplicable("gats combines real rows, and there are none")
        classes = private.schema.classes
        pools = Pools.cut(rows.labels, len(classes), self.batch, rng)
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
        pools: Pools,
        labels: Index,
        mixed: Flags,
        rng: np.random.Generator,
    ) -> tuple[Single, int, float]:
        """Rows, number of them over the threshold, and share of accepted attempts."""
        combiner = Combiner.of(
            rows.values.astype(np.float64), encoder, by_weight=self.votes == "weights"
        )
        real = Directions.of(rows.values)
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
                correlation = self._resemblance(real, made, index, closest[here])
                better = correlation < closest[here]
                values[here[better]] = made[better]
                closest[here[better]] = correlation[better]
            pending = pending[closest[pending] > self.threshold]
            if not pending.size:
                break
        return values, len(pending), (len(labels) - len(pending)) / attempts

    def _draw(self, pools: Pools, labels: Index, mixed: Flags, rng: np.random.Generator) -> Index:
        """Constituents of each row to be made, as positions in the table."""
        batches = pools.batches(labels, rng)
        index = pools.same_class(batches, labels, self.constituents, rng)
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
        if self.coefficients == "uniform":
            return normalised_uniform(shape, rng)
        if self.coefficients == "mixup":
            return mixup(shape, self.concentration, rng)
        if self.coefficients == "stick-breaking":
            return stick_breaking(shape, self.concentration, rng)
        return dirichlet(shape, self.concentration, rng)

    def _resemblance(self, real: Directions, made: Single, index: Index, bounds: Array) -> Array:
        """Largest correlation of each combined row with the real rows it must not resemble.

        Exact below the bound; a row at or above it gets some number at or above it.
        """
        if self.filter == "off":
            return np.full(len(made), -np.inf)
        if self.filter == "all":
            return real.closest(made, index, bounds)
        return real.closest_of(made, index, bounds)
