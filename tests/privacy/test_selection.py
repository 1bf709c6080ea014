"""Coded rows: noisy marginals, and the exponential mechanism over public candidates."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bench import Budget, Dependence, Distance, PrivateData, exponential, gaussian
from bench.data.encoder import EncodedRows
from bench.errors import BudgetExceededError, PrivacyContractError
from bench.privacy.accounting import rdp_epsilon
from bench.privacy.interception import Blind
from bench.privacy.noise import SeededNoise
from bench.privacy.opening import open_private
from bench.privacy.selection import CodedRows, digest, draw, exponents, on_grid
from tests.support.kernel import DATASET, opened

SIZES = (3, 2, 4)


def coded(table: list[tuple[float, ...]], sizes: tuple[int, ...] = SIZES) -> CodedRows:
    return CodedRows(None, np.array(table, dtype=np.float64).reshape(-1, len(sizes)), sizes)


def some_codes(rows: EncodedRows) -> np.ndarray:
    first = np.floor((rows.values[:, 0] + 1.0) * 1.49)
    return np.column_stack([first, rows.labels, np.zeros(len(rows))])


TABLES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)), min_size=0, max_size=7
)
ROWS = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3))


class TestCounts:
    def test_against_a_loop(self) -> None:
        table = [(0, 1, 3), (2, 0, 3), (0, 1, 0), (0, 1, 3)]
        counts = coded(table)._count((2, 0))
        expected = np.zeros((4, 3))
        for row in table:
            expected[row[2], row[0]] += 1
        assert np.array_equal(counts, expected)

    def test_codes_out_of_range_are_in_no_table_of_their_column(self) -> None:
        rows = coded([(3, 0, 0), (-1, 0, 0), (math.nan, 1, 0), (1e300, 1, 0), (1.5, 1, 3.99)])
        assert rows._count((0,)).tolist() == [0, 1, 0]
        assert rows._count((1,)).tolist() == [2, 3]
        assert rows._count((0, 2)).sum() == 1 and rows._count((0, 2))[1, 3] == 1

    def test_no_columns_are_one_cell(self) -> None:
        assert coded([(0, 0, 0)] * 5)._count(()).tolist() == 5

    @pytest.mark.parametrize("columns", [(0, 0), (3,), (-1,)])
    def test_unknown_columns_are_refused(self, columns: tuple[int, ...]) -> None:
        with pytest.raises(PrivacyContractError, match="different numbers below 3"):
            coded([]).checked(columns)

    def test_a_table_too_large_is_refused(self) -> None:
        with pytest.raises(PrivacyContractError, match="cells, more than"):
            coded([], (5000, 5000, 2)).checked((0, 1))


class TestScores:
    def test_distance_of_a_small_table(self) -> None:
        rows = coded([(0, 0, 0), (0, 1, 0), (2, 1, 0)])
        candidate = Distance((0,), np.array([1.0, 0.5, 0.0]), weight=2.0, offset=0.25)
        # |2 - 1| + |0 - 0.5| + |1 - 0| = 2.5
        assert candidate.score(rows) == Fraction(2) * (Fraction(5, 2) - Fraction(1, 4))

    def test_dependence_is_zero_for_independent_columns(self) -> None:
        rows = coded(list(itertools.product(range(3), range(2), range(4))))
        assert Dependence(0, (1, 2)).score(rows) == 0
        assert Dependence(0, ()).score(rows) == 0

    def test_dependence_of_equal_columns(self) -> None:
        rows = coded([(0, 0, 0)] * 2 + [(1, 1, 0)] * 2)
        # N_xp = diag(2, 2), N_x N_p / N = 1 in four cells.
        assert Dependence(0, (1,)).score(rows) == 2
        assert Dependence(0, (1,)).score(coded([])) == 0

    @settings(max_examples=60, deadline=None)
    @given(TABLES, ROWS, st.sampled_from([(0,), (1, 2), (0, 1, 2)]), st.integers(0, 3))
    def test_a_row_moves_a_distance_by_its_weight_at_most(
        self, table: list[tuple[int, ...]], row: tuple[int, ...], columns: tuple[int, ...], e: int
    ) -> None:
        size = math.prod(SIZES[column] for column in columns)
        candidate = Distance(columns, np.full(size, e / 3), weight=0.7)
        moved = candidate.score(coded([*table, row])) - candidate.score(coded(table))
        assert abs(moved) <= candidate.sensitivity

    @settings(max_examples=120, deadline=None)
    @given(TABLES, ROWS, st.sampled_from([(1,), (2,), (1, 2)]))
    def test_a_row_moves_a_dependence_by_twice_its_weight_at_most(
        self, table: list[tuple[int, ...]], row: tuple[int, ...], parents: tuple[int, ...]
    ) -> None:
        candidate = Dependence(0, parents, weight=0.5)
        moved = candidate.score(coded([*table, row])) - candidate.score(coded(table))
        assert abs(moved) <= candidate.sensitivity == 1

    def test_the_sensitivity_of_a_dependence_is_reached_in_the_limit(self) -> None:
        """A new value of both columns beside n independent rows: 2 n / (n + 1)."""
        for half in (1, 50):
            table = [(first, second, 0) for first in (0, 1) for second in (0, 1)] * half
            before = Dependence(0, (2,)).score(coded(table))
            after = Dependence(0, (2,)).score(coded([*table, (2, 0, 3)]))
            assert after - before == Fraction(2 * len(table), len(table) + 1) * 1
            assert after - before < Dependence(0, (2,)).sensitivity

    @pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
    def test_weights_are_positive_numbers(self, weight: float) -> None:
        for make in (lambda: Dependence(0, (), weight), lambda: Distance((), np.zeros(1), weight)):
            with pytest.raises(PrivacyContractError, match="weight of a candidate"):
                make()

    def test_estimates_and_offsets_are_finite_and_fit(self) -> None:
        with pytest.raises(PrivacyContractError, match="must be finite"):
            Distance((0,), np.array([math.nan, 0, 0]))
        with pytest.raises(PrivacyContractError, match="must be finite"):
            Distance((0,), np.zeros(3), offset=math.inf)
        with pytest.raises(PrivacyContractError, match="has 2 cells, not 3"):
            Distance((0,), np.zeros(2)).check(coded([]))

    def test_large_estimates_do_not_wrap_around(self) -> None:
        candidate = Distance((0, 1), np.full(1 << 22, 1e300))
        assert candidate.score(coded([], (1 << 11, 1 << 11, 1))) == 10**9 * (1 << 22)

    def test_digests_differ_with_everything_that_a_score_depends_on(self) -> None:
        candidates = [
            Distance((0,), np.zeros(3)),
            Distance((2,), np.zeros(3)),
            Distance((0,), np.array([0, 0, 1.0])),
            Distance((0,), np.zeros(3), weight=2.0),
            Distance((0,), np.zeros(3), offset=1.0),
            Dependence(0, (1,)),
            Dependence(0, (2,)),
            Dependence(1, (2,)),
            Dependence(0, (1,), 2.0),
        ]
        assert len({digest([one]) for one in candidates}) == len(candidates)
        assert digest(candidates[:2]) != digest(candidates[1::-1])


class TestMechanism:
    def test_probabilities_are_those_of_the_exponential_mechanism(self) -> None:
        gaps = [Fraction(0), Fraction(1, 3), Fraction(5, 2), Fraction(0), Fraction(7, 1)]
        words = SeededNoise(np.random.default_rng(5)).words
        drawn = Counter(draw(gaps, words) for _ in range(6_000))
        weights = np.exp([-float(gap) for gap in gaps])
        expected = 6_000 * weights / weights.sum()
        assert stats.chisquare([drawn[index] for index in range(5)], expected).pvalue > 1e-3

    def test_a_candidate_far_behind_is_never_chosen(self) -> None:
        words = SeededNoise(np.random.default_rng(6)).words
        gaps = [Fraction(10**9)] * 3 + [Fraction(0)]
        assert {draw(gaps, words) for _ in range(200)} == {3}

    def test_exponents_are_halved_and_scaled_by_the_largest_sensitivity(self) -> None:
        rows = coded([(0, 0, 0)] * 4)
        candidates = [Distance((0,), np.zeros(3), 2.0), Distance((0,), np.array([4.0, 0, 0]))]
        # Scores 8 and 0, sensitivity 2: epsilon 8 / (2 x 2).
        least, most = exponents(rows, candidates, 0.5)
        assert least == 0 and 0.5 * 8 / 4 * (1 - 2**-49) < most < 0.5 * 8 / 4
        assert exponents(rows, [Dependence(0, (1,)), candidates[0]], 1.0)[0] == Fraction(2) * (
            1 - Fraction(1, 1 << 50)
        )

    @settings(max_examples=30, deadline=None)
    @given(TABLES, ROWS, st.sampled_from([0.5, 2.0]), st.sampled_from([2.0, 8.0, 32.0]))
    def test_the_recorded_zcdp_bounds_the_divergence_of_neighbours(
        self, table: list[tuple[int, ...]], row: tuple[int, ...], epsilon: float, order: float
    ) -> None:
        """The Rényi divergence of the exact probabilities is at most order epsilon^2 / 8."""
        candidates = [
            *(Distance((column,), np.full(SIZES[column], 0.5)) for column in range(3)),
            Distance((0, 2), np.zeros(12)),
            Dependence(0, (1,), 0.5),
        ]

        def logs(rows: CodedRows) -> np.ndarray:
            gaps = np.array([-float(gap) for gap in exponents(rows, candidates, epsilon)])
            return gaps - np.logaddexp.reduce(gaps)

        first, second = logs(coded(table)), logs(coded([*table, row]))
        assert np.abs(first - second).max() <= epsilon
        for one, other in ((first, second), (second, first)):
            divergence = np.logaddexp.reduce(order * one + (1 - order) * other) / (order - 1)
            assert divergence <= order * epsilon**2 / 8 + 1e-12

    def test_the_event_is_what_the_accountant_composes(self) -> None:
        # rho-zCDP: epsilon <= rho + 2 sqrt(rho ln(1 / delta)) (Bun and Steinke 2016).
        rho = 10 * 0.3**2 / 8
        bound = rho + 2 * math.sqrt(rho * math.log(1e5))
        assert 0.5 * bound < rdp_epsilon(((exponential(0.3), 10),), 1e-5) <= bound


def asked(private: PrivateData) -> CodedRows:
    return private.coded(some_codes, SIZES)


class TestCalls:
    def test_codes_alone_are_neither_charged_nor_an_output(self) -> None:
        private, ledger = opened()
        asked(private)
        assert not ledger.entries and not private.adaptive

    def test_marginals_are_counts_with_the_noise_of_all_tables(self) -> None:
        private, ledger = opened()
        exact = [asked(private)._count(columns) for columns in ((0,), (0, 1))]
        noisy = private.marginals(asked(private), [(0,), (0, 1)], 1e-6)
        for one, other in zip(noisy, exact, strict=True):
            assert one.shape == other.shape and np.allclose(one, other, atol=1e-4)
        assert [entry.event for entry in ledger.entries] == [gaussian(1e-6)]
        many = private.coded(lambda rows: np.full((len(rows), 1), -1.0), (20_000,))
        noise = private.marginals(many, [(0,)] * 4, 3.0)
        assert np.std(noise) == pytest.approx(3.0 * 2.0, rel=0.02)

    def test_weights_divide_the_noise_and_not_the_event(self) -> None:
        private, ledger = opened()
        many = private.coded(lambda rows: np.full((len(rows), 1), -1.0), (20_000,))
        noise = private.marginals(many, [(0,)] * 3, 2.0, weights=(1.0, 2.0, 2.0))
        deviations = [float(np.std(one)) for one in noise]
        # |w| = 3: 2 * 3 / w; together they cost what one Gaussian of the multiplier 2 costs.
        assert deviations == pytest.approx([6.0, 3.0, 3.0], rel=0.03)
        assert sum(1.0 / one**2 for one in (6.0, 3.0, 3.0)) == pytest.approx(1.0 / 2.0**2)
        assert [entry.event for entry in ledger.entries] == [gaussian(2.0)]
        for wrong in ((1.0,), (1.0, 1.0, 0.0), (1.0, 1.0, float("nan"))):
            with pytest.raises(PrivacyContractError):
                private.marginals(many, [(0,)] * 3, 2.0, weights=wrong)
        assert len(ledger.entries) == 1

    def test_a_selection_is_charged_before_it_is_made(self) -> None:
        private, ledger = opened()
        rows = asked(private)
        chosen = private.select(rows, [Distance((0,), np.zeros(3)), Dependence(0, (1,))], 0.25)
        assert chosen in (0, 1) and private.adaptive
        assert [entry.event for entry in ledger.entries] == [exponential(0.25)]
        poor, charges = opened(Budget(0.01, 1e-5))
        with pytest.raises(BudgetExceededError):
            poor.select(asked(poor), [Dependence(0, (1,))], 1.0)
        assert not charges.entries

    def test_a_large_epsilon_finds_the_largest_score(self) -> None:
        private, _ = opened()
        rows = asked(private)
        exact = rows._count((0,)).astype(np.float64)
        wrong = exact + np.array([40.0, 0, 0])
        assert private.select(rows, [Distance((0,), e) for e in (exact, wrong, exact)], 50.0) == 1

    def test_noisy_scores(self) -> None:
        private, ledger = opened()
        rows = asked(private)
        candidates = [Dependence(0, (1,)), Distance((0,), np.full(3, 0.3), 3.0)]
        exact = [float(one.score(rows)) for one in candidates]
        assert np.allclose(private.scores(rows, candidates, 1e-6), exact, atol=1e-3)
        assert [entry.event for entry in ledger.entries] == [gaussian(1e-6)]
        many = [Dependence(0, (1,))] * 2_000
        noise = private.scores(rows, many, 1.5) - exact[0]
        # Each has the sensitivity 2: together 2 sqrt(2,000).
        assert noise.std() == pytest.approx(1.5 * 2 * math.sqrt(2_000), rel=0.06)

    def test_scores_are_rounded_exactly_and_bounded(self) -> None:
        scores = [Fraction(5, 16), Fraction(-1, 3), Fraction(10**30)]
        assert on_grid(scores, -3).tolist() == [2, -3, 1 << 61]

    def test_only_scores_with_a_proof_are_accepted(self) -> None:
        private, ledger = opened()
        for candidates in ([], [lambda rows: 1.0]):
            for call in (private.select, private.scores):
                with pytest.raises(PrivacyContractError, match="one or more candidates"):
                    call(asked(private), candidates, 1.0)  # type: ignore[arg-type]
        with pytest.raises(PrivacyContractError, match="no set of columns"):
            private.marginals(asked(private), [], 1.0)
        assert not ledger.entries

    def test_codes_belong_to_the_rows_that_were_coded(self) -> None:
        private, _ = opened()
        rows = asked(private)
        part = next(iter(private.partition("class").values()))
        for call in (
            lambda: part.marginals(rows, [(0,)], 1.0),
            lambda: part.select(rows, [Dependence(0, (1,))], 1.0),
        ):
            with pytest.raises(PrivacyContractError, match="of other private data"):
                call()

    @pytest.mark.parametrize("sizes", [(), (3, 2), (3, 0, 4)])
    def test_sizes_fit_the_codes(self, sizes: tuple[int, ...]) -> None:
        with pytest.raises(PrivacyContractError, match="sizes"):
            opened()[0].coded(some_codes, sizes)

    def test_nothing_follows_from_the_rows_when_the_kernel_is_blind(self) -> None:
        private, _ = open_private(
            DATASET, None, SeededNoise(np.random.default_rng(1)), interceptor=Blind()
        )
        rows = asked(private)
        assert rows._count((0,)).sum() == 0
