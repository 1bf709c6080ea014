"""ConvNet accuracy of a release."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from bench.data import augmentation
from bench.errors import NotComputable
from bench.metrics.utility import _networks
from bench.metrics.utility.image_classification import AugmentedAccuracy, ConvNetAccuracy
from bench.plugins import registry
from bench.plugins.release import Release, Rows
from tests.metrics.helpers import Answers, evaluate, named, release_of


@pytest.fixture
def short(monkeypatch):
    """A training that is long enough to see which labels were used."""
    monkeypatch.setattr(_networks, "STEPS", 40)
    monkeypatch.setattr(_networks, "WIDTH", 16)


def _fit(images, labels=None, seed=0, **more):
    rows = images.train.rows
    given = rows.labels if labels is None else labels
    augment = more.pop("augment", False)
    rows = Rows(rows.values, given, **more)
    return _networks.fit_convnet(rows, 3, (1, 8, 8), np.random.default_rng(seed), augment)


def _accuracy(images, network):
    test = images.test.rows
    return (network.predict(test.values).argmax(axis=1) == test.labels).mean()


def test_convnet_learns_shapes_and_leaves_torch_as_it_was(images):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    scores = ConvNetAccuracy().compute(evaluate(images, images.train))
    accuracy = named(scores, "accuracy/convnet")
    assert accuracy.value > 0.9
    for score in scores.scores:
        assert score.low <= score.value <= score.high
    predictions = scores.details["predictions-convnet"]
    assert (predictions["label"] == predictions["predicted"]).mean() == accuracy.value
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("short")
def test_augmented_images_are_learned_in_twice_the_steps(images, monkeypatch):
    drawn: list[int] = []
    draw = augmentation.draw

    def spy(generator, count):
        drawn.append(count)
        return draw(generator, count)

    monkeypatch.setattr(augmentation, "draw", spy)
    _fit(images)
    assert drawn == []
    scores = AugmentedAccuracy().compute(evaluate(images, images.train))
    assert len(drawn) == 80 and set(drawn) == {min(len(images.train.rows.labels), _networks.BATCH)}
    assert named(scores, "accuracy/convnet-augmented").value > 0.6
    assert registry.metric("accuracy/convnet-augmented").optional


def test_threads_are_put_back_even_after_a_failure():
    before = torch.get_num_threads()

    def fail() -> None:
        with _networks.torch_threads(before + 1):
            raise RuntimeError(torch.get_num_threads())

    with pytest.raises(RuntimeError, match=str(before + 1)):
        fail()
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("short")
def test_same_seed_same_network(images):
    values = images.test.rows.values
    first, again, other = (_fit(images, seed=seed).predict(values) for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()
    np.testing.assert_allclose(first.sum(axis=1), 1.0, atol=1e-6)


def test_the_network_is_the_one_of_torch_layers(images):
    """Three blocks of torch's own layers with the same parameters give the same answers."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, 8, 8)
    parameters = _networks._initial(3, shape, generator)
    layers: list[torch.nn.Module] = []
    for block in range(3):
        kernel, bias, scale, offset = parameters[4 * block : 4 * block + 4]
        convolution = torch.nn.Conv2d(kernel.shape[1], _networks.WIDTH, 3, padding=1)
        convolution.load_state_dict({"weight": kernel, "bias": bias})
        norm = torch.nn.InstanceNorm2d(_networks.WIDTH, affine=True)
        norm.load_state_dict({"weight": scale, "bias": offset})
        layers += [convolution, norm, torch.nn.ReLU(), torch.nn.AvgPool2d(2)]
    linear = torch.nn.Linear(_networks.WIDTH, 3)
    linear.load_state_dict({"weight": parameters[-2], "bias": parameters[-1]})
    network = torch.nn.Sequential(*layers, torch.nn.Flatten(), linear, torch.nn.Softmax(dim=1))
    pixels = images.test.rows.values
    expected = network(torch.from_numpy(pixels).reshape(-1, *shape)).detach().numpy()
    answers = _networks.ImageNetwork(partial(_networks._forward, parameters), shape).predict(pixels)
    np.testing.assert_allclose(answers, expected, atol=1e-5)


@pytest.mark.usefixtures("short")
def test_soft_labels_take_the_place_of_labels(images):
    rows = images.train.rows
    wrong = (rows.labels + 1) % 3
    soft = np.eye(3)[rows.labels]
    assert _accuracy(images, _fit(images, wrong)) < 0.2
    assert _accuracy(images, _fit(images, wrong, soft_labels=soft)) > 0.9


@pytest.mark.usefixtures("short")
def test_weights_are_used(images):
    rows = images.train.rows
    spoilt = np.arange(len(rows)) % 3 > 0
    labels = np.where(spoilt, (rows.labels + 1) % 3, rows.labels)
    weights = np.where(spoilt, 0.0, 2.5)
    assert _accuracy(images, _fit(images, labels)) < 0.5
    assert _accuracy(images, _fit(images, labels, weights=weights)) > 0.9


def test_every_step_uses_a_full_batch():
    generator = torch.Generator().manual_seed(0)
    batches = list(_networks._batches(65, 7, generator))
    assert [len(batch) for batch in batches] == [_networks.BATCH] * 7
    assert sorted(torch.cat(batches)[:65].tolist()) == list(range(65))
    assert {len(batch) for batch in _networks._batches(5, 2, generator)} == {5}


@pytest.mark.usefixtures("short")
def test_a_released_model_is_asked_directly(images):
    truth = images.test.rows.labels
    model = Answers(lambda values: np.eye(3)[truth])
    scores = ConvNetAccuracy().compute(evaluate(images, Release(model=model)))
    accuracy, auroc = named(scores, "accuracy/convnet"), named(scores, "auroc/convnet")
    assert (accuracy.value, accuracy.low, accuracy.high) == (1.0, 1.0, 1.0)
    assert (auroc.value, auroc.low, auroc.high) == (1.0, 1.0, 1.0)


@pytest.mark.usefixtures("short")
def test_the_ratio_is_to_the_convnet_of_real_images_and_the_area_that_of_scikit_learn(images):
    truth = images.test.rows.labels
    answers = np.random.default_rng(0).dirichlet(np.ones(3), len(truth)) + np.eye(3)[truth] / 3
    answers /= answers.sum(axis=1, keepdims=True)
    model = Answers(lambda values: answers)
    evaluation = evaluate(images, Release(model=model))
    scores = ConvNetAccuracy().compute(evaluation)
    real = evaluation.reference("accuracy/convnet", lambda rng: pytest.fail("built before"))
    accuracy = (answers.argmax(axis=1) == truth).mean()
    assert named(scores, "accuracy/ratio").value == pytest.approx(accuracy / real.mean())
    expected = roc_auc_score(truth, answers, multi_class="ovr", average="macro")
    assert named(scores, "auroc/convnet").value == pytest.approx(expected)


def test_the_area_is_absent_where_a_class_has_no_test_images(images):
    from dataclasses import replace

    two = np.flatnonzero(images.test.rows.labels < 2)
    dataset = replace(images, test=replace(images.test, rows=images.test.rows.take(two)))
    model = Answers(lambda values: np.tile([0.6, 0.3, 0.1], (len(values), 1)))
    scores = ConvNetAccuracy().compute(evaluate(dataset, Release(model=model)))
    share = (dataset.test.rows.labels == 0).mean()
    assert named(scores, "accuracy/convnet").value == pytest.approx(share)
    assert "no row of the classes" in named(scores, "auroc/convnet").reason


def test_large_releases_train_for_longer_up_to_a_limit():
    assert _networks.steps(20) == _networks.steps(500) == _networks.STEPS
    assert _networks.steps(10_000) == 312
    assert _networks.steps(45_000) == _networks.STEPS_AT_MOST


@pytest.mark.usefixtures("short")
def test_the_network_is_the_same_for_any_number_of_threads(images):
    before, networks = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            networks.append(_fit(images).predict(images.test.rows.values).tobytes())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert networks[0] == networks[1]


def test_one_class_and_tiny_images_have_no_score(images):
    rows = images.train.rows
    with pytest.raises(NotComputable, match="one class only"):
        ConvNetAccuracy().compute(evaluate(images, Release(Rows(rows.values, 0 * rows.labels))))
    lost = release_of(images.train, weights=(rows.labels == 0).astype(float))
    with pytest.raises(NotComputable, match="one class only"):
        ConvNetAccuracy().compute(evaluate(images, lost))
    rows = Rows(np.zeros((4, 16)), np.arange(4))
    with pytest.raises(NotComputable, match="too small"):
        _networks.fit_convnet(rows, 4, (1, 4, 4), np.random.default_rng(0))
