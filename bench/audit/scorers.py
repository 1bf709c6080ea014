"""Scorers: how much a release looks as if the canary had been in the table.

A scorer is a function of the release, the canary and the public schema. Larger should mean `in`;
where it is the other way round, the first half of the trials shows it. `features` are the input of
the shadow classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import numpy.typing as npt

from bench.audit.canaries import Canary
from bench.data.encoder import Encoder
from bench.data.schema import Numeric
from bench.plugins.release import Release, ReleasedModel, Rows

Array = npt.NDArray[np.float64]

ROW_SCORERS = (
    "nearest row",
    "nearest row of its class",
    "density",
    "projection",
    "largest projection",
    "second moment",
    "copies",
    "histograms",
    "class share",
)
MODEL_SCORERS = ("confidence", "output")
SHADOW = "shadow classifier"

_COPY = 1e-3
"""Largest distance of a copy, over the root of the number of columns."""
_BANDWIDTH = 0.25
"""Bandwidth of the density, over the root of the number of columns."""
_BINS = 8
_FLOOR = 1e-6
_FEATURES = 192
"""Longest summary; longer ones are projected at random: a thousand trials fit few weights."""
_PROBES = 48


def scorer_names(width: int) -> tuple[str, ...]:
    """Return the names of so many scores: of released rows, or of a released model."""
    return ROW_SCORERS if width == len(ROW_SCORERS) else MODEL_SCORERS


@final
@dataclass(frozen=True)
class _Columns:
    """Columns of the histograms."""

    single: npt.NDArray[np.intp]
    """Encoded columns of one number."""
    bins: Array
    """Number of bins of each."""
    wide: tuple[slice, ...]
    """Blocks of one number per category."""

    @classmethod
    def of(cls, encoder: Encoder) -> _Columns:
        single = [block for block in encoder.blocks if block.stop - block.start == 1]
        bins = [float(_BINS) if isinstance(block.column, Numeric) else 2.0 for block in single]
        wide = tuple(block.slice for block in encoder.blocks if block.stop - block.start > 1)
        return cls(np.array([block.start for block in single], dtype=np.intp), np.array(bins), wide)


@final
@dataclass(frozen=True)
class Attacker:
    """Scores releases against canaries, from public knowledge only."""

    encoder: Encoder
    canaries: tuple[Canary, ...]
    _probes: Array = field(init=False, repr=False, compare=False)
    _columns: _Columns = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_columns", _Columns.of(self.encoder))
        rng = np.random.default_rng(1)
        probes = rng.uniform(-1.0, 1.0, (_PROBES, self.encoder.width))
        canaries = np.array([canary.values for canary in self.canaries[:16]], dtype=np.float64)
        object.__setattr__(self, "_probes", np.concatenate([canaries, probes]))

    def scores(self, release: Release, only: int | None = None) -> Array:
        """Return (canaries, scorers); with `only`, of one canary, and 0 for the others."""
        chosen = self.canaries if only is None else (self.canaries[only],)
        if release.model is not None:
            rows = _model_scores(release.model, self.encoder, chosen)
        else:
            table = self._table(release)
            rows = np.array([table.scores(canary) for canary in chosen])
        if only is None:
            return rows
        scores = np.zeros((len(self.canaries), rows.shape[1]))
        scores[only] = rows[0]
        return scores

    def _table(self, release: Release) -> _ReleasedTable:
        assert release.rows is not None
        return _ReleasedTable(release.rows, self.encoder, self._columns)

    def planted(self, release: Release, canary: Canary) -> Array:
        """Return scores of the same release with the canary copied into it: a planted bug."""
        if release.model is not None:
            # A model that has memorised it: certain of its label, or no error at all.
            return np.array([0.0, float(canary.label > 0)])
        assert release.rows is not None
        rows = release.rows
        same_class = np.flatnonzero(np.asarray(rows.labels) == canary.label)
        place = int(same_class[0]) if len(same_class) else 0
        values, labels = np.array(rows.values), np.array(rows.labels)
        values[place], labels[place] = canary.values, canary.label
        copied = replace(rows, values=values, labels=labels)
        return self._table(Release(copied)).scores(canary)

    def features(self, release: Release) -> npt.NDArray[np.float32]:
        """Return a summary of the release: moments of the classes, or answers of the model."""
        if release.model is not None:
            answers = _answers(release.model, self.encoder, self._probes)
            return _short(answers.reshape(-1)).astype(np.float32)
        return _short(self._table(release).moments()).astype(np.float32)


@final
class _ReleasedTable:
    """Released rows, prepared for several canaries."""

    def __init__(self, rows: Rows, encoder: Encoder, columns: _Columns) -> None:
        self._columns = columns
        self._encoder = encoder
        self._values = np.asarray(rows.values, dtype=np.float64)
        self._labels = np.asarray(rows.labels)
        weights = np.ones(len(rows)) if rows.weights is None else np.asarray(rows.weights, float)
        self._weights = weights / max(float(weights.sum()), _FLOOR)
        self._classes = len(encoder.schema.classes)

    def scores(self, canary: Canary) -> Array:
        """Return one number per scorer, in the order of ROW_SCORERS."""
        point = canary.values.astype(np.float64)
        scale = self._encoder.max_norm
        squares = ((self._values - point) ** 2).sum(axis=1)
        same = self._labels == canary.label
        share = float(self._weights[same].sum())
        if not same.any():  # no row of its class: all rows count
            same = np.ones(len(same), dtype=bool)
        inside, weights = squares[same], self._weights[same]
        weights = weights / max(float(weights.sum()), _FLOOR)
        along = self._values[same] @ (point / max(float(np.linalg.norm(point)), _FLOOR))
        exponent = -inside / (2.0 * (_BANDWIDTH * scale) ** 2)
        top = float(exponent.max())
        density = top + float(np.log(max(float(weights @ np.exp(exponent - top)), 1e-300)))
        return np.array(
            [
                -float(np.sqrt(squares.min())),
                -float(np.sqrt(inside.min())),
                density,
                float(weights @ along),
                float(along.max()),
                float(weights @ along**2),
                float((inside <= (_COPY * scale) ** 2).sum()),
                self._histograms(point, same, weights),
                share,
            ]
        )

    def _histograms(self, point: Array, chosen: npt.NDArray[np.bool_], weights: Array) -> float:
        """Return the mean log share of the chosen rows that fall into the canary's bins."""
        values = self._values[chosen]
        single, bins = self._columns.single, self._columns.bins
        same = [_binned(values[:, single], bins) == _binned(point[single], bins)]
        same += [
            (values[:, block].argmax(axis=1) == int(point[block].argmax()))[:, None]
            for block in self._columns.wide
        ]
        shares = weights @ np.concatenate(same, axis=1)
        return float(np.log(shares + 1.0 / (len(weights) + 1.0)).mean())

    def moments(self) -> Array:
        """Return share, mean and mean square of every class."""
        pieces: list[Array] = []
        for label in range(self._classes):
            chosen = self._labels == label
            weights = self._weights[chosen]
            share = float(weights.sum())
            values, weights = self._values[chosen], weights / max(share, _FLOOR)
            pieces += [np.array([share]), weights @ values, weights @ values**2]
        return np.concatenate(pieces)


def _binned(values: Array, bins: Array) -> Array:
    return np.minimum(np.maximum(np.floor((values + 1.0) / 2.0 * bins), 0.0), bins - 1.0)


def _answers(model: ReleasedModel, encoder: Encoder, values: Array) -> Array:
    features = values[:, : encoder.feature_width].astype(np.float32)
    answers = np.asarray(model.predict(features), dtype=np.float64)
    return np.nan_to_num(answers, nan=0.0, posinf=1e6, neginf=-1e6)


def _model_scores(model: ReleasedModel, encoder: Encoder, canaries: Sequence[Canary]) -> Array:
    values = np.array([canary.values for canary in canaries], dtype=np.float64)
    answers = _answers(model, encoder, values)
    if answers.ndim == 1:
        return np.stack([answers, answers], axis=1)
    labels = np.array([canary.label for canary in canaries])
    sure = np.log(np.maximum(answers[np.arange(len(labels)), labels], _FLOOR))
    return np.stack([sure, answers[:, -1]], axis=1)


def _short(summary: Array) -> Array:
    if len(summary) <= _FEATURES:
        return summary
    signs = np.random.default_rng(len(summary)).choice([-1.0, 1.0], (len(summary), _FEATURES))
    return np.asarray(summary @ signs / np.sqrt(len(summary)), dtype=np.float64)
