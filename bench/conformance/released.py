"""Everything that leaves a method, in parts that two runs can be compared by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from bench.audit.canaries import extreme_rows
from bench.data.dataset import Dataset
from bench.data.encoder import Floats
from bench.plugins.release import Detector, Release, ReleasedModel, TrainedInRounds

RESULT = ("rows", "labels", "weights", "soft labels", "predictions", "threshold")
"""The parts that a user of the release computes with; the others describe it."""


@final
@dataclass(frozen=True)
class Released:
    """Parts of a release by name, each as bytes: equal bytes mean that nothing differs."""

    parts: tuple[tuple[str, bytes], ...]

    def differences(self, other: Released) -> tuple[str, ...]:
        """Return the names of the parts that differ, or that only one of the two has."""
        mine, theirs = dict(self.parts), dict(other.parts)
        return tuple(name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name))


def released(release: Release, dataset: Dataset) -> Released:
    """Return all parts of a release; a model is represented by its predictions.

    The predictions are those for the test rows, which no method sees, and for extreme rows of the
    schema: after each round, where the model was trained in rounds.
    """
    return Released(tuple(_parts(release, dataset)))


def _parts(release: Release, dataset: Dataset) -> Iterator[tuple[str, bytes]]:
    rows, model = release.rows, release.model
    if rows is not None:
        yield "rows", _array(rows.values)
        yield "labels", _array(rows.labels)
        if rows.weights is not None:
            yield "weights", _array(rows.weights)
        if rows.soft_labels is not None:
            yield "soft labels", _array(rows.soft_labels)
    if model is not None:
        yield "predictions", b"".join(_predictions(model, _questions(dataset)))
        if isinstance(model, Detector):
            yield "threshold", _array(model.threshold)
    yield "notes", _text(sorted(release.notes.items()))
    yield "claim", _text(release.claim and [*vars(release.claim).items()])
    if release.federation is not None:
        yield "transfers", _text(release.federation.to_record())
    if release.ledger is not None:
        yield "ledger", release.ledger.to_json().encode()


def _predictions(model: ReleasedModel, values: Floats) -> Iterator[bytes]:
    yield _array(model.predict(values))
    if isinstance(model, TrainedInRounds):
        for number in range(model.rounds + 1):
            yield _array(model.after(number).predict(values))


def _questions(dataset: Dataset) -> Floats:
    extremes = np.stack([values for _, values, _ in extreme_rows(dataset)])
    values = np.concatenate([dataset.test.rows.values, extremes])
    return values[:, : dataset.encoder.feature_width]


def _array(numbers: Any) -> bytes:
    array = np.ascontiguousarray(numbers)
    return f"{array.dtype.str}{array.shape}".encode() + array.tobytes()


def _text(value: Any) -> bytes:
    # Notes may hold numbers of numpy, which JSON does not know; `repr` keeps every digit.
    return json.dumps(value, default=repr).encode()
