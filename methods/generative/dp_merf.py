"""DP-MERF: a generator trained on one noisy mean embedding (Harder, Adamczewski and Park 2021).

With random Fourier features phi of norm 1 the rows are summarised once, by the sum of
phi(x) (x) one-hot(label), to which one Gaussian mechanism of sensitivity 1 adds noise (sections 3
and 4.1 of the paper). A conditional generator is then trained by Adam on

    sum over classes c of | mean of phi(generated rows of c) - noisy sum_c / N_c |^2,

which is the squared maximum mean discrepancy with the noise in it. Training is post-processing, as
many steps as one likes; the release is a sample of the generator, IPC rows per class.

**Features.** Random Fourier features of the Gaussian kernel exp(-|x - x'|^2 / (2 l^2)) (Rahimi and
Recht 2007): with frequencies w_j ~ N(0, I / l^2), j = 1..D/2,

    phi(x) = sqrt(2 / D) [cos(w_1 x), ..., cos(w_D/2 x), sin(w_1 x), ..., sin(w_D/2 x)].

|phi(x)| = 1 exactly, because cos^2 + sin^2 = 1: one row moves a sum of features by 1, whatever the
row is. Rows with categorical columns have the paper's kernel for heterogeneous data (section 4.2):
the features of the numbers beside the one-hot codes divided by the root of the number of
categorical columns. Both parts have norm 1, so that together they are divided by sqrt(2).
`kernel="joint"` is one
Gaussian kernel over everything encoded instead: it also sees how columns depend on each other
across the two kinds, in noisier features.

Deviations and choices:

* The classes' sums are asked for one class at a time. A row has one class, so that this is the
  same mechanism: noise on each coordinate, sensitivity 1 (2 / n in the paper, whose neighbours
  replace a row). N_c is the declared count; the paper pays for class weights with a second release.
* The length of the Gaussian kernel is `length_scale` times the root of the number of columns it
  sees. The paper takes the median distance of the rows, which is non-private access. 0.75 is what
  the authors' constants for MNIST (105) and FashionMNIST (127, squared, for pixels in [0, 1]) come
  to in pixels of [-1, 1]: 0.73 and 0.80.
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
import numpy.typing as npt

from bench import (
    Between,
    Categorical,
    Claim,
    Encoder,
    Floats,
    Method,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    gaussian,
)
from bench.methods._shared.generator import Generator, Training

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float32]


@final
@dataclass(frozen=True)
class DpMerf(Method):
    """A generator that matches one noisy mean embedding per class."""

    name: ClassVar[str] = "dp-merf"
    title: ClassVar[str] = "Generator matching noisy mean embeddings (DP-MERF)"
    paper: ClassVar[str] = (
        "Harder, Adamczewski and Park, DP-MERF: Differentially Private Mean Embeddings with "
        "Random Features, AISTATS 2021"
    )
    link: ClassVar[str] = "https://arxiv.org/abs/2002.11603"
    family: ClassVar[str] = "kernel features"
    tuned_on: ClassVar[tuple[str, ...]] = ("fashion-mnist", "mnist", "mnist-5k", "unknown")

    search: ClassVar[Mapping[str, Any]] = {
        "features": (500, 1000, 2000, 5000),
        "length_scale": Between(0.3, 3.0, log=True),
        "kernel": ("sum", "joint"),
        "steps": (300, 600, 1200),
        "learning_rate": Between(0.003, 0.03, log=True),
    }
    quick: ClassVar[Mapping[str, Any]] = {"steps": 15}

    features: int = 1000
    """Random Fourier features: half of them cosines."""
    length_scale: float = 0.75
    """Length of the Gaussian kernel, divided by the root of the number of columns it sees."""
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
    embedding: FourierEmbedding, target: torch.Tensor
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Squared distance of the generated rows' mean embedding from `target` (classes, features).

    For as many generated rows of each class, in the order of classes.
    """

    def loss(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        of_each = embedding.of_tensor(rows).reshape(len(target), -1, embedding.width)
        return (of_each.mean(dim=1) - target).square().sum()

    return loss


# Features ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class FourierEmbedding:
    """phi: encoded values to features of norm at most 1."""

    frequencies: Array
    """(D / 2, columns of the Gaussian kernel)."""
    smooth: npt.NDArray[np.intp]
    """Encoded columns that the Gaussian kernel sees."""
    linear: Array
    """(encoded width, further features): a linear map for the categories; may have no columns."""
    offset: Array
    """Added to the linear features."""

    @property
    def width(self) -> int:
        """Number of features."""
        return int(2 * len(self.frequencies) + self.linear.shape[1])

    @property
    def _scale(self) -> float:
        both = len(self.frequencies) > 0 and self.linear.shape[1] > 0
        return 1.0 / np.sqrt(2.0) if both else 1.0

    def of_rows(self, values: Floats) -> Array:
        """Features of encoded rows, one vector per row; of no rows as well."""
        features = np.empty((len(values), self.width), dtype=np.float32)
        half = len(self.frequencies)
        rows = np.asarray(values, dtype=np.float32)
        if half:
            angles = rows[:, self.smooth] @ self.frequencies.T
            # The same scale for both halves: this is where the norm of 1 comes from.
            scale = np.float32(self._scale / np.sqrt(half))
            features[:, :half] = scale * np.cos(angles)
            features[:, half : 2 * half] = scale * np.sin(angles)
        if self.linear.shape[1]:
            features[:, 2 * half :] = np.float32(self._scale) * (rows @ self.linear + self.offset)
        return features

    def of_tensor(self, values: torch.Tensor) -> torch.Tensor:
        """Features of generated rows, differentiable."""
        import torch

        pieces = []
        half = len(self.frequencies)
        if half:
            angles = values[:, self.smooth] @ torch.from_numpy(self.frequencies).T
            waves = torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)
            pieces.append(self._scale / np.sqrt(half) * waves)
        if self.linear.shape[1]:
            linear = values @ torch.from_numpy(self.linear) + torch.from_numpy(self.offset)
            pieces.append(self._scale * linear)
        return torch.cat(pieces, dim=1)


def joint_kernel(
    encoder: Encoder, features: int, length_scale: float, rng: np.random.Generator
) -> FourierEmbedding:
    """One Gaussian kernel over all encoded columns, one-hot codes included.

    Its length is `length_scale` times the root of the number of columns.
    """
    everything = np.arange(encoder.width)
    length = length_scale * encoder.max_norm
    nothing = np.zeros((encoder.width, 0), dtype=np.float32)
    return FourierEmbedding(
        _frequencies(encoder.width, features, length, rng), everything, nothing, nothing[0]
    )


def sum_kernel(
    encoder: Encoder, features: int, length_scale: float, rng: np.random.Generator
) -> FourierEmbedding:
    """A Gaussian kernel over the numbers plus a linear one over the categories (DP-MERF)."""
    categorical = [block for block in encoder.blocks if isinstance(block.column, Categorical)]
    smooth = np.array(
        [b.start for b in encoder.blocks if not isinstance(b.column, Categorical)], dtype=np.intp
    )
    count = len(smooth)
    frequencies = _frequencies(
        count, features if count else 0, length_scale * np.sqrt(max(1, count)), rng
    )
    codes = sum(max(2, block.stop - block.start) for block in categorical)
    linear = np.zeros((encoder.width, codes), dtype=np.float32)
    offset = np.zeros(codes, dtype=np.float32)
    root = np.sqrt(max(1, len(categorical)))
    at = 0
    for block in categorical:
        if block.stop - block.start == 1:
            # A binary column in {-1, 1} as the one-hot code ((1 - v) / 2, (1 + v) / 2).
            linear[block.start, at : at + 2] = (-0.5 / root, 0.5 / root)
            offset[at : at + 2] = 0.5 / root
            at += 2
        else:
            size = block.stop - block.start
            linear[block.slice, at : at + size] = np.eye(size) / root
            at += size
    return FourierEmbedding(frequencies, smooth, linear, offset)


def _frequencies(width: int, features: int, length: float, rng: np.random.Generator) -> Array:
    return (rng.normal(size=(features // 2, width)) / length).astype(np.float32)
