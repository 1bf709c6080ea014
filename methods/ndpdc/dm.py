"""Dataset condensation by distribution matching (DM; Zhao and Bilen 2023), without any privacy.

NDPDC adds noise to it, and the NDPDC paper's table I has it as the upper bound. In each iteration a
fresh random extractor Phi is drawn; for each class c an augmentation A is drawn, the same for real
and synthetic rows (siamese), and the synthetic rows of the class descend

    | mean over a mini-batch of T_c of Phi(A(x)) - mean over S_c of Phi(A(s)) |^2

(NDPDC paper, equation 3) by SGD with momentum 0.5. Mini-batches have 256 real rows of the class.

`initialisation="noise"` starts from N(0, I), which the NDPDC paper calls "DM with Rand Init";
`"real"` starts from real rows, as most results of the DM paper do. Such rows move little, so that
the release is close to real people.

Choices and deviations:

* Extractors, width, iterations, turns of `together` rows and strata of survival are those of
  `ndpdc`, so that the two differ by clipping and noise. The paper has 128 channels and 20,000
  iterations.
* The time bins of survival are exact quantiles of the raw rows of each event status: nothing here
  is private, so that nothing has to be paid for.
* The step is relative to a row: a row moves by `step` times M times the gradient, M being the rows
  moved. The authors take a step of 1 up to 50 rows per class and of 10 from 100 on (CIFAR10): 0.01
  to 0.1 in these units, 1 for a single row, for twenty times as many iterations. From noise that
  moves too little in 1,000, so that images have 30 (accuracy 0.18, 0.59, 0.90, 0.94 and 0.93 on
  `digits` with 0.1, 1, 10, 30 and 100). Normalisation in the ConvNet keeps such steps stable;
  linear extractors have none, and 0.5 diverges on a table of 6 encoded columns, so that tables
  have 0.1.
* A class without real rows keeps its start, drawn from N(0, I) even with `"real"`.
* The released rows are left as the descent leaves them, outside [-1, 1] too; decoding clips.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np

from bench import Between, EncodedRows, Method, PrivateData, Release, Spec, Task
from bench.methods._shared.parameters import check_parameters
from bench.methods.ndpdc._time_strata import time_edges

if TYPE_CHECKING:
    import torch

    from bench.methods.ndpdc._matching import RealTarget


@final
@dataclass(frozen=True)
class Dm(Method):
    """Rows whose random features have the same means as those of the real rows."""

    name: ClassVar[str] = "dm"
    title: ClassVar[str] = "Distribution matching without privacy (DM)"
    paper: ClassVar[str] = (
        "Zhao and Bilen, Dataset Condensation with Distribution Matching, WACV 2023"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2110.04181"
    family: ClassVar[str] = "condensation"
    tuned_on: ClassVar[tuple[str, ...]] = ("digits", "unknown")
    uses_budget: ClassVar[bool] = False

    search: ClassVar[Mapping[str, Any]] = {
        "table_step": Between(0.02, 0.5, log=True),
        "table_extractor": ("linear", "mlp"),
        "step": Between(3.0, 100.0, log=True),
        "momentum": (0.0, 0.5, 0.9),
    }
    quick: ClassVar[Mapping[str, Any]] = {"iterations": 15}

    initialisation: Literal["noise", "real"] = "noise"
    iterations: int = 1000
    batch: int = 256
    """Real rows of a class in each iteration."""
    step: float = 30.0
    """Step of images, see the module."""
    table_step: float = 0.1
    """Step of tables."""
    momentum: float = 0.5
    width: int = 16
    """Channels of the ConvNet, for images."""
    table_extractor: Literal["linear", "mlp"] = "linear"
    table_width: int = 64
    together: int = 200
    """Synthetic rows of a class that are moved in one iteration, at most."""
    time_bins: int = 4
    """Time bins per event status, for survival."""

    def __post_init__(self) -> None:
        check_parameters(self, self.name, {})

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        from bench.methods.ndpdc._matching import ExactMatching, RandomFeatures, released_rows

        real = private.raw("synthetic rows are matched to the raw rows, without noise")
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        targets: list[RealTarget] = []
        for label, size in enumerate(spec.rows_per_class(private.counts)):
            rows = real.take(real.labels == label)
            if spec.task is not Task.SURVIVAL:
                targets.append(self._target(label, rows, size, generator))
                continue
            edges = time_edges(rows.values[:, -1], self.time_bins)
            inside = np.searchsorted(edges[1:-1], rows.values[:, -1], "right")
            for number, share in enumerate(np.array_split(np.arange(size), self.time_bins)):
                ends = (float(edges[number]), float(edges[number + 1]))
                stratum = rows.take(inside == number)
                targets.append(self._target(label, stratum, len(share), generator, ends))
        image = private.schema.image_shape
        ExactMatching(
            RandomFeatures(
                "convnet" if image else self.table_extractor,
                image or (private.width,),
                self.width if image else self.table_width,
            ),
            self.iterations,
            self.batch,
            self.step if image else self.table_step,
            self.momentum,
            self.together,
        ).descend(targets, generator)
        return Release(released_rows([target.synthetic for target in targets]))

    def _target(
        self,
        label: int,
        real: EncodedRows,
        size: int,
        generator: torch.Generator,
        times: tuple[float, float] | None = None,
    ) -> RealTarget:
        import torch

        from bench.methods.ndpdc._matching import RealTarget, SyntheticRows

        rows = torch.tensor(real.values, dtype=torch.float32)
        if self.initialisation == "real" and len(rows):
            # Without replacement; the rows of a class that is too small are repeated.
            order = torch.randperm(len(rows), generator=generator)
            start = rows[order[torch.arange(size) % len(rows)]]
        else:
            start = torch.randn((size, rows.shape[1]), generator=generator)
            if times is not None:
                start[:, -1].uniform_(*times, generator=generator)
        return RealTarget(SyntheticRows(label, start, times), rows, torch.zeros_like(start))
