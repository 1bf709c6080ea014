"""Rows chosen at random and perturbed: the distiller of Random Subsampling + DP.

Federated distillation paper, section 5.1: "uses random sampling instead of neural characteristic
functions for data selection, combined with differential privacy". The paper gives no mechanism. A
chosen row is released as it is plus Gaussian noise, so the noise must hide any row the schema
allows. A centre cuts its rows of one class into as many random parts as it has rows to make and
chooses one row of each part, the one whose fixed position is lowest. Removing a row moves one part
alone, whose choice may become any other row or none: rows of norm at most b sqrt(d) (b = 1, one
unit a column: `Encoder.max_norm`) move by at most 2 b sqrt(d). One Gaussian mechanism of that
sensitivity covers all parts, hence all rows of the centre.

The label of a released row is the class whose part it was chosen from. A row has one class, so this
says nothing about any row, and labels need no noise under add/remove adjacency. With
`noisy_labels` the centre does not look at classes: the label is one more block of the vector
(one-hot, norm 1), noised like the rest, and the class of a released row is its largest entry; the
sizes asked for are then those of the centre together, and classes come as the noise has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from bench import EncodedRows, Floats, InputError, PlannedEvents, PrivateData, Rows, gaussian
from bench.methods.federated._clients import Distiller


@final
@dataclass(frozen=True)
class RandomRowsDistiller(Distiller):
    """Chooses rows at random and adds noise to them."""

    noisy_labels: bool = False

    def plans(self, centre: PrivateData, noise: float) -> Sequence[PlannedEvents]:
        return [part.plan(gaussian(noise)) for part in self._parts(centre)]

    def distil(
        self,
        centre: PrivateData,
        noise: float | None,
        sizes: Sequence[int],
        rng: np.random.Generator,
    ) -> Rows:
        wanted = [sum(sizes)] if self.noisy_labels else list(sizes)
        if noise is None:
            raise InputError("random rows without noise are the method `subset`")
        pieces: list[Rows] = []
        for code, (part, size) in enumerate(zip(self._parts(centre), wanted, strict=True)):
            if size:
                pieces.append(self._chosen(part, code, size, noise))
        return Rows(
            np.concatenate([piece.values for piece in pieces]),
            np.concatenate([piece.labels for piece in pieces]),
        )

    def _parts(self, centre: PrivateData) -> list[PrivateData]:
        return [centre] if self.noisy_labels else [*centre.partition("class").values()]

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
