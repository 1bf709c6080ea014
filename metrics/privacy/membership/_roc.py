"""What a membership attack achieves: AUROC, advantage and TPR at low FPR, as bootstrap statistics.

An attack scores each judged row, higher for "member". Where it was trained, rows were judged in
several parts, each by an attack trained on the others: statistics are then averages over parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Metric, Output, Score
from bench.metrics._shared import bootstrap
from bench.metrics._shared.bootstrap import Array, Counted, Counts, Statistic, contiguous

Labels = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

RATES = (0.1, 0.01)
"""False-positive rates at which the sensitivity is reported."""

NOTE = (
    "Interval: 1000 bootstrap resamples of the judged rows within members and non-members (and, "
    "where there are splits, within each)."
)


def outputs(name: str, threshold: str, weak: str) -> tuple[Output, ...]:
    """Outputs of every attack with scores; `threshold` says where its threshold comes from."""
    descriptions = {
        "auroc": "AUROC of the attack; 0.5 is guessing, and below 0.5 is chance.",
        "advantage": (
            "Largest TPR - FPR over thresholds on the judged rows, as the zero-order paper defines "
            "it. It is above 0 without any leakage: about 0.63 sqrt(2 / n) for n judged rows of "
            "each kind. The lower end of its interval is corrected for that (basic bootstrap)."
        ),
        "advantage-held-out": (
            f"TPR - FPR at the threshold that is best on {threshold}: 0 on average without leakage."
        ),
        **{
            f"tpr-at-fpr-{rate:g}": f"TPR at FPR {rate:g}; {rate:g} on average without leakage."
            for rate in RATES
        },
    }
    return tuple(
        Output(f"{name}/{output}", Direction.LOWER, description, weak=weak, shown=output == "auroc")
        for output, description in descriptions.items()
    )


@final
@dataclass(frozen=True)
class AttackScores:
    """Scores that an attack gave to the judged rows."""

    membership: Labels
    """1 for members, 0 for others."""
    scores: Array
    claims: Flags
    """Whether a row is called a member, by a threshold that was chosen on other rows."""
    parts: Labels
    """Statistics are taken within each part and averaged over parts."""

    @property
    def strata(self) -> Labels:
        """Strata of the resamples: parts, and members and others within each."""
        return 2 * self.parts + self.membership

    @property
    def widening(self) -> float:
        """Factor by which the interval of an average over parts exceeds that of independent parts.

        Attacks that are trained on each other's test rows agree more than independent ones. By
        Nadeau and Bengio (2003) the variance is 1 + J n_test / n_train times as large, for J parts
        1 + J / (J - 1): intervals 1.5 times as wide for five. Without it, the AUROC of fresh rows
        varied over 30 splits of Adult 1.5 times as much as the resamples.
        """
        parts = len(np.unique(self.parts))
        return math.sqrt(1.0 + parts / (parts - 1)) if parts > 1 else 1.0

    @property
    def fewest_others(self) -> int:
        """Non-members in the smallest part."""
        return int(np.bincount(self.parts[self.membership == 0]).min())


def scores(metric: Metric, evaluation: Evaluation, judged: AttackScores) -> tuple[Score, ...]:
    """AUROC, advantage and sensitivities of an attack."""
    others = judged.fewest_others
    rates = tuple(rate for rate in RATES if rate * (others + 1) >= 1)
    # All statistics of a resample are read off the same two cumulated curves.
    joint = bootstrap.jointly(
        summary(judged, rates), judged.strata, bootstrap.of_dataset(evaluation)
    )
    area, largest, held_out, *at_rates = (
        _widened(estimate, judged.widening, least)
        for estimate, least in zip(
            joint.each(), (0.0, 0.0, -1.0, *(0.0 for _ in rates)), strict=True
        )
    )
    computed = [
        area.score(metric, f"{metric.name}/auroc"),
        largest.distance_score(metric, f"{metric.name}/advantage"),
        held_out.score(metric, f"{metric.name}/advantage-held-out"),
    ]
    by_rate = dict(zip(rates, at_rates, strict=True))
    for rate in RATES:
        output = f"{metric.name}/tpr-at-fpr-{rate:g}"
        if rate in by_rate:
            computed.append(by_rate[rate].score(metric, output))
        else:
            reason = f"{others} non-members to test on: too few for a false-positive rate of {rate}"
            computed.append(metric.absent(output, reason))
    return tuple(computed)


def _widened(estimate: bootstrap.Estimate, factor: float, least: float) -> bootstrap.Estimate:
    """Resamples further from their mean, within the range of the statistic."""
    middle = estimate.samples.mean()
    samples = np.clip(middle + factor * (estimate.samples - middle), least, 1.0)
    return bootstrap.Estimate(estimate.value, samples)


def summary(judged: AttackScores, rates: Sequence[float]) -> Statistic:
    """All statistics of an attack: (3 + rates, resamples) from (rows, resamples).

    * Area under the ROC curve; a tied pair counts one half.
    * Advantage: largest TPR - FPR over thresholds on the judged rows (zero-order paper, 4.5).
    * Advantage held out: TPR - FPR at thresholds chosen on other rows, 0 on average without
      leakage.
    * Sensitivity at each rate: see `_RocCurve.sensitivity`.
    """
    return _Summary(tuple(_parts(judged)), np.asarray(rates, dtype=np.float64))


def risk_and_auroc(membership: Labels, scores: Array) -> Statistic:
    """(2, resamples): the risk of the fidelity paper, section 4.1.1, and the area.

    The risk is 2 precision - 1 at the first threshold with recall >= 1/2.
    """
    curve = _RocCurve.of(membership, scores)

    def statistic(weights: Array) -> Array:
        sums = curve.cumulated(weights)
        members, others = sums
        first = np.argmax(2 * members >= members[-1], axis=0)
        columns = np.arange(weights.shape[1])
        # As many members as non-members: a share of each, whatever the resample holds.
        right = members[first, columns] / members[-1]
        wrong = others[first, columns] / others[-1]
        return np.stack([2.0 * right / (right + wrong) - 1.0, curve.area(*sums)])

    return statistic


def best_threshold(membership: Labels, scores: Array) -> float:
    """The score from which to claim membership, by the largest TPR - FPR."""
    curve = _RocCurve.of(membership, scores)
    gaps = curve.gaps(*curve.cumulated(np.ones((len(scores), 1))))[:, 0]
    best = int(np.argmax(gaps))
    return float(-curve.values[best]) if gaps[best] > 0 else float("inf")


def curve_table(judged: AttackScores, points: int = 101) -> pd.DataFrame:
    """The ROC curve, averaged over parts at equal false-positive rates."""
    rates = np.linspace(0.0, 1.0, points)
    ones = np.ones((len(judged.scores), 1))
    inner = np.zeros(points - 2)
    parts = _parts(judged)
    for part in parts:
        sums = part.curve.cumulated(ones[part.rows])
        inner += [float(part.curve.sensitivity(*sums, rate)[0]) for rate in rates[1:-1]]
    return pd.DataFrame({"fpr": rates, "tpr": [0.0, *(inner / len(parts)), 1.0]})


@final
@dataclass(frozen=True)
class _Part:
    """The rows of one part, and what does not change from resample to resample."""

    rows: npt.NDArray[np.intp]
    curve: _RocCurve
    claims: Flags
    """Whether each of these rows is called a member."""

    def in_order(
        self,
    ) -> tuple[
        npt.NDArray[np.intp], npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.uint8]
    ]:
        """Rows by descending score; which are members, end a group, and are called members."""
        curve = self.curve
        rows = np.concatenate([curve.members, curve.others])
        groups = np.concatenate(
            [
                np.searchsorted(ends, np.arange(len(side)), "right")
                for side, ends in (
                    (curve.members, curve.member_ends),
                    (curve.others, curve.other_ends),
                )
            ]
        )
        order = np.argsort(groups, kind="stable")
        last = np.append(groups[order][1:] != groups[order][:-1], True)
        members, claimed = order < len(curve.members), self.claims[rows][order]
        return (
            self.rows[rows[order]],
            members.astype(np.uint8),
            last.astype(np.uint8),
            claimed.astype(np.uint8),
        )


@final
@dataclass(frozen=True, eq=False)
class _Summary(Counted):
    """The statistics of `summary`, mean over parts."""

    parts: tuple[_Part, ...]
    rates: Array
    table: npt.NDArray[np.intp] | None = None
    """Where the rows are in a larger table; None where they are the table."""

    def __call__(self, weights: Array | Counts) -> Array:
        from bench.metrics._shared import resample_kernels

        results = np.zeros((3 + len(self.rates), weights.shape[1]))
        for part in self.parts:
            rows, members, ends, claimed = part.in_order()
            rows = rows if self.table is None else self.table[rows]
            resample_kernels.roc_summary(
                contiguous(weights, rows), rows, members, ends, claimed, self.rates, results
            )
        return results / len(self.parts)

    def at(self, rows: npt.NDArray[np.intp]) -> _Summary:
        table = rows if self.table is None else rows[self.table]
        return _Summary(self.parts, self.rates, table)


def _parts(judged: AttackScores) -> list[_Part]:
    parts = []
    for number in np.unique(judged.parts):
        rows = np.flatnonzero(judged.parts == number)
        membership, claims = judged.membership[rows], judged.claims[rows]
        parts.append(
            _Part(
                rows,
                _RocCurve.of(membership, judged.scores[rows]),
                np.asarray(claims, dtype=np.bool_),
            )
        )
    return parts


@final
@dataclass(frozen=True)
class _RocCurve:
    """Rows by descending score; equal scores form one group.

    Every statistic is a function of `cumulated`: the weights of the members, and of the others, in
    all groups down to each, (groups, resamples). Weights are counts, whose sums are exact.
    """

    values: Array
    """Minus the score of each group, ascending."""
    members: npt.NDArray[np.intp]
    others: npt.NDArray[np.intp]
    member_ends: npt.NDArray[np.intp]
    other_ends: npt.NDArray[np.intp]

    @classmethod
    def of(cls, membership: Labels, scores: Array) -> _RocCurve:
        values, groups = np.unique(-scores, return_inverse=True)
        sides = []
        for side in (1, 0):
            rows = np.flatnonzero(membership == side)
            rows = rows[np.argsort(groups[rows], kind="stable")]
            sides.append((rows, np.searchsorted(groups[rows], np.arange(len(values)), "right")))
        (members, member_ends), (others, other_ends) = sides
        return cls(values, members, others, member_ends, other_ends)

    def cumulated(self, weights: Array) -> tuple[Array, Array]:
        """Weights of members and of others in the groups down to each."""
        members, others = (
            _cumulated(weights[rows])[ends]
            for rows, ends in ((self.members, self.member_ends), (self.others, self.other_ends))
        )
        return members, others

    def gaps(self, members: Array, others: Array) -> Array:
        """TPR - FPR when every group down to this one is claimed."""
        gaps: Array = members / members[-1] - others / others[-1]
        return gaps

    def area(self, members: Array, others: Array) -> Array:
        """Area under the curve: a trapezium per group, so that a tied pair counts one half.

        Twice the area is the sum over groups of the others in the group times the members above it
        twice and in it once, which are whole numbers: exact, whatever the order of the sum.
        """
        twice = np.einsum("ij,ij->j", np.diff(others, axis=0), members[1:] + members[:-1])
        twice += others[0] * members[0]
        area: Array = twice / (2.0 * members[-1] * others[-1])
        return area

    def sensitivity(self, members: Array, others: Array, rate: float) -> Array:
        """TPR at a false-positive rate, exactly `rate` on average where nothing leaks.

        A member exceeds the j-th largest of n non-members with probability j / (n + 1) by chance.
        The threshold therefore lies at place rate * (n + 1), between two non-members where that is
        no whole number. The usual "largest TPR with FPR <= rate" has place floor(rate n) + 1, and
        1 / (n + 1) instead of 0.01 for fewer than 100 non-members. Members that tie with the
        threshold count with the chance that they come first in a random order.
        """
        place = rate * (others[-1] + 1.0)
        whole = np.floor(place)
        lower, upper = (_exceeding(members, others, j) for j in (whole, whole + 1.0))
        result: Array = lower + (place - whole) * (upper - lower)
        return result


def _cumulated(weights: Array) -> Array:
    """Sums of the first k rows, for k from 0."""
    sums = np.zeros((len(weights) + 1, weights.shape[1]))
    np.cumsum(weights, axis=0, out=sums[1:])
    return sums


def _exceeding(members: Array, others: Array, place: Array) -> Array:
    """Share of members above the place-th largest non-member; ties in a random order."""
    columns = np.arange(members.shape[1])
    # Cumulated weights ascend: the first group that reaches the place, by how many do not.
    group = np.count_nonzero(others < place, axis=0)
    found = np.minimum(group, len(others) - 1)
    before = np.maximum(found - 1, 0)
    above = np.where(found > 0, 1.0, 0.0)
    members_above, others_above = above * members[before, columns], above * others[before, columns]
    tied_members = members[found, columns] - members_above
    tied_others = others[found, columns] - others_above
    first = tied_members * (place - others_above) / (tied_others + 1.0)
    share: Array = (members_above + first) / members[-1]
    return np.where(place > 0.0, np.where(place > others[-1], 1.0, share), 0.0)
