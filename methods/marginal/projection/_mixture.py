"""Relaxed rows: every row has one distribution per column, fitted by gradients.

The marginal of columns S is sum over rows i of w_i prod over c in S of p_ic(x_c): a mixture of
products, differentiable in the distributions (Aydore et al. 2021, section 4; softmax as in Liu,
Vietri and Wu 2021). As many rows stand for each class, their label is fixed, and their weights w_i
sum to the declared share of the class. Parameters follow Adam on

    sum over measured S of |p_S - y_S|^2 / deviation_S^2.

Rows are drawn from the mixture of a class: first a relaxed row, then each column from it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from bench.methods._shared.codes import Codes
from bench.methods.marginal._graphical_model import CellTable, conditional_draw
from bench.methods.marginal.projection._adaptive import Columns, Measured, Projection

if TYPE_CHECKING:
    import torch


@final
@dataclass(frozen=True)
class Training:
    """Settings of the fit after each round."""

    steps: int
    learning_rate: float


class Mixture(Projection):
    """Relaxed rows whose logits follow from some parameters."""

    def __init__(
        self,
        sizes: Sequence[int],
        classes: npt.NDArray[np.float64],
        rows: int,
        training: Training,
    ) -> None:
        import torch

        self._sizes = tuple(sizes)
        self._each = max(1, rows // len(classes))
        self._training = training
        labels = np.repeat(np.arange(len(classes)), self._each)
        self.labels = torch.eye(len(classes))[torch.from_numpy(labels)]
        """One-hot label of every row, as many of each class."""
        self._weights = torch.from_numpy(classes[labels] / self._each).float()

    @abstractmethod
    def parameters(self) -> list[torch.Tensor]:
        """Return what is fitted."""

    @abstractmethod
    def logits(self) -> torch.Tensor:
        """Return one logit per row and code of a feature."""

    def fit(self, measured: Sequence[Measured]) -> None:
        """Take steps of Adam, which starts anew after each round."""
        import torch

        parameters = self.parameters()
        optimiser = torch.optim.Adam(parameters, lr=self._training.learning_rate)
        targets = [torch.from_numpy(one.shares).float() for one in measured]
        # In units of the largest deviation, so that the size of steps does not follow epsilon.
        largest = max(one.deviation for one in measured)
        factors = [(largest / one.deviation) ** 2 for one in measured]
        for parameter in parameters:
            parameter.requires_grad_(True)
        for _ in range(self._training.steps):
            columns = self._columns()
            loss = torch.zeros(())
            for one, target, factor in zip(measured, targets, factors, strict=True):
                gap = marginal(columns, self._weights, one.columns) - target
                loss = loss + factor * gap.square().sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        for parameter in parameters:
            parameter.requires_grad_(False)

    def shares(self, columns: Columns) -> CellTable:
        """Return the marginal of the mixture."""
        table = marginal(self._columns(), self._weights, columns)
        return np.asarray(table.numpy(), dtype=np.float64)

    def draw(self, label: int, count: int, rng: np.random.Generator) -> Codes:
        """Return rows of the mixture of one class."""
        chosen = label * self._each + rng.integers(0, self._each, count)
        codes = [
            conditional_draw(np.asarray(column.numpy(), dtype=np.float64), chosen, rng)
            for column in self._columns()[:-1]
        ]
        return np.stack(codes, axis=1)

    def _columns(self) -> list[torch.Tensor]:
        """Return the distributions of all rows, column by column, the label last."""
        features = self.logits().split(self._sizes[:-1], dim=1)
        return [*(one.softmax(dim=1) for one in features), self.labels]


def marginal(
    columns: Sequence[torch.Tensor], weights: torch.Tensor, chosen: Columns
) -> torch.Tensor:
    """Return the weighted marginal of some columns, one axis per column."""
    shape = [columns[place].shape[1] for place in chosen]
    left = weights[:, None]
    for place in chosen[:-1]:
        left = (left[:, :, None] * columns[place][:, None, :]).flatten(start_dim=1)
    return (left.T @ columns[chosen[-1]]).reshape(shape)
