"""NDPDC, nonlinear differentially private dataset condensation (Zheng and Li, Algorithm 2).

Synthetic rows start as N(0, I). In each of I iterations a fresh random extractor Phi is drawn; for
each class c an augmentation A is drawn, the same for real and synthetic rows (siamese), and

    loss_c = | L/M sum_j clip(Phi(A(s_j))) - (N(0, sigma^2 I) + sum_i clip(Phi(A(x_i)))) |^2

where i runs over a Poisson sample of T_c with rate L / N_c and clip cuts a vector to norm G. Then
S <- S - eta grad loss. By Theorem III.2 a row takes part in I sampled Gaussian mechanisms of rate
L / N_c and noise multiplier sigma / G; classes are disjoint, so epsilon is the largest class's.

Choices where the paper is silent, and deviations:
* sigma is calibrated to the budget for all iterations (the paper fixes it: `noise_multiplier=1`).
* Images: the ConvNet extractor without batch normalisation, augmented; tables: an MLP of one hidden
  layer on the encoded row, 64 wide. The paper's single linear layer (14x64 on Adult) is
  `table_extractor="linear"`: it sees class means only, and is worse at the same budget.
* Width and iterations are for one core (the paper: 128 and 10,000, which `width` and `iterations`
  ask for).
* Tables: rows are encoded, categories as one-hot codes. `table_inputs="ordinal"` has one number per
  column, as the paper's 14 inputs for Adult (see `_ordinal`).
* Tables: the step falls linearly to zero (`table_anneal`), from `table_step`. With the paper's
  constant step of 1 the noise of the last sums stays in the rows, which run to 15 times the bounds
  on Adult, and trees trained on them are no better than guessing.
* Tables: the gradient in one row shrinks with L / M. For more than L rows per class the step is
  multiplied by M / L, so that rows of a large release move as far as those of a small one. The
  paper has one step for all M, which `table_scale=False` keeps; so do images here.
* A class of more than `together` synthetic rows takes turns: each iteration moves a random
  `together` of them, matched with the factor L / together. The paper has 200 at most.
* The released rows are left as the descent leaves them, outside [-1, 1] too; decoding clips.
* Survival: the classes are strata, event status by time bin, with the time as one more coordinate
  that is clipped to its bin at the end (see `_time_strata`, which pays for the bins).

The gradient is taken class by class: on one core that is faster than all images at once, which do
not fit the cache, and the sum is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np

from bench import (
    Between,
    Claim,
    Method,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    Task,
    sampled_gaussian,
)
from bench.methods._shared.parameters import check_parameters
from bench.methods.ndpdc._time_strata import TimeStrata


@final
@dataclass(frozen=True)
class Ndpdc(Method):
    """Rows whose random features match noisy sums of those of the real rows."""

    name: ClassVar[str] = "ndpdc"
    title: ClassVar[str] = "Nonlinear DP dataset condensation"
    paper: ClassVar[str] = "Zheng and Li, Differentially Private Dataset Condensation, Algorithm 2"
    link: ClassVar[str] = "https://openreview.net/forum?id=H8XpqEkbua_"
    family: ClassVar[str] = "condensation"
    tuned_on: ClassVar[tuple[str, ...]] = (
        "adult",
        "cifar10",
        "curial-sim",
        "fashion-mnist",
        "mnist",
        "mnist-5k",
        "unknown",
    )

    search: ClassVar[Mapping[str, Any]] = {
        "iterations": (500, 1000, 2000),
        "group_size": Between(25.0, 200.0, log=True),
        "table_step": Between(0.02, 0.5, log=True),
        "table_extractor": ("linear", "mlp"),
        "step": Between(0.3, 3.0, log=True),
        "width": (8, 16),
    }
    quick: ClassVar[Mapping[str, Any]] = {"iterations": 15}

    iterations: int = 1000
    group_size: float = 50.0
    """Expected number of real rows in a sum: L."""
    noise_multiplier: float | None = None
    """Noise multiplier sigma / G; None calibrates it to the budget."""
    clip: float = 1.0
    """Clipping norm of the features: G."""
    step: float = 1.0
    """Step for images: eta."""
    width: int = 8
    """Channels of the ConvNet, for images."""
    convolutions: Literal["float32", "bfloat16"] = "float32"
    """Number type of the ConvNet's convolutions. bfloat16 is faster where the processor has
    instructions for it, and rounds features to 3 digits, far below the noise of their sums."""
    table_extractor: Literal["linear", "mlp"] = "mlp"
    table_width: int = 64
    table_inputs: Literal["encoded", "ordinal"] = "encoded"
    """What the extractor sees of a table's row: its encoded values, or one number per column."""
    table_step: float = 0.1
    """Step for tables: eta."""
    table_anneal: bool = True
    """Whether the step falls linearly to zero, for tables; the paper's is constant."""
    together: int = 200
    """Synthetic rows of a class that are moved in one iteration, at most."""
    table_scale: bool = True
    """Whether the step is multiplied by M / L for M > L rows per class, for tables; the paper's is
    not."""
    time_bins: int = 4
    """Time bins per event status, for survival."""

    def __post_init__(self) -> None:
        check_parameters(self, self.name, {})

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        from bench.methods.ndpdc import _ordinal
        from bench.methods.ndpdc._matching import (
            NoisyMatching,
            PrivateTarget,
            RandomFeatures,
            SyntheticRows,
            released_rows,
        )

        parts = list(private.partition("class").values())
        sizes = spec.rows_per_class(private.counts)
        strata = TimeStrata(self.time_bins, self.group_size, self.iterations)
        survival = spec.task is Task.SURVIVAL

        def plans(noise: float) -> list[PlannedEvents]:
            if survival:
                return [plan for part in parts for plan in strata.plans(part, noise)]
            return [
                part.plan(sampled_gaussian(part.rate(self.group_size), noise), self.iterations)
                for part in parts
            ]

        noise = self.noise_multiplier or private.calibrate(plans)
        private.reserve_all(plans(noise))
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        image = private.schema.image_shape
        ordinal = self.table_inputs == "ordinal" and not image
        projection = _ordinal.ordinal_projection(private.encoder) if ordinal else None
        width = private.width if projection is None else projection.shape[1]
        targets: list[PrivateTarget] = []
        for label, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            start = torch.randn((size, width), generator=generator)
            if not survival:
                synthetic = SyntheticRows(label, start)
                targets.append(PrivateTarget(synthetic, part, part.rate(self.group_size)))
                continue
            for stratum, piece in zip(
                strata.cut(part, noise), start.tensor_split(self.time_bins), strict=True
            ):
                ends = (stratum.low, stratum.high)
                piece[:, -1].uniform_(*ends, generator=generator)
                synthetic = SyntheticRows(label, piece, ends)
                targets.append(PrivateTarget(synthetic, stratum.part, strata.rate(part)))
        NoisyMatching(
            RandomFeatures(
                "convnet" if image else self.table_extractor,
                image or (width,),
                self.width if image else self.table_width,
                torch.bfloat16 if self.convolutions == "bfloat16" else torch.float32,
                projection,
            ),
            self.iterations,
            self.group_size,
            self.clip,
            noise,
            self.step if image else self.table_step,
            bool(self.table_anneal and not image),
            self.together,
            bool(self.table_scale and not image),
        ).descend(targets, generator)
        rows = released_rows([target.synthetic for target in targets])
        if ordinal:
            rows = Rows(_ordinal.encoded(private.encoder, rows.values), rows.labels)
        claim = Claim.of(spec.budget, "Theorem III.2, noise calibrated to the target")
        return Release(rows, claim=claim, notes={"noise_multiplier": noise})
