"""Attacks: canary, scorer and threshold, chosen on the first half of the trials only.

The shadow classifier is a likelihood ratio of two Gaussians with one covariance (linear
discriminant, covariance shrunk after Ledoit and Wolf 2004), learned from summaries of releases with
and without the canary. It is compared with the plain scorers on releases that it has not seen: the
first half is cut in two for that, each part scored by the classifier of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.audit.scorers import SHADOW, scorer_names
from bench.audit.trials import Trial
from bench.stats.bounds import Threshold, best_threshold, middle_threshold
from bench.stats.exact_test import Tally

Array = npt.NDArray[np.float64]

_OUTLIER = 6.0
"""Bound of standardised features: one odd release must not decide the classifier."""
_SHADOW_TRIALS = 20
"""Fewest trials per world for the shadow classifier."""


@final
@dataclass(frozen=True)
class Shadow:
    """A linear score of standardised features."""

    mean: Array
    scale: Array
    weights: Array

    def scores(self, features: Array) -> Array:
        """Log likelihood ratio of `in` against `out`, up to a constant and a scale."""
        return np.asarray(_standardised(features, self.mean, self.scale) @ self.weights)


def fit_shadow(inside: Array, outside: Array) -> Shadow:
    """Learn to distinguish releases of both worlds."""
    from sklearn.covariance import ledoit_wolf

    mean, scale = outside.mean(axis=0), outside.std(axis=0)
    scale = np.where(scale > 1e-9 * (1.0 + np.abs(mean)), scale, np.inf)
    first, second = (_standardised(part, mean, scale) for part in (inside, outside))
    means = first.mean(axis=0), second.mean(axis=0)
    scatter = np.concatenate([first - means[0], second - means[1]])
    covariance, _ = ledoit_wolf(scatter, assume_centered=True)
    covariance = covariance + 1e-6 * np.eye(len(covariance))
    weights = np.linalg.solve(covariance, means[0] - means[1])
    # Of unit spread: a threshold from one classifier then fits another, taught by more trials.
    spread = float(np.sqrt(max(weights @ covariance @ weights, 1e-300)))
    return Shadow(mean, scale, weights / spread)


@final
@dataclass(frozen=True)
class Attack:
    """A canary, a scorer and a threshold."""

    canary: int
    scorer: str
    threshold: Threshold
    shadow: Shadow | None = None

    def scores(self, trials: Sequence[Trial]) -> Array:
        """Return one number per trial."""
        if self.shadow is not None:
            return self.shadow.scores(features_of(trials, self.canary))
        table = scores_of(trials, self.canary)
        return table[:, scorer_names(table.shape[1]).index(self.scorer)]

    def tally(self, inside: Sequence[Trial], outside: Sequence[Trial]) -> Tally:
        """Count calls on trials that were not used to choose the attack."""
        return self.threshold.tally(self.scores(inside), self.scores(outside))


def choose_canary(
    pilots: Mapping[int, Sequence[Trial]], outside: Sequence[Trial], delta: float
) -> int:
    """Return the canary whose presence is most visible, by any plain scorer.

    Canaries are compared by the bound that the few pilot trials show, if any; then by the rank-sum
    statistic, which needs no threshold.
    """

    def merit(canary: int) -> tuple[float, float]:
        inside, without = scores_of(pilots[canary], canary), scores_of(outside, canary)
        bounds, ranks = [0.0], [0.0]
        for column in range(inside.shape[1]):
            pair = inside[:, column], without[:, column]
            bounds.append(best_threshold(*pair, delta).bound)
            ranks.append(abs(_rank_sum(*pair)))
        return max(bounds), max(ranks)

    return max(pilots, key=lambda canary: (merit(canary), -canary))


@final
@dataclass(frozen=True)
class AttackPair:
    """The two attacks of an audit; the use of each is fixed before any count is seen."""

    bound: Attack
    """For the epsilon bound and the claim: the best cut for one epsilon, mostly far in a tail."""
    curve: Attack
    """For the Gaussian bound: the cut that best distinguishes the worlds, mostly in the middle. The
    proven trade-off curve is tested by both, with p-values doubled."""


def choose_attacks(
    canary: int, inside: Sequence[Trial], outside: Sequence[Trial], delta: float
) -> AttackPair:
    """Return scorers and thresholds that do best on these trials, which are used up by it."""
    tables = scores_of(inside, canary), scores_of(outside, canary)
    pairs = {
        name: (tables[0][:, at], tables[1][:, at])
        for at, name in enumerate(scorer_names(tables[0].shape[1]))
    }
    shadow = None
    if min(len(inside), len(outside)) >= _SHADOW_TRIALS:
        with_it, without = features_of(inside, canary), features_of(outside, canary)
        pairs[SHADOW] = _crossed(with_it, without)
        shadow = fit_shadow(with_it, without)
    best = {name: best_threshold(*pair, delta) for name, pair in pairs.items()}
    middle = {name: middle_threshold(*pair) for name, pair in pairs.items()}

    def attack(thresholds: Mapping[str, Threshold]) -> Attack:
        name = max(thresholds, key=lambda scorer: thresholds[scorer].bound)
        return Attack(canary, name, thresholds[name], shadow if name == SHADOW else None)

    return AttackPair(attack(best), attack(middle))


def best_plain(canary: int, inside: Array, outside: Array, delta: float) -> Attack:
    """Return the best of the plain scorers, from tables of their scores."""
    names = scorer_names(inside.shape[1])
    attacks = [
        Attack(canary, name, best_threshold(inside[:, at], outside[:, at], delta))
        for at, name in enumerate(names)
    ]
    return max(attacks, key=lambda attack: attack.threshold.bound)


def scores_of(trials: Sequence[Trial], canary: int) -> Array:
    """Return the scores (trials, scorers) of one canary."""
    return np.array([trial.scores[canary] for trial in trials])


def features_of(trials: Sequence[Trial], canary: int) -> Array:
    """Return (trials, features): the summary of the release, and the plain scores."""
    return np.array(
        [np.concatenate([trial.features, trial.scores[canary]]) for trial in trials],
        dtype=np.float64,
    )


def _crossed(inside: Array, outside: Array) -> tuple[Array, Array]:
    """Return scores of each part by the classifier of the other."""
    scored = []
    models = [fit_shadow(inside[part::2], outside[part::2]) for part in (0, 1)]
    for table in (inside, outside):
        scores = np.empty(len(table))
        for part in (0, 1):
            scores[part::2] = models[1 - part].scores(table[part::2])
        scored.append(scores)
    return scored[0], scored[1]


def _standardised(features: Array, mean: Array, scale: Array) -> Array:
    return np.clip((features - mean) / scale, -_OUTLIER, _OUTLIER)


def _rank_sum(inside: Array, outside: Array) -> float:
    """Return the standardised rank-sum statistic of Wilcoxon, without correction for ties."""
    from scipy.stats import rankdata

    first, second = len(inside), len(outside)
    ranks = rankdata(np.concatenate([inside, outside]))
    expected = first * (first + second + 1) / 2
    spread = np.sqrt(first * second * (first + second + 1) / 12)
    return float((ranks[:first].sum() - expected) / spread)
