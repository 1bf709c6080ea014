"""GEM: generative networks with the exponential mechanism (Liu, Vietri and Wu 2021).

The loop of `rap` with one marginal per round, where the relaxed rows are the outputs of a network:
it maps Gaussian noise and the class to one distribution per column, and its weights are fitted by
Adam to all marginals counted so far, from where the last round left them.

Choices: see `_adaptive` for workload, score and label. The noise vectors are drawn once, so that
the network stands for a fixed mixture of `batch` relaxed rows; the class is a further input, which
the paper does not have, since the label is one of its columns. The paper's average of the weights
over the last rounds is left out. Its sizes, step size and number of rounds vary by dataset and are
not known to be these.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from bench.methods.marginal.projection._adaptive import AdaptiveProjection, Projection
from bench.methods.marginal.projection._mixture import Mixture, Training

if TYPE_CHECKING:
    import torch


@final
@dataclass(frozen=True)
class Gem(AdaptiveProjection):
    """A generator of relaxed rows fitted to marginals that were chosen where it was worst."""

    name: ClassVar[str] = "gem"
    title: ClassVar[str] = "Generative network with the exponential mechanism (GEM)"
    paper: ClassVar[str] = (
        "Liu, Vietri and Wu, Iterative Methods for Private Synthetic Data: Unifying Framework and "
        "New Methods, NeurIPS 2021"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2106.07153"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "unknown")
    quick: ClassVar[Mapping[str, Any]] = {
        "bins": 4,
        "rounds": 3,
        "batch": 60,
        "hidden": (32,),
        "steps": 60,
        "learning_rate": 0.005,
    }

    rounds: int = 50
    per_round: int = 1
    batch: int = 1000
    """Relaxed rows that the network makes, all classes together."""
    code: int = 16
    """Noise numbers that a row starts from."""
    hidden: tuple[int, ...] = (256, 256)
    steps: int = 50
    """Steps of Adam after each round."""
    learning_rate: float = 0.001

    def start(
        self, sizes: Sequence[int], classes: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> Projection:
        """Return a network with random weights."""
        training = Training(self.steps, self.learning_rate)
        return _Network(sizes, classes, self.batch, training, self.code, self.hidden, rng)


@final
class _Network(Mixture):
    """The logits follow from noise and class by a fully connected network."""

    def __init__(
        self,
        sizes: Sequence[int],
        classes: npt.NDArray[np.float64],
        rows: int,
        training: Training,
        code: int,
        hidden: Sequence[int],
        rng: np.random.Generator,
    ) -> None:
        import torch

        super().__init__(sizes, classes, rows, training)
        random = torch.Generator().manual_seed(int(rng.integers(2**63)))
        noise = torch.randn(len(self.labels), code, generator=random)
        self._inputs = torch.cat([noise, self.labels], dim=1)
        widths = (self._inputs.shape[1], *hidden, sum(sizes[:-1]))
        self._layers = [
            (
                torch.randn(before, after, generator=random) * (2.0 / before) ** 0.5,
                torch.zeros(after),
            )
            for before, after in itertools.pairwise(widths)
        ]

    def parameters(self) -> list[torch.Tensor]:
        return list(itertools.chain.from_iterable(self._layers))

    def logits(self) -> torch.Tensor:
        values = self._inputs
        for place, (weight, bias) in enumerate(self._layers):
            values = values @ weight + bias
            if place < len(self._layers) - 1:
                values = values.relu()
        return values
