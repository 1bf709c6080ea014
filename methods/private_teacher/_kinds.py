"""What a teacher is, and the plainest one: Bayes' rule on noisy counts, features independent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Counts, Floats
from bench.methods.private_teacher._bins import Grid

Array = npt.NDArray[np.float64]


class ScoreTeacher(ABC):
    """A model that was fitted with privacy: asking it is post-processing, as often as one likes."""

    @abstractmethod
    def scores(self, values: Floats) -> Array:
        """(rows, classes): log probabilities, up to a constant a row."""


def declared_shares(counts: Counts) -> Array:
    """Share of each class by the declared counts; one row more of each, so that none is zero."""
    sizes = np.asarray(counts.by_class, dtype=np.float64) + 1.0
    return np.asarray(sizes / sizes.sum())


def probabilities(scores: Array) -> Array:
    """Softmax over classes."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@final
@dataclass(frozen=True)
class NaiveBayes(ScoreTeacher):
    """log p(c) + sum over features of log p(bin | c)."""

    grid: Grid
    tables: tuple[Array, ...]
    """(classes, bins) of each feature: how a class is spread over the bins."""
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
