"""The neural characteristic function, and what a generator needs to match it.

Federated distillation paper, equation 3, after Wang et al., Dataset Distillation with Neural
Characteristic Function (CVPR 2025): with a random, public feature extractor g and probing vectors
t_1..t_k the characteristic function of a set D is phi_D(t) = mean over D of exp(j <t, g(x)>). As
real numbers a row is

    v(x) = [cos <t_1, g(x)>, ..., cos <t_k, g(x)>, sin <t_1, g(x)>, ..., sin <t_k, g(x)>] / sqrt(k),

of norm 1 whatever the row is, because cos^2 + sin^2 = 1. With m_D = mean over D of v, equation 4
for a set of k probes is mean over t of |phi_D(t) - phi_S(t)|^2 = |m_D - m_S|^2.

**Gradients of single rows.** The loss of row i, whose class is y, is l_i = |v_i - m_y|^2, where m_y
is of the generated rows of class y. In the generator's parameters

    grad l_i = -2 J_y' (v_i - m_y),   J_y = d m_y / d parameters,   (2k x parameters),

so that the mean over the rows of a class is -2 J_y' (m_D - m_S): the gradient of equation 4, while
the value differs by the variance of v, which is constant in the parameters. A row enters through
v_i alone, and generated rows may share batch statistics: they are public.

**Noise where gradients can lie.** All gradients lie in the span of the rows of all J_c, which is
public and has at most 2 k (classes) dimensions. With the QR decomposition
[J_1' ... J_C'] = Q [R_1 ... R_C] a row is asked for its coordinates -2 R_y (v_i - m_y), which have
the norm of its gradient because Q' Q = I: clipping is the same. Q times their noisy sum is in law
what projecting the noisy sum of the full gradients onto the span would be, Gaussian noise being
the same in every direction: DP-SGD with the part of the noise left out that is no gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import torch

from bench import EncodedRows, Encoder, Floats
from bench.methods._shared.extractors import Extractor, Kind, extractor
from bench.methods._shared.generator import Generator

Vectors = npt.NDArray[np.float64]

_REFERENCE = 256
"""Rows drawn from the schema that the scale of probes refers to."""


@final
@dataclass(frozen=True)
class CharacteristicFunction:
    """Extractor and probing vectors."""

    features: Extractor
    probes: torch.Tensor
    """(k, features)."""

    def waves(self, values: torch.Tensor) -> torch.Tensor:
        """v(x) of each row: (rows, 2k), each of norm 1."""
        angles = self.features(values) @ self.probes.T
        return torch.cat([torch.cos(angles), torch.sin(angles)], dim=1) / math.sqrt(
            len(self.probes)
        )

    def of_rows(self, values: Floats) -> torch.Tensor:
        """The same of encoded rows, without a graph."""
        with torch.no_grad():
            return self.waves(torch.from_numpy(np.array(values, dtype=np.float32)))

    def at(self, chosen: torch.Tensor) -> CharacteristicFunction:
        """With these probes only."""
        return CharacteristicFunction(self.features, self.probes[chosen])


def draw_function(
    encoder: Encoder,
    kind: Kind,
    width: int,
    probes: int,
    scale: float,
    random: torch.Generator,
) -> CharacteristicFunction:
    """A fresh extractor and probes t ~ N(0, scale^2 I / V).

    V is the total variance of the features over rows drawn uniformly from the public schema, so
    that <t, g(x)> has the standard deviation `scale` over them, for any extractor and any table.
    """
    shape = encoder.schema.image_shape if kind == "convnet" else None
    features = extractor(kind, shape or (encoder.width,), width, random)
    with torch.no_grad():
        reference = features(uniform_rows(encoder, _REFERENCE, random))
    spread = float(reference.var(dim=0).sum().sqrt())
    size = (probes, reference.shape[1])
    return CharacteristicFunction(features, torch.randn(size, generator=random) * scale / spread)


def uniform_rows(encoder: Encoder, count: int, random: torch.Generator) -> torch.Tensor:
    """Rows drawn uniformly from the schema: numbers in [-1, 1], any category as likely."""
    rows = torch.rand(count, encoder.width, generator=random) * 2 - 1
    for block in encoder.blocks:
        if block.stop - block.start > 1:
            likeliest = rows[:, block.slice].argmax(dim=1, keepdim=True)
            rows[:, block.slice] = torch.zeros(count, block.stop - block.start).scatter_(
                1, likeliest, 1.0
            )
    return rows


@final
class GradientSpace:
    """Gradients of single rows at the present generator, in coordinates; see the module."""

    def __init__(
        self, generator: Generator, function: CharacteristicFunction, classes: int, batch: int
    ) -> None:
        each = max(2, batch // classes)
        labels = torch.arange(classes).repeat_interleave(each)
        waves = function.waves(generator.rows(labels, learning=True))
        means = waves.reshape(classes, each, -1).mean(dim=1)
        self._function = function
        self._parameters = generator.parameters
        self.means = means.detach()
        """(classes, 2k): m_c of the generated rows."""
        self.jacobian = _jacobian(means.reshape(-1), generator.parameters)
        """(classes 2k, parameters)."""
        self._basis, triangle = torch.linalg.qr(self.jacobian.T)
        self.coefficients = -2.0 * triangle.reshape(len(triangle), *means.shape)
        """(coordinates, classes, 2k): -2 R_c."""

    @property
    def typical_norm(self) -> float:
        """Root mean square norm of the gradient of a row with |v_i - m_y| = 1. Public."""
        return float(self.coefficients.square().sum(dim=0).mean().sqrt())

    def differences(self, rows: EncodedRows) -> torch.Tensor:
        """v_i - m_y of each row."""
        labels = torch.from_numpy(np.array(rows.labels, dtype=np.int64))
        return self._function.of_rows(rows.values) - self.means[labels]

    def of_rows(self, rows: EncodedRows) -> Vectors:
        """Coordinates of the gradient of each row: a row function of the kernel."""
        differences = self.differences(rows)
        vectors = torch.zeros(len(rows), len(self.coefficients))
        for code in range(len(self.means)):
            own = torch.from_numpy(np.flatnonzero(rows.labels == code))
            vectors[own] = differences[own] @ self.coefficients[:, code].T
        return vectors.numpy().astype(np.float64)

    def gradient(self, coordinates: Vectors) -> torch.Tensor:
        """Coordinates as one flat vector of the generator's parameters."""
        flat: torch.Tensor = self._basis @ torch.from_numpy(coordinates).float()
        return flat

    def assign(self, coordinates: Vectors) -> None:
        """Set the gradients of the generator's parameters, for an optimizer."""
        flat, at = self.gradient(coordinates), 0
        for parameter in self._parameters:
            size = parameter.numel()
            parameter.grad = flat[at : at + size].reshape(parameter.shape).clone()
            at += size

    def discrepancies(self, coordinates: Vectors, rows: float, noise: float) -> torch.Tensor:
        """|phi_D(t) - phi_S(t)|^2 of each probe, as far as noisy coordinates tell it.

        Summed over classes, each difference weighted by its share of the rows. The coordinates are
        -2 sum_c R_c s_c plus noise, where s_c is the sum of v_i - m_c over the rows of class c. s
        is estimated by its posterior mean, for s ~ N(0, rows^2 / (2k)) and noise
        of standard deviation `noise`: nothing but what was answered already is used.
        """
        system = self.coefficients.reshape(len(self.coefficients), -1).double()
        ridge = (noise / rows) ** 2 * self.means.shape[1]
        gram = system.T @ system
        gram += (ridge + 1e-6 * float(gram.diagonal().mean())) * torch.eye(len(gram))
        answer = system.T @ torch.from_numpy(coordinates / rows)
        shares = torch.linalg.solve(gram, answer).reshape(self.means.shape)
        cosines, sines = shares.chunk(2, dim=1)
        found: torch.Tensor = (cosines.square() + sines.square()).sum(dim=0) * cosines.shape[1]
        return found.float()


def _jacobian(outputs: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    """(outputs, parameters): one backward pass an output, all at once."""
    pieces = torch.autograd.grad(
        outputs, parameters, torch.eye(len(outputs)), is_grads_batched=True
    )
    return torch.cat([piece.reshape(len(outputs), -1) for piece in pieces], dim=1).detach()
