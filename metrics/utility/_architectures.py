"""The architectures of the NDPDC paper's table III, for small images on one core.

Layers as in the condensation literature (Zhao et al., whose evaluation the paper follows):
instance normalisation as one group a channel in VGG11 and ResNet18 and none in the others, grey
images padded by two pixels a side before deep stacks, as theirs are from 28x28 to 32x32. Batch
normalisation is nowhere used. What differs: AlexNet, VGG11 and ResNet18 have a quarter of the
channels; ResNet18 ends in the mean over its last map, whatever the image size; no augmentation;
the number of steps and their size are those of this project's ConvNet, not 300 epochs of 0.01.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bench import Floats, Integers, NotComputable, ReleasedModel
from bench.metrics.utility import _convnet

Shape = tuple[int, int, int]

NARROWER = 4
"""How many times fewer channels AlexNet, VGG11 and ResNet18 have than in the literature."""


@final
@dataclass(frozen=True)
class Architecture:
    """How to build and train one network."""

    features: Callable[[int], nn.Sequential]
    """Everything before the linear layers, for so many channels of the image."""
    hidden: tuple[int, ...]
    """Widths of the linear layers before the last."""
    grey_side: int
    """Least side of grey images; below, a layer would see nothing, or a single pixel to normalise.
    """
    colour_side: int
    learning_rate: float
    """Smaller than the ConvNet's, with which the deeper networks do not start to learn."""


@final
@dataclass(frozen=True)
class Trained(ReleasedModel):
    """A trained network."""

    network: nn.Module
    shape: Shape

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        return _convnet.probabilities(self.network, _convnet.images(values, self.shape))


def fit(
    name: str,
    values: Floats,
    labels: Integers,
    classes: int,
    shape: Shape,
    rng: np.random.Generator,
    *,
    weights: Floats | None = None,
    soft_labels: Floats | None = None,
) -> Trained:
    """Train an architecture as the ConvNet is trained."""
    architecture = ARCHITECTURES[name]
    least = architecture.grey_side if shape[0] == 1 else architecture.colour_side
    if min(shape[1:]) < least:
        raise NotComputable(
            f"images of {shape[1]}x{shape[2]} pixels are too small for this architecture; "
            f"{least}x{least} is the least"
        )
    lesson = _convnet.Lesson.of(values, labels, shape, weights, soft_labels)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    network = build(name, classes, shape, generator)
    _convnet.train(
        network, list(network.parameters()), lesson, generator, architecture.learning_rate
    )
    return Trained(network, shape)


def build(name: str, classes: int, shape: Shape, generator: torch.Generator) -> nn.Module:
    """An untrained network; its numbers come from the generator alone.

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
                module.weight.copy_(_convnet.uniform(module.weight.shape, inputs, generator))
                if module.bias is not None:
                    module.bias.copy_(_convnet.uniform(module.bias.shape, inputs, generator))
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
"""Step sizes: 50 real images a class of MNIST, Fashion-MNIST and the 8x8 digits are learned with
them. At twice its step size, AlexNet or VGG11 stays at chance on one of them; at half of it,
AlexNet on the digits."""
