"""Numbers that a mechanism can use, codes that count, and functions that act row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.data.encoder import EncodedRows
from bench.errors import PrivacyContractError
from bench.privacy.rowwise import as_numbers, codes_within, counted, evaluate, positive
from tests.support.kernel import DATASET

ROWS = DATASET.train.rows.take(np.arange(6))


def test_ordinary_positive_numbers_become_python_floats() -> None:
    for value in (1e-100, 1, np.float32(0.5), 1e100):
        assert type(positive(value)) is float and positive(value) == value
    for value in (0.99e-100, 1.01e100, 0.0, -1.0, math.nan, math.inf, -math.inf):
        with pytest.raises(PrivacyContractError, match="positive finite numbers"):
            positive(value)


def test_a_code_counts_from_its_bin_up_to_the_next() -> None:
    codes = np.array([0.0, 0.999, 1.0, 2.999, 3.0, -0.001, np.nan, np.inf, -np.inf, 1e300])
    assert counted(codes, 3).tolist() == [2, 1, 1]
    assert counted(np.array([]), 2).tolist() == [0, 0]
    assert counted(np.array([1.0]), 4).tolist() == [0, 1, 0, 0]


def test_codes_out_of_range_become_the_nearest() -> None:
    codes = np.array([[-1.0, 1.9], [2.0, 5.0], [7.0, np.nan], [-np.inf, np.inf]])
    assert codes_within(codes, [3, 2]).tolist() == [[0, 1], [2, 1], [2, 0], [0, 1]]


class TestNumbers:
    def test_what_can_be_numbers_is(self) -> None:
        assert as_numbers([[1, 2]], "answer").dtype == np.float64
        with pytest.raises(PrivacyContractError, match="the answer returned something that is not"):
            as_numbers("abc", "answer")

    def test_anything_that_can_be_detached_is(self) -> None:
        class Tensor:
            """As torch: a tensor with a gradient refuses to be an array."""

            def __init__(self, steps: tuple[str, ...] = ()) -> None:
                self.steps = steps

            def detach(self) -> Tensor:
                return Tensor((*self.steps, "detach"))

            def cpu(self) -> Tensor:
                return Tensor((*self.steps, "cpu"))

            def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
                if self.steps != ("detach", "cpu"):
                    raise ValueError("requires a gradient, or lies on a GPU")
                return np.array([4.0])

        assert as_numbers(Tensor(), "answer").tolist() == [4.0]


class TestEvaluation:
    def test_a_refusal_names_the_row_function(self) -> None:
        with pytest.raises(PrivacyContractError, match="the row function returned something"):
            evaluate(lambda rows: "text", ROWS, check_rows=False)

    def test_one_vector_per_row(self) -> None:
        assert evaluate(lambda rows: rows.values, ROWS, check_rows=False) == pytest.approx(
            ROWS.values
        )
        for wrong in (
            lambda rows: rows.labels,
            lambda rows: rows.values[1:],
            lambda rows: rows.values[None],
            lambda rows: np.zeros((len(rows) + 1, 2)),
        ):
            with pytest.raises(PrivacyContractError, match="not one vector"):
                evaluate(wrong, ROWS, check_rows=False)

    @pytest.mark.parametrize("check_rows", [True, False])
    @pytest.mark.parametrize("copied", [True, False])
    def test_the_function_gets_the_rows_themselves_only_where_nothing_else_reads_them(
        self, check_rows: bool, copied: bool
    ) -> None:
        handed: list[EncodedRows] = []

        def function(rows: EncodedRows) -> np.ndarray:
            handed.append(rows)
            return rows.values

        evaluate(function, ROWS, check_rows, copied)
        assert (handed[0] is ROWS) is (copied and not check_rows)
        handed.clear()
        evaluate(function, ROWS, check_rows)
        assert handed[0] is not ROWS

    def test_the_first_and_the_last_row_are_evaluated_alone(self) -> None:
        for place in (0, len(ROWS) - 1):

            def mixes_one(rows: EncodedRows, place: int = place) -> np.ndarray:
                vectors = rows.values.copy()
                if len(rows) > 1:
                    vectors[place] += 1.0
                return vectors

            with pytest.raises(PrivacyContractError, match="row by row"):
                evaluate(mixes_one, ROWS, check_rows=True)
            evaluate(mixes_one, ROWS, check_rows=False)

    def test_two_rows_are_enough_to_compare(self) -> None:
        pair = ROWS.take(np.arange(2))
        with pytest.raises(PrivacyContractError, match="row by row"):
            evaluate(lambda rows: rows.values + len(rows), pair, check_rows=True)

    def test_a_row_alone_has_nothing_to_be_compared_with(self) -> None:
        asked = []

        def function(rows: EncodedRows) -> np.ndarray:
            asked.append(len(rows))
            return rows.values + len(rows)

        evaluate(function, ROWS.take(np.arange(1)), check_rows=True)
        assert asked == [1]

    def test_rounding_of_a_batch_is_not_mixing(self) -> None:
        """Products of matrices round differently: a thousandth, or a ten-thousandth, is allowed."""

        def rounded(share: float, size: float) -> None:
            def function(rows: EncodedRows) -> np.ndarray:
                change = 1.0 + share if len(rows) > 1 else 1.0
                return np.full((len(rows), 1), size * change)

            evaluate(function, ROWS, check_rows=True)

        rounded(0.9e-3, 1000.0)
        rounded(0.5, 1e-4)
        with pytest.raises(PrivacyContractError):
            rounded(2e-3, 1000.0)
        with pytest.raises(PrivacyContractError):
            rounded(2.0, 2e-4)

    def test_nan_equals_itself(self) -> None:
        evaluate(lambda rows: np.full((len(rows), 1), np.nan), ROWS, check_rows=True)

    def test_the_width_is_the_same_without_rows(self) -> None:
        with pytest.raises(PrivacyContractError, match="depends on the rows"):
            evaluate(lambda rows: np.zeros((len(rows), min(1, len(rows)))), ROWS, check_rows=True)
