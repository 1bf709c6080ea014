"""Which composition is the worst, which ones need no accountant, and what is computed of them."""

from __future__ import annotations

import itertools
import logging
import math

import numpy as np
import pytest
from dp_accounting import dp_event, pld, rdp

from bench.privacy import accounting
from bench.privacy.accounting import (
    Budget,
    ComposedEvents,
    absl_silenced,
    adaptive_order,
    compose_events,
    pld_epsilon,
    rdp_epsilon,
    undominated,
    worst_epsilon,
)
from bench.privacy.events import gaussian, laplace, sampled_gaussian

DELTA = 1e-5


def laplaces(*multipliers: float) -> ComposedEvents:
    return compose_events([(laplace(one), 1) for one in multipliers])


A, B, C = laplaces(1.0), laplaces(2.0), laplaces(3.0)


class Accountants:
    """Epsilons by hand in place of the accountants, and which were asked for."""

    def __init__(
        self, by_rdp: dict[ComposedEvents, float], by_pld: dict[ComposedEvents, float]
    ) -> None:
        self._by_rdp, self._by_pld = by_rdp, by_pld
        self.convolved: list[ComposedEvents] = []

    def rdp(self, one: ComposedEvents, delta: float, order: float | None) -> float:
        return self._by_rdp[one]

    def pld(self, one: ComposedEvents, delta: float) -> float:
        self.convolved.append(one)
        return self._by_pld[one]


def worst(
    monkeypatch: pytest.MonkeyPatch,
    by_rdp: dict[ComposedEvents, float],
    by_pld: dict[ComposedEvents, float],
    order: float | None = None,
    tight: bool = True,
) -> tuple[float, str, list[ComposedEvents]]:
    by_hand = Accountants(by_rdp, by_pld)
    monkeypatch.setattr(accounting, "rdp_epsilon", by_hand.rdp)
    monkeypatch.setattr(accounting, "pld_epsilon", by_hand.pld)
    return *worst_epsilon(by_rdp, DELTA, order, tight), by_hand.convolved


class TestWorst:
    def test_each_composition_has_the_smaller_bound_and_the_largest_of_them_counts(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A: min(5, 2) = 2; B: min(4, 3) = 3; C: min(3.5, 3.2) = 3.2.
        by_rdp, by_pld = {A: 5.0, B: 4.0, C: 3.5}, {A: 2.0, B: 3.0, C: 3.2}
        assert worst(monkeypatch, by_rdp, by_pld) == (3.2, "PLD", [A, B, C])
        # B: min(4, 6) = 4 by RDP, which is more than the 3.5 that C can have.
        assert worst(monkeypatch, by_rdp, {**by_pld, B: 6.0}) == (4.0, "RDP", [A, B])

    def test_no_pld_is_computed_where_rdp_is_already_below_the_worst(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        by_rdp, by_pld = {A: 5.0, B: 2.0, C: 1.0}, {A: 2.0, B: 1.9, C: 0.1}
        assert worst(monkeypatch, by_rdp, by_pld) == (2.0, "PLD", [A])

    def test_no_pld_is_computed_for_almost_no_noise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert worst(monkeypatch, {A: 199.9}, {A: 5.0}) == (5.0, "PLD", [A])
        assert worst(monkeypatch, {A: 200.0}, {A: 5.0}) == (200.0, "RDP", [])

    def test_equal_bounds_are_that_of_rdp(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert worst(monkeypatch, {A: 3.0}, {A: 3.0}) == (3.0, "RDP", [A])

    def test_an_epsilon_of_zero_has_an_accountant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert worst(monkeypatch, {A: 0.5}, {A: 0.0}) == (0.0, "PLD", [A])

    def test_rdp_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        by_rdp = {A: 1.0, B: 4.0, C: 2.0}
        assert worst(monkeypatch, by_rdp, {}, tight=False) == (4.0, "RDP", [])
        adaptive = worst(monkeypatch, by_rdp, {}, order=8.0)
        assert adaptive == (4.0, "RDP, order 8 (adaptive)", [])

    def test_no_composition_spends_nothing(self) -> None:
        for tight, order in itertools.product((True, False), (None, 8.0)):
            assert worst_epsilon([], DELTA, order, tight) == (0.0, "none")

    def test_tight_is_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(accounting, "pld_epsilon", lambda one, delta: 0.25)
        assert worst_epsilon([A], DELTA) == (0.25, "PLD")


def brute_force_dominated(one: ComposedEvents, other: ComposedEvents) -> bool:
    """Whether every event of `one` has a different partner in `other` that is at least as strong,
    and one of them is stronger or `other` has more. Gaussians only."""

    def strength(item: tuple[dp_event.DpEvent, int]) -> tuple[int, float, float]:
        event, count = item
        if isinstance(event, dp_event.PoissonSampledDpEvent):
            return count, event.sampling_probability, -event.event.noise_multiplier
        return count, 1.0, -event.noise_multiplier

    mine, theirs = [strength(item) for item in one], [strength(item) for item in other]
    return sorted(mine) != sorted(theirs) and any(
        all(
            all(low <= high for low, high in zip(small, large, strict=True))
            for small, large in zip(mine, chosen, strict=True)
        )
        for chosen in itertools.permutations(theirs, len(mine))
    )


class TestUndominated:
    def test_stronger_means_more_often_at_a_larger_rate_with_less_noise(self) -> None:
        strong = compose_events([(sampled_gaussian(0.2, 2.0), 5)])
        for rate, noise, count in ((0.1, 2.0, 5), (0.2, 3.0, 5), (0.2, 2.0, 4), (0.1, 3.0, 4)):
            weaker = compose_events([(sampled_gaussian(rate, noise), count)])
            assert undominated({strong, weaker}) == [strong]
        for rate, noise, count in ((0.3, 3.0, 5), (0.1, 1.0, 5), (0.1, 2.0, 6)):
            other = compose_events([(sampled_gaussian(rate, noise), count)])
            assert set(undominated({strong, other})) == {strong, other}

    def test_more_events_dominate_a_part_of_them(self) -> None:
        both = compose_events([(gaussian(3.0), 2), (sampled_gaussian(0.1, 2.0), 1)])
        assert undominated({both, compose_events([(gaussian(3.0), 2)])}) == [both]
        assert undominated({both, compose_events([(gaussian(4.0), 1)])}) == [both]
        stronger = compose_events([(gaussian(1.0), 1)])
        assert set(undominated({both, stronger})) == {both, stronger}

    def test_events_are_paired_by_count_then_rate_then_noise(self) -> None:
        def composed(*events: tuple[int, float, float]) -> ComposedEvents:
            return compose_events([(sampled_gaussian(r, noise), n) for n, r, noise in events])

        for large, small in (
            (composed((5, 0.1, 1.0), (1, 0.5, 2.0)), composed((4, 0.1, 1.0), (1, 0.1, 2.0))),
            (composed((1, 0.5, 1.0), (1, 0.1, 1.0)), composed((1, 0.4, 1.0))),
            (composed((1, 0.5, 1.0), (1, 0.1, 2.0)), composed((1, 0.4, 1.0))),
            (composed((1, 0.5, 1.0), (1, 0.5, 2.0)), composed((1, 0.5, 1.5))),
        ):
            assert undominated({large, small}) == [large]

    def test_a_full_batch_is_a_sample_of_rate_one(self) -> None:
        whole = compose_events([(gaussian(2.0), 1)])
        assert undominated({whole, compose_events([(sampled_gaussian(0.9, 2.0), 1)])}) == [whole]

    def test_two_ways_to_write_the_same_event_do_not_remove_each_other(self) -> None:
        """Each dominates the other: dropping both would prove an epsilon of zero."""
        twins = {
            ((gaussian(2.0), 1),),
            ((dp_event.PoissonSampledDpEvent(1.0, gaussian(2.0)), 1),),
        }
        assert set(undominated(twins)) == twins

    def test_other_kinds_of_events_are_never_dropped(self) -> None:
        strong = compose_events([(gaussian(0.5), 100), (laplace(0.5), 100)])
        weak = compose_events([(laplace(10.0), 1)])
        plain = compose_events([(gaussian(10.0), 1)])
        assert set(undominated({strong, weak, plain})) == {strong, weak, plain}
        unknown = ((dp_event.PoissonSampledDpEvent(0.5, laplace(1.0)), 1),)
        assert set(undominated({strong, unknown, plain})) == {strong, unknown, plain}

    def test_what_is_dropped_is_dominated_event_by_event(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(60):
            compositions = {
                compose_events(
                    [
                        (
                            sampled_gaussian(
                                float(rng.choice([0.1, 0.5, 1.0])), float(rng.choice([1.0, 2.0]))
                            ),
                            int(rng.integers(1, 4)),
                        )
                        for _ in range(int(rng.integers(1, 4)))
                    ]
                )
                for _ in range(5)
            }
            kept = undominated(compositions)
            assert len(kept) == len(set(kept)) > 0
            for one in compositions - set(kept):
                assert any(brute_force_dominated(one, other) for other in kept)

    def test_the_order_does_not_depend_on_that_of_a_set(self) -> None:
        long, short = laplaces(1.0, 2.0), laplaces(0.5)
        assert undominated({short, long, C, A}) == [long, short, A, C]


def test_equal_compositions_are_equal_tuples() -> None:
    events = [(gaussian(2.0), 3), (laplace(1.0), 1), (sampled_gaussian(0.1, 2.0), 2)]
    for order in itertools.permutations(events):
        assert compose_events(order) == compose_events(events)
    assert compose_events([(gaussian(2.0), 3), (gaussian(2.0), 4)]) == ((gaussian(2.0), 7),)
    # By the event, whatever its count.
    swapped = compose_events([(laplace(1.0), 1), (gaussian(2.0), 3)])
    assert [event for event, _ in swapped] == [gaussian(2.0), laplace(1.0)]


class TestEpsilonOfOneComposition:
    @pytest.mark.parametrize("noise, interval", [(60.0, 1e-4), (10.0, 1e-3)])
    def test_the_grid_of_the_pld_is_fine_for_small_epsilons(
        self, noise: float, interval: float
    ) -> None:
        """The coarse one, where RDP gives more than 0.3, is quicker and as good there."""
        composition = compose_events([(gaussian(noise), 1)])
        assert (rdp_epsilon(composition, DELTA) > 0.3) is (interval == 1e-3)
        same = pld.PLDAccountant(value_discretization_interval=interval)
        expected = same.compose(gaussian(noise)).get_epsilon(DELTA)
        assert pld_epsilon(composition, DELTA) == expected

    def test_at_the_limit_the_grid_is_fine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(accounting, "rdp_epsilon", lambda *arguments: 0.3)
        fine = pld.PLDAccountant(value_discretization_interval=1e-4).compose(gaussian(13.0))
        composition = ((gaussian(13.0), 1),)
        assert pld_epsilon.__wrapped__(composition, DELTA) == fine.get_epsilon(DELTA)

    def test_an_event_without_a_bound_is_infinite(self) -> None:
        for event in (dp_event.NonPrivateDpEvent(), dp_event.UnsupportedDpEvent()):
            composition = ((gaussian(5.0), 1), (event, 1))
            assert rdp_epsilon(composition, DELTA) == pld_epsilon(composition, DELTA) == math.inf

    def test_one_accountant_is_enough_to_support_an_event(self) -> None:
        # Zero-concentrated DP is known to RDP alone, discrete Laplace noise to PLD alone.
        assert accounting.supported(dp_event.ZCDpEvent(0.1))
        assert not pld.PLDAccountant().supports(dp_event.ZCDpEvent(0.1))
        assert accounting.supported(dp_event.DiscreteLaplaceDpEvent(1.0, 1))
        assert not rdp.RdpAccountant().supports(dp_event.DiscreteLaplaceDpEvent(1.0, 1))
        assert not accounting.supported(dp_event.UnsupportedDpEvent())

    def test_repeats_of_an_event_add_up(self) -> None:
        """n Gaussians of multiplier s are one of multiplier s / sqrt(n)."""
        many = rdp_epsilon(((gaussian(20.0), 25),), DELTA)
        assert many == pytest.approx(rdp_epsilon(((gaussian(4.0), 1),), DELTA), rel=1e-9)


class TestAdaptiveOrder:
    @pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
    @pytest.mark.parametrize("epsilon", [5e-4, 0.005, 0.02, 0.1, 0.7, 1.0, 4.0, 30.0, 150.0])
    def test_no_whole_order_allows_more_gaussian_noise_to_be_spent(
        self, epsilon: float, delta: float
    ) -> None:
        """Brute force: a / (2 s^2) at order a converts to epsilon at the largest 1 / s^2."""

        def allowed(order: np.ndarray) -> np.ndarray:
            converted = np.log1p(-1 / order) - (math.log(delta) + np.log(order)) / (order - 1)
            return (epsilon - converted) / order

        best = allowed(np.arange(2.0, 160_000.0)).max()
        order = adaptive_order(Budget(epsilon, delta))
        assert order == round(order) >= 2
        reached = float(allowed(np.array([order]))[0])
        # Orders up to 256 are all tried; beyond, every third percent.
        assert reached >= best * (1.0 if order < 250 else 0.999) - 1e-12

    def test_without_a_budget_epsilon_is_one(self) -> None:
        assert adaptive_order(None) == adaptive_order(Budget(1.0, 1e-5))
        assert adaptive_order(None) != adaptive_order(Budget(2.0, 1e-5))

    def test_orders_are_those_of_earlier_ledgers(self) -> None:
        """A ledger is refused if its order is not the one that its target fixes."""
        known = {*range(2, 257), *(round(256 * 1.03**step) for step in range(220))}
        orders = {adaptive_order(Budget(float(e), 1e-5)) for e in np.geomspace(0.02, 0.06, 400)}
        assert {256.0, 264.0, 272.0} <= orders <= known
        # Targets that no order serves well get the largest.
        assert adaptive_order(Budget(1e-6, 1e-9)) == max(known)

    def test_the_smallest_order_serves_large_budgets(self) -> None:
        assert adaptive_order(Budget(1000.0, 1e-5)) == 2.0


def test_absl_is_silenced_for_as_long_as_it_takes() -> None:
    logger = logging.getLogger("absl")
    before = logger.level
    try:
        logger.setLevel(logging.INFO)
        with absl_silenced():
            assert not logger.isEnabledFor(logging.WARNING) and logger.isEnabledFor(logging.ERROR)
        assert logger.level == logging.INFO
        with pytest.raises(KeyError), absl_silenced():
            raise KeyError
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(before)


class TestElsewhere:
    """A short-lived process asks a longer-lived one, and computes what that one does not know."""

    @staticmethod
    def composition(multiplier: float) -> ComposedEvents:
        """One that no other test computes: answers are kept for as long as the process lives."""
        return compose_events([(gaussian(multiplier), 1)])

    def asked(
        self, monkeypatch: pytest.MonkeyPatch, answer: float | None
    ) -> list[tuple[str, ComposedEvents, float, float | None]]:
        """Answer all questions alike from now on, and return the list that they will be in."""
        questions: list[tuple[str, ComposedEvents, float, float | None]] = []

        def ask(by: str, one: ComposedEvents, delta: float, order: float | None) -> float | None:
            questions.append((by, one, delta, order))
            return answer

        monkeypatch.setattr(accounting, "_elsewhere", None)
        accounting.account_elsewhere(ask)
        return questions

    def test_an_answer_is_taken_and_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        questions = self.asked(monkeypatch, 0.125)
        one = self.composition(3.141)
        for _ in range(2):
            assert rdp_epsilon(one, DELTA, 7.0) == 0.125
            assert pld_epsilon(one, DELTA) == 0.125
        assert questions == [("rdp", one, DELTA, 7.0), ("pld", one, DELTA, None)]

    def test_zero_is_an_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked(monkeypatch, 0.0)
        one = self.composition(3.142)
        assert rdp_epsilon(one, DELTA) == pld_epsilon(one, DELTA) == 0.0

    def test_what_is_not_known_there_is_computed_here(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = self.composition(3.143)
        questions = self.asked(monkeypatch, None)
        answers = [rdp_epsilon(one, DELTA), pld_epsilon(one, DELTA)]
        assert {by for by, *_ in questions} == {"rdp", "pld"}
        monkeypatch.setattr(accounting, "_elsewhere", None)
        assert answers == [rdp_epsilon.__wrapped__(one, DELTA), pld_epsilon.__wrapped__(one, DELTA)]
