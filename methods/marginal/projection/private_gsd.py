"""Private-GSD: datasets that evolve towards noisy marginals (Liu, Tang, Vietri and Wu 2023).

A population of datasets is searched without gradients (their Algorithm 1). The fitness of a dataset
is the squared distance of its marginals from the noisy ones. In every generation the best dataset
has 50 mutations and 50 crossovers, each a copy in which one value of one row is changed:

* a **mutation** draws the value uniformly from the domain of its column;
* a **crossover** takes it from the same column of a random row of a random member of the elite.

The elite are the 5 best datasets seen so far, the first ones random. As a candidate differs from
the best dataset in one row, its statistics follow from those of that dataset (`_genetic`). The
search ends after `generations`, or after `patience` of them without a better dataset.

`selection="adaptive"` is the paper's adaptive framework, the loop of `_adaptive`, where the search
of each round starts from the dataset of the last; `selection="one-shot"` counts all pairs of
columns at once. Everything but the counts and the choices is post-processing.

Choices. 2000 rows, 50 mutations, 50 crossovers and an elite of 5 are those of the authors' public
code, which stops after as many generations without a gain as there are rows. Marginals are weighted
by their precision. Labels are fixed: as many rows stand for each class, weighted by the declared
counts, where the paper has the label as one more column; a crossover can take a value from a row of
any class. A candidate whose value stays what it was is none. Numbers are codes of bins, for which
the paper has range queries on real values and adds Gaussian noise to a crossover's numbers. A
larger release repeats rows, with numbers drawn anew within their bins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from bench import CodedRows, PlannedEvents, PrivateData, gaussian
from bench.methods._shared.codes import Codes
from bench.methods._shared.parameters import check_parameters
from bench.methods.marginal._graphical_model import CellTable
from bench.methods.marginal.projection._adaptive import (
    AdaptiveProjection,
    Columns,
    Measured,
    Projection,
)

if TYPE_CHECKING:
    from bench.methods.marginal.projection._genetic import Search


@final
@dataclass(frozen=True)
class PrivateGsd(AdaptiveProjection):
    """A dataset that evolves, one value at a time, towards noisy marginals."""

    name: ClassVar[str] = "private-gsd"
    title: ClassVar[str] = "Genetic synthetic data (Private-GSD)"
    paper: ClassVar[str] = (
        "Liu, Tang, Vietri and Wu, Generating Private Synthetic Data with Genetic Algorithms, "
        "ICML 2023"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2306.03257"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "unknown")
    quick: ClassVar[Mapping[str, Any]] = {
        "bins": 4,
        "rounds": 2,
        "per_round": 2,
        "records": 60,
        "generations": 300,
    }

    records: int = 2000
    """Rows of a dataset, all classes together."""
    generations: int = 100_000
    """Generations after each round, at most."""
    mutations: int = 50
    """Candidates of each generation with a value from the domain."""
    crossovers: int = 50
    """Candidates of each generation with a value from a member of the elite."""
    elite: int = 5
    patience: int = 2000
    """Generations without a better dataset that end the search."""
    selection: Literal["adaptive", "one-shot"] = "adaptive"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parameters(
            self,
            self.name,
            {
                "elite": (self.elite > 0, "a positive number"),
                "records": (self.records > 0, "a positive number"),
                "mutations": (self.mutations >= 0, "a number of candidates"),
                "crossovers": (
                    self.crossovers >= 0 and self.mutations + self.crossovers > 0,
                    "a number of candidates, at least one with the mutations",
                ),
            },
        )

    def start(
        self, sizes: Sequence[int], classes: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> Projection:
        """Return random datasets."""
        from bench.methods.marginal.projection._genetic import Search

        search = Search(
            self.generations, self.mutations, self.crossovers, self.elite, self.patience
        )
        return _Population(sizes, classes, self.records, search, rng)

    def plans(self, private: PrivateData, noise: float) -> list[PlannedEvents]:
        """Return all events but those of the bins: one-shot, a single Gaussian mechanism."""
        if self.selection == "adaptive":
            return super().plans(private, noise)
        return [private.plan(gaussian(noise))]

    def measure(
        self,
        private: PrivateData,
        rows: CodedRows,
        projection: Projection,
        noise: float,
        rng: np.random.Generator,
    ) -> list[Measured]:
        """Count marginals and fit the population to them."""
        if self.selection == "adaptive":
            return super().measure(private, rows, projection, noise, rng)
        total = float(max(1, private.counts.total))
        pairs = itertools.combinations(range(len(rows.sizes)), 2)
        sets: list[Columns] = [pair for pair in pairs if self._small(rows.sizes, pair)]
        covered = set(itertools.chain.from_iterable(sets))
        sets += [(column,) for column in range(len(rows.sizes)) if column not in covered]
        deviation = noise * math.sqrt(len(sets)) / total
        measured = [
            Measured(one, counts / total, deviation)
            for one, counts in zip(sets, private.marginals(rows, sets, noise), strict=True)
        ]
        projection.fit(measured)
        return measured


@final
class _Population(Projection):
    """The best dataset so far, from which every search starts."""

    def __init__(
        self,
        sizes: Sequence[int],
        classes: npt.NDArray[np.float64],
        records: int,
        search: Search,
        rng: np.random.Generator,
    ) -> None:
        self._sizes = tuple(sizes)
        self._each = max(1, records // len(classes))
        self._labels = np.repeat(np.arange(len(classes)), self._each)
        self._weights = classes[self._labels] / self._each
        self._search = search
        self._rng = rng
        self._best = self._random()

    def _random(self) -> Codes:
        columns = [self._rng.integers(0, size, len(self._labels)) for size in self._sizes[:-1]]
        return np.column_stack([*columns, self._labels])

    def fit(self, measured: Sequence[Measured]) -> None:
        """Search from the best dataset and random ones."""
        from bench.methods.marginal.projection._genetic import Targets, evolved

        targets = Targets.of(measured, len(self._sizes))
        population = [self._best, *(self._random() for _ in range(self._search.elite - 1))]
        self._best = evolved(
            population, self._weights, self._sizes, targets, self._search, self._rng
        )

    def shares(self, columns: Columns) -> CellTable:
        """Return the marginal of the best dataset."""
        from bench.methods.marginal.projection._genetic import marginal

        return marginal(self._best, self._weights, self._sizes, columns)

    def draw(self, label: int, count: int, rng: np.random.Generator) -> Codes:
        """Return rows of one class: each once before any is taken again."""
        own: Codes = self._best[label * self._each : (label + 1) * self._each, :-1]
        whole, rest = divmod(count, len(own))
        chosen = np.concatenate(
            [np.tile(np.arange(len(own)), whole), rng.permutation(len(own))[:rest]]
        )
        return np.asarray(own[chosen], dtype=np.int64)
