"""What a membership attack achieves: AUROC, advantage and TPR at low FPR, as bootstrap statistics.

An attack scores each judged row, higher for "member". Where it was trained, rows were judged in
several parts, each by an attack trained on the others: statistics are then averages over parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Metric, Output, Score
from bench.metrics._shared import bootstrap
from bench.metrics._shared.auroc import auroc
from bench.metrics._shared.bootstrap import Array, Statistic

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

    def estimate(statistic: Statistic, least: float = 0.0) -> bootstrap.Estimate:
        # The same resamples for every statistic.
        rng = evaluation.generator(f"bootstrap/{metric.name}")
        resampled = bootstrap.bootstrap(statistic, judged.strata, rng)
        return _widened(resampled, judged.widening, least)

    largest = estimate(advantage(judged))
    computed = [
        estimate(attack_auroc(judged)).score(metric, f"{metric.name}/auroc"),
        largest.distance_score(metric, f"{metric.name}/advantage"),
        estimate(held_out_advantage(judged), least=-1.0).score(
            metric, f"{metric.name}/advantage-held-out"
        ),
    ]
    for rate in RATES:
        output = f"{metric.name}/tpr-at-fpr-{rate:g}"
        others = judged.fewest_others
        if rate * (others + 1) < 1:
            reason = f"{others} non-members to test on: too few for a false-positive rate of {rate}"
            computed.append(metric.absent(output, reason))
        else:
            computed.append(estimate(sensitivity(judged, rate)).score(metric, output))
    return tuple(computed)


def _widened(estimate: bootstrap.Estimate, factor: float, least: float) -> bootstrap.Estimate:
    """Resamples further from their mean, within the range of the statistic."""
    middle = estimate.samples.mean()
    samples = np.clip(middle + factor * (estimate.samples - middle), least, 1.0)
    return bootstrap.Estimate(estimate.value, samples)


def attack_auroc(judged: AttackScores) -> Statistic:
    """Area under the ROC curve; a tied pair counts one half."""
    return _over_parts(judged, auroc)


def advantage(judged: AttackScores) -> Statistic:
    """Largest TPR - FPR over thresholds on the judged rows themselves (zero-order paper, 4.5)."""
    return _over_parts(judged, _largest_gap)


def held_out_advantage(judged: AttackScores) -> Statistic:
    """TPR - FPR at thresholds chosen on other rows: 0 on average without leakage."""

    def gap(membership: Labels, claims: Array) -> Statistic:
        of_members = bootstrap.mean(claims[membership == 1])
        of_others = bootstrap.mean(claims[membership == 0])
        return lambda weights: (
            of_members(weights[membership == 1]) - of_others(weights[membership == 0])
        )

    return _over_parts(judged, gap, judged.claims.astype(np.float64))


def sensitivity(judged: AttackScores, rate: float) -> Statistic:
    """TPR at a false-positive rate, exactly `rate` on average where nothing leaks.

    A member exceeds the j-th largest of n non-members with probability j / (n + 1) by chance. The
    threshold therefore lies at place rate * (n + 1), between two non-members where that is no whole
    number. The usual "largest TPR with FPR <= rate" has place floor(rate n) + 1, and 1 / (n + 1)
    instead of 0.01 for fewer than 100 non-members. Members that tie with the threshold count with
    the chance that they come first in a random order.
    """

    def at_rate(membership: Labels, scores: Array) -> Statistic:
        curve = _RocCurve.of(membership, scores)

        def statistic(weights: Array) -> Array:
            members, others = curve.counts(weights)
            place = rate * (others.sum(axis=0) + 1.0)
            whole = np.floor(place)
            lower, upper = (_exceeding(members, others, j) for j in (whole, whole + 1.0))
            result: Array = lower + (place - whole) * (upper - lower)
            return result

        return statistic

    return _over_parts(judged, at_rate)


def risk_at_half_recall(membership: Labels, scores: Array) -> Statistic:
    """2 precision - 1 at the first threshold with recall >= 1/2 (fidelity paper, 4.1.1)."""
    curve = _RocCurve.of(membership, scores)

    def statistic(weights: Array) -> Array:
        members, others = (np.cumsum(counts, axis=0) for counts in curve.counts(weights))
        first = np.argmax(2 * members >= members[-1], axis=0)
        columns = np.arange(weights.shape[1])
        right, wrong = members[first, columns], others[first, columns]
        # As many members as non-members: a share of each, whatever the resample holds.
        right, wrong = right / members[-1], wrong / others[-1]
        risk: Array = 2.0 * right / (right + wrong) - 1.0
        return risk

    return statistic


def best_threshold(membership: Labels, scores: Array) -> float:
    """The score from which to claim membership, by the largest TPR - FPR."""
    curve = _RocCurve.of(membership, scores)
    gaps = curve.gaps(np.ones((len(scores), 1)))[:, 0]
    best = int(np.argmax(gaps))
    return float(np.sort(np.unique(scores))[::-1][best]) if gaps[best] > 0 else float("inf")


def curve_table(judged: AttackScores, points: int = 101) -> pd.DataFrame:
    """The ROC curve, averaged over parts at equal false-positive rates."""
    rates = np.linspace(0.0, 1.0, points)
    ones = np.ones((len(judged.scores), 1))
    inner = [float(sensitivity(judged, rate)(ones)[0]) for rate in rates[1:-1]]
    return pd.DataFrame({"fpr": rates, "tpr": [0.0, *inner, 1.0]})


def _over_parts(
    judged: AttackScores,
    make: Callable[[Labels, Array], Statistic],
    answers: Array | None = None,
) -> Statistic:
    """The average over parts of a statistic of their rows."""
    scores = judged.scores if answers is None else answers
    places = [np.flatnonzero(judged.parts == part) for part in np.unique(judged.parts)]
    inside = [(place, make(judged.membership[place], scores[place])) for place in places]

    def statistic(weights: Array) -> Array:
        total: Array = np.mean([each(weights[place]) for place, each in inside], axis=0)
        return total

    return statistic


def _largest_gap(membership: Labels, scores: Array) -> Statistic:
    curve = _RocCurve.of(membership, scores)

    def statistic(weights: Array) -> Array:
        largest: Array = np.maximum(curve.gaps(weights).max(axis=0), 0.0)
        return largest

    return statistic


@final
@dataclass(frozen=True)
class _RocCurve:
    """Rows by descending score; equal scores form one group."""

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
        return cls(members, others, member_ends, other_ends)

    def counts(self, weights: Array) -> tuple[Array, Array]:
        """Weights of the members and of the others in each group, (groups, resamples)."""
        members, others = self._cumulated(weights)
        zero = np.zeros((1, weights.shape[1]))
        return np.diff(members, axis=0, prepend=zero), np.diff(others, axis=0, prepend=zero)

    def gaps(self, weights: Array) -> Array:
        """TPR - FPR when every group down to this one is claimed."""
        members, others = self._cumulated(weights)
        gaps: Array = members / members[-1] - others / others[-1]
        return gaps

    def _cumulated(self, weights: Array) -> tuple[Array, Array]:
        zero = np.zeros((1, weights.shape[1]))
        members, others = (
            np.concatenate([zero, np.cumsum(weights[rows], axis=0)])[ends]
            for rows, ends in ((self.members, self.member_ends), (self.others, self.other_ends))
        )
        return members, others


def _exceeding(members: Array, others: Array, place: Array) -> Array:
    """Share of members above the place-th largest non-member; ties in a random order."""
    columns = np.arange(members.shape[1])
    others_to, members_to = np.cumsum(others, axis=0), np.cumsum(members, axis=0)
    group = np.argmax(others_to >= place, axis=0)
    tied_others, tied_members = others[group, columns], members[group, columns]
    others_above = others_to[group, columns] - tied_others
    members_above = members_to[group, columns] - tied_members
    first = tied_members * (place - others_above) / (tied_others + 1.0)
    share: Array = (members_above + first) / members_to[-1]
    return np.where(place > 0.0, np.where(place > others_to[-1], 1.0, share), 0.0)
