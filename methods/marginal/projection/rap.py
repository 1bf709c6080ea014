"""RAP: relaxed adaptive projection (Aydore et al. 2021).

Marginals that the current rows miss most are chosen and counted with noise (`_adaptive`), and
`relaxed_rows` rows, each with one distribution per column, are fitted to all of them by Adam. The
distributions are softmax of free logits (the relaxation of RAP-softmax in Liu, Vietri and Wu 2021;
the first version projects on one-hot values by clipping). 1000 relaxed rows are the paper's.

Choices: see `_adaptive` for workload, score and label. The paper varies rounds and marginals per
round by dataset and epsilon; here they are the same everywhere, as are the step size and the
number of steps, which are not known to be the paper's. Its first round answers all queries of a
small workload; here these are the single columns.
"""

from __future__ import annotations

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
class Rap(AdaptiveProjection):
    """Relaxed rows fitted to marginals that were chosen where they were worst."""

    name: ClassVar[str] = "rap"
    title: ClassVar[str] = "Relaxed adaptive projection (RAP)"
    paper: ClassVar[str] = (
        "Aydore, Brown, Kearns, Kenthapadi, Melis, Roth and Siva, Differentially Private Query "
        "Release Through Adaptive Projection, ICML 2021"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2103.06641"
    family: ClassVar[str] = "marginals"
    tuned_on: ClassVar[tuple[str, ...]] = ("adult", "unknown")
    quick: ClassVar[Mapping[str, Any]] = {
        "bins": 4,
        "rounds": 2,
        "per_round": 2,
        "relaxed_rows": 60,
        "steps": 20,
    }

    relaxed_rows: int = 1000
    """Rows that are fitted, all classes together."""
    steps: int = 100
    """Steps of Adam after each round."""
    learning_rate: float = 0.1

    def start(
        self, sizes: Sequence[int], classes: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> Projection:
        """Return relaxed rows with random logits."""
        training = Training(self.steps, self.learning_rate)
        return _Rows(sizes, classes, self.relaxed_rows, training, rng)


@final
class _Rows(Mixture):
    """The logits themselves are fitted."""

    def __init__(
        self,
        sizes: Sequence[int],
        classes: npt.NDArray[np.float64],
        rows: int,
        training: Training,
        rng: np.random.Generator,
    ) -> None:
        import torch

        super().__init__(sizes, classes, rows, training)
        random = torch.Generator().manual_seed(int(rng.integers(2**63)))
        self._free = torch.randn(len(self.labels), sum(sizes[:-1]), generator=random)

    def parameters(self) -> list[torch.Tensor]:
        return [self._free]

    def logits(self) -> torch.Tensor:
        return self._free
