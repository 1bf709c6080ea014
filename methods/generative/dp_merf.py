"""DP-MERF: a generator trained on one noisy mean embedding (Harder, Adamczewski and Park 2021).

With random Fourier features phi of norm 1 (see `_fourier`) the rows are summarised once, by the sum
of phi(x) (x) one-hot(label), to which one Gaussian mechanism of sensitivity 1 adds noise (sections
3 and 4.1 of the paper). A conditional generator is then trained by Adam on

    sum over classes c of | mean of phi(generated rows of c) - noisy sum_c / N_c |^2,

which is the squared maximum mean discrepancy with the noise in it. Training is post-processing, as
many steps as one likes; the release is a sample of the generator, IPC rows a class.

Rows with categorical columns have the paper's kernel for heterogeneous data (section 4.2): the
Gaussian kernel of the numbers plus the inner product of the one-hot codes. `kernel="joint"` is one
Gaussian kernel over everything encoded instead: it also sees how columns depend on each other
across the two kinds, in noisier features.

Deviations and choices:

* The classes' sums are asked for one class at a time. A row has one class, so that this is the
  same mechanism: noise on each coordinate, sensitivity 1 (2 / n in the paper, whose neighbours
  replace a row). N_c is the declared count; the paper pays for class weights with a second release.
* The length of the Gaussian kernel is `length_scale` times the root of the number of columns it
  sees. The paper takes the median distance of the rows, which is a raw look. 0.75 is what the
  authors' constants for MNIST (105) and FashionMNIST (127, squared, for pixels in [0, 1]) come to
  in pixels of [-1, 1]: 0.73 and 0.80.
* The generator is fully connected for images as well (200 and 100 units, code of 5 numbers, batch
  500, Adam at 0.01 decayed by 0.9 five times: the authors' settings). Their image generator has two
  convolutions after the first layer.
* Categories are drawn from the generator's probabilities at release.
* For survival the classes are the event statuses, and the time is one more number of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np

from bench import Claim, Method, PlannedEvents, PrivateData, Release, Rows, Spec, gaussian
from bench.methods._shared.generator import Generator, Training
from bench.methods.generative._fourier import Embedding, joint_kernel, sum_kernel

if TYPE_CHECKING:
    import torch


@final
@dataclass(frozen=True)
class DpMerf(Method):
    """A generator that matches one noisy mean embedding a class."""

    name: ClassVar[str] = "dp-merf"
    title: ClassVar[str] = "Generator matching noisy mean embeddings (DP-MERF)"
    paper: ClassVar[str] = (
        "Harder, Adamczewski and Park, DP-MERF: Differentially Private Mean Embeddings with "
        "Random Features, AISTATS 2021"
    )

    quick: ClassVar[Mapping[str, Any]] = {"steps": 15}

    features: int = 1000
    """Random Fourier features: half of them cosines."""
    length_scale: float = 0.75
    """Of the Gaussian kernel, times the root of the number of columns it sees."""
    kernel: Literal["sum", "joint"] = "sum"
    code: int = 5
    """Noise numbers that the generator starts from."""
    hidden: tuple[int, ...] = (200, 100)
    steps: int = 600
    batch: int = 500
    learning_rate: float = 0.01
    noise_multiplier: float | None = None
    """None calibrates the noise to the budget."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        kernel = joint_kernel if self.kernel == "joint" else sum_kernel
        embedding = kernel(private.encoder, self.features, self.length_scale, rng)
        parts = private.partition("class").values()

        def plans(noise: float) -> list[PlannedEvents]:
            return [part.plan(gaussian(noise)) for part in parts]

        noise = self.noise_multiplier or private.calibrate(plans)
        private.reserve_all(plans(noise))
        means = [
            part.gaussian_sum(lambda rows: embedding.of_rows(rows.values), 1.0, noise)
            / max(1, part.counts.total)
            for part in parts
        ]
        random = torch.Generator().manual_seed(int(rng.integers(2**63)))
        generator = Generator(private.encoder, self.code, self.hidden, random)
        last = generator.train(
            discrepancy(embedding, torch.tensor(np.asarray(means), dtype=torch.float32)),
            Training(self.steps, self.batch, self.learning_rate),
        )
        values, labels = generator.draw(spec.rows_per_class(private.counts), rng)
        claim = Claim.of(spec.budget, "one Gaussian mechanism on the mean embedding")
        notes = {"noise_multiplier": noise, "final_loss": last}
        return Release(Rows(values, labels), claim=claim, notes=notes)


def discrepancy(
    embedding: Embedding, target: torch.Tensor
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Squared distance of the generated rows' mean embedding from `target`, one row a class.

    For as many generated rows of each class, in the order of classes.
    """

    def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        of_each = embedding.of_tensor(rows).reshape(len(target), -1, embedding.width)
        return (of_each.mean(dim=1) - target).square().sum()

    return loss
