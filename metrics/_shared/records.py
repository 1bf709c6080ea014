"""Tables as the record distance sees them, and rows that an attack may be judged on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Evaluation, Split
from bench.metrics._shared import distance as _distance
from bench.metrics._shared.distance import Records

Array = npt.NDArray[np.float64]

PERCENTILE_BINS = 10
"""Deciles."""


def released_records(evaluation: Evaluation) -> Records:
    """The released rows, for the record distance."""
    return evaluation.shared(
        "records/released",
        lambda: Records.of(evaluation.dataset.encoder, evaluation.decoded),
    )


def real_records(evaluation: Evaluation, name: str, split: Split) -> Records:
    """The rows of a split as they would look if they had been released."""
    encoder = evaluation.dataset.encoder
    return evaluation.shared(
        f"records/{name}",
        lambda: Records.of(encoder, encoder.decode(split.rows.values, split.rows.labels)),
    )


def percentile_edges(real: Records, bins: int = PERCENTILE_BINS) -> tuple[Array, ...]:
    """For each numeric column: the distinct values that cut the known ones into equal parts.

    The paper names neither the number of bins nor the rows that they are taken from.
    """
    levels = np.arange(1, bins) / bins
    edges = []
    for column in real.numbers.T:
        known = column[~np.isnan(column)]
        cuts = np.quantile(known, levels, method="inverted_cdf") if len(known) else known
        edges.append(np.unique(cuts))
    return tuple(edges)


def binned(records: Records, edges: tuple[Array, ...]) -> Records:
    """Numbers as the codes of their bins, (lower edge, upper edge]: Hamming distance only."""
    codes = [
        np.where(np.isnan(column), -1, np.searchsorted(cuts, column, side="left"))
        for column, cuts in zip(records.numbers.T, edges, strict=True)
    ]
    return Records(
        np.empty((len(records), 0)),
        np.column_stack([records.codes, *codes]).astype(np.int32),
    )


@final
@dataclass(frozen=True)
class Tables:
    """Released, training and control rows, all seen by the same distance."""

    released: Records
    train: Records
    control: Records

    @classmethod
    def of(cls, evaluation: Evaluation) -> Tables:
        """By the distance of equation 1."""
        return cls(
            released_records(evaluation),
            real_records(evaluation, "train", evaluation.dataset.train),
            real_records(evaluation, "control", evaluation.dataset.control),
        )

    def binned(self) -> Tables:
        """The same with numbers in percentile bins of the training rows."""
        edges = percentile_edges(self.train)
        return Tables(*(binned(rows, edges) for rows in (self.released, self.train, self.control)))


def occurring_once(
    train: Records, control: Records
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Rows whose record occurs once in both tables together.

    A control row that also stands in train is no fresh row. To drop only those would leave the
    rare records among the control rows and the common ones, which are closer to any release,
    among the training rows: a gap without any copying. A record that occurs once is a training
    or a control row by the split's chance alone, wherever it lies.
    """
    of_train, of_control = _distance.identities(train, control)
    counts = np.bincount(np.concatenate([of_train, of_control]))
    return counts[of_train] == 1, counts[of_control] == 1


@final
@dataclass(frozen=True)
class Sides:
    """Rows of both kinds that only the split's chance tells apart, by their number.

    In a random order: the first few of either side are a sample of it.
    """

    train: npt.NDArray[np.intp]
    """Training rows whose record occurs once in train and control together."""
    control: npt.NDArray[np.intp]
    """The same of control rows."""

    @property
    def matched(self) -> int:
        """So many rows there are on both sides."""
        return min(len(self.train), len(self.control))


def sides(evaluation: Evaluation) -> Sides:
    """The rows that distances to train and to control are compared on."""
    train = real_records(evaluation, "train", evaluation.dataset.train)
    control = real_records(evaluation, "control", evaluation.dataset.control)

    def build(rng: np.random.Generator) -> Sides:
        once, control_once = map(np.flatnonzero, occurring_once(train, control))
        return Sides(rng.permutation(once), rng.permutation(control_once))

    return evaluation.reference("records/sides", build)


@final
@dataclass(frozen=True)
class Copies:
    """Which rows stand for the same record, in every column that the distance compares."""

    of_train: npt.NDArray[np.intp]
    of_released: npt.NDArray[np.intp]
    of_control: npt.NDArray[np.intp]

    @property
    def released(self) -> npt.NDArray[np.bool_]:
        """Does each released row equal a training row?"""
        return np.isin(self.of_released, self.of_train)

    @property
    def control(self) -> npt.NDArray[np.bool_]:
        """The same of control rows: what fresh rows of the same population show by chance."""
        return np.isin(self.of_control, self.of_train)

    @property
    def common(self) -> npt.NDArray[np.bool_]:
        """Does each released row equal a record that occurs more than once in the real rows?"""
        real = np.concatenate([self.of_train, self.of_control])
        counts = np.bincount(real, minlength=int(self.of_released.max(initial=0)) + 1)
        return counts[self.of_released] > 1


def copies(evaluation: Evaluation) -> Copies:
    """Equal rows of the three tables."""

    def build() -> Copies:
        tables = Tables.of(evaluation)
        return Copies(*_distance.identities(tables.train, tables.released, tables.control))

    return evaluation.shared("records/copies", build)
