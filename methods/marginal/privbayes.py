"""PrivBayes: a Bayesian network whose structure and conditionals are private (Zhang et al. 2017).

1. **Structure.** Columns join the network one by one. Each step chooses a column and its parents
   among those already there by the exponential mechanism, with the score R: the L1 distance of
   their joint counts from independence (section 4.2; `Dependence` in the kernel, where the
   sensitivity is proven for add/remove of a row). Parent sets are the maximal ones whose joint
   table with the column is theta-useful (Definition 4.7 and Algorithm 5): its average count is at
   least theta times the noise on a count. The shares of the budget are beta and 1 - beta (beta 0.3,
   theta 4, and 16 bins of a number: their section 6.1).
2. **Conditionals.** The joint counts of every column with its parents are released with noise, made
   non-negative and normalised.
3. **Rows** are drawn column by column, in the order of the network.

Choices. The label is the root, where the paper takes any column: its class counts are public, and
every class is drawn by starting from its label. `noise="gaussian"`, the default, counts with
Gaussian noise, which is smaller at equal (epsilon, delta); `noise="laplace"` is the paper's
mechanism. The events are fixed in advance, since shapes do not change them: with Gaussian noise
beta splits zCDP, with Laplace noise it splits epsilon. The paper's generalisation of parents along
taxonomy trees needs taxonomies and is left out. More than `candidates` pairs of a column and its
parents are sampled by public chance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from bench import (
    Claim,
    CodedRows,
    Dependence,
    EncodedRows,
    InputError,
    PlannedEvents,
    PrivateData,
    Release,
    Spec,
    exponential,
    gaussian,
    laplace,
)
from bench.methods._shared.codes import Codes
from bench.methods.marginal._bins import Binning
from bench.methods.marginal._discretise import BinnedMethod
from bench.methods.marginal._graphical_model import check_columns, conditional_draw

Columns = tuple[int, ...]

_PARENTS_AT_MOST = 4
"""Columns of a parent set: larger sets are theta-useful only for next to no noise."""


@final
@dataclass(frozen=True)
class _Noise:
    """Noise of both steps."""

    epsilon: float
    """Of one choice of a column and its parents."""
    multiplier: float
    """Of the counts of all joint tables together."""
    deviation: float
    """On one count; for Laplace numbers their scale."""


@final
@dataclass(frozen=True)
class PrivBayes(BinnedMethod):
    """A Bayesian network chosen and filled with noise."""

    name: ClassVar[str] = "privbayes"
    title: ClassVar[str] = "PrivBayes"
    paper: ClassVar[str] = (
        "Zhang, Cormode, Procopiuc, Srivastava and Xiao, PrivBayes: Private Data Release via "
        "Bayesian Networks, ACM TODS 2017"
    )
    link: ClassVar[str] = "https://doi.org/10.1145/3134428"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "unknown")
    quick: ClassVar[Mapping[str, Any]] = {"bins": 4, "candidates": 50}

    beta: float = 0.3
    """Share of the budget for the structure."""
    theta: float = 4.0
    """Average count of a joint table, in units of its noise, from which it is useful."""
    noise: Literal["gaussian", "laplace"] = "gaussian"
    candidates: int = 2000
    """Candidates of one choice at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.beta < 1.0 or self.theta <= 0.0 or self.candidates < 1:
            raise InputError(
                f"privbayes: beta {self.beta}, theta {self.theta}, candidates {self.candidates}: "
                "expected beta between 0 and 1, a positive theta and at least one candidate"
            )

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        check_columns(private.schema)
        steps = len(Binning(private.encoder, self.bins).sizes) - 1
        cuts, multiplier = self.reserved(private, lambda one: self._plans(private, steps, one))
        binning = cuts.binning(self.bins)
        noise = self._noise(steps, multiplier)
        rows = private.coded(binning.codes, binning.sizes)
        network = self._structure(private, rows, noise, rng)
        tables = self._tables(private, binning, rows, network, noise)
        codes = drawn(network, tables, rows.sizes, spec.rows_per_class(private.counts), rng)
        claim = Claim.of(spec.budget, "Zhang et al. 2017, Theorem 4.9")
        notes = {
            "choice_epsilon": noise.epsilon,
            "count_deviation": noise.deviation,
            "discretiser": self.discretiser,
            "parents": sum(len(parents) for _, parents in network) / max(1, len(network)),
        }
        return Release(binning.rows(codes, rng), claim=claim, notes=notes)

    def _noise(self, steps: int, multiplier: float) -> _Noise:
        """Return both kinds of noise for one number s that is calibrated.

        Gaussian: rho = 1 / (2 s^2) in all, beta rho in `steps` choices of epsilon^2 / 8 each.
        Laplace: epsilon = 1 / s in all, beta / s in `steps` choices.
        """
        if self.noise == "gaussian":
            epsilon = math.sqrt(8.0 * self.beta * 0.5 / multiplier**2 / steps)
            counts = multiplier / math.sqrt(1.0 - self.beta)
            return _Noise(epsilon, counts, counts * math.sqrt(steps))
        counts = multiplier / (1.0 - self.beta)
        return _Noise(self.beta / multiplier / steps, counts, counts * steps)

    def _plans(self, private: PrivateData, steps: int, multiplier: float) -> list[PlannedEvents]:
        noise = self._noise(steps, multiplier)
        event = gaussian if self.noise == "gaussian" else laplace
        return [
            private.plan(exponential(noise.epsilon), steps),
            private.plan(event(noise.multiplier)),
        ]

    def _structure(
        self, private: PrivateData, rows: CodedRows, noise: _Noise, rng: np.random.Generator
    ) -> list[tuple[int, Columns]]:
        """Choose the columns in their order, each with its parents; the label is the root."""
        root = len(rows.sizes) - 1
        most_cells = private.counts.total / (self.theta * noise.deviation)
        network: list[tuple[int, Columns]] = []
        while len(network) < root:
            inside = [root, *(column for column, _ in network)]
            outside = [column for column in range(root) if column not in inside]
            pairs = [
                (column, parents)
                for column in outside
                for parents in parent_sets(inside, rows.sizes, most_cells / rows.sizes[column])
            ]
            if len(pairs) > self.candidates:
                chosen = rng.choice(len(pairs), self.candidates, replace=False)
                pairs = [pairs[place] for place in sorted(chosen)]
            scored = [Dependence(column, parents) for column, parents in pairs]
            network.append(pairs[private.select(rows, scored, noise.epsilon)])
        return network

    def _tables(
        self,
        private: PrivateData,
        binning: Binning,
        rows: CodedRows,
        network: Sequence[tuple[int, Columns]],
        noise: _Noise,
    ) -> list[npt.NDArray[np.float64]]:
        """Return noisy joint counts of every column with its parents, the column last."""
        sets = [(*parents, column) for column, parents in network]
        if self.noise == "gaussian":
            return private.marginals(rows, sets, noise.multiplier)
        shapes = [tuple(rows.sizes[column] for column in one) for one in sets]

        def cells(table: EncodedRows) -> Codes:
            codes = binning.codes(table)
            return np.stack(
                [
                    np.ravel_multi_index(tuple(codes[:, column] for column in one), shape)
                    for one, shape in zip(sets, shapes, strict=True)
                ],
                axis=1,
            )

        sizes = [math.prod(shape) for shape in shapes]
        noisy = private.histograms(cells, sizes, noise.multiplier, mechanism="laplace")
        return [one.reshape(shape) for one, shape in zip(noisy, shapes, strict=True)]


def parent_sets(
    inside: Sequence[int], sizes: Sequence[int], most_cells: float
) -> Iterator[Columns]:
    """Yield the maximal sets of columns whose joint table has at most so many cells.

    A set is maximal if no further column fits (Zhang et al. 2017, Algorithm 5, without
    generalisation). Where no column fits, the empty set is the only one.
    """
    fitting = [column for column in inside if sizes[column] <= most_cells]
    found = False
    for length in range(min(_PARENTS_AT_MOST, len(fitting)), 0, -1):
        for one in itertools.combinations(fitting, length):
            cells = math.prod(sizes[column] for column in one)
            if cells > most_cells:
                continue
            others = (sizes[column] for column in fitting if column not in one)
            if length == _PARENTS_AT_MOST or cells * min(others, default=math.inf) > most_cells:
                found = True
                yield one
    if not found:
        yield ()


def drawn(
    network: Sequence[tuple[int, Columns]],
    tables: Sequence[npt.NDArray[np.float64]],
    sizes: Sequence[int],
    per_class: Sequence[int],
    rng: np.random.Generator,
) -> Codes:
    """Return rows drawn along the network, so many of each class, the label last."""
    labels = np.repeat(np.arange(len(per_class)), per_class)
    rows = np.full((len(labels), len(sizes)), -1, dtype=np.int64)
    rows[:, -1] = labels
    for (column, parents), table in zip(network, tables, strict=True):
        flat = np.maximum(table, 0.0).reshape(-1, sizes[column])
        given = np.zeros(len(rows), dtype=np.int64)
        for parent in parents:
            given = given * sizes[parent] + rows[:, parent]
        rows[:, column] = conditional_draw(flat, given, rng)
    return rows
