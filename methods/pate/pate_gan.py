"""PATE-GAN over smartnoise-synth 1.0.8: its claim is recorded, and not believed.

Jordon, Yoon and van der Schaar 2019: a student discriminator learns from noisy votes of teachers,
each trained on its own rows, and the generator learns from the student. In
`snsynth/pytorch/nn/pategan.py` of 1.0.8 student and teachers are separate networks, unlike in
PATE-CTGAN, but

* rows are dealt to teachers by their position, `np.array_split` into as many parts as the exact
  number of rows has thousands: one row more moves rows of every teacher on to the next, so that all
  votes can change where the accountant has one change;
* the budget is checked after it was spent: the last step goes beyond it;

so the rows are charged as read without noise. Worked around: categories and bounds come from the
schema; the generator's output is bounded (`binary=True` is the library's word for tanh), as the
data are; rows are drawn with uniform noise as in training (the library trains on uniform noise and
samples with normal noise), and kept where the generated label is the class asked for. It knows no
number of steps and its noise on votes is a constant: the batch is what decides how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench import (
    Environment,
    Floats,
    Integers,
    Method,
    NotApplicable,
    PrivateData,
    Release,
    Spec,
    seeded_global_generators,
    silenced_output,
)
from bench.methods._shared.smartnoise import SMARTNOISE, budget_of, library_errors, votes_allowed
from bench.methods.pate._smartnoise import (
    from_network,
    network_table,
    public_transformer,
    stratified,
)

_ORDERS = 100
_ROWS_PER_TEACHER = 1000
_VOTE_NOISE = 1000.0
"""Constants of the library."""

REASON = (
    "smartnoise-synth 1.0.8's PATE-GAN deals rows to teachers by their position and exact number, "
    "so that one row more changes the rows of every teacher where its accountant has one vote "
    "change, and it checks its budget after spending it"
)


@final
@dataclass(frozen=True)
class PateGan(Method):
    """A generator that learns from a student of noisy teachers."""

    name: ClassVar[str] = "pate-gan"
    title: ClassVar[str] = "GAN with teachers (PATE-GAN)"
    paper: ClassVar[str] = (
        "Jordon, Yoon and van der Schaar, PATE-GAN: Generating Synthetic Data with Differential "
        "Privacy Guarantees, ICLR 2019"
    )
    link: ClassVar[str] = "https://openreview.net/forum?id=S1zk9iRqF7"
    family: ClassVar[str] = "GAN"
    tuned_on: ClassVar[tuple[str, ...]] = ("unknown",)
    environment: ClassVar[Environment | None] = SMARTNOISE
    quick: ClassVar[Mapping[str, Any]] = {"steps": 2, "teacher_steps": 1, "student_steps": 1}

    steps: int = 60
    """Steps of the generator: the batch is chosen so that the budget pays for them."""
    code: int = 64
    """Noise numbers that the generator starts from."""
    teacher_steps: int = 5
    student_steps: int = 5

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        budget = budget_of(spec, "PATE-GAN")
        votes = votes_allowed(budget, 1.0, self.steps, _ORDERS, _VOTE_NOISE)
        batch = max(2, round(votes / self.student_steps))
        encoder = private.encoder
        rows = private.raw(REASON)
        # The library divides the rows that it gets, not the declared number.
        if len(rows) < _ROWS_PER_TEACHER:
            raise NotApplicable(
                f"it makes one teacher for every {_ROWS_PER_TEACHER} rows, and there are fewer "
                f"(declared: {private.counts.total})"
            )
        with silenced_output(), library_errors("PATE-GAN"):
            import torch
            from snsynth.pytorch.nn import PATEGAN

            with seeded_global_generators(rng):
                network = PATEGAN(
                    budget.epsilon,
                    delta=budget.delta,
                    binary=True,
                    latent_dim=self.code,
                    batch_size=batch,
                    teacher_iters=self.teacher_steps,
                    student_iters=self.student_steps,
                )
                network.fit(network_table(rows, encoder), transformer=public_transformer(encoder))
            random = torch.Generator().manual_seed(int(rng.integers(2**63)))

            def draw(label: int, count: int) -> tuple[Floats, Integers]:
                noise = torch.rand(count, self.code, generator=random, dtype=torch.float64)
                with torch.no_grad():
                    outputs = network.generator(noise).numpy()
                return from_network(outputs, encoder)

            drawn = stratified(encoder, draw, spec.rows_per_class(private.counts), rng)
        return drawn.release(budget, "smartnoise-synth 1.0.8, PATEGAN", batch=batch)
