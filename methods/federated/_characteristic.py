"""Neural characteristic functions, and the distillers that match them at a client.

Federated distillation paper, sections 4.2 and 4.3: equation 3, after Wang et al., Dataset
Distillation with Neural Characteristic Function (CVPR 2025). With a random, public feature
extractor g and probing vectors t_1..t_k the characteristic function of a set D is
phi_D(t) = mean over D of exp(j <t, g(x)>). As real numbers a row is

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

**One function per class.** A row is compared with the generated rows of its own class, and the
losses of all rows are added: equation 4 for each class, weighted by the share of the class at the
client. Equation 3 as written averages over all (x, y) of a client and uses no y: a generator that
matches it has rows, but no labels that belong to them.

**Probes.** `probing="random"` draws probing vectors, and in `FddDistiller` and `RawDistiller` the
extractor too, anew for each step: equation 4's expectation over t. `probing="learned"` is the other
player of Wang et al.'s min-max: the maximum over distributions w on a pool of random probes of

    sum over t of w_t |phi_D(t) - phi_S(t)|^2    (*)

by multiplicative weights, against the generator's descent. The ascent never sees a row. A loss of
single rows would not do: the mean over rows of |z_i - phi_S|^2 is

    |phi_D - phi_S|^2 + 1 - |phi_D|^2,

whose gradient in the generator is right and whose gradient in t is not: it prefers probes at which
the real rows spread. The gradient of equation 4 in t itself is a product of two means over rows, no
sum over rows. But (*) is linear in w: the discrepancy of each probe is all that is needed, and that
is read off the noisy answers that the generator's step has paid for, which is post-processing.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    EncodedRows,
    Encoder,
    Floats,
    InputError,
    PlannedEvents,
    PrivacyContractError,
    PrivateData,
    Rows,
    gaussian,
    sampled_gaussian,
)
from bench.methods._shared.generator import Generator, Training
from bench.methods.federated._clients import Distiller

if TYPE_CHECKING:
    import torch

    from bench.methods._shared.extractors import Extractor

Vectors = npt.NDArray[np.float64]
Settings = TypeVar("Settings", bound="MatchingSettings")

_LAST = 0.02
"""Share of the learning rate that is left at the last step."""
_REFERENCE = 256
"""Rows drawn from the schema that the scale of probes refers to."""


# The characteristic function ---------------------------------------------------------------------


@final
@dataclass(frozen=True)
class CharacteristicFunction:
    """Extractor and probing vectors."""

    features: Extractor
    probes: torch.Tensor
    """Probing vectors t, (k, features)."""

    def waves(self, values: torch.Tensor) -> torch.Tensor:
        """v(x) of each row: (rows, 2k), each of norm 1."""
        import torch

        angles = self.features(values) @ self.probes.T
        return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(len(self.probes))

    def of_rows(self, values: Floats) -> torch.Tensor:
        """v(x) of encoded rows, without a graph."""
        import torch

        with torch.no_grad():
            return self.waves(torch.from_numpy(np.array(values, dtype=np.float32)))

    def at(self, chosen: torch.Tensor) -> CharacteristicFunction:
        """The function at these probes only."""
        return CharacteristicFunction(self.features, self.probes[chosen])


def draw_function(
    encoder: Encoder,
    kind: Literal["linear", "mlp"],
    width: int,
    probes: int,
    scale: float,
    random: torch.Generator,
) -> CharacteristicFunction:
    """Draw a fresh extractor and probes t ~ N(0, scale^2 I / V).

    V is the total variance of the features over rows drawn uniformly from the public schema, so
    that <t, g(x)> has the standard deviation `scale` over them, for any extractor and any table.
    """
    import torch

    from bench.methods._shared.extractors import extractor

    features = extractor(kind, (encoder.width,), width, random)
    with torch.no_grad():
        reference = features(uniform_rows(encoder, _REFERENCE, random))
    spread = float(reference.var(dim=0).sum().sqrt())
    size = (probes, reference.shape[1])
    return CharacteristicFunction(features, torch.randn(size, generator=random) * scale / spread)


def uniform_rows(encoder: Encoder, count: int, random: torch.Generator) -> torch.Tensor:
    """Rows drawn uniformly from the schema: numbers in [-1, 1], any category as likely."""
    import torch

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
        import torch

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

    def of_rows(self, rows: EncodedRows) -> Vectors:
        """Coordinates of the gradient of each row: a row function of the kernel."""
        import torch

        labels = torch.from_numpy(np.array(rows.labels, dtype=np.int64))
        differences = self._function.of_rows(rows.values) - self.means[labels]
        vectors = torch.zeros(len(rows), len(self.coefficients))
        for code in range(len(self.means)):
            members = labels == code
            vectors[members] = differences[members] @ self.coefficients[:, code].T
        return vectors.numpy().astype(np.float64)

    def gradient(self, coordinates: Vectors) -> torch.Tensor:
        """Coordinates as one flat vector of the generator's parameters."""
        flat: torch.Tensor = self._basis @ self._basis.new_tensor(coordinates)
        return flat

    def assign(self, coordinates: Vectors) -> None:
        """Set the gradients of the generator's parameters, for an optimizer."""
        flat, at = self.gradient(coordinates), 0
        for parameter in self._parameters:
            size = parameter.numel()
            parameter.grad = flat[at : at + size].reshape(parameter.shape).clone()
            at += size

    def discrepancies(self, coordinates: Vectors, rows: float, noise: float) -> torch.Tensor:
        """|phi_D(t) - phi_S(t)|^2 of each probe, as far as noisy coordinates show it.

        Summed over classes, each difference weighted by its share of the rows. The coordinates are
        -2 sum_c R_c s_c plus noise, where s_c is the sum of v_i - m_c over the rows of class c. s
        is estimated by its posterior mean, for s ~ N(0, rows^2 / (2k)) and noise
        of standard deviation `noise`: nothing but what was answered already is used.
        """
        import torch

        system = self.coefficients.reshape(len(self.coefficients), -1).double()
        ridge = (noise / rows) ** 2 * self.means.shape[1]
        gram = system.T @ system
        gram += (ridge + 1e-6 * float(gram.diagonal().mean())) * torch.eye(len(gram))
        answer = system.T @ torch.from_numpy(coordinates / rows)
        shares = torch.linalg.solve(gram, answer).reshape(self.means.shape)
        cosines, sines = shares.chunk(2, dim=1)
        squares: torch.Tensor = (cosines.square() + sines.square()).sum(dim=0) * cosines.shape[1]
        return squares.float()


def _jacobian(outputs: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    """(outputs, parameters): one backward pass per output, all at once."""
    import torch

    pieces = torch.autograd.grad(
        outputs, parameters, torch.eye(len(outputs)), is_grads_batched=True
    )
    return torch.cat([piece.reshape(len(outputs), -1) for piece in pieces], dim=1).detach()


# Settings: fields that methods and distillers share ---------------------------------------------


@dataclass(frozen=True)
class MatchingSettings(ABC):  # noqa: B024 (fields only: methods and distillers add the rest)
    """Settings of every way to match a characteristic function."""

    probing: Literal["random", "learned"] = "random"
    probes: int = 8
    """k: asked for in each step, or (`fdd-cf`) once and for all."""
    extractor: Literal["linear", "mlp"] = "linear"
    extractor_width: int = 64
    scale: float = 0.75
    """Standard deviation of <t, g(x)> over rows drawn uniformly from the schema."""
    code: int = 5
    """Noise numbers that the generator starts from."""
    hidden: tuple[int, ...] = (64,)
    batch: int = 64
    """Generated rows per step, all classes together."""
    steps: int = 100
    learning_rate: float = 0.01
    adversary_rate: float = 0.1
    """Step of the multiplicative weights, for learned probes."""

    def __post_init__(self) -> None:
        if self.probing not in ("random", "learned"):
            raise InputError(f"probing={self.probing!r} is not known; use random or learned")
        if self.extractor not in ("linear", "mlp"):
            raise InputError(f"extractor={self.extractor!r} is not known; use linear or mlp")

    def settings_of(self, kind: type[Settings]) -> Settings:
        """Return these settings as another class of them, such as a distiller."""
        return kind(**{item.name: getattr(self, item.name) for item in fields(kind)})

    def function(
        self, encoder: Encoder, probes: int, random: torch.Generator
    ) -> CharacteristicFunction:
        """Draw a new extractor with that many random probes."""
        width, scale = self.extractor_width, self.scale
        return draw_function(encoder, self.extractor, width, probes, scale, random)


@dataclass(frozen=True)
class DescentSettings(MatchingSettings, ABC):
    """Settings of a generator that descends on other probes in each step."""

    pool: int = 256
    """Probes that learned ones are chosen from; their extractor is kept."""


@dataclass(frozen=True)
class RawDescentSettings(DescentSettings, ABC):
    """Settings without noise, where more probes and more steps cost time only."""

    probes: int = 64
    hidden: tuple[int, ...] = (100,)
    batch: int = 200
    steps: int = 300


@dataclass(frozen=True)
class NoisyDescentSettings(DescentSettings, ABC):
    """Settings of a generator trained by DP-SGD."""

    answers: int = 64
    """Most numbers that a step asks for, 2 k (classes): with many classes k is smaller."""
    expected_batch: float = 10_000.0
    """Expected real rows of a step; a client with fewer uses all of them each time."""
    clip: float = 0.5
    """C, in units of the norm that the gradient of a row with |z - phi_S| = 1 has on average. This
    unit depends on generated rows only."""

    def probes_for(self, classes: int) -> int:
        """Number of probes k for that many classes, at least 1."""
        return max(1, min(self.probes, self.answers // (2 * classes)))


@dataclass(frozen=True)
class SingleQuerySettings(MatchingSettings, ABC):
    """Settings of a generator that is trained on a noisy characteristic function."""

    probes: int = 300
    hidden: tuple[int, ...] = (100,)
    batch: int = 200
    steps: int = 200


# Learned probes ----------------------------------------------------------------------------------


@final
class Adversary:
    """Multiplicative weights over a pool of probes: the maximising player.

    Half of the chance stays spread evenly, so that every probe is asked for again.
    """

    def __init__(self, pool: int, rate: float) -> None:
        import torch

        self._rate = rate
        self._logarithms = torch.zeros(pool)

    def weights(self) -> torch.Tensor:
        """Chance of each probe."""
        return (self._logarithms.softmax(dim=0) + 1.0 / len(self._logarithms)) / 2.0

    def draw(self, count: int, random: torch.Generator) -> torch.Tensor:
        """Numbers of `count` different probes."""
        return self.weights().multinomial(count, generator=random)

    def learn(self, chosen: torch.Tensor, discrepancies: torch.Tensor) -> None:
        """Raise the probes that distinguish real from generated rows better than the others."""
        average = discrepancies.abs().mean().clamp_min(1e-12)
        gains = (discrepancies - discrepancies.mean()) / average
        self._logarithms[chosen] += self._rate * gains.clamp(-3.0, 3.0)


def of_probes(waves: torch.Tensor, target: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Each probe's part of equation 4, the classes weighted by their shares: k numbers.

    For as many generated rows of each class, in the order of classes; their sum is the loss.
    """
    means = waves.reshape(len(target), -1, waves.shape[1]).mean(dim=1)
    cosines, sines = (shares * (means - target).square()).sum(dim=0).chunk(2)
    return cosines + sines


def _public(rng: np.random.Generator) -> torch.Generator:
    import torch

    return torch.Generator().manual_seed(int(rng.integers(2**63)))


def _needed(noise: float | None) -> float:
    if noise is None:
        raise PrivacyContractError(
            "this distiller adds noise and got no noise multiplier; RawDistiller works without"
        )
    return noise


# Distillers --------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class FddDistiller(NoisyDescentSettings, Distiller):
    """DP-SGD on the generator (section 4.3): a Poisson sample, clipped gradients, noise, Adam.

    The learning rate falls linearly.
    """

    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        rate = client.rate(self.expected_batch)
        return [client.plan(sampled_gaussian(rate, noise), self.steps)]

    def distil(
        self,
        client: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        import torch

        multiplier, rate = _needed(noise), client.rate(self.expected_batch)
        rows = max(1.0, rate * client.counts.total)
        encoder, random = client.encoder, _public(rng)
        generator = Generator(encoder, self.code, self.hidden, random)
        optimizer = torch.optim.Adam(generator.parameters, lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, _LAST, self.steps)
        classes = len(encoder.schema.classes)
        probes = self.probes_for(classes)
        learned = self.probing == "learned"
        pool = self.function(encoder, max(self.pool, probes), random)
        adversary = Adversary(len(pool.probes), self.adversary_rate)
        for _ in range(self.steps):
            if learned:
                chosen = adversary.draw(probes, random)
                function = pool.at(chosen)
            else:
                function = self.function(encoder, probes, random)
            space = GradientSpace(generator, function, classes, self.batch)
            # Where all generated rows are saturated the gradient vanishes, but no clip may be zero.
            clip = self.clip * max(space.typical_norm, 1e-9)
            coordinates = client.poisson_sum(space.of_rows, clip, multiplier, rate)
            space.assign(coordinates / rows)
            optimizer.step()
            schedule.step()
            if learned:
                noise_scale = multiplier * clip
                adversary.learn(chosen, space.discrepancies(coordinates, rows, noise_scale))
        return Rows(*generator.draw(sizes, rng))


@final
@dataclass(frozen=True)
class RawDistiller(RawDescentSettings, Distiller):
    """Descent on all rows of the client, without clipping and noise.

    The sum of all rows' gradients is the gradient of equation 4, taken in one backward pass.
    """

    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return ()

    def distil(
        self,
        client: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        import torch

        real = client.raw("generators are trained on the raw rows, without clipping and noise")
        random, classes = _public(rng), len(sizes)
        counts = np.bincount(real.labels, minlength=classes)
        shares = torch.tensor(counts / max(1, len(real)), dtype=torch.float32)[:, None]
        members = [torch.from_numpy(np.flatnonzero(real.labels == c)) for c in range(classes)]
        learned = self.probing == "learned"
        pool = self.function(client.encoder, max(self.pool, self.probes), random)
        adversary = Adversary(len(pool.probes), self.adversary_rate)

        def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            chosen = adversary.draw(self.probes, random)
            function = (
                pool.at(chosen) if learned else self.function(client.encoder, self.probes, random)
            )
            waves = function.of_rows(real.values)
            target = torch.stack([waves[of].sum(dim=0) / max(1, len(of)) for of in members])
            discrepancies = of_probes(function.waves(rows), target, shares)
            if learned:
                adversary.learn(chosen, discrepancies.detach())
            return discrepancies.sum()

        generator = Generator(client.encoder, self.code, self.hidden, random)
        generator.train(loss, Training(self.steps, self.batch, self.learning_rate))
        return Rows(*generator.draw(sizes, rng))


@final
@dataclass(frozen=True)
class CfDistiller(SingleQuerySettings, Distiller):
    """One Gaussian mechanism on the characteristic function of each class, then free training.

    v(x) has norm 1: the sum over the rows of a class has sensitivity 1, and a row has one class.
    The noisy mean is projected onto the unit ball, where the mean of unit vectors lies: without
    that, a class of a few rows is nothing but noise of many times that length.
    """

    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return [part.plan(gaussian(noise)) for part in client.partition("class").values()]

    def distil(
        self,
        client: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        import torch

        multiplier, random = _needed(noise), _public(rng)
        function = self.function(client.encoder, self.probes, random)
        parts = client.partition("class").values()
        counts = np.array([max(1, part.counts.total) for part in parts], dtype=np.float64)
        sums = [
            part.gaussian_sum(lambda rows: function.of_rows(rows.values), 1.0, multiplier)
            for part in parts
        ]
        means = np.asarray(sums) / counts[:, None]
        means /= np.maximum(1.0, np.linalg.norm(means, axis=1, keepdims=True))
        generator = Generator(client.encoder, self.code, self.hidden, random)
        generator.train(
            self._loss(
                function,
                torch.tensor(means, dtype=torch.float32),
                torch.tensor(counts / counts.sum(), dtype=torch.float32)[:, None],
            ),
            Training(self.steps, self.batch, self.learning_rate),
        )
        return Rows(*generator.draw(sizes, rng))

    def _loss(
        self, function: CharacteristicFunction, target: torch.Tensor, shares: torch.Tensor
    ) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        """Equation 4 with the noisy function; classes count by their shares of the rows."""
        import torch

        adversary = Adversary(self.probes, self.adversary_rate)
        everything = torch.arange(self.probes)

        def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            discrepancies = of_probes(function.waves(rows), target, shares)
            if self.probing == "random":
                return discrepancies.sum()
            weighted = self.probes * (adversary.weights() * discrepancies).sum()
            adversary.learn(everything, discrepancies.detach())
            return weighted

        return loss
