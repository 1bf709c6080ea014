"""Where numeric columns are cut: by the schema, at noisy quantiles, or by a noisy tree.

A method has a share of its budget for it, the same for every dataset:

* `uniform`: bins of equal width between the public bounds. Costs nothing.
* `quantile`: one noisy histogram per number, of `_CELLS` cells of equal width, projected on counts
  that are not negative; cuts are the ends of cells where its cumulated counts pass 1/b, 2/b, ... of
  all. A cell that holds more than that is a bin of its own.
* `privtree`: the rule of PrivTree (Zhang, Xiao and Xie, SIGMOD 2016, Algorithm 2). The range is
  halved again and again where enough rows are: a node of depth i is split if

      max(theta - decay, noisy count - i decay) > theta.

  The nodes of one depth of all columns are counted in one call, `_DEPTH` calls in all. The paper
  proves that the tree alone, without the counts, can be released at a price that does not follow
  its depth: Laplace noise of scale 3 / epsilon and decay = scale ln 2. Here every depth is charged,
  as a Gaussian mechanism: for seven of them that is less noise at the same zCDP (sqrt(7) = 2.6
  against 3 sqrt(2) = 4.2 in deviations), the counts can be used, and no proof but that of the
  Gaussian mechanism is needed. The root is always split; theta is the noisy number of rows of one
  of b equal bins, where the paper's default is 0, which would cut down to the noise; decay is half
  the deviation. At most b bins are made: nodes with most rows are split first.

All columns are counted together, over all classes: one row moves one count of each column, so that
k columns have the sensitivity sqrt(k), which the kernel applies. All events are fixed in advance.
Rows at the lower bound itself are not counted: they have a bin of their own, as in the schema's
bins (`_bins`). Whole numbers with few values keep one bin per value, and where no column is left to
be cut, nothing is asked or charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from bench import (
    Block,
    EncodedRows,
    Encoder,
    InputError,
    Method,
    Numeric,
    PlannedEvents,
    PrivateData,
    gaussian,
)
from bench.methods._shared.codes import Codes
from bench.methods.marginal._bins import Binning, shares_of
from bench.privacy.trusted.smartnoise import nearest_counts

Discretiser = Literal["uniform", "quantile", "privtree"]
Counts = npt.NDArray[np.float64]
Node = tuple[int, int]
Leaves = dict[Node, float]
"""Noisy counts by interval, in units of the finest cells."""

_CELLS = 128
_DEPTH = 7
_DECAY = 0.5
"""Of the deviation of a count: what a node of a tree must have more for every level above it."""


@final
@dataclass(frozen=True)
class Discretisation:
    """How the numbers of a table are cut, and what part of the budget that takes."""

    kind: Discretiser
    share: float
    """Of rho, the zCDP of all events of a method."""

    def __post_init__(self) -> None:
        if self.kind not in ("uniform", "quantile", "privtree") or not 0.0 < self.share < 1.0:
            raise InputError(
                f"discretiser {self.kind!r}, discretiser_share {self.share}: expected uniform, "
                "quantile or privtree, and a share between 0 and 1"
            )

    def rest(self, private: PrivateData, bins: int, noise: float) -> float:
        """Return the multiplier that is left for everything else, of `noise` for all together."""
        return noise / math.sqrt(1.0 - self.share) if self._cut(private, bins) else noise

    def plans(self, private: PrivateData, bins: int, noise: float) -> list[PlannedEvents]:
        """Return the events of `cuts`; none where nothing is to be cut."""
        if not self._cut(private, bins):
            return []
        count = _DEPTH if self.kind == "privtree" else 1
        return [private.plan(gaussian(self._each(noise)), count)]

    def cuts(self, private: PrivateData, bins: int, noise: float) -> Cuts:
        """Ask what was planned, for bins of a number up to `bins`."""
        columns = self._cut(private, bins)
        encoder = private.encoder
        if not columns:
            return Cuts(encoder)
        multiplier = self._each(noise)
        if self.kind == "quantile":
            counts = private.histograms(
                lambda rows: _cells(encoder, rows, columns, _CELLS),
                [_CELLS] * len(columns),
                multiplier,
            )
            ends = np.linspace(0.0, 1.0, _CELLS + 1)
            histograms = {
                block.column.name: Histogram(ends, nearest_counts(noisy, max(1.0, noisy.sum())))
                for block, noisy in zip(columns, counts, strict=True)
            }
        else:
            histograms = _trees(private, columns, bins, multiplier)
        return Cuts(encoder, histograms)

    def _each(self, noise: float) -> float:
        calls = _DEPTH if self.kind == "privtree" else 1
        return noise * math.sqrt(calls / self.share)

    def _cut(self, private: PrivateData, bins: int) -> list[Block]:
        """Return the numeric columns with more values than bins."""
        if self.kind == "uniform":
            return []
        return [
            block
            for block in private.encoder.blocks
            if isinstance(block.column, Numeric)
            and not block.indicates
            and _values(block.column) > bins
        ]


@final
@dataclass(frozen=True)
class Histogram:
    """Noisy counts between ends, as shares of the range."""

    ends: Counts
    counts: Counts
    leaves: bool = False
    """Whether every end is a cut, as long as there are no more bins than asked for."""

    def edges(self, bins: int) -> Counts:
        """Return inner ends that cut the rows into at most `bins` parts, of similar weight."""
        counts = np.maximum(self.counts, 0.0)
        if counts.sum() <= 0.0:
            counts = np.diff(self.ends)
        inner = np.arange(1, len(counts))
        if not self.leaves:
            passed = np.cumsum(counts) / counts.sum()
            places = np.searchsorted(passed, np.arange(1, bins) / bins - 1e-12)
            # A heavy cell begins and ends a bin.
            heavy = np.flatnonzero(counts > counts.sum() / bins)
            inner = np.unique(np.concatenate([places + 1, heavy, heavy + 1]))
            inner = inner[(inner > 0) & (inner < len(counts))]
        while len(inner) >= bins:
            inner = _without_lightest(inner, counts)
        return np.asarray(self.ends[inner])


def _without_lightest(inner: Codes, counts: Counts) -> Codes:
    """Return cuts without the one between the two neighbours that hold fewest rows."""
    masses = np.add.reduceat(counts, np.r_[0, inner])
    return np.delete(inner, int(np.argmin(masses[:-1] + masses[1:])))


@final
@dataclass(frozen=True)
class Cuts:
    """What was learned about where to cut; bins of any number follow from it at no cost."""

    encoder: Encoder
    histograms: dict[str, Histogram] = field(default_factory=dict)

    def binning(self, bins: int) -> Binning:
        """Return the table's bins: `bins` of a number, beside that of its lower bound."""
        edges = {
            name: tuple(float(end) for end in histogram.edges(bins))
            for name, histogram in self.histograms.items()
        }
        return Binning(self.encoder, bins, edges)


@dataclass(frozen=True)
class BinnedMethod(Method):
    """A method that counts cells of a table of bins; what they have in common."""

    bins: int = 16
    """Bins of a numeric column, beside the one of its lower bound."""
    discretiser: Discretiser = "uniform"
    """How numeric columns are cut: equal bins, noisy quantiles, or a noisy tree."""
    discretiser_share: float = 0.1
    """Share of the budget (of 1 / multiplier^2) for it; equal bins cost nothing."""

    def __post_init__(self) -> None:
        self.discretisation()

    def discretisation(self) -> Discretisation:
        """Return how numbers are cut."""
        return Discretisation(self.discretiser, self.discretiser_share)

    def reserved(
        self, private: PrivateData, plans: Callable[[float], Iterable[PlannedEvents]]
    ) -> tuple[Cuts, float]:
        """Reserve the cuts and all of `plans`; ask for the cuts.

        Return them, and the noise multiplier at which `plans` was reserved.
        """
        discretisation = self.discretisation()

        def everything(noise: float) -> list[PlannedEvents]:
            rest = discretisation.rest(private, self.bins, noise)
            return [*discretisation.plans(private, self.bins, noise), *plans(rest)]

        noise = private.calibrate(everything)
        private.reserve_all(everything(noise))
        cuts = discretisation.cuts(private, self.bins, noise)
        return cuts, discretisation.rest(private, self.bins, noise)


def _trees(
    private: PrivateData, columns: Sequence[Block], bins: int, multiplier: float
) -> dict[str, Histogram]:
    """Grow one tree per column, a depth at a time; return its leaves and their counts."""
    decay = _DECAY * multiplier * math.sqrt(len(columns))
    # Leaves in units of the finest cells.
    finest = 2**_DEPTH
    leaves: list[Leaves] = [{(0, finest): math.inf} for _ in columns]
    thetas = [0.0] * len(columns)
    for depth in range(_DEPTH):
        splits = [
            split_now(one, theta, depth * decay, finest >> depth, bins)
            for one, theta in zip(leaves, thetas, strict=True)
        ]
        children = [
            sorted(half for low, high in nodes for half in _halves(low, high)) for nodes in splits
        ]

        def places(rows: EncodedRows, children: Sequence[Sequence[Node]] = children) -> Codes:
            return _inside(private.encoder, rows, columns, children)

        # A column without nodes to count still has its place in the event: one empty bin.
        sizes = [max(1, len(nodes)) for nodes in children]
        answers = private.histograms(places, sizes, multiplier)
        for one, nodes, new, noisy in zip(leaves, splits, children, answers, strict=True):
            for node in nodes:
                del one[node]
            one.update(zip(new, noisy.tolist(), strict=False))
        if depth == 0:
            thetas = [max(1.0, sum(one.values())) / bins for one in leaves]
    found = {}
    for block, one in zip(columns, leaves, strict=True):
        ordered = sorted(one)
        ends = np.array([low for low, _ in ordered] + [finest], dtype=np.float64) / finest
        counts = np.array([one[node] for node in ordered])
        found[block.column.name] = Histogram(ends, counts, leaves=True)
    return found


def split_now(leaves: Leaves, theta: float, bias: float, width: int, bins: int) -> list[Node]:
    """Return the leaves of this depth to be split: those above theta, the largest first.

    No more than make `bins` leaves of all depths together.
    """
    above = [
        node
        for node, count in leaves.items()
        if node[1] - node[0] == width and count - bias > theta
    ]
    above.sort(key=lambda node: (-leaves[node], node))
    return above[: max(0, bins - len(leaves))]


def _halves(low: int, high: int) -> tuple[Node, Node]:
    middle = (low + high) // 2
    return (low, middle), (middle, high)


def _cells(encoder: Encoder, rows: EncodedRows, columns: Sequence[Block], cells: int) -> Codes:
    """Return the cell of each row's numbers, by equal width.

    Missing numbers, and those at the lower bound, are in none: their code is `cells`.
    """
    codes = np.empty((len(rows), len(columns)), dtype=np.int64)
    for place, block in enumerate(columns):
        shares, inside = shares_of(encoder, rows, block)
        found = np.clip((shares * cells).astype(np.int64), 0, cells - 1)
        codes[:, place] = np.where(inside, found, cells)
    return codes


def _inside(
    encoder: Encoder,
    rows: EncodedRows,
    columns: Sequence[Block],
    nodes: Sequence[Sequence[Node]],
) -> Codes:
    """Return the place of the node that each number lies in; out of range if in none."""
    finest = 2**_DEPTH
    codes = _cells(encoder, rows, columns, finest)
    for place, intervals in enumerate(nodes):
        where = np.full(finest + 1, max(1, len(intervals)), dtype=np.int64)
        for number, (low, high) in enumerate(intervals):
            where[low:high] = number
        codes[:, place] = where[codes[:, place]]
    return codes


def _values(column: Numeric) -> float:
    """Return how many values a number can have."""
    if not column.integer:
        return math.inf
    return math.floor(column.high) - math.ceil(column.low) + 1
