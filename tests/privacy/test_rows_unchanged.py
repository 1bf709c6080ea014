"""No function that gets private rows can change them for a later call.

NumPy's flag against writing does not stop torch: `torch.from_numpy(rows.values).clamp_()` in a row
function changed a third of the private numbers, unnoticed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from bench import PrivateData, gaussian
from bench.data.encoder import EncodedRows
from bench.privacy.trusted.table import TrustedMechanism
from tests.support.kernel import DATASET, opened

ORIGINAL = DATASET.train.rows.take(np.arange(len(DATASET.train)))


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """Restore the shared table where a test has failed, so that others do not fail with it."""
    yield
    for array, original in zip(arrays(DATASET.train.rows), arrays(ORIGINAL), strict=True):
        if not np.array_equal(array, original):
            torch.from_numpy(array).copy_(torch.from_numpy(original))


def arrays(rows: EncodedRows) -> tuple[np.ndarray, ...]:
    return rows.values, rows.labels, rows.sites, rows.positions


def vandalise(rows: EncodedRows) -> None:
    """Write into every array through torch, and by taking NumPy's flag off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(rows.values).clamp_(-0.1, 0.1)
        for array in arrays(rows)[1:]:
            torch.from_numpy(array).fill_(1)
    rows.values.setflags(write=True)
    rows.values[:, 0] = 7.0


def vandal_vectors(rows: EncodedRows) -> np.ndarray:
    seen = np.array(rows.values)
    vandalise(rows)
    return seen


def vandal_codes(rows: EncodedRows) -> np.ndarray:
    seen = np.array(rows.labels)[:, None]
    vandalise(rows)
    return seen


def vandal_parts(rows: EncodedRows) -> list[str]:
    seen = [str(label) for label in rows.labels]
    vandalise(rows)
    return seen


def vandal_model(*arguments: object) -> float:
    (rows,) = (argument for argument in arguments if isinstance(argument, EncodedRows))
    seen = float(rows.values.sum())
    vandalise(rows)
    return seen


def fit_and_update(private: PrivateData) -> object:
    models = private.fit_parts(private.partition("teacher", parts=3), vandal_model)
    models.update(vandal_model)
    return private.partition_sum(models, lambda model: [model], 1e6, 1e-9)


def kept_for_later(private: PrivateData) -> object:
    """A model that keeps its rows and writes when it is asked."""
    models = private.fit_parts(private.partition("teacher", parts=3), lambda rows, _: rows)
    return private.partition_sum(models, lambda rows: [vandal_model(rows)], 1e6, 1e-9)


def delegate(private: PrivateData) -> object:
    entry = TrustedMechanism(
        "vandal", "numpy", (), lambda _: gaussian(6.0), lambda r, e, g, p: vandal_model(r), "test"
    )
    return private.delegate(entry)


def raw(private: PrivateData) -> object:
    return vandal_model(private.raw("a test"))


CALLS: dict[str, Callable[[PrivateData], object]] = {
    "gaussian_sum": lambda private: private.gaussian_sum(vandal_vectors, 5.0, 1e-9),
    "poisson_sum of all rows": lambda private: private.poisson_sum(vandal_vectors, 5.0, 1e-9, 1.0),
    "poisson_sum": lambda private: private.poisson_sum(vandal_vectors, 5.0, 1e-9, 0.5),
    "histograms": lambda private: private.histograms(vandal_codes, [2], 1e-9),
    "partition": lambda private: private.partition(vandal_parts, ["0", "1"], name="vandal"),
    "fit_parts, update": fit_and_update,
    "partition_sum": kept_for_later,
    "delegate": delegate,
    "raw": raw,
}


@pytest.mark.parametrize("checked", [False, True], ids=["", "checked row by row"])
@pytest.mark.parametrize("name", CALLS)
def test_a_function_cannot_change_the_rows(name: str, checked: bool) -> None:
    private, _ = opened(check_rows=checked)
    parts = private.partition("class")
    CALLS[name](private)
    for part in parts.values():
        CALLS[name](part)
    for array, original in zip(arrays(private._rows), arrays(ORIGINAL), strict=True):
        assert np.array_equal(array, original)
    for code, part in enumerate(parts.values()):
        expected = ORIGINAL.take(ORIGINAL.labels == code)
        for array, original in zip(arrays(part._rows), arrays(expected), strict=True):
            assert np.array_equal(array, original)


def test_what_a_function_writes_is_not_seen_by_the_next_one() -> None:
    private, _ = opened()
    first = private.gaussian_sum(vandal_vectors, 5.0, 1e-9)
    second = private.gaussian_sum(lambda rows: rows.values, 5.0, 1e-9)
    assert first == pytest.approx(second, abs=1e-4)
    assert second == pytest.approx(ORIGINAL.values.sum(axis=0), abs=1e-2)


def test_a_model_sees_its_own_rows_again_after_it_changed_them() -> None:
    private, _ = opened()
    models = private.fit_parts(private.partition("teacher", parts=3), vandal_model)
    before = models._ask(float)
    models.update(lambda _, rows, rng: vandal_model(rows))
    assert models._ask(float) == before
