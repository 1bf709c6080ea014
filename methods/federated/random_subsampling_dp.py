"""Random Subsampling + DP: the baseline of the federated distillation paper (section 5.1).

"Uses random sampling instead of neural characteristic functions for data selection, combined with
differential privacy": the paper gives no mechanism. Here a chosen row is released as it is plus
Gaussian noise calibrated to the budget, so that the noise must hide any row the schema allows. A
client cuts its rows of one class into as many random parts as it has rows to make and chooses one
row of each part, the one whose fixed position is lowest. Removing a row moves one part alone, whose
choice may become any other row or none: rows of norm at most b sqrt(d) (b = 1, one unit per column:
`Encoder.max_norm`) move by at most 2 b sqrt(d). One Gaussian mechanism of that sensitivity covers
all parts, hence all rows of the client.

Numbers are cut to the public bounds and categories become their largest entry afterwards, which is
post-processing. At epsilon 1 the noise of one number is some 3.7 times the width of its range,
times the root of the number of columns: the rows are noise, and that is the point of the
baseline.

The label of a released row is the class whose part it was chosen from. A row has one class, so this
says nothing about any row, and labels need no noise under add/remove adjacency. With
`noisy_labels` the client does not use classes: the label is one more block of the vector (one-hot,
norm 1) with noise like the rest, and the class of a released row is its largest entry; the sizes
asked for are then those of the client together, and classes are what the noise makes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench import (
    EncodedRows,
    Floats,
    InputError,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    gaussian,
)
from bench.methods.federated._clients import Distiller, DistilsAtClients, joined


@final
@dataclass(frozen=True)
class RandomSubsamplingDp(DistilsAtClients):
    """Random rows of each client with noise that hides any row."""

    name: ClassVar[str] = "random-subsampling-dp"
    title: ClassVar[str] = "Random rows of each client, perturbed (Random Subsampling + DP)"
    paper: ClassVar[str] = (
        "Xu, Jin and Su, Privacy-Enhanced Federated Data Distillation, section 5.1 (baseline)"
    )
    family: ClassVar[str] = "federated sample"
    tuned_on: ClassVar[tuple[str, ...]] = ("unknown",)

    noisy_labels: bool = False
    """True perturbs the label as well, and makes no promise about the size of a class."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        claim = "Gaussian noise on each chosen row, calibrated to the target"
        distiller = RandomRowsDistiller(self.noisy_labels)
        return self.released(distiller, private, spec, rng, claim)


@final
@dataclass(frozen=True)
class RandomRowsDistiller(Distiller):
    """Chooses rows at random and adds noise to them."""

    noisy_labels: bool = False

    def plans(self, client: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return [part.plan(gaussian(noise)) for part in self._parts(client)]

    def distil(
        self,
        client: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        if noise is None:
            raise InputError("random rows without noise are the method `subset`")
        by_part = [sum(sizes)] if self.noisy_labels else list(sizes)
        return joined(
            [
                self._chosen(part, code, size, noise)
                for code, (part, size) in enumerate(zip(self._parts(client), by_part, strict=True))
                if size
            ]
        )

    def _parts(self, client: PrivateData) -> list[PrivateData]:
        return [client] if self.noisy_labels else [*client.partition("class").values()]

    def _chosen(self, part: PrivateData, code: int, size: int, noise: float) -> Rows:
        width, classes = part.width, len(part.schema.classes)

        def first(rows: EncodedRows, _: np.random.Generator) -> Floats:
            """The row of lowest position with its label; zero where the part has no row."""
            vector = np.zeros(width + (classes if self.noisy_labels else 0))
            if len(rows):
                chosen = int(np.argmin(rows.positions))
                vector[:width] = rows.values[chosen]
                if self.noisy_labels:
                    vector[width + int(rows.labels[chosen])] = 1.0
            return vector

        clip = float(np.hypot(part.encoder.max_norm, 1.0 if self.noisy_labels else 0.0))
        pieces = part.partition("chosen", parts=size)
        models = part.fit_parts(pieces, first)
        vectors = part.part_vectors(models, lambda vector: vector, clip, noise)
        labels = (
            vectors[:, width:].argmax(axis=1)
            if self.noisy_labels
            else np.full(size, code, dtype=np.int64)
        )
        values = np.clip(vectors[:, :width], -1.0, 1.0)
        for block in part.encoder.blocks:
            if block.stop - block.start > 1:
                largest = vectors[:, block.slice].argmax(axis=1)
                values[:, block.slice] = np.eye(block.stop - block.start)[largest]
        return Rows(values.astype(np.float32), labels.astype(np.int64))
