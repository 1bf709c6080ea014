"""CTGAN's conditional generator over noisy frequencies, and the student that it learns from.

Both are public: the generator starts from noisy frequencies, the student learns noisy votes on
generated rows, and neither ever meets a row of a patient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from bench import Numeric
from bench.methods.pate._frequencies import Cells
from bench.methods.pate._teachers import Labelled

if TYPE_CHECKING:
    import torch

_TEMPERATURE = 0.2
"""Of the Gumbel softmax, as in CTGAN."""
_NEVER = -1e4
_DRAWN_AT_ONCE = 4096


@final
@dataclass(frozen=True)
class GeneratorTraining:
    """How the generator learns from the student in a round."""

    steps: int
    learning_rate: float
    strength: float
    """What a score of the student counts for against staying where one is."""
    marginal_weight: float


@final
@dataclass(frozen=True)
class StudentTraining:
    """How the student learns from the votes of a round."""

    steps: int
    learning_rate: float
    prior: float
    """p: variance that a weight is expected to have."""


@final
class ConditionalGenerator:
    """Rows of a class, given one column's cell.

    Input: normal noise, the one-hot class and a condition, which is one column drawn at random
    with a cell drawn from the class's noisy frequencies. The conditioned column comes out as asked.
    Every other column k takes a cell by Gumbel softmax with the logits

        log frequency_k(cell | class) + network_k(cell),

    and a number lies within its interval at u in (-1, 1), logit((1 + u) / 2) = logistic noise +
    network. The last layer starts at 0: columns are then independent, with the noisy frequencies.
    """

    def __init__(
        self,
        cells: Cells,
        chances: npt.NDArray[np.float64],
        code: int,
        hidden: int,
        random: torch.Generator,
    ) -> None:
        import torch

        self._code, self._random = code, random
        self._columns, self._most = len(cells.sizes), cells.most
        self._classes = len(chances)
        self._chances = torch.tensor(chances, dtype=torch.float32)
        # A column without such a cell: a number rather than -inf, whose differences are NaN.
        self._log_chances = self._chances.log().clamp_min(_NEVER)
        self._centres = torch.tensor(cells.centres(), dtype=torch.float32).flatten(0, 1)
        blocks = cells.encoder.blocks
        numbers = [index for index, block in enumerate(blocks) if isinstance(block.column, Numeric)]
        self._numbers = len(numbers)
        # Where the position within an interval goes, and how wide half an interval is.
        self._offsets = torch.zeros(self._numbers, cells.encoder.width)
        for row, index in enumerate(numbers):
            self._offsets[row, blocks[index].start] = 1.0 / cells.bins
        outputs = self._columns * self._most
        before = code + self._classes + outputs
        first = torch.randn(before, hidden, generator=random) / (code + 2) ** 0.5
        second = torch.randn(hidden, hidden, generator=random) * (2.0 / hidden) ** 0.5
        last = torch.zeros(hidden, outputs + self._numbers)
        self.parameters = [first, torch.zeros(hidden), second, torch.zeros(hidden), last]
        for parameter in self.parameters:
            parameter.requires_grad_(True)

    def conditions(self, labels: torch.Tensor) -> torch.Tensor:
        """(rows, columns, most): one cell of one column is 1."""
        import torch

        rows = torch.arange(len(labels))
        column = torch.randint(self._columns, (len(labels),), generator=self._random)
        cell = torch.multinomial(self._chances[labels, column], 1, generator=self._random)[:, 0]
        conditions = torch.zeros(len(labels), self._columns, self._most)
        conditions[rows, column, cell] = 1.0
        return conditions

    def inputs(self, labels: torch.Tensor) -> torch.Tensor:
        """Noise, class and condition of each row, side by side."""
        import torch
        from torch.nn import functional

        noise = torch.randn(len(labels), self._code, generator=self._random)
        classes = functional.one_hot(labels, self._classes).float()
        return torch.cat([noise, classes, self.conditions(labels).flatten(1)], dim=1)

    def logits(
        self, inputs: torch.Tensor, parameters: list[torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, columns, most) log probabilities of cells, and shifts within intervals."""
        import torch

        first, shift, second, other, last = parameters or self.parameters
        state = torch.relu(inputs @ first + shift)
        outputs = torch.relu(state @ second + other) @ last
        last_cell = self._columns * self._most
        cells, shifts = outputs[:, :last_cell], outputs[:, last_cell:]
        labels = inputs[:, self._code : self._code + self._classes].argmax(dim=1)
        raw = cells.reshape(-1, self._columns, self._most) + self._log_chances[labels]
        return torch.log_softmax(raw, dim=2), shifts

    def rows(
        self, inputs: torch.Tensor, logits: torch.Tensor, shifts: torch.Tensor
    ) -> torch.Tensor:
        """Encoded rows; gradients pass through the choice of cells (straight-through)."""
        import torch
        from torch.nn import functional

        uniform = torch.rand(logits.shape, generator=self._random).clamp(1e-9, 1.0 - 1e-7)
        soft = torch.softmax((logits - (-uniform.log()).log()) / _TEMPERATURE, dim=2)
        hard = functional.one_hot(soft.argmax(dim=2), self._most).float()
        chosen = hard + (soft - soft.detach())  # exactly `hard`, with the gradient of `soft`
        asked = inputs[:, self._code + self._classes :].reshape(logits.shape)
        chosen = torch.where(asked.sum(dim=2, keepdim=True) > 0, asked, chosen)
        place = torch.rand(shifts.shape, generator=self._random).clamp(1e-6, 1.0 - 1e-6)
        within = 2.0 * torch.sigmoid(place.logit() + shifts) - 1.0
        return chosen.flatten(1) @ self._centres + within @ self._offsets

    def draw(self, labels: npt.NDArray[np.int64]) -> Labelled:
        """One row a label, without gradients."""
        import torch

        pieces = []
        with torch.no_grad():
            for start in range(0, len(labels), _DRAWN_AT_ONCE):
                inputs = self.inputs(torch.from_numpy(labels[start : start + _DRAWN_AT_ONCE]))
                pieces.append(self.rows(inputs, *self.logits(inputs)))
        # Sums of single-precision numbers may leave [-1, 1] by a rounding.
        return Labelled(torch.cat(pieces).clamp(-1.0, 1.0).numpy(), labels)

    def learn(
        self, student: Student, labels: npt.NDArray[np.int64], training: GeneratorTraining
    ) -> None:
        """Some Adam steps towards rows that the student takes for real.

        The loss is the mean over rows of

            - strength * student(x, y) + sum over columns of KL(now || at the start of the round),

        plus `marginal_weight` times the sum over classes and columns of KL(noisy frequencies ||
        generated frequencies). Were strength * student the log density ratio of real and generated
        rows, the first line would be least at the real density: the step is one of mirror descent,
        and a student that has learned nothing (0 everywhere) leaves the generator where it is, up
        to the size of Adam's steps.
        """
        import torch

        target = torch.from_numpy(labels)
        before = [parameter.detach().clone() for parameter in self.parameters]
        optimizer = torch.optim.Adam(self.parameters, lr=training.learning_rate)
        for _ in range(training.steps):
            inputs = self.inputs(target)
            with torch.no_grad():
                old, old_shifts = self.logits(inputs, before)
            logits, shifts = self.logits(inputs)
            scores = student.scores(self.rows(inputs, logits, shifts), target)
            moved = (logits.exp() * (logits - old)).sum(dim=(1, 2))
            moved = moved + (shifts - old_shifts).square().sum(dim=1)
            loss = (moved - training.strength * scores).mean()
            loss = loss + training.marginal_weight * self._gap(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def _gap(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Sum over classes and columns of KL(noisy || generated frequencies)."""
        import torch

        gap = logits.new_zeros(())
        for label in range(self._classes):
            if not bool((labels == label).any()):
                continue
            made = logits[labels == label].exp().mean(dim=0).clamp_min(1e-9)
            wanted = self._chances[label]
            gap = gap + torch.special.xlogy(wanted, wanted).sum() - (wanted * made.log()).sum()
        return gap


@final
class Student:
    """A discriminator that has seen nothing but generated rows with noisy votes.

    score(x, y) = w . relu([x, y] W + b) / sqrt(hidden) estimates the mean vote in [-1, 1]. It is
    the most likely one given votes v with noise of variance s^2 and normal priors: least of

        mean (score - v)^2 + s^2 / (B p) (|w|^2 + |W - W_0|^2),

    where B is the number of votes and p the prior variance of weights. With much noise it stays at
    0; without noise nothing holds it back.
    """

    def __init__(
        self, width: int, columns: int, classes: int, hidden: int, random: torch.Generator
    ) -> None:
        import torch

        self._classes, self._scale = classes, hidden**0.5
        # A row has about one number of size 1 a column, its class included.
        first = torch.randn(width + classes, hidden, generator=random) / (columns + 1) ** 0.5
        self._start = first.clone()
        self.parameters = [first, torch.randn(hidden, generator=random), torch.zeros(hidden)]
        for parameter in self.parameters:
            parameter.requires_grad_(True)

    def scores(self, values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Estimated mean vote on each row."""
        import torch
        from torch.nn import functional

        first, shift, last = self.parameters
        state = torch.cat([values, functional.one_hot(labels, self._classes).float()], dim=1)
        scores: torch.Tensor = torch.relu(state @ first + shift) @ last / self._scale
        return scores

    def learn(
        self,
        rows: Labelled,
        votes: npt.NDArray[np.float64],
        variance: float,
        training: StudentTraining,
    ) -> None:
        """Adam on all votes of a round, whose noise has the given variance."""
        import torch

        values, labels = torch.from_numpy(rows.values), torch.from_numpy(rows.labels)
        target = torch.tensor(votes, dtype=torch.float32)
        decay = variance / (len(rows) * training.prior)
        optimizer = torch.optim.Adam(self.parameters, lr=training.learning_rate)
        for _ in range(training.steps):
            first, _, last = self.parameters
            size = last.square().sum() + (first - self._start).square().sum()
            error = (self.scores(values, labels) - target).square().mean()
            optimizer.zero_grad()
            (error + decay * size).backward()
            optimizer.step()
