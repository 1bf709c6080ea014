"""File membership: does a release reveal which half of the rows it was made from?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Direction,
    Evaluation,
    Family,
    NotComputable,
    Output,
    Refit,
    RefitMetric,
    Release,
    Scores,
)
from bench.metrics._shared import record_distance
from bench.metrics._shared.intervals import LEVEL
from bench.metrics._shared.record_distance import Records, real_records

Array = npt.NDArray[np.float64]

LEAST = 50
"""Fewest rows of the training table that can be assigned to a half."""


@final
@dataclass(frozen=True)
class Equivalence:
    """Result of an equivalence test of repeated shares against 1/2 (two one-sided t tests)."""

    value: float
    low: float
    high: float
    p: float
    """p-value of the null |P - 1/2| >= margin; small means that P is shown to be near 1/2."""


@final
class FileMembership(RefitMetric):
    """Rows are assigned to the closer of two releases, each fitted to one half of the rows.

    * `file-membership/accuracy`, lower is better: share of rows assigned to their own half; a row
      that is as close to both counts one half.
    * `file-membership/p`, lower is better: p-value of the equivalence test.

    The paper's null hypothesis is printed as H0: P != 1/2, which no data can reject: P never is
    exactly 1/2, and a test of P = 1/2 that fails to reject shows nothing but few rows. What the
    paper wants to conclude, that P is 1/2 for practical purposes, is an equivalence test: the null
    is |P - 1/2| >= MARGIN, and both one-sided tests must reject it.

    Repeats are the unit of the test, not rows: rows of one repeat share two releases.
    """

    REPEATS: ClassVar[int] = 5
    MARGIN: ClassVar[float] = 0.05

    name: ClassVar[str] = "file-membership"
    family: ClassVar[Family] = Family.PRIVACY
    optional: ClassVar[bool] = True
    cost: ClassVar[str] = "ten fits of the method, and some seconds for each"
    definition: ClassVar[str] = (
        "File membership test of the fidelity paper, section 4.1.2: the training rows are split at "
        "random into halves, the method is fitted to each, and a row is assigned to the half with "
        "the closer release (record distance of section 3.1). Five repeats; records that occur "
        "more than once in the training rows are not judged."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "file-membership/accuracy",
            Direction.LOWER,
            "Share of rows assigned to their own half, ties one half; 0.5 is guessing, below is "
            "chance. Interval: Student's t over the repeats.",
        ),
        Output(
            "file-membership/p",
            Direction.LOWER,
            "p-value of the equivalence test (two one-sided t tests over the repeats) of the null "
            "|P - 1/2| >= 0.05; the printed null P != 1/2 is reversed and cannot be rejected. "
            "Below 0.05 the release is shown to be near a coin toss: very low risk by the paper.",
            limit=0.05,
        ),
    )

    def compute(self, evaluation: Evaluation, refit: Refit) -> Scores:
        train = evaluation.dataset.train
        records = real_records(evaluation, "train")
        names = record_distance.identities(records)[0]
        judged = np.bincount(names)[names] == 1
        if np.count_nonzero(judged) < LEAST:
            raise NotComputable(
                f"{np.count_nonzero(judged)} training rows occur only once; at least {LEAST} are "
                "needed"
            )
        rng = evaluation.generator("file-membership/halves")
        # A refit identifies rows by their place in the training table.
        frame = train.frame.reset_index(drop=True)
        table = []
        for repeat in range(self.REPEATS):
            first = random_half(train.rows.labels, rng)
            near, far = (
                self._distances(evaluation, records, refit(frame[half], repeat))
                for half in (first, ~first)
            )
            right = assigned_right(near, far, first)[judged]
            table.append(
                {
                    "repeat": repeat,
                    "rows": len(right),
                    "right": int(np.count_nonzero(right == 1.0)),
                    "tied": int(np.count_nonzero(right == 0.5)),
                    "accuracy": float(right.mean()),
                }
            )
        repeats = pd.DataFrame(table)
        rows = int(np.count_nonzero(judged))
        result = equivalence(repeats["accuracy"].to_numpy(dtype=np.float64), rows, self.MARGIN)
        scores = (
            self.score("file-membership/accuracy", result.value, result.low, result.high),
            self.score("file-membership/p", result.p),
        )
        return Scores(scores, {"file-membership": repeats})

    @staticmethod
    def _distances(evaluation: Evaluation, records: Records, release: Release) -> Array:
        if release.rows is None:
            raise NotComputable("the release is a model, not rows")
        encoder = evaluation.dataset.encoder
        decoded = encoder.decode(release.rows.values, release.rows.labels, complete=True)
        released = Records.of(encoder, decoded)
        distances: Array = record_distance.nearest(records, released, evaluation.threads)
        return distances


def random_half(labels: npt.NDArray[np.integer], rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """True for one random half of the rows of each class; odd classes give by turns."""
    half = np.zeros(len(labels), dtype=np.bool_)
    more = bool(rng.integers(2))
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        odd = len(rows) % 2
        half[rows[: len(rows) // 2 + (odd if more else 0)]] = True
        more = more if not odd else not more
    return half


def assigned_right(near: Array, far: Array, first: npt.NDArray[np.bool_]) -> Array:
    """1 where the release of the row's own half is closer, 0 where the other is, 1/2 for ties.

    `near` holds distances to the release of the first half. The paper gives ties to the second
    half; with many equal distances that alone would move the share.
    """
    same, other = np.where(first, near, far), np.where(first, far, near)
    right: Array = (same < other) + 0.5 * (same == other)
    return right


def equivalence(shares: Array, rows: int, margin: float) -> Equivalence:
    """Mean of repeated shares, its 95% interval, and the test that it lies within the margin.

    The standard error is that among the repeats, but never below that of independent guesses on
    `rows` rows: five repeats may agree by chance, or exactly where every row is tied.
    """
    from scipy.stats import t

    repeats = len(shares)
    value = float(shares.mean())
    spread = float(shares.std(ddof=1))
    error = max(spread, math.sqrt(value * (1.0 - value) / rows)) / math.sqrt(repeats)
    freedom = repeats - 1
    half = float(t.ppf((1 + LEVEL) / 2, freedom)) * error
    if error == 0.0:
        p = 0.0 if abs(value - 0.5) < margin else 1.0
    else:
        above = t.sf((value - (0.5 - margin)) / error, freedom)
        below = t.cdf((value - (0.5 + margin)) / error, freedom)
        p = float(max(above, below))
    return Equivalence(value, max(0.0, value - half), min(1.0, value + half), p)
