"""Exposure of canaries: records that nobody has, injected into the training rows.

Fidelity paper, section 4.2.2, equation 8, after Carlini et al. 2019: a canary is exposed when the
release makes it likelier than the other canaries that could have been injected but were not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Categorical,
    Dataset,
    Direction,
    Evaluation,
    Family,
    NotComputable,
    Numeric,
    Output,
    Refit,
    RefitMetric,
    Score,
    Scores,
)
from bench.metrics._shared import bootstrap, record_distance
from bench.metrics._shared.bootstrap import Array
from bench.metrics._shared.intervals import share
from bench.metrics._shared.record_distance import Records, real_records

Codes = npt.NDArray[np.int64]


@final
class Exposure(RefitMetric):
    """Mean exposure of injected canaries, in bits: log2|C| - log2(rank of the canary).

    Space of canaries: every number at its lower or upper public bound, every category (and the
    label) any of the declared ones, all equally likely; records of real training rows are left out.
    The schema alone decides it, so that its records lie inside the schema and, as soon as there are
    some numeric columns, outside of what real rows look like.

    The paper ranks by P(record), which methods here do not give. The likelihood is minus the
    record distance (section 3.1, equation 1) to the closest released row. The rank is that among
    the canary itself and the records of C that were drawn but not injected, and |C| is their
    number: exposure is at most log2|C|, whatever the size of the whole space. Where the space is
    small enough, all of it is ranked. Canaries that tie share the mean exposure of their ranks, as
    breaking ties at random would give them in expectation (the exposure of the mean rank would be
    lower, and hide memorisation).

    Without memorisation each rank is equally likely: the median exposure is 1, as the paper says,
    and the mean is close to log2(e) = 1.44. The paper calls exposure above log2|C| risky, which
    cannot happen, since log2|C| is its maximum. Here `exposure/p-value` tests the mean against
    uniform ranks, and `exposure/extracted` counts canaries that reach the maximum. The p-value is
    P(Gamma(N) >= ln 2 times the sum of N exposures), one-sided: minus ln(rank / |C|) of a uniform
    rank is at most exponential. Canaries of one refit share the records that they are ranked among;
    of 4,000 simulated nulls 4.3% had p < 0.05 with 1,023 of them, and 1.8% with 30.

    A method that learns the marginals of the canaries' columns gets no exposure by it: the
    canaries that were not injected have the same marginals.
    """

    name: ClassVar[str] = "exposure"
    family: ClassVar[Family] = Family.PRIVACY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "exposure/mean",
            Direction.LOWER,
            "Mean exposure in bits; 1.44 is expected without memorisation. 95% interval: "
            "percentile bootstrap over canaries.",
            weak="releasing 100 of the 24,421 training rows of Adult gave 1.56 [1.08, 2.13], as "
            "without memorisation; 100 of 342 of breast-cancer gave 4.97",
        ),
        Output(
            "exposure/extracted",
            Direction.LOWER,
            "Share of canaries closer to the release than all that were not injected, which "
            "reach log2|C|. 95% interval: Clopper-Pearson.",
        ),
        Output(
            "exposure/p-value",
            Direction.NEUTRAL,
            "One-sided p of the mean exposure, given uniform ranks: small is memorisation.",
        ),
        Output(
            "exposure/maximum",
            Direction.NEUTRAL,
            "log2|C|, the largest possible exposure (the paper's extraction threshold).",
        ),
    )
    definition: ClassVar[str] = (
        "Exposure log2|C| - log2(rank) of 10 canaries (records at the public bounds) injected "
        "together into the training rows, in 3 refits (fidelity paper, section 4.2.2, equation 8). "
        "Ranked by the distance to the closest released row among up to 1,023 canaries that were "
        "not injected; ties share the mean exposure of their ranks. Without memorisation the mean "
        "is about 1.44; the paper's threshold log2|C| is the maximum and is never exceeded, so "
        "that a test against uniform ranks is given instead."
    )
    cost: ClassVar[str] = "3 refits of the method"
    optional: ClassVar[bool] = True

    canaries: ClassVar[int] = 10
    repeats: ClassVar[int] = 3
    others: ClassVar[int] = 1023
    """Canaries that are ranked beside each injected one."""

    def compute(self, evaluation: Evaluation, refit: Refit) -> Scores:
        dataset = evaluation.dataset
        train = dataset.train.frame
        known = real_records(evaluation, "train")
        tables: list[pd.DataFrame] = []
        for repetition in range(self.repeats):
            rng = evaluation.generator(f"exposure/{repetition}")
            drawn = draw(dataset, known, self.canaries, self.others, rng)
            injected = drawn.frame.iloc[: self.canaries]
            # Unused index values: the harness then gives these rows new positions.
            first = len(train) + repetition * self.canaries
            injected = injected.set_axis(range(first, first + len(injected)), axis="index")
            rows = refit(pd.concat([train, injected]), repetition).rows
            if rows is None:
                raise NotComputable("the refit gave a model, not rows")
            decoded = dataset.encoder.decode(rows.values, rows.labels, complete=True)
            released = Records.of(dataset.encoder, decoded)
            distances = record_distance.nearest(drawn.records, released, evaluation.threads)
            table = ranked(distances[: self.canaries], distances[self.canaries :])
            tables.append(table.assign(repetition=repetition))
        details = pd.concat(tables, ignore_index=True)
        return Scores(self._scores(evaluation, details), {"exposure": details})

    def _scores(self, evaluation: Evaluation, table: pd.DataFrame) -> tuple[Score, ...]:
        exposures = table["exposure"].to_numpy(dtype=np.float64)
        rng = evaluation.generator("bootstrap/exposure")
        mean = bootstrap.bootstrap(bootstrap.mean(exposures), np.zeros(len(exposures)), rng)
        return (
            mean.score(self, "exposure/mean"),
            share(table["first"]).score(self, "exposure/extracted"),
            self.score("exposure/p-value", p_value(exposures)),
            self.score("exposure/maximum", math.log2(float(table["space"].min()))),
        )


@final
@dataclass(frozen=True)
class Canaries:
    """Distinct records of the canary space, in random order."""

    frame: pd.DataFrame
    """The records as rows of the training table."""
    records: Records
    """The records as they would look in a release."""


def draw(
    dataset: Dataset, known: Records, canaries: int, others: int, rng: np.random.Generator
) -> Canaries:
    """The canaries to inject, and up to `others` that are not injected; none is a known record."""
    sizes = [len(values) for values in _values(dataset)]
    space = math.prod(sizes)
    wanted = canaries + others
    if space <= 4 * wanted:
        codes = np.stack(np.unravel_index(rng.permutation(space), sizes), axis=1)
    else:
        # Some more than wanted, for those that are drawn twice or stand in the training rows.
        draws = np.column_stack([rng.integers(size, size=2 * wanted) for size in sizes])
        places = np.sort(np.unique(draws, axis=0, return_index=True)[1])
        codes = draws[places]
    frame = _frame(dataset, codes, rng)
    rows, _ = dataset.encoder.encode(frame)
    records = Records.of(
        dataset.encoder, dataset.encoder.decode(rows.values, rows.labels, complete=True)
    )
    of_known, of_drawn = record_distance.identities(known, records)
    kept = np.flatnonzero(~np.isin(of_drawn, of_known))[:wanted]
    if len(kept) < 4 * canaries:
        raise NotComputable(
            f"{len(kept)} records at the public bounds are no training rows; at least "
            f"{4 * canaries} are needed to rank {canaries} canaries"
        )
    return Canaries(frame.iloc[kept], records.take(kept))


def ranked(injected: Array, others: Array) -> pd.DataFrame:
    """Rank and exposure of each injected canary, from the distances to the release."""
    space = len(others) + 1
    ordered = np.sort(others)
    closer = np.searchsorted(ordered, injected, side="left")
    tied = np.searchsorted(ordered, injected, side="right") - closer
    logs = np.concatenate([[0.0], np.cumsum(np.log2(np.arange(1, space + 1)))])
    # Ranks closer + 1 to closer + tied + 1 are shared; the sums of their logarithms are at hand.
    mean_log = (logs[closer + tied + 1] - logs[closer]) / (tied + 1)
    return pd.DataFrame(
        {
            "distance": injected,
            "closer": closer,
            "tied": tied,
            "first": (closer == 0) & (tied == 0),
            "space": space,
            "exposure": math.log2(space) - mean_log,
            "expected": math.log2(space) - logs[space] / space,
        }
    )


def p_value(exposures: Array) -> float:
    """One-sided p of the sum of exposures, were all ranks uniform."""
    from scipy.stats import gamma

    return float(gamma.sf(math.log(2.0) * exposures.sum(), len(exposures)))


def _values(dataset: Dataset) -> list[tuple[float, ...] | tuple[str, ...]]:
    """Values that each column of a canary may hold."""
    columns = [block.column for block in dataset.encoder.blocks] + [dataset.schema.label]
    values: list[tuple[float, ...] | tuple[str, ...]] = []
    for column in columns:
        if isinstance(column, Numeric):
            values.append((column.low, column.high))
        elif isinstance(column, Categorical):
            values.append(column.categories)
    return values


def _frame(dataset: Dataset, codes: Codes, rng: np.random.Generator) -> pd.DataFrame:
    """Canaries as rows of the training table; columns that the schema lacks stay empty."""
    columns = [block.column for block in dataset.encoder.blocks] + [dataset.schema.label]
    data: dict[str, npt.NDArray[np.generic]] = {
        column.name: np.array(values)[codes[:, number]]
        for number, (column, values) in enumerate(zip(columns, _values(dataset), strict=True))
    }
    for number, block in enumerate(dataset.encoder.blocks):
        if block.indicates:  # its first category: the number is missing
            data[block.indicates] = np.where(codes[:, number] == 0, np.nan, data[block.indicates])
    site = dataset.schema.site
    if site is not None:
        # A site is no part of a release: any that has training rows by declaration.
        declared = [name for name, rows in dataset.counts.by_site.items() if rows]
        data[site.name] = np.array(declared or site.categories)[
            rng.integers(len(declared or site.categories), size=len(codes))
        ]
    return pd.DataFrame(data).reindex(columns=dataset.train.frame.columns)
