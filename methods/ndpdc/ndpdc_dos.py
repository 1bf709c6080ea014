"""NDPDC with decoupled optimisation and sampling (DOS of Dosser; Zheng et al. 2025).

NDPDC buys a new noisy sum for every step of its descent: the number of steps sets the price, and
each sum is used once. Here the two loops are separate. In the first, `sums` random extractors and
augmentations are drawn from public randomness, and the noisy feature sum of each class is bought
for each of them,

    u_i^c = N(0, sigma^2 I) + sum over a Poisson sample of T_c of clip(Phi_i(A_i(x))),

as in Algorithm 2 of the NDPDC paper. In the second, the synthetic rows of a class descend

    | L/M sum_j clip(Phi_i(A_i(s_j))) - u_i^c |^2

for as many steps as wanted: each pass takes all bought sums, with their extractors and
augmentations, in a new random order. That loop reads no private row and costs nothing. With fewer
sums the same budget has less noise in each of them.

**Privacy.** A row takes part in `sums` sampled Gaussian mechanisms of rate L / N_c and noise
multiplier sigma / G (Theorem III.2 of the NDPDC paper, with I = `sums`); classes are disjoint.
Everything is planned and charged before the first output.

Choices and deviations:

* 200 sums and 2,000 steps, for one core. The authors' published command for CIFAR10 has
  1,000 and 200,000, which `sums` and `iterations` ask for.
* The second part of Dosser (SER: matching in a subspace that is learned from images of a public
  diffusion model) needs a public generator and is left out.
* The step falls linearly to zero, for images as well: the bought sums are a fixed target, which a
  descent can converge to.
* Everything else is as in `ndpdc`: L = 50, G = 1, extractors, augmentation, steps, turns of
  `together` rows, time strata of survival. The two differ by the decoupling alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np

from bench import Claim, Method, PlannedEvents, PrivateData, Release, Spec, Task, sampled_gaussian
from bench.methods._shared.parameters import check_parameters
from bench.methods.ndpdc._time_strata import TimeStrata

if TYPE_CHECKING:
    import torch

    from bench.methods.ndpdc._matching import FeatureMap, NoisyMatching, PrivateTarget


@final
@dataclass(frozen=True)
class NdpdcDos(Method):
    """Rows whose random features match noisy sums that were all bought before."""

    name: ClassVar[str] = "ndpdc-dos"
    title: ClassVar[str] = "Nonlinear DP condensation, sums bought first (DOS)"
    paper: ClassVar[str] = (
        "Zheng, Dasu, Wang, Wang and De la Torre, Improving Noise Efficiency in Privacy-preserving "
        "Dataset Distillation, ICCV 2025"
    )
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

    quick: ClassVar[Mapping[str, Any]] = {"sums": 10, "iterations": 30}

    sums: int = 200
    """Noisy sums that are bought of each class, each with a new random extractor."""
    iterations: int = 2000
    """Steps of the descent, each on one of the bought sums."""
    group_size: float = 50.0
    """Expected number of real rows in a sum: L."""
    noise_multiplier: float | None = None
    """Noise multiplier sigma / G; None calibrates it to the budget."""
    clip: float = 1.0
    """Clipping norm of the features: G."""
    step: float = 1.0
    """First step for images: eta."""
    width: int = 8
    """Channels of the ConvNet, for images."""
    table_extractor: Literal["linear", "mlp"] = "mlp"
    table_width: int = 64
    table_step: float = 0.1
    """First step for tables: eta."""
    anneal: bool = True
    """Whether the step falls linearly to zero."""
    together: int = 200
    """Synthetic rows of a class that are moved in one iteration, at most."""
    table_scale: bool = True
    """Whether the step is multiplied by M / L for M > L rows per class, for tables."""
    time_bins: int = 4
    """Time bins per event status, for survival."""

    def __post_init__(self) -> None:
        check_parameters(self, self.name, {"sums": (self.sums > 0, "a positive number")})

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        from bench.methods.ndpdc._matching import NoisyMatching, RandomFeatures, released_rows

        parts = list(private.partition("class").values())
        strata = TimeStrata(self.time_bins, self.group_size, self.sums)
        survival = spec.task is Task.SURVIVAL

        def plans(noise: float) -> list[PlannedEvents]:
            if survival:
                return [plan for part in parts for plan in strata.plans(part, noise)]
            return [
                part.plan(sampled_gaussian(part.rate(self.group_size), noise), self.sums)
                for part in parts
            ]

        noise = self.noise_multiplier or private.calibrate(plans)
        private.reserve_all(plans(noise))
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        targets: list[PrivateTarget] = []
        sizes = spec.rows_per_class(private.counts)
        for label, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            targets += self._targets(
                label, part, size, strata if survival else None, noise, generator
            )
        image = private.schema.image_shape
        matching = NoisyMatching(
            RandomFeatures(
                "convnet" if image else self.table_extractor,
                image or (private.width,),
                self.width if image else self.table_width,
            ),
            self.iterations,
            self.group_size,
            self.clip,
            noise,
            self.step if image else self.table_step,
            self.anneal,
            self.together,
            bool(self.table_scale and not image),
        )
        bought = buy(matching, targets, self.sums, generator)
        descend(matching, bought, generator)
        rows = released_rows([target.synthetic for target in targets])
        claim = Claim.of(spec.budget, "sampled Gaussian sums, noise calibrated to the target")
        return Release(rows, claim=claim, notes={"noise_multiplier": noise})

    def _targets(
        self,
        label: int,
        part: PrivateData,
        size: int,
        strata: TimeStrata | None,
        noise: float,
        generator: torch.Generator,
    ) -> list[PrivateTarget]:
        """Rows of noise for a class, or for each time bin of an event status."""
        import torch

        from bench.methods.ndpdc._matching import PrivateTarget, SyntheticRows

        start = torch.randn((size, part.width), generator=generator)
        if strata is None:
            return [PrivateTarget(SyntheticRows(label, start), part, part.rate(self.group_size))]
        targets = []
        pieces = start.tensor_split(self.time_bins)
        for stratum, piece in zip(strata.cut(part, noise), pieces, strict=True):
            ends = (stratum.low, stratum.high)
            piece[:, -1].uniform_(*ends, generator=generator)
            synthetic = SyntheticRows(label, piece, ends)
            targets.append(PrivateTarget(synthetic, stratum.part, strata.rate(part)))
        return targets


@final
@dataclass(frozen=True)
class BoughtSum:
    """A noisy feature sum of a group's real rows, and what is needed to use it again."""

    rows: torch.Tensor
    """The synthetic rows of that group; moved in place."""
    feature_map: FeatureMap
    wanted: torch.Tensor


def buy(
    matching: NoisyMatching,
    targets: Sequence[PrivateTarget],
    count: int,
    generator: torch.Generator,
) -> list[list[BoughtSum]]:
    """Ask every group for `count` noisy sums; one list for each extractor.

    Groups for which no synthetic row is wanted are not asked.
    """
    import torch

    bought = []
    for _ in range(count):
        features = matching.random.extractor(generator)
        of_all: list[BoughtSum] = []
        for target in targets:
            if not len(target.synthetic.rows):
                continue
            feature_map = matching.random.augmented(features, generator)
            noisy = target.part.poisson_sum(
                feature_map.at_encoded, matching.clip, matching.noise_multiplier, target.rate
            )
            wanted = torch.from_numpy(noisy).float()
            of_all.append(BoughtSum(target.synthetic.rows, feature_map, wanted))
        bought.append(of_all)
    return bought


def descend(
    matching: NoisyMatching, bought: Sequence[Sequence[BoughtSum]], generator: torch.Generator
) -> None:
    """Take all iterations; each pass over the bought sums has a new random order."""
    import torch

    order: list[int] = []
    for iteration in range(matching.iterations):
        order = order or torch.randperm(len(bought), generator=generator).tolist()
        left = 1.0 - iteration / matching.iterations if matching.anneal else 1.0
        for one in bought[order.pop()]:
            matching.move(one.rows, one.feature_map, one.wanted, matching.step * left, generator)
