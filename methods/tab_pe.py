"""Tab-PE: private evolution of a table, by noisy votes for the nearest row (Tran et al. 2026).

Candidates start at random in the public domain. In each round every private row votes for the
candidate that is nearest to it, and the counts of votes are released with Gaussian noise
(sensitivity 1); candidates are selected by these counts and varied by public randomness. In the
first `sampled_rounds` rounds, as many candidates as rows are asked for are drawn in proportion to
the counts (negative ones are zero) and replaced by one variation each; afterwards those with the
largest counts are kept, beside `variations` variations of each.

* A **variation** at rate r moves a number by a uniform step of at most r times its range, and
  replaces a category with probability r by a uniform one. The rate falls from 0.5 to 0.01 as
  0.5 - 0.49 (t / rounds)^0.2.
* The **distance** is Euclidean: numbers scaled to [0, 1], categories one-hot with the weight 1/3.

The settings are those of the authors' public example for Adult (1000 samples, 30 rounds, 5 of them
sampled, 3 variations), which the paper's abstract points to; which of them the paper varies by
dataset is not known here, and they are the same for every dataset.

Choices. Each class evolves apart: classes are disjoint parts and have the whole budget each. No
more than `samples` rows are evolved per class; a larger release adds variations of them, drawn in
proportion to their last counts, at the last rate. Whether a number is missing is a category. The
distance is computed exactly, on numbers rounded to 1/240 of their range, so that a row's vote does
not depend on the rows that are compared with it in one product. All events are fixed in advance:
one Gaussian per class and round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    Categorical,
    Claim,
    EncodedRows,
    Encoder,
    InputError,
    Method,
    NotApplicable,
    Numeric,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    Task,
    gaussian,
)
from bench.methods._shared.codes import Codes, category_codes, put_absent, put_categories

Table = npt.NDArray[np.float64]
"""One column per block of the encoder: scaled numbers in [-1, 1], and codes of categories."""

_HALF_RANGE = 120
_CATEGORY = 80
"""A third of the range of a number."""
_COLUMNS_AT_MOST = 200
"""Distances of more columns would not be exact in 32 bits."""
_ROWS_AT_ONCE = 1024


@final
@dataclass(frozen=True)
class TabPe(Method):
    """Candidates that the rows vote for, and variations of them."""

    name: ClassVar[str] = "tab-pe"
    title: ClassVar[str] = "Private evolution of tables (Tab-PE)"
    paper: ClassVar[str] = (
        "Tran, Backurs, Lin, Reis, Xiong and Yekhanin, Differentially Private Synthetic Data via "
        "APIs 4: Tabular Data, ICML 2026"
    )
    family: ClassVar[str] = "private evolution"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "unknown")
    quick: ClassVar[Mapping[str, Any]] = {"samples": 50, "rounds": 5, "sampled_rounds": 2}

    samples: int = 1000
    """Rows that are evolved per class, at most."""
    rounds: int = 30
    sampled_rounds: int = 5
    """First rounds, whose candidates are drawn in proportion to the votes."""
    variations: int = 3
    """Variations of each candidate that is kept."""
    first_rate: float = 0.5
    last_rate: float = 0.01
    decay: float = 0.2
    """Power of the share of rounds that are over, with which the rate falls."""

    def __post_init__(self) -> None:
        rates = 0.0 < self.last_rate <= self.first_rate <= 1.0 and self.decay > 0.0
        if not rates or min(self.samples, self.rounds, self.variations) < 1:
            raise InputError(
                f"tab-pe: samples {self.samples}, rounds {self.rounds}, variations "
                f"{self.variations}, rates {self.first_rate} to {self.last_rate}, decay "
                f"{self.decay}: expected positive numbers, and rates up to 1 that fall"
            )

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        domain = Domain(private.encoder)
        if private.task is Task.IMAGE or len(private.encoder.blocks) > _COLUMNS_AT_MOST:
            what = "images" if private.task is Task.IMAGE else "this table"
            raise NotApplicable(
                f"rows vote for the nearest candidate column by column, and {what} have too many "
                f"columns; it is for tables of at most {_COLUMNS_AT_MOST}"
            )
        parts = private.partition("class")

        def plans(noise: float) -> list[PlannedEvents]:
            return [part.plan(gaussian(noise), self.rounds) for part in parts.values()]

        noise = private.calibrate(plans)
        private.reserve_all(plans(noise))
        requested = spec.rows_per_class(private.counts)
        tables = [
            self._evolved(part, domain, count, noise, rng)
            for part, count in zip(parts.values(), requested, strict=True)
        ]
        labels = np.repeat(np.arange(len(requested)), requested)
        claim = Claim.of(spec.budget, "Tran et al. 2026, composition of Gaussian mechanisms")
        rows = Rows(domain.values(np.concatenate(tables)), labels)
        return Release(rows, claim=claim, notes={"noise_multiplier": noise})

    def rate(self, number: int) -> float:
        """Return the rate of variations after so many rounds."""
        over = min(1.0, number / self.rounds)
        return float(self.first_rate - (self.first_rate - self.last_rate) * over**self.decay)

    def _evolved(
        self,
        part: PrivateData,
        domain: Domain,
        count: int,
        noise: float,
        rng: np.random.Generator,
    ) -> Table:
        samples = max(1, min(count, self.samples))
        candidates = domain.random(samples, rng)
        votes = np.zeros(samples)
        for number in range(1, self.rounds + 1):
            (noisy,) = part.histograms(domain.nearest(candidates), [len(candidates)], noise)
            sampled = number <= self.sampled_rounds
            chosen = drawn(noisy, samples, rng) if sampled else largest(noisy, samples)
            kept, votes = candidates[chosen], noisy[chosen]
            if number == self.rounds:
                candidates = kept
            elif sampled:
                candidates = domain.varied(kept, self.rate(number), rng)
            else:
                rate = self.rate(number)
                new = [domain.varied(kept, rate, rng) for _ in range(self.variations)]
                candidates = np.concatenate([kept, *new])
        candidates = candidates[: min(count, samples)]
        if count > samples:
            more = candidates[drawn(votes, count - samples, rng)]
            candidates = np.concatenate([candidates, domain.varied(more, self.last_rate, rng)])
        return candidates


def drawn(votes: npt.NDArray[np.float64], count: int, rng: np.random.Generator) -> Codes:
    """Return places drawn in proportion to the votes; negative ones count as zero."""
    chances = np.maximum(votes, 0.0)
    if chances.sum() <= 0.0:
        chances = np.ones(len(votes))
    return rng.choice(len(votes), size=count, p=chances / chances.sum())


def largest(votes: npt.NDArray[np.float64], count: int) -> Codes:
    """Return the places of the largest votes, the first ones on ties."""
    return np.argsort(-votes, kind="stable")[:count]


@final
class Domain:
    """The public domain of a table: random rows, variations, distances."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.categories = [
            len(block.column.categories) if isinstance(block.column, Categorical) else 0
            for block in encoder.blocks
        ]
        """Number of categories of each block; zero for numbers."""

    def random(self, count: int, rng: np.random.Generator) -> Table:
        """Return uniform rows."""
        columns = [
            rng.integers(0, size, count) if size else rng.uniform(-1.0, 1.0, count)
            for size in self.categories
        ]
        return self._rounded(np.stack(columns, axis=1).astype(np.float64))

    def varied(self, table: Table, rate: float, rng: np.random.Generator) -> Table:
        """Return one variation of every row."""
        new = table.copy()
        for place, size in enumerate(self.categories):
            if size:
                replaced = rng.random(len(new)) < rate
                new[replaced, place] = rng.integers(0, size, int(replaced.sum()))
            else:
                # The range is 2 in scaled units.
                new[:, place] += rng.uniform(-2.0 * rate, 2.0 * rate, len(new))
        return self._rounded(new)

    def _rounded(self, table: Table) -> Table:
        """Clip numbers to their bounds, and round those that are integers."""
        for place, block in enumerate(self.encoder.blocks):
            column = block.column
            if not isinstance(column, Numeric):
                continue
            scaled = np.clip(table[:, place], -1.0, 1.0)
            if column.integer:
                span = column.high - column.low
                whole = np.rint(column.low + (scaled + 1.0) / 2.0 * span)
                scaled = np.clip(2.0 * (whole - column.low) / span - 1.0, -1.0, 1.0)
            table[:, place] = scaled
        return table

    def nearest(self, candidates: Table) -> Callable[[EncodedRows], Codes]:
        """Return the function that maps rows to the place of their nearest candidate."""
        points = self._points(candidates)
        lengths = np.square(points).sum(axis=1)

        def places(rows: EncodedRows) -> Codes:
            found = np.empty((len(rows), 1), dtype=np.int64)
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                own = self._points(self.table(rows.values[start : start + _ROWS_AT_ONCE]))
                # Products of small integers are exact, in any order of summation.
                found[start : start + _ROWS_AT_ONCE, 0] = np.argmin(
                    lengths - 2.0 * (own @ points.T), axis=1
                )
            return found

        return places

    def _points(self, table: Table) -> npt.NDArray[np.float32]:
        """Return integers whose Euclidean distances are those of the rows, in 1/240 of a range."""
        blocks = []
        for place, size in enumerate(self.categories):
            column = table[:, place]
            if size:
                blocks.append(np.float32(_CATEGORY) * (column[:, None] == np.arange(size)))
            else:
                blocks.append(np.rint(_HALF_RANGE * column)[:, None])
        return np.concatenate(blocks, axis=1).astype(np.float32)

    def table(self, values: npt.NDArray[np.floating]) -> Table:
        """Return encoded values as one column per block."""
        table = np.empty((len(values), len(self.categories)))
        for place, (block, size) in enumerate(
            zip(self.encoder.blocks, self.categories, strict=True)
        ):
            inside = values[:, block.slice]
            table[:, place] = category_codes(inside) if size else np.clip(inside[:, 0], -1.0, 1.0)
        return table

    def values(self, table: Table) -> npt.NDArray[np.float32]:
        """Return the encoded values of a table."""
        values = np.zeros((len(table), self.encoder.width), dtype=np.float32)
        for place, (block, size) in enumerate(
            zip(self.encoder.blocks, self.categories, strict=True)
        ):
            if size:
                put_categories(values, block, table[:, place].astype(np.int64))
            else:
                values[:, block.start] = table[:, place]
        for block in self.encoder.blocks:
            indicator = self.encoder.indicator(block)
            if indicator is not None:
                put_absent(values, block, indicator, values[:, indicator.start] < 0)
        return values
