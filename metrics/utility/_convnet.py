"""The three-block ConvNet that the dataset-condensation literature trains on released images.

Three times: 3x3 convolution, instance normalisation (as one group a channel, with scale and
offset), ReLU, 2x2 average pooling; then one linear layer (Zhao et al., Dataset Condensation with
Gradient Matching; the NDPDC paper's tables I to III). Trained from scratch by momentum SGD.

How long it trains is a number of gradient steps: every release of the usual sizes gets the same
training, and one of the size of the real rows some passes over them, up to a limit. Training runs
on one thread: on several, sums are taken in another order, and the network is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from bench import Floats, Integers, NotComputable, ReleasedModel, augmentation

if TYPE_CHECKING:
    import torch

BLOCKS = 3
WIDTH = 64
BATCH = 64
STEPS = 200
PASSES = 2
STEPS_AT_MOST = 600
LEARNING_RATE = 0.2
"""For images of 8x8, whose last feature map is one pixel. The step is divided by the pixels of that
map (9 at 28x28), because the curvature of the loss in the last layer grows with its inputs."""
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
"""The literature's width, step size and duration (128, 0.01, 300 epochs and more) take minutes on
one core. Half the width and a larger, cosine-annealed step take 2 s for 1,000 real digits of 8x8
pixels and get 98.8% of the test digits right; of MNIST's, 98.0%."""

AUGMENTED = 2
"""Times as many steps where images are augmented: they are harder to learn."""

SMALLEST_SIDE = 2**BLOCKS
"""Below 8 pixels the last normalisation would see a single pixel and erase it."""

_PART = 256


@final
@dataclass(frozen=True)
class ConvNet(ReleasedModel):
    """A trained network."""

    parameters: tuple[torch.Tensor, ...]
    shape: tuple[int, int, int]

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        return probabilities(
            lambda pixels: _forward(self.parameters, pixels), images(values, self.shape)
        )


def fit_convnet(
    values: Floats,
    labels: Integers,
    classes: int,
    shape: tuple[int, int, int],
    rng: np.random.Generator,
    *,
    weights: Floats | None = None,
    soft_labels: Floats | None = None,
    augment: bool = False,
) -> ConvNet:
    """Train on encoded pixels; soft labels take the place of labels where they are given.

    With `augment`, every image of a batch is transformed by numbers of its own, drawn anew each
    step (see `bench.data.augmentation`), and training takes longer.
    """
    import torch

    if min(shape[1:]) < SMALLEST_SIDE:
        raise NotComputable(
            f"images of {shape[1]}x{shape[2]} pixels are too small for three poolings; "
            f"{SMALLEST_SIDE}x{SMALLEST_SIDE} is the least"
        )
    lesson = Lesson.of(values, labels, shape, weights, soft_labels)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    parameters = _initial(classes, shape, generator)
    train(
        lambda pixels: _forward(parameters, pixels),
        parameters,
        lesson,
        generator,
        LEARNING_RATE / _last_pixels(shape),
        augment,
    )
    return ConvNet(tuple(parameter.detach() for parameter in parameters), shape)


# Training of any network -------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Lesson:
    """Images to learn from."""

    pixels: torch.Tensor
    target: torch.Tensor
    """Class codes, or class probabilities: the loss takes both."""
    weight: torch.Tensor
    """Of mean 1."""

    @classmethod
    def of(
        cls,
        values: Floats,
        labels: Integers,
        shape: tuple[int, int, int],
        weights: Floats | None = None,
        soft_labels: Floats | None = None,
    ) -> Lesson:
        """From encoded rows; refuses a single class."""
        import torch

        row_weights = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
        if len(np.unique(np.asarray(labels)[row_weights > 0])) < 2:
            raise NotComputable("the release holds one class only: no classifier can be trained")
        target = torch.from_numpy(
            np.array(labels, dtype=np.int64)
            if soft_labels is None
            else np.array(soft_labels, dtype=np.float32)
        )
        weight = torch.from_numpy((row_weights / row_weights.mean()).astype(np.float32))
        return cls(images(values, shape), target, weight)


def train(
    forward: Callable[[torch.Tensor], torch.Tensor],
    parameters: Sequence[torch.Tensor],
    lesson: Lesson,
    generator: torch.Generator,
    learning_rate: float,
    augment: bool = False,
) -> None:
    """Momentum SGD with a cosine-annealed step; changes the parameters in place."""
    import torch
    from torch.nn import functional

    rows = len(lesson.weight)
    optimizer = torch.optim.SGD(
        parameters, lr=learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    count = steps(rows) * (AUGMENTED if augment else 1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, count)
    with torch_threads(1):
        for chosen in _batches(rows, count, generator):
            pixels = lesson.pixels[chosen]
            if augment:
                pixels = augmentation.draw(generator, len(pixels))(pixels)
            loss = functional.cross_entropy(
                forward(pixels), lesson.target[chosen], reduction="none"
            )
            optimizer.zero_grad()
            (loss * lesson.weight[chosen]).mean().backward()
            optimizer.step()
            schedule.step()
    if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
        raise NotComputable("the network diverged on the released images")


def steps(rows: int) -> int:
    """Gradient steps for so many rows."""
    return max(STEPS, min(STEPS_AT_MOST, PASSES * rows // BATCH))


def probabilities(
    forward: Callable[[torch.Tensor], torch.Tensor], pixels: torch.Tensor
) -> npt.NDArray[np.float64]:
    """Class probabilities of each image."""
    import torch

    with torch_threads(1), torch.no_grad():
        answers = [torch.softmax(forward(part), dim=1) for part in pixels.split(_PART)]
        return torch.cat(answers).double().numpy()


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


def images(values: Floats, shape: tuple[int, int, int]) -> torch.Tensor:
    """Encoded rows as (rows, channels, height, width)."""
    import torch

    return torch.from_numpy(np.array(values, dtype=np.float32)).reshape(-1, *shape)


def uniform(size: Sequence[int], inputs: int, generator: torch.Generator) -> torch.Tensor:
    """Weights and biases uniform in +-1/sqrt(inputs), as torch's layers start."""
    import torch

    numbers: torch.Tensor = (torch.rand(size, generator=generator) * 2 - 1) / inputs**0.5
    return numbers


def _batches(rows: int, count: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Full batches from one permutation after another, so that no step sees a handful of rows."""
    import torch

    size = min(BATCH, rows)
    drawn = count * size
    order = torch.cat([torch.randperm(rows, generator=generator) for _ in range(-(-drawn // rows))])
    yield from order[:drawn].split(size)


# The ConvNet itself ------------------------------------------------------------------------------


def _last_pixels(shape: tuple[int, int, int]) -> int:
    """Pixels of the last feature map."""
    return (shape[1] >> BLOCKS) * (shape[2] >> BLOCKS)


def _initial(
    classes: int, shape: tuple[int, int, int], generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    import torch

    channels, height, width = shape
    parameters: list[torch.Tensor] = []
    for _ in range(BLOCKS):
        inputs = 9 * channels
        parameters.append(uniform((WIDTH, channels, 3, 3), inputs, generator))
        parameters.append(uniform((WIDTH,), inputs, generator))
        parameters += [torch.ones(WIDTH), torch.zeros(WIDTH)]
        channels, height, width = WIDTH, height // 2, width // 2
    inputs = channels * height * width
    parameters.append(uniform((classes, inputs), inputs, generator))
    parameters.append(uniform((classes,), inputs, generator))
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
