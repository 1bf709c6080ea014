"""Exact rows, or what was computed from them, in some part of the release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from bench.conformance.mistakes.sound import Array, Example, around_class_means
from bench.data.encoder import EncodedRows, Floats
from bench.plugins.method import Spec
from bench.plugins.release import Release
from bench.privacy.kernel import PrivateData


@final
@dataclass(frozen=True)
class SoftLabelsFromRows(Example):
    """Adds soft labels by the distance to the exact class means, which the row function kept."""

    name: ClassVar[str] = "soft-labels-from-rows"
    title: ClassVar[str] = "exact statistics in soft labels"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        exact = np.zeros((len(private.schema.classes), private.width))

        def values(rows: EncodedRows) -> Floats:
            if len(rows):
                exact[rows.labels[0]] = rows.values.mean(axis=0)
            return rows.values

        release = around_class_means(private, spec, rng, function=values)
        assert release.rows is not None
        distances = ((release.rows.values[:, None, :] - exact) ** 2).sum(axis=2)
        weights = np.exp(-distances)
        soft = weights / weights.sum(axis=1, keepdims=True)
        return replace(release, rows=replace(release.rows, soft_labels=soft))


@final
@dataclass(frozen=True)
class RowsInNotes(Example):
    """Notes the first row that it saw, to show later what the input looked like."""

    name: ClassVar[str] = "rows-in-notes"
    title: ClassVar[str] = "exact rows in notes"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        seen: list[str] = []

        def values(rows: EncodedRows) -> Floats:
            seen.extend(np.array2string(row, precision=3) for row in rows.values[:1])
            return rows.values

        release = around_class_means(private, spec, rng, function=values)
        return replace(release, notes={"first_row": seen[0] if seen else "none"})


@final
@dataclass(frozen=True)
class KeptRows(Example):
    """Releases, as the first row, the row nearest to the noisy mean among those it was shown."""

    name: ClassVar[str] = "kept-rows"
    title: ClassVar[str] = "rows kept by a row function are released"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        kept: list[Floats] = []

        def values(rows: EncodedRows) -> Floats:
            kept.append(np.array(rows.values))
            return rows.values

        release = around_class_means(private, spec, rng, function=values)
        assert release.rows is not None
        released = np.array(release.rows.values)
        known = np.concatenate(kept)
        distances = ((known - released.mean(axis=0)) ** 2).sum(axis=1)
        if len(known):
            released[0] = np.clip(known[distances.argmin()], -1.0, 1.0)
        return replace(release, rows=replace(release.rows, values=released))


@final
@dataclass(frozen=True)
class BoundsFromRows(Example):
    """Clips the released rows to the smallest and largest values among the rows."""

    name: ClassVar[str] = "bounds-from-rows"
    title: ClassVar[str] = "bounds taken from the rows"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        low: Array = np.full(private.width, 1.0)
        high: Array = np.full(private.width, -1.0)

        def values(rows: EncodedRows) -> Floats:
            np.minimum(low, rows.values.min(axis=0, initial=1.0), out=low)
            np.maximum(high, rows.values.max(axis=0, initial=-1.0), out=high)
            return rows.values

        release = around_class_means(private, spec, rng, function=values)
        assert release.rows is not None
        clipped = np.clip(np.clip(release.rows.values, low, high), -1.0, 1.0)
        return replace(release, rows=replace(release.rows, values=clipped))
