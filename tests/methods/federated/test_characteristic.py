"""Characteristic functions and gradients of single rows, against autograd and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bench.data.encoder import EncodedRows
from bench.methods._shared.generator import Generator
from bench.methods.federated._characteristic import (
    Adversary,
    CharacteristicFunction,
    GradientSpace,
    draw_function,
    of_probes,
    uniform_rows,
)
from bench.plugins.source import build_dataset
from tests.support.tables import ToyTable

TABLE = build_dataset(ToyTable())
ENCODER = TABLE.encoder
ROWS = TABLE.train.rows
FOUR = ROWS.take(np.r_[np.flatnonzero(ROWS.labels == 0)[:3], np.flatnonzero(ROWS.labels == 1)[:1]])
"""Three rows of the first class and one of the second."""
BATCH, PROBES = 12, 3


def function(kind: str = "mlp") -> CharacteristicFunction:
    random = torch.Generator().manual_seed(1)
    return draw_function(ENCODER, kind, 7, PROBES, 1.5, random)  # type: ignore[arg-type]


def generator() -> Generator:
    """The same network and the same noise every time."""
    return Generator(ENCODER, 4, (9,), torch.Generator().manual_seed(2))


def space(kind: str = "mlp") -> GradientSpace:
    return GradientSpace(generator(), function(kind), 2, BATCH)


def complex_waves(values: torch.Tensor, kind: str = "mlp") -> torch.Tensor:
    """exp(j <t, g(x)>) as equation 3 has it: (rows, k)."""
    of = function(kind)
    return torch.exp(1j * (of.features(values) @ of.probes.T))


def synthetic(of: Generator, kind: str = "mlp") -> torch.Tensor:
    """phi_S of each class, differentiable: (classes, k)."""
    labels = torch.arange(2).repeat_interleave(BATCH // 2)
    waves = complex_waves(of.rows(labels, learning=True), kind)
    return torch.stack([waves[labels == code].mean(dim=0) for code in (0, 1)])


def flat(loss: torch.Tensor, of: Generator) -> torch.Tensor:
    return torch.cat([piece.reshape(-1) for piece in torch.autograd.grad(loss, of.parameters)])


def real(rows: EncodedRows, kind: str = "mlp") -> torch.Tensor:
    return complex_waves(torch.from_numpy(rows.values.astype(np.float32)), kind)


def test_the_function_of_normal_data_is_that_of_the_normal_distribution() -> None:
    """E exp(jtX) = exp(-t^2 / 2) for X ~ N(0, 1)."""
    probes = torch.tensor([[0.0], [0.5], [1.0], [2.0]])
    normal = torch.randn(400_000, 1, generator=torch.Generator().manual_seed(0))
    of = CharacteristicFunction(lambda rows: rows, probes)
    cosines, sines = (of.waves(normal).mean(dim=0) * math.sqrt(4)).chunk(2)
    assert cosines.numpy() == pytest.approx(np.exp(-(probes[:, 0].numpy() ** 2) / 2), abs=0.005)
    assert sines.numpy() == pytest.approx(np.zeros(4), abs=0.005)


def test_a_row_has_norm_one_and_its_waves_are_those_of_equation_3() -> None:
    waves = function().of_rows(ROWS.values)
    assert waves.norm(dim=1).numpy() == pytest.approx(np.ones(len(ROWS)), abs=1e-5)
    cosines, sines = (waves[:4] * math.sqrt(PROBES)).chunk(2, dim=1)
    assert torch.allclose(torch.complex(cosines, sines), real(ROWS.take(np.arange(4))), atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_the_scale_is_the_deviation_of_angles_over_the_schema(kind: str) -> None:
    of = draw_function(ENCODER, kind, 64, 4000, 2.5, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    angles = (
        of.features(uniform_rows(ENCODER, 2000, torch.Generator().manual_seed(1))) @ of.probes.T
    )
    assert float(angles.var(dim=0).mean().sqrt()) == pytest.approx(2.5, rel=0.08)


def test_rows_of_the_schema_are_uniform() -> None:
    rows = uniform_rows(ENCODER, 20_000, torch.Generator().manual_seed(0)).numpy()
    assert rows[:, :2].var(axis=0) == pytest.approx([1 / 3, 1 / 3], abs=0.01)
    assert rows[:, 3:].mean(axis=0) == pytest.approx([1 / 3] * 3, abs=0.02)
    assert set(np.unique(rows[:, 3:])) == {0.0, 1.0}


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_gradients_of_single_rows_are_those_of_autograd(kind: str) -> None:
    """grad of mean over t of |exp(j <t, g(x)>) - phi_S|^2, one row after the other."""
    ours = space(kind)
    coordinates = ours.of_rows(FOUR)
    for row in range(4):
        of = generator()
        gap = real(FOUR, kind)[row] - synthetic(of, kind)[FOUR.labels[row]]
        written = flat((gap.abs() ** 2).mean(), of)
        assert torch.allclose(ours.gradient(coordinates[row]), written, atol=1e-5)
        # Clipping sees the norm of the gradient itself.
        norm = float(np.linalg.norm(coordinates[row]))
        assert norm == pytest.approx(float(written.norm()), rel=1e-4)


def test_gradients_of_single_rows_are_those_of_vmap() -> None:
    ours = space()
    waves = function().of_rows(FOUR.values)
    means = ours.means[torch.from_numpy(FOUR.labels.astype(np.int64))]
    loss = torch.func.grad(lambda mean, wave: (wave - mean).square().sum())
    outer = torch.func.vmap(loss)(means, waves)
    for row, code in enumerate(FOUR.labels):
        block = ours.jacobian.reshape(2, 2 * PROBES, -1)[code]
        theirs = outer[row] @ block
        assert torch.allclose(ours.gradient(ours.of_rows(FOUR)[row]), theirs, atol=1e-5)


def test_the_sum_over_rows_is_the_gradient_of_equation_4() -> None:
    """sum over classes of n_c mean over t of |phi_D,c - phi_S,c|^2, here 3 rows and 1 row."""
    of = generator()
    theirs = synthetic(of)
    waves = real(FOUR)
    loss = 3 * ((waves[:3].mean(dim=0) - theirs[0]).abs() ** 2).mean()
    loss = loss + ((waves[3] - theirs[1]).abs() ** 2).mean()
    ours = space()
    total = ours.gradient(ours.of_rows(FOUR).sum(axis=0))
    assert torch.allclose(total, flat(loss, of), atol=1e-5)


def test_the_loss_of_whole_classes_is_equation_4() -> None:
    """By hand from complex numbers: shares 3/4 and 1/4, mean over t."""
    labels = torch.arange(2).repeat_interleave(BATCH // 2)
    made = generator().rows(labels, learning=True).detach()
    waves = function().of_rows(FOUR.values)
    target = torch.stack([waves[:3].mean(dim=0), waves[3]])
    losses = of_probes(function().waves(made), target, torch.tensor([[0.75], [0.25]]))
    phi, other = real(FOUR), synthetic(generator()).detach()
    first, second = (phi[:3].mean(dim=0) - other[0]).abs(), (phi[3] - other[1]).abs()
    expected = (0.75 * first**2 + 0.25 * second**2) / PROBES
    assert torch.allclose(losses, expected, atol=1e-6)


def test_the_mean_loss_of_rows_is_equation_4_plus_a_variance_that_depends_on_the_probe() -> None:
    """mean |z_i - phi_S|^2 = |phi_D - phi_S|^2 + 1 - |phi_D|^2: wrong for learning t."""
    waves = real(FOUR)
    phi, other = waves.mean(dim=0), synthetic(generator()).detach()[0]
    mean = ((waves - other).abs() ** 2).mean(dim=0)
    assert torch.allclose(mean, (phi - other).abs() ** 2 + 1 - phi.abs() ** 2, atol=1e-5)
    assert float((1 - phi.abs() ** 2).std()) > 0.01


def test_the_noise_has_as_many_numbers_as_gradients_have_directions() -> None:
    ours = space()
    parameters = sum(parameter.numel() for parameter in generator().parameters)
    assert ours.of_rows(FOUR).shape == (4, 2 * 2 * PROBES)
    assert 2 * 2 * PROBES < parameters == ours.jacobian.shape[1]
    assert ours.of_rows(FOUR.take(np.array([], dtype=np.intp))).shape == (0, 2 * 2 * PROBES)


def test_assigned_gradients_have_the_order_of_the_parameters() -> None:
    network = generator()
    ours = GradientSpace(network, function(), 2, BATCH)
    coordinates = ours.of_rows(FOUR)[0]
    ours.assign(coordinates)
    of = generator()
    gap = real(FOUR)[0] - synthetic(of)[0]
    written = torch.autograd.grad((gap.abs() ** 2).mean(), of.parameters)
    for parameter, gradient in zip(network.parameters, written, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-5)


def test_the_usual_norm_is_the_mean_over_unit_differences() -> None:
    ours = space()
    matrix = ours.coefficients.reshape(len(ours.coefficients), 2, -1)
    unit = torch.randn(100_000, 2 * PROBES, generator=torch.Generator().manual_seed(0))
    unit = unit / unit.norm(dim=1, keepdim=True)
    squares = [(unit @ matrix[:, code].T).square().sum(dim=1).mean() for code in (0, 1)]
    assert ours.typical_norm == pytest.approx(math.sqrt(float(sum(squares)) / 2), rel=0.02)


def test_discrepancies_come_back_from_exact_answers() -> None:
    """With n_c / n as weights of phi_D,c - phi_S,c, which is what the sum over rows holds."""
    ours = space()
    made = synthetic(generator()).detach()
    waves = real(FOUR)
    gaps = torch.stack([3 * (waves[:3].mean(dim=0) - made[0]), waves[3] - made[1]]) / 4
    expected = (gaps.abs() ** 2).sum(dim=0)
    estimated = ours.discrepancies(ours.of_rows(FOUR).sum(axis=0), 4.0, 0.0)
    assert estimated.numpy() == pytest.approx(expected.numpy(), rel=0.05)
    # Where noise is all there is, it is not taken for a discrepancy.
    loud = np.random.default_rng(0).normal(size=len(ours.coefficients)) * 1e3
    assert float(ours.discrepancies(loud, 4.0, 1e3).max()) < 0.01


def test_the_adversary_prefers_probes_that_distinguish_the_rows_and_drops_none() -> None:
    adversary = Adversary(4, 0.5)
    assert adversary.weights().tolist() == [0.25] * 4
    for _ in range(200):
        adversary.learn(torch.arange(4), torch.tensor([0.1, 0.1, 0.1, 0.9]))
    weights = adversary.weights()
    assert float(weights.sum()) == pytest.approx(1.0)
    assert weights.numpy() == pytest.approx([1 / 8] * 3 + [5 / 8], abs=1e-4)
    drawn = adversary.draw(3, torch.Generator().manual_seed(0))
    assert len(set(drawn.tolist())) == 3
