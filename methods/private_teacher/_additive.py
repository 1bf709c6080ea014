"""A private additive model, proven by the kernel alone: boosting with noisy sums of residuals.

The model is a sum of one function a feature, constant on bins, as in an explainable boosting
machine: s(x) = b + sum over features j of theta[bin_j(x)], with a logistic (two classes) or softmax
loss. b is the log odds of the declared class counts. Features are taken in groups. In each of
`rounds` rounds, for each group in turn, one full-batch Gaussian mechanism gives the sums

    G[bin] = sum over rows in the bin of r,   r = p(x) - y,

of all its bins at once. A row has a one in one bin of each of the g features of the group, times
its residual: a vector of norm sqrt(g) |r|, cut to `clip` sqrt(g) u by the kernel, where u is the
largest |r| (1 for two classes, sqrt 2 for more). Then a Newton step with a diagonal Hessian and
momentum,

    v <- momentum v - step (G + lambda theta) / (H + lambda),   theta <- theta + v,

where H = p(1 - p) (noisy count of the bin), p the declared share of the class; and the mean of
theta over the second half of the rounds is kept.

Cost. With k features, a group of g has the noise multiplier s sqrt(rounds k / g): a round costs as
much as one Gaussian mechanism of multiplier s sqrt(rounds), and all of them as one of s, whatever
the groups and rounds are. Every bin's sum gets the same noise, and the noise of the mean over all
rounds has deviation d = s sqrt(k) u clip. So rounds are free as long as steps are averaged, and
groups too: small ones let a step see the last group's, as cyclic boosting does. All features of a
group move at once, each as if it were alone: correlated ones overshoot together, the more of them
the further.

Bins are joined until they are worth their noise: theta of a bin is known to d / H beside the noise
and to 1 / sqrt(H) beside chance, which are to be at most `prior` / `evidence` and `prior` /
`chance`, where `prior` is how large an effect is expected to be, as a deviation. lambda =
(d^2 + H) / (prior^2 H) is the penalty by which that prior shrinks it.

Clipping at half of the largest residual halves the noise; rows that the model has wrong by more
than that pull with the same force (a robust loss).

The settings were chosen on the validation and control rows of Adult (24,421 training rows) and of
single hospitals of `curial-sim` in the size of the paper (29 features, 1 to 6% positives), epsilon
1, AUROC of the teacher on Adult / Portsmouth / Birmingham: 0.912 / 0.889 / 0.895. Groups of 16
diverge where features go together (0.911 / 0.839 / 0.834, finer bins); an evidence of about 4 or 9
gives 0.909 / 0.876 / 0.888 and 0.910 / 0.882 / 0.879 (step 0.2). Without the cut (`clip` 1):
0.909 / 0.865 / 0.897, with one of 0.3: 0.906 / 0.862 / 0.887 (finer bins).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Counts, EncodedRows, Floats, PlannedEvents, PrivateData, gaussian
from bench.methods.private_teacher._bins import Array, ClassCounts, Codes, Merged
from bench.methods.private_teacher._kinds import ScoreTeacher, declared_shares, probabilities


@final
@dataclass(frozen=True)
class Boosting:
    """How an additive teacher is fitted."""

    rounds: int = 8
    group: int = 4
    """Features of one noisy sum."""
    step: float = 0.35
    momentum: float = 0.4
    clip: float = 0.5
    """Of the largest residual."""
    prior: float = 1.0
    evidence: float = 6.5
    """How many deviations of the noise an expected effect is to be worth, in a bin."""
    chance: float = 3.0
    """The same, deviations of chance: shrinkage deals with what is left of it."""


@final
@dataclass(frozen=True)
class Additive(ScoreTeacher):
    """Sum of one step function a feature."""

    merged: Merged
    base: Array
    """Of each output: one for two classes (the log odds of the second), else one a class."""
    effects: Array
    """(bins of all features, outputs)."""

    def margins(self, codes: Codes) -> Array:
        """(rows, outputs), from merged bins."""
        margins = np.tile(self.base, (len(codes), 1))
        for column in codes.T:
            margins += self.effects[column]
        return margins

    def scores(self, values: Floats) -> Array:
        return class_scores(self.margins(self.merged.codes(values)))


def class_scores(margins: Array) -> Array:
    """(rows, classes): two classes have one margin, for the second."""
    if margins.shape[1] > 1:
        return margins
    return np.column_stack([np.zeros(len(margins)), margins[:, 0]])


def groups_of(features: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Features in order, cut into groups that differ in size by one at most."""
    parts = np.array_split(np.arange(features), -(-features // size))
    return tuple(tuple(int(feature) for feature in part) for part in parts)


def plans(
    private: PrivateData, features: int, noise: float, boosting: Boosting
) -> Sequence[PlannedEvents]:
    """All sums of a fit that together cost one Gaussian mechanism of multiplier `noise`."""
    return [
        private.plan(gaussian(_multiplier(noise, features, len(group), boosting)), boosting.rounds)
        for group in groups_of(features, boosting.group)
    ]


def _multiplier(noise: float, features: int, size: int, boosting: Boosting) -> float:
    return noise * math.sqrt(boosting.rounds * features / size)


def fit_additive(
    private: PrivateData, counts: ClassCounts, noise: float, boosting: Boosting
) -> Additive:
    """Fit by the calls that `plans` reserved."""
    shares = declared_shares(private.counts)
    two = len(shares) == 2
    base = np.array([math.log(shares[1] / shares[0])]) if two else np.log(shares)
    spread = _spread(shares)
    features = len(counts.grid.columns)
    largest, deviation = _largest(shares), _deviation(shares, features, noise, boosting)
    merged = Merged.of(counts, _least(shares, deviation, counts.deviation, boosting))
    sizes = merged.sums([counts.totals(column) for column in range(features)])
    # A count is not known better than its noise.
    curvature = np.maximum(sizes, counts.deviation)[:, None] * spread
    penalty = (deviation**2 + curvature) / (boosting.prior**2 * curvature)
    effects = np.zeros_like(curvature)
    speed, kept, averaged = np.zeros_like(effects), np.zeros_like(effects), 0
    starts = merged.offsets
    for turn in range(boosting.rounds):
        for group in groups_of(features, boosting.group):
            function = _Residuals(Additive(merged, base, effects.copy()), group)
            flat = private.gaussian_sum(
                function,
                boosting.clip * largest * math.sqrt(len(group)),
                _multiplier(noise, features, len(group), boosting),
            )
            own = slice(starts[group[0]], starts[group[-1] + 1])
            pull = flat.reshape(-1, effects.shape[1]) + penalty[own] * effects[own]
            speed[own] *= boosting.momentum
            speed[own] -= boosting.step * pull / (curvature[own] + penalty[own])
            effects[own] += speed[own]
        if 2 * turn >= boosting.rounds - 1:
            kept, averaged = kept + effects, averaged + 1
    return Additive(merged, base, kept / averaged)


def bins_worth(
    counts: Counts, features: int, noise: float, counts_noise: float, boosting: Boosting
) -> float:
    """How many bins of a feature are worth their noise, if rows are even: by public numbers alone.

    Noise multipliers are those of the fit and of the counts.
    """
    shares = declared_shares(counts)
    deviation = _deviation(shares, features, noise, boosting)
    return counts.total / _least(shares, deviation, counts_noise * math.sqrt(features), boosting)


def _spread(shares: Array) -> Array:
    """p(1 - p) of each output."""
    own = shares[1:] if len(shares) == 2 else shares
    return np.asarray(own * (1.0 - own))


def _largest(shares: Array) -> float:
    """Norm of the largest residual."""
    return 1.0 if len(shares) == 2 else math.sqrt(2.0)


def _deviation(shares: Array, features: int, noise: float, boosting: Boosting) -> float:
    """d above."""
    return noise * math.sqrt(features) * _largest(shares) * boosting.clip


def _least(shares: Array, deviation: float, counts_deviation: float, boosting: Boosting) -> float:
    """Rows of a bin such that H = p(1 - p) rows is enough; see above.

    At least twice the noise of a count: a bin of noise alone is none.
    """
    known = boosting.evidence * deviation / boosting.prior
    needed = max(known, (boosting.chance / boosting.prior) ** 2)
    return max(needed / float(_spread(shares).mean()), 2.0 * counts_deviation)


@final
@dataclass(frozen=True)
class _Residuals:
    """Row by row: the residual, in one bin of each feature of a group."""

    model: Additive
    group: tuple[int, ...]

    def __call__(self, rows: EncodedRows) -> npt.NDArray[np.float64]:
        codes = self.model.merged.codes(rows.values)
        margins = self.model.margins(codes)
        labels = np.asarray(rows.labels)
        chances = probabilities(class_scores(margins))
        chances[np.arange(len(labels)), labels] -= 1.0
        residuals = chances[:, 1:] if margins.shape[1] == 1 else chances
        starts = self.model.merged.offsets
        first, outputs = starts[self.group[0]], residuals.shape[1]
        bins = starts[self.group[-1] + 1] - first
        vectors = np.zeros((len(labels), bins, outputs))
        for feature in self.group:
            vectors[np.arange(len(labels)), codes[:, feature] - first] = residuals
        return vectors.reshape(len(labels), bins * outputs)
