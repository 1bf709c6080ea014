"""A model trained directly with DP-SGD: what the budget buys without synthetic rows.

Abadi et al., Deep Learning with Differential Privacy (CCS 2016), Algorithm 1: in each step the
gradients of a Poisson sample are clipped one by one, summed, noised and applied. The kernel does
the sampling, clipping and noise; the noise is calibrated to the budget for all steps at once.

* Two or more classes: softmax regression, or one hidden tanh layer (`hidden` > 0; tanh is the
  choice of Papernot et al. 2021 for DP-SGD, whose gradients stay bounded).
* Survival: Cox's partial likelihood has no gradient of a single row, so the hazard is piecewise
  constant over equal pieces of the public time range: exp(a_j + x'b) in piece j. The released risk
  is x'b. With d_j = 1 for an event in piece j and t_j the time spent there (as a share of the
  range), the gradient of a row's log-likelihood sum_j d_j (a_j + x'b) - t_j exp(a_j + x'b) is
  r_j = d_j - t_j exp(a_j + x'b) for a_j, and x sum_j r_j for b.

The released weights are the mean over the second half of the steps: post-processing that takes
noise out. The settings are the same for every dataset.

`engine="opacus"` trains the same classifier by Opacus, as most people do. Its optimiser samples,
clips and adds noise by itself, outside of the kernel, from a generator that the method hands over:
the kernel checks none of it, so that the rows are read by `raw` and the ledger proves nothing. The
claim is that of Opacus' accountant. It is a rival for comparison, not a trusted mechanism: with
seeded noise of ordinary doubles Opacus does not offer what an entry in the table of trusted
mechanisms must (noise on a grid, from the kernel's generator).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from bench import (
    Claim,
    EncodedRows,
    Encoder,
    Floats,
    Method,
    NotApplicable,
    PrivateData,
    Release,
    ReleasedModel,
    Spec,
    Task,
    sampled_gaussian,
)
from bench.methods._shared.parameters import check_parameters

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float64]
Gradients = Callable[[Array, EncodedRows], Array]
"""(weights, rows) to one ascent direction per row: the gradient of its log-likelihood."""

_PIECES = 8
"""Pieces of the time range, for survival."""

_EXPONENT = 20.0
"""Log hazards per time range are cut at this, so that they do not overflow."""

OPACUS_REASON = (
    "Opacus samples the rows, clips their gradients and adds noise itself; the kernel checks none "
    "of these"
)


@final
@dataclass(frozen=True)
class DpSgd(Method):
    """Releases a model, not rows."""

    name: ClassVar[str] = "dp-sgd"
    title: ClassVar[str] = "Model trained directly with DP-SGD"
    paper: ClassVar[str] = "Abadi et al., Deep Learning with Differential Privacy, Algorithm 1"
    link: ClassVar[str] = "https://arxiv.org/abs/1607.00133"
    family: ClassVar[str] = "model"
    tuned_on: ClassVar[tuple[str, ...]] = ("unknown",)
    uses_ipc: ClassVar[bool] = False

    steps: int = 300
    expected_batch: float = 256.0
    clip: float = 1.0
    learning_rate: float = 2.0
    momentum: float = 0.9
    hidden: int = 0
    """Width of the hidden layer; 0 is a linear model. Survival is always linear."""
    engine: Literal["kernel", "opacus"] = "kernel"
    """Who samples, clips and adds noise. Opacus trains classifiers, and proves nothing here."""

    def __post_init__(self) -> None:
        check_parameters(self, self.name, {})

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        if self.engine == "opacus":
            return self._by_opacus(private, spec, rng)
        rate = private.rate(self.expected_batch)
        noise = private.calibrate(
            lambda noise: [private.plan(sampled_gaussian(rate, noise), self.steps)]
        )
        private.reserve(sampled_gaussian(rate, noise), self.steps)
        network = self._network(private.encoder, spec.task)
        weights = network.initial(rng)
        expected = max(1.0, rate * private.counts.total)
        velocity, mean = np.zeros_like(weights), np.zeros_like(weights)
        for step in range(self.steps):
            current = weights
            total = private.poisson_sum(
                lambda rows, current=current: network.gradients(current, rows),  # type: ignore[misc]
                self.clip,
                noise,
                rate,
            )
            velocity = self.momentum * velocity + total / expected
            weights = weights + self.learning_rate * (1 - self.momentum) * velocity
            late = step - self.steps // 2
            if late >= 0:
                mean += (weights - mean) / (late + 1)
        claim = Claim.of(spec.budget, "Poisson-sampled Gaussian steps, calibrated to the target")
        notes = {"noise_multiplier": noise, "rate": rate}
        return Release(model=network.trained(mean), claim=claim, notes=notes)

    def _by_opacus(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        """The same steps by Opacus' sampler, per-example gradients, optimiser and accountant."""
        if spec.task is Task.SURVIVAL:
            raise NotApplicable("`engine = opacus` trains classifiers; the hazard is the kernel's")
        from opacus.accountants.utils import get_noise_multiplier

        budget = spec.budget
        assert budget is not None  # `uses_budget`
        rate = private.rate(self.expected_batch)
        noise = float(
            get_noise_multiplier(
                target_epsilon=budget.epsilon,
                target_delta=budget.delta,
                sample_rate=rate,
                steps=self.steps,
                accountant="rdp",
                epsilon_tolerance=1e-3,
            )
        )
        rows = private.raw(OPACUS_REASON)
        network = _Classifier(
            private.encoder.feature_width, self.hidden, len(private.schema.classes)
        )
        weights = _opacus_weights(self, network, rows, rate, noise, rng)
        claim = Claim.of(spec.budget, "Opacus' RDP accountant, noise calibrated to the target")
        notes = {"noise_multiplier": noise, "rate": rate}
        return Release(model=network.trained(weights), claim=claim, notes=notes)

    def _network(self, encoder: Encoder, task: Task) -> _PiecewiseHazard | _Classifier:
        if task is Task.SURVIVAL:
            return _PiecewiseHazard(encoder.feature_width)
        return _Classifier(encoder.feature_width, self.hidden, len(encoder.schema.classes))


@final
@dataclass(frozen=True)
class _Classifier:
    """Softmax of a linear map, or of one hidden layer; weights in one vector."""

    width: int
    hidden: int
    classes: int

    def initial(self, rng: np.random.Generator) -> Array:
        """Zero for the linear model; a random hidden layer (the output layer starts at zero)."""
        inside = (self.width + 1) * self.hidden
        outer = (self.hidden or self.width) + 1
        start = rng.normal(0.0, 1.0 / np.sqrt(self.width + 1), inside)
        return np.concatenate([start, np.zeros(outer * self.classes)])

    def gradients(self, weights: Array, rows: EncodedRows) -> Array:
        """Log-likelihood gradient of each row."""
        inputs = _with_one(rows.values[:, : self.width])
        inner, outer = self.layers(weights)
        active = inputs if inner is None else _with_one(np.tanh(inputs @ inner))
        wrong = -_softmax(active @ outer)
        wrong[np.arange(len(wrong)), rows.labels] += 1.0
        last = _outer(active, wrong)
        if inner is None:
            return last
        behind = (wrong @ outer[:-1].T) * (1.0 - active[:, :-1] ** 2)
        return np.hstack([_outer(inputs, behind), last])

    def trained(self, weights: Array) -> ReleasedModel:
        """The model of these weights."""
        return _TrainedClassifier(*self.layers(weights))

    def layers(self, weights: Array) -> tuple[Array | None, Array]:
        """Weights into the hidden layer, if there is one, and out of it; last rows are biases."""
        inside = (self.width + 1) * self.hidden
        outer = weights[inside:].reshape(-1, self.classes)
        return (weights[:inside].reshape(-1, self.hidden) if self.hidden else None), outer


@final
@dataclass(frozen=True)
class _TrainedClassifier(ReleasedModel):
    inner: Array | None
    outer: Array

    def predict(self, values: Floats) -> Array:
        inputs = _with_one(values)
        active = inputs if self.inner is None else _with_one(np.tanh(inputs @ self.inner))
        return _softmax(active @ self.outer)


@final
@dataclass(frozen=True)
class _PiecewiseHazard:
    """Piecewise constant hazard, proportional in the features."""

    width: int

    def initial(self, rng: np.random.Generator) -> Array:
        """No effects; one expected event over the whole range."""
        return np.zeros(_PIECES + self.width)

    def gradients(self, weights: Array, rows: EncodedRows) -> Array:
        """Log-likelihood gradient of each row."""
        features = np.asarray(rows.values[:, : self.width], dtype=np.float64)
        # The encoder scales the public time range to [-1, 1].
        elapsed = (np.clip(rows.values[:, self.width], -1.0, 1.0) + 1.0) / 2.0 * _PIECES
        pieces = np.arange(_PIECES)
        spent = np.clip(elapsed[:, None] - pieces, 0.0, 1.0) / _PIECES
        ended = np.minimum(elapsed.astype(np.intp), _PIECES - 1)
        happened = (ended[:, None] == pieces) & (rows.labels == 1)[:, None]
        log_hazard = weights[:_PIECES] + (features @ weights[_PIECES:])[:, None]
        residual = happened - spent * np.exp(np.minimum(log_hazard, _EXPONENT))
        return np.hstack([residual, features * residual.sum(axis=1, keepdims=True)])

    def trained(self, weights: Array) -> ReleasedModel:
        """The model of these weights: relative risks only."""
        return _TrainedRisk(weights[_PIECES:])


@final
@dataclass(frozen=True)
class _TrainedRisk(ReleasedModel):
    coefficients: Array

    def predict(self, values: Floats) -> Array:
        return np.asarray(values, dtype=np.float64) @ self.coefficients


def _opacus_weights(
    settings: DpSgd,
    network: _Classifier,
    rows: EncodedRows,
    rate: float,
    noise: float,
    rng: np.random.Generator,
) -> Array:
    """Weights of `network` after all steps of Opacus, averaged over the second half of them."""
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from torch.nn import functional

    random = torch.Generator().manual_seed(int(rng.integers(2**63)))
    features = torch.tensor(rows.values[:, : network.width], dtype=torch.float64)
    labels = torch.from_numpy(np.asarray(rows.labels, dtype=np.int64))
    start = network.initial(rng)
    linear = [_torch_linear(weights) for weights in network.layers(start) if weights is not None]
    modules = [linear[0], torch.nn.Tanh(), linear[1]] if len(linear) == 2 else linear
    model = GradSampleModule(torch.nn.Sequential(*modules), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(
            model.parameters(), settings.learning_rate * (1 - settings.momentum), settings.momentum
        ),
        noise_multiplier=noise,
        max_grad_norm=settings.clip,
        expected_batch_size=max(1.0, rate * len(labels)),
        generator=random,
    )
    sampler = UniformWithReplacementSampler(
        num_samples=len(labels), sample_rate=rate, generator=random, steps=settings.steps
    )
    mean = np.zeros_like(start)
    for step, chosen in enumerate(sampler):
        optimizer.zero_grad()
        answers = model(features[chosen])
        functional.cross_entropy(answers, labels[chosen], reduction="sum").backward()
        optimizer.step()
        late = step - settings.steps // 2
        if late >= 0:
            mean += (np.concatenate([_flat(layer) for layer in linear]) - mean) / (late + 1)
    return mean


def _torch_linear(weights: Array) -> torch.nn.Linear:
    """A layer of torch with these weights, whose last row are the biases."""
    import torch

    inputs, outputs = len(weights) - 1, weights.shape[1]
    # Without the layer's own start, which draws from torch's global generator.
    layer: torch.nn.Linear = torch.nn.utils.skip_init(
        torch.nn.Linear, inputs, outputs, dtype=torch.float64
    )
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights[:-1].T))
        layer.bias.copy_(torch.from_numpy(weights[-1]))
    return layer


def _flat(layer: torch.nn.Linear) -> Array:
    """The inverse of `_torch_linear`, as one vector."""
    weights = layer.weight.detach().numpy().T, layer.bias.detach().numpy()[None]
    return np.concatenate(weights).ravel()


def _with_one(values: Floats) -> Array:
    return np.hstack([np.asarray(values, dtype=np.float64), np.ones((len(values), 1))])


def _outer(left: Array, right: Array) -> Array:
    """The outer product of each pair of rows, as one vector; of no rows as well."""
    width = left.shape[1] * right.shape[1]
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), width)


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Array = powers / powers.sum(axis=1, keepdims=True)
    return result
