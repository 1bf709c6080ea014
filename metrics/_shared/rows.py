"""Encoded rows as arrays: weights of released rows, and whole records with the label."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bench import EncodedRows, Encoder, Evaluation, Floats, Integers, NotComputable, Rows
from bench.metrics._shared.bootstrap import Array


def row_weights(rows: Rows) -> Array:
    """Weights of released rows; 1 where the release has none."""
    return np.ones(len(rows)) if rows.weights is None else np.asarray(rows.weights, np.float64)


def positive_rows(evaluation: Evaluation) -> npt.NDArray[np.intp]:
    """Places of the released rows with a positive weight."""
    kept = np.flatnonzero(row_weights(evaluation.rows) > 0)
    if not len(kept):
        raise NotComputable("every released row has weight 0")
    return kept


def encoded_label(encoder: Encoder, labels: npt.ArrayLike) -> Array:
    """The label as the encoder does with a feature: -1 and 1, or one column for each of several."""
    classes, codes = len(encoder.schema.classes), np.asarray(labels)
    return 2.0 * codes[:, None] - 1.0 if classes == 2 else np.eye(classes)[codes]


def points(encoder: Encoder, values: Floats, labels: Integers) -> Array:
    """Whole records as points: features, time, and the label.

    An attacker who asks whether a record was used knows the whole record, its outcome included,
    and a release holds the outcome.
    """
    encoded = np.asarray(values, dtype=np.float64)
    return np.column_stack([encoded, encoded_label(encoder, labels)])


def real_test_rows(evaluation: Evaluation) -> EncodedRows:
    """The real test rows; a dataset without any has no score."""
    if not len(evaluation.dataset.test):
        raise NotComputable("the dataset has no test rows")
    return evaluation.dataset.test.rows


def real_training_rows(evaluation: Evaluation) -> EncodedRows:
    """The real training rows; a dataset without any has no score."""
    if not len(evaluation.dataset.train):
        raise NotComputable("the dataset has no training rows")
    return evaluation.dataset.train.rows
