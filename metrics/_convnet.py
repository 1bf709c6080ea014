"""The three-block ConvNet that the dataset-condensation literature trains on released images.

Three times: 3x3 convolution, instance normalisation (as one group a channel, with scale and
offset), ReLU, 2x2 average pooling; then one linear layer (Zhao et al., Dataset Condensation with
Gradient Matching; the NDPDC paper's tables I to III). Trained from scratch by momentum SGD.

The number of gradient steps is fixed, not the number of epochs: every release gets the same
training, whatever its size, and scoring a large release costs no more than a small one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from bench.core.encode import Floats, Integers
from bench.core.errors import NotComputable
from bench.core.release import ReleasedModel

if TYPE_CHECKING:
    import torch

BLOCKS = 3
WIDTH = 64
STEPS = 200
BATCH = 64
LEARNING_RATE = 0.2
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
"""The literature's width, step size and duration (128, 0.01, 300 epochs and more) take minutes on
one core. Half the width and a larger, cosine-annealed step take 2 s for 1,000 real digits of 8x8
pixels and get 98.8% of the test digits right."""

SMALLEST_SIDE = 2**BLOCKS
"""Below 8 pixels the last normalisation would see a single pixel and erase it."""


@final
@dataclass(frozen=True)
class ConvNet(ReleasedModel):
    """A trained network."""

    parameters: tuple[torch.Tensor, ...]
    shape: tuple[int, int, int]
    threads: int

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        import torch

        pixels = _images(values, self.shape)
        with torch_threads(self.threads), torch.no_grad():
            answers = [
                torch.softmax(_forward(self.parameters, part), dim=1) for part in pixels.split(256)
            ]
            return torch.cat(answers).double().numpy()


def fit_convnet(
    values: Floats,
    labels: Integers,
    classes: int,
    shape: tuple[int, int, int],
    rng: np.random.Generator,
    *,
    weights: Floats | None = None,
    soft_labels: Floats | None = None,
    threads: int = 1,
) -> ConvNet:
    """Train on encoded pixels; soft labels take the place of labels where they are given."""
    import torch
    from torch.nn import functional

    if min(shape[1:]) < SMALLEST_SIDE:
        raise NotComputable(
            f"images of {shape[1]}x{shape[2]} pixels are too small for three poolings; "
            f"{SMALLEST_SIDE}x{SMALLEST_SIDE} is the least"
        )
    row_weights = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    if len(np.unique(np.asarray(labels)[row_weights > 0])) < 2:
        raise NotComputable("the release holds one class only: no classifier can be trained")
    pixels = _images(values, shape)
    # Class codes, or class probabilities: the loss takes both.
    target = torch.from_numpy(
        np.array(labels, dtype=np.int64)
        if soft_labels is None
        else np.array(soft_labels, dtype=np.float32)
    )
    weight = torch.from_numpy((row_weights / row_weights.mean()).astype(np.float32))
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    parameters = _initial(classes, shape, generator)
    optimizer = torch.optim.SGD(
        parameters, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    with torch_threads(threads):
        for chosen in _batches(len(labels), generator):
            loss = functional.cross_entropy(
                _forward(parameters, pixels[chosen]), target[chosen], reduction="none"
            )
            optimizer.zero_grad()
            (loss * weight[chosen]).mean().backward()
            optimizer.step()
            schedule.step()
    trained = tuple(parameter.detach() for parameter in parameters)
    if not all(bool(torch.isfinite(parameter).all()) for parameter in trained):
        raise NotComputable("the network diverged on the released images")
    return ConvNet(trained, shape, threads)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run torch on so many threads; the setting of the process comes back afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _images(values: Floats, shape: tuple[int, int, int]) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.array(values, dtype=np.float32)).reshape(-1, *shape)


def _initial(
    classes: int, shape: tuple[int, int, int], generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """Weights and biases uniform in +-1/sqrt(inputs), as torch's layers start."""
    import torch

    def uniform(size: tuple[int, ...], inputs: int) -> torch.Tensor:
        numbers: torch.Tensor = (torch.rand(size, generator=generator) * 2 - 1) / inputs**0.5
        return numbers

    channels, height, width = shape
    parameters: list[torch.Tensor] = []
    for _ in range(BLOCKS):
        inputs = 9 * channels
        parameters += [uniform((WIDTH, channels, 3, 3), inputs), uniform((WIDTH,), inputs)]
        parameters += [torch.ones(WIDTH), torch.zeros(WIDTH)]
        channels, height, width = WIDTH, height // 2, width // 2
    inputs = channels * height * width
    parameters += [uniform((classes, inputs), inputs), uniform((classes,), inputs)]
    return tuple(parameter.requires_grad_(True) for parameter in parameters)


def _forward(parameters: tuple[torch.Tensor, ...], pixels: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    hidden = pixels
    for block in range(BLOCKS):
        kernel, bias, scale, offset = parameters[4 * block : 4 * block + 4]
        hidden = functional.conv2d(hidden, kernel, bias, padding=1)
        hidden = functional.relu(functional.group_norm(hidden, WIDTH, scale, offset))
        hidden = functional.avg_pool2d(hidden, 2)
    return functional.linear(hidden.flatten(1), parameters[-2], parameters[-1])


def _batches(rows: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Full batches from one permutation after another, so that no step sees a handful of rows."""
    import torch

    size = min(BATCH, rows)
    epochs = -(-STEPS * size // rows)
    order = torch.cat([torch.randperm(rows, generator=generator) for _ in range(epochs)])
    yield from order[: STEPS * size].split(size)
