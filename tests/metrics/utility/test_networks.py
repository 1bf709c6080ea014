"""The architectures of the NDPDC paper's table III."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.errors import NotComputable
from bench.metrics.utility import _networks, image_classification
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import Answers, evaluate, named

NAMES = ("mlp", "lenet", "alexnet", "vgg11", "resnet18")
METRICS = (
    image_classification.MlpAccuracy,
    image_classification.LeNetAccuracy,
    image_classification.AlexNetAccuracy,
    image_classification.Vgg11Accuracy,
    image_classification.ResNet18Accuracy,
)


def _build(name, shape=(1, 28, 28), seed=0, classes=10):
    return _networks.build(name, classes, shape, torch.Generator().manual_seed(seed))


def _count(network):
    return sum(parameter.numel() for parameter in network.parameters())


def test_sizes_of_the_full_networks_are_those_of_the_literature(monkeypatch):
    """Numbers of parameters by hand, at full width.

    LeNet-5: 156 + 2416 + 48120 + 10164 + 850. MLP: 784 -> 128 -> 128 -> 10. ResNet18 for colour
    images of 32x32 has 11,173,962 with batch normalisation, whose scale and offset instance
    normalisation has as well.
    """
    monkeypatch.setattr(_networks, "NARROWER", 1)
    assert _count(_build("lenet")) == 61_706
    assert _count(_build("mlp")) == 784 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10
    assert _count(_build("resnet18", (3, 32, 32))) == 11_173_962
    convolutions = [(3, 64), (64, 128), (128, 256), (256, 256)]
    convolutions += [(256, 512), (512, 512), (512, 512), (512, 512)]
    vgg = sum(9 * into * out + 3 * out for into, out in convolutions) + 512 * 10 + 10
    assert _count(_build("vgg11", (3, 32, 32))) == vgg
    layers = [(25, 3, 128), (25, 128, 192), (9, 192, 256), (9, 256, 192), (9, 192, 192)]
    alexnet = sum(kernel * into * out + out for kernel, into, out in layers)
    assert _count(_build("alexnet", (3, 32, 32))) == alexnet + 192 * 4 * 4 * 10 + 10


@pytest.mark.parametrize("name", NAMES)
def test_grey_and_colour_images_give_one_number_a_class(name):
    for shape in ((1, 28, 28), (3, 32, 32)):
        with torch.no_grad():
            assert _build(name, shape)(torch.zeros(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_given_generator_decides_the_numbers(name):
    state = torch.get_rng_state()
    first, again, other = (_build(name, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    for one, two, three in zip(
        first.parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(one, two)
        assert torch.isfinite(one).all()
        assert not torch.equal(one, three) or set(one.unique().tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize("name", NAMES)
def test_layers_start_as_torch_starts_them(name):
    for module in _build(name).modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            bound = module.weight[0].numel() ** -0.5
            assert module.weight.abs().max() <= bound
            assert module.weight.abs().max() > 0.8 * bound
        elif isinstance(module, torch.nn.GroupNorm):
            assert module.num_groups == module.num_channels
            assert module.weight.unique().tolist() == [1.0]


def test_the_smallest_images_are_the_smallest_that_pass():
    """With one pixel less, torch is left with nothing, or with a single pixel to normalise."""
    generator = torch.Generator().manual_seed(0)
    for name, grey, colour in (("lenet", 12, 16), ("vgg11", 28, 32), ("resnet18", 9, 9)):
        assert _networks.ARCHITECTURES[name].grey_side == grey
        assert _networks.ARCHITECTURES[name].colour_side == colour
        for channels, side in ((1, grey), (3, colour)):
            _networks.build(name, 2, (channels, side, side), generator)
            with pytest.raises((RuntimeError, ValueError)):
                _networks.build(name, 2, (channels, side - 1, side - 1), generator)


@pytest.mark.parametrize(
    "metric", [image_classification.MlpAccuracy, image_classification.AlexNetAccuracy]
)
def test_small_images_are_learned(images, metric):
    scores = metric().compute(evaluate(images, images.train))
    (score,) = scores.scores
    assert score.metric == metric.name
    assert score.value > 0.9
    assert score.low <= score.value <= score.high
    assert metric.optional
    predictions = scores.details[f"predictions-{metric.architecture}"]
    assert (predictions["label"] == predictions["predicted"]).mean() == score.value


def test_same_seed_same_network(images):
    first, again = (
        image_classification.MlpAccuracy().compute(evaluate(images, images.train, 2))
        for _ in range(2)
    )
    assert first.scores == again.scores


def test_soft_labels_and_weights_are_used(images, monkeypatch):
    monkeypatch.setattr(_networks, "STEPS", 60)
    rows = images.train.rows
    wrong = (rows.labels + 1) % 3
    soft = Release(Rows(rows.values, wrong, soft_labels=np.eye(3)[rows.labels]))
    assert (
        named(
            image_classification.MlpAccuracy().compute(evaluate(images, soft)), "accuracy/mlp"
        ).value
        > 0.9
    )
    twice = np.concatenate([rows.values, rows.values])
    labels = np.concatenate([rows.labels, wrong])
    weights = np.repeat([1.0, 0.0], len(rows))
    weighted = Release(Rows(twice, labels, weights))
    score = named(
        image_classification.MlpAccuracy().compute(evaluate(images, weighted)), "accuracy/mlp"
    )
    assert score.value > 0.9


def test_absent_for_images_that_are_too_small_and_for_models(images):
    for metric in (
        image_classification.LeNetAccuracy,
        image_classification.Vgg11Accuracy,
        image_classification.ResNet18Accuracy,
    ):
        with pytest.raises(NotComputable, match="8x8 pixels are too small"):
            metric().compute(evaluate(images, images.train))
    model = Answers(lambda values: np.zeros((len(values), 3)))
    with pytest.raises(NotComputable, match="not images to train"):
        image_classification.MlpAccuracy().compute(evaluate(images, Release(model=model)))
    rows = images.train.rows
    with pytest.raises(NotComputable, match="one class only"):
        image_classification.MlpAccuracy().compute(
            evaluate(images, Release(Rows(rows.values, 0 * rows.labels)))
        )


def test_every_architecture_has_a_metric_of_its_name():
    assert {metric.name for metric in METRICS} == {f"accuracy/{name}" for name in NAMES}
    assert tuple(_networks.ARCHITECTURES) == NAMES
    for metric in METRICS:
        assert f"accuracy/{metric.architecture}" == metric.name
        assert "table III" in metric.definition


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_learns_larger_images(name):
    """Bright squares in four corners of noisy 28x28 images."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 4
    pixels = rng.uniform(-1, 0.2, (200, 28, 28))
    for row, label in enumerate(labels):
        top, left = 14 * (label // 2), 14 * (label % 2)
        pixels[row, top + 3 : top + 11, left + 3 : left + 11] += 0.8
    values = pixels.reshape(200, 784)
    rows = Rows(values[:160], labels[:160])
    network = _networks.fit(name, rows, 4, (1, 28, 28), np.random.default_rng(1))
    assert (network.predict(values[160:]).argmax(axis=1) == labels[160:]).mean() > 0.9
