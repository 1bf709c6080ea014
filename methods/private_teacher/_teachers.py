"""Teachers: models fitted with privacy, which may then be asked as often as one likes.

`NaiveBayes` applies Bayes' rule to noisy counts, `EbmTeacher` is interpret-core's private
explainable boosting machine, and `Additive` is a private additive model that the kernel alone
proves: boosting with noisy sums of residuals.

The additive teacher is a sum of one function per feature, constant on bins, as in an explainable
boosting machine: s(x) = b + sum over features j of theta[bin_j(x)], with a logistic (two classes)
or softmax loss. b is the log odds of the declared class counts. Features are taken in groups. In
each of `rounds` rounds, for each group in turn, one full-batch Gaussian mechanism gives the sums

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
groups too: small ones let a step see the previous group's, as cyclic boosting does. All features of
a group move at once, each as if it were alone: correlated ones overshoot together, the more of them
the further.

Bins are joined until they are worth their noise: theta of a bin is known to d / H because of the
noise and to 1 / sqrt(H) because of chance, which are to be at most `prior` / `evidence` and `prior`
/ `chance`, where `prior` is the expected size of an effect, as a standard deviation. lambda =
(d^2 + H) / (prior^2 H) is the penalty by which that prior shrinks it.

Clipping at half of the largest residual halves the noise; rows that the model has wrong by more
than that pull with the same force (a robust loss).

The settings were chosen on the validation and control rows of Adult (24,421 training rows) and of
single hospitals of `curial-sim` in the size of the paper (29 features, 1 to 6% positives), epsilon
1, AUROC of the teacher on Adult / Portsmouth / Birmingham: 0.912 / 0.889 / 0.895. Groups of 16
diverge where features are correlated (0.911 / 0.839 / 0.834, finer bins); an evidence of about 4 or
9 gives 0.909 / 0.876 / 0.888 and 0.910 / 0.882 / 0.879 (step 0.2). Without clipping (`clip` 1):
0.909 / 0.865 / 0.897, with `clip` 0.3: 0.906 / 0.862 / 0.887 (finer bins).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from bench import (
    Counts,
    EncodedRows,
    Encoder,
    Floats,
    NotApplicable,
    PlannedEvents,
    PrivateData,
    gaussian,
)
from bench.methods.private_teacher._bins import (
    Array,
    ClassCounts,
    Codes,
    FeatureGrid,
    MergedBins,
)
from bench.privacy.trusted.ebm import FittedEbm, feature_columns, gaussians


class ScoreTeacher(ABC):
    """A model that was fitted with privacy: asking it is post-processing."""

    @abstractmethod
    def scores(self, values: Floats) -> Array:
        """(rows, classes): log probabilities, up to a constant per row."""


def declared_shares(counts: Counts) -> Array:
    """Share of each class by the declared counts; one row more of each, so that none is zero."""
    sizes = np.asarray(counts.by_class, dtype=np.float64) + 1.0
    return np.asarray(sizes / sizes.sum())


def probabilities(scores: Array) -> Array:
    """Softmax over classes."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


# Bayes' rule ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class NaiveBayes(ScoreTeacher):
    """log p(c) + sum over features of log p(bin | c): features are taken as independent."""

    grid: FeatureGrid
    tables: tuple[Array, ...]
    """(classes, bins) of each feature: distribution of each class over the bins."""
    priors: Array

    def scores(self, values: Floats) -> Array:
        codes = self.grid.codes(values)
        scores = np.tile(np.log(self.priors), (len(codes), 1))
        for column, shares in enumerate(self.tables):
            # A bin where only one class was counted must not decide alone.
            every = self.priors @ shares
            chances = np.maximum(shares, 0.01 * every + 1e-9)
            scores += np.log(chances)[:, codes[:, column]].T
        return scores


# The additive teacher ---------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Boosting:
    """Settings of the additive teacher."""

    rounds: int = 8
    group: int = 4
    """Features per noisy sum."""
    step: float = 0.35
    momentum: float = 0.4
    clip: float = 0.5
    """Clipping norm, as a share of the largest residual."""
    prior: float = 1.0
    evidence: float = 6.5
    """Deviations of the noise that an expected effect must be worth in a bin."""
    chance: float = 3.0
    """Deviations of chance that it must be worth; shrinkage deals with the rest."""


@final
@dataclass(frozen=True)
class Additive(ScoreTeacher):
    """Sum of one step function per feature."""

    bins: MergedBins
    base: Array
    """Margin of each output: one for two classes (log odds of the second), else one per class."""
    effects: Array
    """(bins of all features, outputs)."""

    def margins(self, codes: Codes) -> Array:
        """(rows, outputs), from merged bins that are numbered through all features."""
        margins = np.tile(self.base, (len(codes), 1))
        for column in codes.T:
            margins += self.effects[column]
        return margins

    def scores(self, values: Floats) -> Array:
        return _class_scores(self.margins(self.bins.numbered(values)))


def _class_scores(margins: Array) -> Array:
    """(rows, classes): two classes have one margin, for the second."""
    if margins.shape[1] > 1:
        return margins
    return np.column_stack([np.zeros(len(margins)), margins[:, 0]])


def groups_of(features: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Features in order, cut into groups that differ in size by one at most."""
    parts = np.array_split(np.arange(features), -(-features // size))
    return tuple(tuple(int(feature) for feature in part) for part in parts)


def additive_plans(
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
    """Fit by the calls that `additive_plans` reserved."""
    shares = declared_shares(private.counts)
    two = len(shares) == 2
    base = np.array([math.log(shares[1] / shares[0])]) if two else np.log(shares)
    features = len(counts.grid.columns)
    deviation = _deviation(shares, features, noise, boosting)
    bins = MergedBins.by_count(counts, _least_rows(shares, deviation, counts.deviation, boosting))
    sizes = np.concatenate(bins.sums([counts.totals(column) for column in range(features)]))
    # A count is not known better than its noise.
    curvature = np.maximum(sizes, counts.deviation)[:, None] * _output_variances(shares)
    penalty = (deviation**2 + curvature) / (boosting.prior**2 * curvature)
    effects = np.zeros_like(curvature)
    speed, total, averaged = np.zeros_like(effects), np.zeros_like(effects), 0
    starts = bins.offsets
    for turn in range(boosting.rounds):
        for group in groups_of(features, boosting.group):
            flat = private.gaussian_sum(
                _GroupResiduals(Additive(bins, base, effects.copy()), group),
                boosting.clip * _largest_residual(shares) * math.sqrt(len(group)),
                _multiplier(noise, features, len(group), boosting),
            )
            moved = slice(starts[group[0]], starts[group[-1] + 1])
            pull = flat.reshape(-1, effects.shape[1]) + penalty[moved] * effects[moved]
            speed[moved] *= boosting.momentum
            speed[moved] -= boosting.step * pull / (curvature[moved] + penalty[moved])
            effects[moved] += speed[moved]
        if 2 * turn >= boosting.rounds - 1:
            total, averaged = total + effects, averaged + 1
    return Additive(bins, base, total / averaged)


def bins_worth(
    counts: Counts, features: int, noise: float, counts_noise: float, boosting: Boosting
) -> float:
    """How many bins of a feature are worth their noise, if rows are even: by public numbers alone.

    Noise multipliers are those of the fit and of the counts.
    """
    shares = declared_shares(counts)
    deviation = _deviation(shares, features, noise, boosting)
    counts_deviation = counts_noise * math.sqrt(features)
    return counts.total / _least_rows(shares, deviation, counts_deviation, boosting)


def _output_variances(shares: Array) -> Array:
    """p(1 - p) of each output."""
    outputs = shares[1:] if len(shares) == 2 else shares
    return np.asarray(outputs * (1.0 - outputs))


def _largest_residual(shares: Array) -> float:
    """Norm of the largest residual: u in the module's docstring."""
    return 1.0 if len(shares) == 2 else math.sqrt(2.0)


def _deviation(shares: Array, features: int, noise: float, boosting: Boosting) -> float:
    """Deviation of the noise of the mean over all rounds: d in the module's docstring."""
    return noise * math.sqrt(features) * _largest_residual(shares) * boosting.clip


def _least_rows(
    shares: Array, deviation: float, counts_deviation: float, boosting: Boosting
) -> float:
    """Rows of a bin such that H = p(1 - p) rows is enough; see the module's docstring.

    At least twice the noise of a count: a bin of noise alone is none.
    """
    known = boosting.evidence * deviation / boosting.prior
    needed = max(known, (boosting.chance / boosting.prior) ** 2)
    return max(needed / float(_output_variances(shares).mean()), 2.0 * counts_deviation)


@final
@dataclass(frozen=True)
class _GroupResiduals:
    """Row function: the residual, in one bin of each feature of a group."""

    model: Additive
    group: tuple[int, ...]

    def __call__(self, rows: EncodedRows) -> Array:
        codes = self.model.bins.numbered(rows.values)
        margins = self.model.margins(codes)
        labels = np.asarray(rows.labels)
        chances = probabilities(_class_scores(margins))
        chances[np.arange(len(labels)), labels] -= 1.0
        residuals = chances[:, 1:] if margins.shape[1] == 1 else chances
        starts = self.model.bins.offsets
        first, outputs = starts[self.group[0]], residuals.shape[1]
        bins = starts[self.group[-1] + 1] - first
        vectors = np.zeros((len(labels), bins, outputs))
        for feature in self.group:
            vectors[np.arange(len(labels)), codes[:, feature] - first] = residuals
        return vectors.reshape(len(labels), bins * outputs)


# The explainable boosting machine ---------------------------------------------------------------


@final
@dataclass(frozen=True)
class EbmTeacher(ScoreTeacher):
    """A fitted machine, asked about encoded rows."""

    encoder: Encoder
    model: FittedEbm

    def scores(self, values: Floats) -> Array:
        odds = self.model.log_odds(feature_columns(self.encoder, values))
        return np.column_stack([np.zeros(len(odds)), odds])


def _ebm_parameters(private: PrivateData, noise: float) -> dict[str, int | float]:
    """Parameters of a call that costs one Gaussian mechanism of multiplier `noise`.

    Settings are the library's defaults; bins need a small share of the squared sensitivity. k
    counts with the multiplier noise sqrt(k / share), and k rounds sums with
    noise sqrt(k rounds / (1 - share)): sum of 1 / multiplier^2 = 1 / noise^2.
    """
    features = len(private.encoder.feature_blocks)
    rounds, share = 300, 0.1
    return {
        "features": features,
        "rounds": rounds,
        "binning": noise * math.sqrt(features / share),
        "boosting": noise * math.sqrt(features * rounds / (1.0 - share)),
        "learning_rate": 0.01,
        "bins": 32,
        "leaves": 3,
        "declared": private.counts.total,
    }


def ebm_plan(private: PrivateData, noise: float) -> PlannedEvents:
    """PlannedEvents of the call that `fit_ebm` makes."""
    return private.plan(gaussians(_ebm_parameters(private, noise)))


def fit_ebm(private: PrivateData, noise: float) -> EbmTeacher:
    """Fit through the harness's table of trusted mechanisms."""
    if len(private.schema.classes) != 2:
        raise NotApplicable(
            "the private boosting machine of interpret-core supports two classes only; the "
            "teachers `additive`, `naive-bayes` and `counts` support more"
        )
    model = private.delegate("interpret-dp-ebm", **_ebm_parameters(private, noise))
    assert isinstance(model, FittedEbm)
    return EbmTeacher(private.encoder, model)
