"""Networks that are trained on released images: the ConvNet and the other architectures.

Import this module lazily: it imports torch.

The ConvNet is that of the dataset-condensation literature.

Three times: 3x3 convolution, instance normalisation (as one group per channel, with scale and
offset), ReLU, 2x2 average pooling; then one linear layer (Zhao et al., Dataset Condensation with
Gradient Matching; the NDPDC paper's tables I to III). The others are those of the NDPDC paper's
table III. All are trained from scratch by momentum SGD.

How long it trains is a number of gradient steps: every release of the usual sizes gets the same
training, and one of the size of the real rows some passes over them, up to a limit. Training runs
on one thread: on several, sums are taken in another order, and the network is another one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from bench import Floats, NotComputable, ReleasedModel, Rows, augmentation

Shape = tuple[int, int, int]

BLOCKS = 3
WIDTH = 64
BATCH = 64
STEPS = 200
PASSES = 2
STEPS_AT_MOST = 600
LEARNING_RATE = 0.2
"""Step size for images of 8x8, whose last feature map is one pixel. The step is divided by the
pixels of that map (9 at 28x28), because the curvature of the loss in the last layer grows with its
inputs."""
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
"""The literature's width, step size and duration (128, 0.01, 300 epochs and more) take minutes on
one core. Half the width and a larger, cosine-annealed step take 2 s for 1,000 real digits of 8x8
pixels and get 98.8% of the test digits right; of MNIST's, 98.0%."""

AUGMENTED = 2
"""Factor on the number of steps where images are augmented: they are harder to learn."""

SMALLEST_SIDE = 2**BLOCKS
"""Below 8 pixels the last normalisation would get a single pixel and erase it."""

_PART = 256


@final
@dataclass(frozen=True)
class ImageNetwork(ReleasedModel):
    """A network that was trained on images of this shape."""

    network: Callable[[torch.Tensor], torch.Tensor]
    shape: Shape

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        """Class probabilities of each image."""
        with torch_threads(1), torch.no_grad():
            pixels = images(values, self.shape)
            answers = [torch.softmax(self.network(part), dim=1) for part in pixels.split(_PART)]
            return torch.cat(answers).double().numpy()


def fit_convnet(
    rows: Rows, classes: int, shape: Shape, rng: np.random.Generator, augment: bool = False
) -> ImageNetwork:
    """Train on encoded pixels; soft labels take the place of labels where they are given.

    With `augment`, each image of a batch is transformed by different numbers, drawn anew in each
    step (see `bench.augmentation`), and training takes longer.
    """

    if min(shape[1:]) < SMALLEST_SIDE:
        raise NotComputable(
            f"images of {shape[1]}x{shape[2]} pixels are too small for three poolings; "
            f"{SMALLEST_SIDE}x{SMALLEST_SIDE} is the least"
        )
    lesson = TrainingImages.of(rows, shape)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    parameters = _initial(classes, shape, generator)
    network = functools.partial(_forward, parameters)
    step = LEARNING_RATE / _last_pixels(shape)
    train(network, parameters, lesson, generator, step, augment)
    return ImageNetwork(network, shape)


# Training of any network -------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class TrainingImages:
    """Images that a network is trained on."""

    pixels: torch.Tensor
    target: torch.Tensor
    """Class codes, or class probabilities: the loss takes both."""
    weight: torch.Tensor
    """Weights of the images, of mean 1."""

    @classmethod
    def of(cls, rows: Rows, shape: Shape) -> TrainingImages:
        """Images of encoded rows; a single class is refused."""
        labels, soft = rows.labels, rows.soft_labels
        row_weights = np.ones(len(labels))
        if rows.weights is not None:
            row_weights = np.asarray(rows.weights, np.float64)
        if len(np.unique(np.asarray(labels)[row_weights > 0])) < 2:
            raise NotComputable("the release holds one class only: no classifier can be trained")
        target = torch.from_numpy(
            np.array(labels, dtype=np.int64) if soft is None else np.array(soft, dtype=np.float32)
        )
        weight = torch.from_numpy((row_weights / row_weights.mean()).astype(np.float32))
        return cls(images(rows.values, shape), target, weight)


def train(
    forward: Callable[[torch.Tensor], torch.Tensor],
    parameters: Sequence[torch.Tensor],
    lesson: TrainingImages,
    generator: torch.Generator,
    learning_rate: float,
    augment: bool = False,
) -> None:
    """Momentum SGD with a cosine-annealed step; changes the parameters in place."""

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
    """Gradient steps for this number of rows."""
    return max(STEPS, min(STEPS_AT_MOST, PASSES * rows // BATCH))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run torch on `count` threads; the setting of the process is restored afterwards."""

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def images(values: Floats, shape: Shape) -> torch.Tensor:
    """Encoded rows as (rows, channels, height, width)."""

    return torch.from_numpy(np.array(values, dtype=np.float32)).reshape(-1, *shape)


def uniform(size: Sequence[int], inputs: int, generator: torch.Generator) -> torch.Tensor:
    """Weights and biases uniform in +-1/sqrt(inputs), as torch's layers start."""

    numbers: torch.Tensor = (torch.rand(size, generator=generator) * 2 - 1) / inputs**0.5
    return numbers


def _batches(rows: int, count: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Full batches from one permutation after another, so that no step uses a handful of rows."""

    size = min(BATCH, rows)
    drawn = count * size
    order = torch.cat([torch.randperm(rows, generator=generator) for _ in range(-(-drawn // rows))])
    yield from order[:drawn].split(size)


# The ConvNet itself ------------------------------------------------------------------------------


def _last_pixels(shape: Shape) -> int:
    """Pixels of the last feature map."""
    return (shape[1] >> BLOCKS) * (shape[2] >> BLOCKS)


def _initial(classes: int, shape: Shape, generator: torch.Generator) -> tuple[torch.Tensor, ...]:

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
    hidden = pixels
    for block in range(BLOCKS):
        kernel, bias, scale, offset = parameters[4 * block : 4 * block + 4]
        hidden = functional.conv2d(hidden, kernel, bias, padding=1)
        hidden = functional.relu(functional.group_norm(hidden, WIDTH, scale, offset))
        hidden = functional.avg_pool2d(hidden, 2)
    return functional.linear(hidden.flatten(1), parameters[-2], parameters[-1])


# Other architectures -----------------------------------------------------------------------------
#
# Layers as in the condensation literature (Zhao et al., whose evaluation the paper follows):
# instance normalisation as one group per channel in VGG11 and ResNet18 and none in the others, grey
# images padded by two pixels per side before deep stacks, as theirs are from 28x28 to 32x32. Batch
# normalisation is nowhere used. What differs: AlexNet, VGG11 and ResNet18 have a quarter of the
# channels; ResNet18 ends in the mean over its last map, whatever the image size; no augmentation;
# the number of steps and their size are those of this project's ConvNet, not 300 epochs of 0.01.

NARROWER = 4
"""Factor by which AlexNet, VGG11 and ResNet18 have fewer channels than in the literature."""


@final
@dataclass(frozen=True)
class Architecture:
    """How to build and train one network."""

    features: Callable[[int], nn.Sequential]
    """Everything before the linear layers, given the number of channels of the image."""
    hidden: tuple[int, ...]
    """Widths of the linear layers before the last."""
    grey_side: int
    """Smallest side of grey images; below, a layer would get nothing, or one pixel to normalise."""
    colour_side: int
    learning_rate: float
    """Smaller than the ConvNet's, with which the deeper networks do not start to learn."""


def fit(
    name: str, rows: Rows, classes: int, shape: Shape, rng: np.random.Generator
) -> ImageNetwork:
    """Train an architecture as the ConvNet is trained."""
    architecture = ARCHITECTURES[name]
    least = architecture.grey_side if shape[0] == 1 else architecture.colour_side
    if min(shape[1:]) < least:
        raise NotComputable(
            f"images of {shape[1]}x{shape[2]} pixels are too small for this architecture; "
            f"{least}x{least} is the least"
        )
    lesson = TrainingImages.of(rows, shape)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    network = build(name, classes, shape, generator)
    train(network, list(network.parameters()), lesson, generator, architecture.learning_rate)
    return ImageNetwork(network, shape)


def build(name: str, classes: int, shape: Shape, generator: torch.Generator) -> nn.Module:
    """Return an untrained network; its numbers come from the generator alone.

    Layers are made without storage first: torch would fill them from its global generator.
    """
    with torch.device("meta"):
        architecture = ARCHITECTURES[name]
        layers = [*architecture.features(shape[0]), nn.Flatten()]
        width = nn.Sequential(*layers)(torch.empty(1, *shape)).shape[1]
        for wide in architecture.hidden:
            layers += [nn.Linear(width, wide), nn.ReLU()]
            width = wide
        network = nn.Sequential(*layers, nn.Linear(width, classes))
    network = network.to_empty(device="cpu")
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            inputs = module.weight[0].numel()
            with torch.no_grad():
                module.weight.copy_(uniform(module.weight.shape, inputs, generator))
                if module.bias is not None:
                    module.bias.copy_(uniform(module.bias.shape, inputs, generator))
        elif isinstance(module, nn.GroupNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
    return network


def _lenet(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2 if channels == 1 else 0),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


def _alexnet(channels: int) -> nn.Sequential:
    first, second, third = 128 // NARROWER, 192 // NARROWER, 256 // NARROWER
    return nn.Sequential(
        nn.Conv2d(channels, first, 5, padding=4 if channels == 1 else 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(second, third, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(third, second, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(second, second, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


def _vgg11(channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    padding = 3 if channels == 1 else 1
    for stage in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for wide in stage:
            width = wide // NARROWER
            layers += [
                nn.Conv2d(channels, width, 3, padding=padding),
                nn.GroupNorm(width, width),
                nn.ReLU(),
            ]
            channels, padding = width, 1
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


@final
class _Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(width, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.GroupNorm(width, width),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and channels == width
            else nn.Sequential(
                nn.Conv2d(channels, width, 1, stride=stride, bias=False),
                nn.GroupNorm(width, width),
            )
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        both: torch.Tensor = self.inner(pixels) + self.shortcut(pixels)
        return both.relu()


def _resnet18(channels: int) -> nn.Sequential:
    width = 64 // NARROWER
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.GroupNorm(width, width),
        nn.ReLU(),
    ]
    for factor, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
        for step in (stride, 1):
            layers.append(_Residual(width, 64 // NARROWER * factor, step))
            width = 64 // NARROWER * factor
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))


ARCHITECTURES: dict[str, Architecture] = {
    "mlp": Architecture(lambda channels: nn.Sequential(), (128, 128), 1, 1, learning_rate=0.05),
    "lenet": Architecture(_lenet, (120, 84), 12, 16, learning_rate=0.05),
    "alexnet": Architecture(_alexnet, (), 8, 8, learning_rate=0.05),
    "vgg11": Architecture(_vgg11, (), 28, 32, learning_rate=0.02),
    "resnet18": Architecture(_resnet18, (), 9, 9, learning_rate=0.05),
}
"""Step sizes: 50 real images per class of MNIST, Fashion-MNIST and the 8x8 digits are learned with
them. At twice its step size, AlexNet or VGG11 stays at chance on one of them; at half of it,
AlexNet on the digits."""
