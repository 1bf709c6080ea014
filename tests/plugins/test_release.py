"""What is not a release of this schema is refused with its reason."""

from typing import Any

import numpy as np
import pytest

from bench.data.encoder import Encoder
from bench.errors import InvalidReleaseError
from bench.plugins.release import Release, Rows
from bench.plugins.returned import check_release
from tests.support.tables import ToyTable

ENCODER = Encoder(ToyTable().declare().schema)
GOOD = np.zeros((4, ENCODER.width))
LABELS = np.array([0, 1, 0, 1])


def test_a_good_release_passes() -> None:
    weighted = Rows(GOOD, LABELS, weights=np.ones(4), soft_labels=np.full((4, 2), 0.5))
    check_release(Release(weighted), ENCODER)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "either rows or a model"),
        (Rows(GOOD[:, 1:], LABELS), "expected 6 encoded columns"),
        (Rows(GOOD[:0], LABELS[:0]), "no rows"),
        (Rows(np.where(np.eye(4, 6) > 0, np.nan, 0.0), LABELS), "4 rows hold NaN"),
        (Rows(GOOD, LABELS.astype(float)), "integer class code"),
        (Rows(GOOD, LABELS[:3]), "integer class code"),
        (Rows(GOOD, LABELS + 1), "outside 0..1"),
        (Rows(GOOD, LABELS, weights=-np.ones(4)), "weights"),
        (Rows(GOOD, LABELS, soft_labels=np.ones((4, 3))), "soft labels"),
    ],
)
def test_bad_releases_are_named(rows: Any, message: str) -> None:
    with pytest.raises(InvalidReleaseError, match=message):
        check_release(Release(rows), ENCODER)
