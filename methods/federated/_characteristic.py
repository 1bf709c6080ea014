"""Distillation of a centre's rows by their characteristic function: DP-SGD, one noisy look, raw.

Federated distillation paper, sections 4.2 and 4.3. The characteristic function, the gradients of
single rows and where their noise lies are in `_characteristic_function`.

**One function a class.** A row is compared with the generated rows of its own class, and the losses
of all rows are added: equation 4 for each class, weighted by the share of the class at the centre.
Equation 3 as written averages over all (x, y) of a centre and uses no y: a generator that matches
it has rows, but no labels that belong to them.

**Probes.** `probing="random"` draws probing vectors, and in `FddDistiller` and `RawDistiller` the
extractor too, anew for each step: equation 4's expectation over t. `probing="learned"` is the other
player of Wang et al.'s min-max: max over distributions w on a pool of random probes of

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

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    Encoder,
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

    from bench.methods.federated._characteristic_function import (
        CharacteristicFunction,
        GradientSpace,
    )

Vectors = npt.NDArray[np.float64]
Kind = TypeVar("Kind", bound="MatchingSettings")

_LAST = 0.02
"""What is left of the learning rate at the last step."""


# Settings: fields that methods and distillers share ---------------------------------------------


@dataclass(frozen=True)
class MatchingSettings(ABC):  # noqa: B024 (fields only: methods and distillers add the rest)
    """What every way of matching a characteristic function has."""

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
    """Generated rows a step, all classes together."""
    steps: int = 100
    learning_rate: float = 0.01
    adversary_rate: float = 0.1
    """Step of the multiplicative weights, for learned probes."""

    def __post_init__(self) -> None:
        if self.probing not in ("random", "learned"):
            raise InputError(f"probing={self.probing!r} is not known; use random or learned")
        if self.extractor not in ("linear", "mlp"):
            raise InputError(f"extractor={self.extractor!r} is not known; use linear or mlp")

    def settings_of(self, kind: type[Kind]) -> Kind:
        """The same settings as another class of them, such as a distiller."""
        return kind(**{item.name: getattr(self, item.name) for item in fields(kind)})

    def function(
        self, encoder: Encoder, probes: int, random: torch.Generator
    ) -> CharacteristicFunction:
        """A new extractor with that many random probes."""
        from bench.methods.federated._characteristic_function import draw_function

        width, scale = self.extractor_width, self.scale
        return draw_function(encoder, self.extractor, width, probes, scale, random)


@dataclass(frozen=True)
class DescentSettings(MatchingSettings, ABC):
    """Of a generator that descends on other probes in each step."""

    pool: int = 256
    """Probes that learned ones are chosen from; their extractor is kept."""


@dataclass(frozen=True)
class RawDescentSettings(DescentSettings, ABC):
    """Without noise more probes and more steps cost time only."""

    probes: int = 64
    hidden: tuple[int, ...] = (100,)
    batch: int = 200
    steps: int = 300


@dataclass(frozen=True)
class NoisyDescentSettings(DescentSettings, ABC):
    """Of DP-SGD."""

    answers: int = 64
    """Most numbers that a step asks for, 2 k (classes): with many classes k is smaller."""
    expected_batch: float = 10_000.0
    """Expected real rows of a step; a centre with fewer gives all of them each time."""
    clip: float = 0.5
    """C, in units of the norm that the gradient of a row with |z - phi_S| = 1 has on average. This
    unit depends on generated rows only."""

    def probes_for(self, classes: int) -> int:
        """k, at least 1."""
        return max(1, min(self.probes, self.answers // (2 * classes)))


@dataclass(frozen=True)
class SingleLookSettings(MatchingSettings, ABC):
    """Of a generator that is trained on a noisy characteristic function."""

    probes: int = 300
    hidden: tuple[int, ...] = (100,)
    batch: int = 200
    steps: int = 200


# Pieces ------------------------------------------------------------------------------------------


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
        """Raise the probes that tell real from generated rows better than those beside them."""
        average = discrepancies.abs().mean().clamp_min(1e-12)
        gains = (discrepancies - discrepancies.mean()) / average
        self._logarithms[chosen] += self._rate * gains.clamp(-3.0, 3.0)


def _descend(
    settings: NoisyDescentSettings,
    encoder: Encoder,
    answer: Callable[[GradientSpace], tuple[Vectors, float]],
    rows: float,
    random: torch.Generator,
) -> Generator:
    """A generator trained by Adam, the learning rate falling linearly.

    `answer` gives the summed coordinates of the gradients of about `rows` rows, and the standard
    deviation of their noise.
    """
    import torch

    from bench.methods.federated._characteristic_function import GradientSpace

    generator = Generator(encoder, settings.code, settings.hidden, random)
    optimizer = torch.optim.Adam(generator.parameters, lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, _LAST, settings.steps)
    classes = len(encoder.schema.classes)
    probes = settings.probes_for(classes)
    learned = settings.probing == "learned"
    pool = settings.function(encoder, max(settings.pool, probes), random)
    adversary = Adversary(len(pool.probes), settings.adversary_rate)
    for _ in range(settings.steps):
        if learned:
            chosen = adversary.draw(probes, random)
            function = pool.at(chosen)
        else:
            function = settings.function(encoder, probes, random)
        space = GradientSpace(generator, function, classes, settings.batch)
        coordinates, noise = answer(space)
        space.assign(coordinates / rows)
        optimizer.step()
        schedule.step()
        if learned:
            adversary.learn(chosen, space.discrepancies(coordinates, rows, noise))
    return generator


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
    """DP-SGD on the generator (section 4.3): a Poisson sample, clipped gradients, noise, Adam."""

    def plans(self, centre: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        rate = centre.rate(self.expected_batch)
        return [centre.plan(sampled_gaussian(rate, noise), self.steps)]

    def distil(
        self,
        centre: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        multiplier, rate = _needed(noise), centre.rate(self.expected_batch)

        def answer(space: GradientSpace) -> tuple[Vectors, float]:
            # Where all generated rows are saturated the gradient vanishes, but no clip may be zero.
            clip = self.clip * max(space.typical_norm, 1e-9)
            total = centre.poisson_sum(space.of_rows, clip, multiplier, rate)
            return total, multiplier * clip

        rows = max(1.0, rate * centre.counts.total)
        generator = _descend(self, centre.encoder, answer, rows, _public(rng))
        return Rows(*generator.draw(sizes, rng))


@final
@dataclass(frozen=True)
class RawDistiller(RawDescentSettings, Distiller):
    """The same descent on all rows of the centre, without clipping and noise.

    The sum of all rows' gradients is the gradient of equation 4, taken in one backward pass.
    """

    def plans(self, centre: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return ()

    def distil(
        self,
        centre: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        import torch

        real = centre.raw("generators are trained on the raw rows, without clipping and noise")
        random, classes = _public(rng), len(sizes)
        counts = np.bincount(real.labels, minlength=classes)
        shares = torch.tensor(counts / max(1, len(real)), dtype=torch.float32)[:, None]
        own = [torch.from_numpy(np.flatnonzero(real.labels == code)) for code in range(classes)]
        learned = self.probing == "learned"
        pool = self.function(centre.encoder, max(self.pool, self.probes), random)
        adversary = Adversary(len(pool.probes), self.adversary_rate)

        def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            chosen = adversary.draw(self.probes, random)
            function = (
                pool.at(chosen) if learned else self.function(centre.encoder, self.probes, random)
            )
            waves = function.of_rows(real.values)
            target = torch.stack([waves[of].sum(dim=0) / max(1, len(of)) for of in own])
            discrepancies = of_probes(function.waves(rows), target, shares)
            if learned:
                adversary.learn(chosen, discrepancies.detach())
            return discrepancies.sum()

        generator = Generator(centre.encoder, self.code, self.hidden, random)
        generator.train(loss, Training(self.steps, self.batch, self.learning_rate))
        return Rows(*generator.draw(sizes, rng))


@final
@dataclass(frozen=True)
class CfDistiller(SingleLookSettings, Distiller):
    """One Gaussian mechanism on the characteristic function of each class, then free training.

    v(x) has norm 1: the sum over the rows of a class has sensitivity 1, and a row has one class.
    The noisy mean is projected onto the unit ball, where the mean of unit vectors lies: without
    that, a class of a few rows is nothing but noise of many times that length.
    """

    def plans(self, centre: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return [part.plan(gaussian(noise)) for part in centre.partition("class").values()]

    def distil(
        self,
        centre: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        import torch

        multiplier, random = _needed(noise), _public(rng)
        function = self.function(centre.encoder, self.probes, random)
        parts = centre.partition("class").values()
        counts = np.array([max(1, part.counts.total) for part in parts], dtype=np.float64)
        sums = [
            part.gaussian_sum(lambda rows: function.of_rows(rows.values), 1.0, multiplier)
            for part in parts
        ]
        means = np.asarray(sums) / counts[:, None]
        means /= np.maximum(1.0, np.linalg.norm(means, axis=1, keepdims=True))
        generator = Generator(centre.encoder, self.code, self.hidden, random)
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
