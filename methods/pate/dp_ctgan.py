"""DP-CTGAN over smartnoise-synth 1.0.8: its claim is recorded, and not believed.

A conditional generator (Xu et al. 2019) whose discriminator is trained by DP-SGD (opacus 0.14). In
`snsynth/pytorch/nn/dpctgan.py` of 1.0.8

* real rows of a batch are picked by category, with exact frequencies (`DataSampler`): a row with a
  rare category is used far more often than the sampling rate that is accounted;
* those frequencies drive the conditions of training and of `sample`, unaccounted;
* the budget is checked once per epoch, after it was spent;

so the rows are charged as read without noise. Worked around: categories and bounds come from the
schema; `torch.manual_seed(0)` in the discriminator, which makes its first weights the same in every
run, does nothing; rows are drawn without the real rows' frequencies (see `_smartnoise`),
given the class, and kept where the generated label agrees. The noise is calibrated to `steps` at
the rate that the library accounts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import (
    Environment,
    Method,
    NotApplicable,
    PrivateData,
    Release,
    Spec,
    sampled_gaussian,
    seeded_global_generators,
    silenced_output,
)
from bench.methods._shared.smartnoise import SMARTNOISE, budget_of, check_first_step, library_errors
from bench.methods.pate._smartnoise import (
    drawn_by_class,
    network_table,
    public_transformer,
    stratified,
)

_ORDERS = 62
"""Largest order less one of the library's accountant."""
_MARGIN = 1.25
"""opacus 0.14 converts RDP to a larger epsilon than the harness's accountant."""

REASON = (
    "smartnoise-synth 1.0.8's DP-CTGAN picks real rows by category with exact frequencies, so that "
    "rows of rare categories are used more often than accounted, and checks its budget after "
    "spending it"
)


@final
@dataclass(frozen=True)
class DpCtgan(Method):
    """A conditional generator against a discriminator trained by DP-SGD."""

    name: ClassVar[str] = "dp-ctgan"
    title: ClassVar[str] = "Conditional GAN with DP-SGD (DP-CTGAN)"
    paper: ClassVar[str] = (
        "Rosenblatt et al., Differentially Private Synthetic Data: Applied Evaluations and "
        "Enhancements, 2020"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2011.05537"
    family: ClassVar[str] = "GAN"
    tuned_on: ClassVar[tuple[str, ...]] = ("unknown",)
    environment: ClassVar[Environment | None] = SMARTNOISE
    quick: ClassVar[Mapping[str, Any]] = {"batch": 200, "steps": 2}

    batch: int = 500
    steps: int = 400
    """Steps of the generator: the noise is chosen so that the budget pays for them."""
    clip: float = 1.0

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        budget = budget_of(spec, "DP-CTGAN")
        check_first_step(budget, 1.0, _ORDERS)
        encoder, rows = private.encoder, private.raw(REASON)
        # The library samples and accounts by the rows that it gets, not by the declared number.
        total = len(rows)
        if total < 2:
            raise NotApplicable("it trains on batches of two rows at least, and there are fewer")
        batch = min(self.batch, total // 2 * 2)
        # Two steps of the discriminator for each of the generator, in whole epochs.
        epochs = math.ceil(self.steps / max(1, total // batch))
        rate = batch / total
        noise = _MARGIN * private.calibrate(
            lambda noise: [private.plan(sampled_gaussian(rate, noise), 2 * self.steps)]
        )
        with silenced_output(), library_errors("DP-CTGAN"):
            from snsynth.pytorch.nn import DPCTGAN

            with seeded_global_generators(rng):
                network = DPCTGAN(
                    epsilon=budget.epsilon,
                    delta=budget.delta,
                    batch_size=batch,
                    epochs=epochs,
                    sigma=noise,
                    max_per_sample_grad_norm=self.clip,
                    verbose=False,
                    cuda=False,
                )
                network.fit(network_table(rows, encoder), transformer=public_transformer(encoder))
                draw = drawn_by_class(network, encoder, rng)
                drawn = stratified(encoder, draw, spec.rows_per_class(private.counts), rng)
        return drawn.release(
            budget,
            "smartnoise-synth 1.0.8, DPCTGAN",
            noise_multiplier=noise,
            epochs=len(network.epsilon_list),
        )
