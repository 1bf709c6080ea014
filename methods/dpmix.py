"""DPMix: noisy mixtures of rows and of their labels (Lee et al. 2019), with Poisson sampling.

Each of the T released rows is a mixture over all classes: rows are sampled, their features x and
one-hot labels y are averaged, and both averages get Gaussian noise,

    x' = (sum of x + N(0, (s sqrt(2) |x|_max)^2 I)) / L,  y' = (sum of y + N(0, 2 s^2 I)) / L,

s the noise multiplier. A row enters as the vector (x / |x|_max, y) / sqrt(2) of norm at most 1,
one Gaussian mechanism for both halves: as if features and labels had each a mechanism of
multiplier sqrt(2) s, relative to their sensitivities |x|_max and 1. T mixtures compose; every row
of the data can enter every mixture, so that there is no parallel composition over classes: this is
what LDPDC gains by keeping the labels (NDPDC paper, section IV).

Deviations:

* Poisson sampling with rate L / N and division by the expected size L, where the paper draws L
  rows without replacement and divides by L: the sum is then a sampled Gaussian mechanism, whose
  amplification is proven.
* Noise calibrated to the budget, the same relative to the sensitivity for features and labels (the
  NDPDC paper writes sigma_X = sigma_Y = 1 without saying in which unit; `noise_multiplier` sets s).
* A release has IPC rows of each class, but mixtures have no class. IPC times classes mixtures are
  made. Their noisy labels are projected onto the probability simplex (the nearest point) and
  released as soft labels. As hard labels, the mixtures are dealt to the classes, the largest excess
  of the noisy share over the declared share of a class first, until each class has its rows.
* For survival the classes are the event statuses, and the time is one more coordinate of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    Claim,
    EncodedRows,
    Method,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    sampled_gaussian,
)

Array = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class DpMix(Method):
    """Noisy sums over Poisson samples of all classes, with noisy soft labels."""

    name: ClassVar[str] = "dpmix"
    title: ClassVar[str] = "Noisy random mixtures of rows and labels (DPMix)"
    paper: ClassVar[str] = (
        "Lee et al., Synthesizing Differentially Private Datasets using Random Mixing, ISIT 2019"
    )
    family: ClassVar[str] = "mixing"
    tuned_on: ClassVar[tuple[str, ...]] = ("unknown",)

    group_size: float = 50.0
    """Expected number of rows in a mixture: L."""
    noise_multiplier: float | None = None
    """None calibrates the noise to the budget."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        sizes = spec.rows_per_class(private.counts)
        classes, width = len(sizes), private.width
        bound = private.encoder.max_norm
        rate = private.rate(self.group_size)
        expected = rate * max(1, private.counts.total)

        def vectors(rows: EncodedRows) -> Array:
            labels = np.eye(classes)[rows.labels]
            joined: Array = np.hstack([rows.values / bound, labels]) / np.sqrt(2.0)
            return joined

        def plans(noise: float) -> list[PlannedEvents]:
            return [private.plan(sampled_gaussian(rate, noise), sum(sizes))]

        noise = self.noise_multiplier or private.calibrate(plans)
        private.reserve_all(plans(noise))
        sums = [private.poisson_sum(vectors, 1.0, noise, rate) for _ in range(sum(sizes))]
        means = np.sqrt(2.0) * np.asarray(sums) / expected
        values, shares = bound * means[:, :width], means[:, width:]
        declared = np.asarray(private.counts.by_class) / max(1, private.counts.total)
        labels = deal(shares - declared, sizes)
        # By class, as other releases are; the order of mixtures has no meaning.
        order = np.argsort(labels, kind="stable")
        rows = Rows(values[order], labels[order], soft_labels=to_simplex(shares)[order])
        claim = Claim.of(spec.budget, "Poisson-sampled Gaussian mixtures, calibrated to the target")
        return Release(rows, claim=claim, notes={"noise_multiplier": noise, "rate": rate})


def deal(scores: Array, sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """A class for each row, `sizes[c]` rows of class c: the highest scores are assigned first."""
    labels = np.full(len(scores), -1, dtype=np.int64)
    left = list(sizes)
    classes = scores.shape[1]
    for cell in np.argsort(-scores, axis=None, kind="stable"):
        row, code = divmod(int(cell), classes)
        if labels[row] < 0 and left[code] > 0:
            labels[row] = code
            left[code] -= 1
    return labels


def to_simplex(points: Array) -> Array:
    """The probability vector that is nearest to each row (Held, Wolfe and Crowder 1974).

    max(v - t, 0) with the t that makes it sum to 1: with u the entries of v from the largest down,
    t = (u_1 + ... + u_k - 1) / k for the largest k with u_k > t.
    """
    descending = -np.sort(-points, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    ranks = np.arange(1, points.shape[1] + 1)
    kept = (descending * ranks > excess).sum(axis=1)
    threshold = excess[np.arange(len(points)), kept - 1] / kept
    nearest: Array = np.maximum(points - threshold[:, None], 0.0)
    scaled: Array = nearest / nearest.sum(axis=1, keepdims=True)
    return scaled
