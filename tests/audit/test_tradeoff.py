"""Curves of ledgers against closed forms and dp-accounting; the test against the curve."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from scipy.stats import norm

from bench.audit.tradeoff import (
    Curve,
    is_full_batch_gaussian,
    selection_deltas,
    tradeoff_curve,
    tradeoff_p_value,
)
from bench.errors import InputError
from bench.privacy.accounting import Budget
from bench.privacy.events import (
    DpEvent,
    exponential,
    gaussian,
    laplace,
    non_private,
    sampled_gaussian,
)
from bench.privacy.ledger import Entry, Ledger, PartPath
from bench.stats.bounds import gaussian_epsilon, gaussian_frontier, p_value
from bench.stats.exact_test import Tally

DELTA = 1e-5
GRID = np.linspace(0.0, 1.0, 101)


def _ledger(*charged: tuple[PartPath, DpEvent, int], budget: Budget | None = None) -> Ledger:
    ledger = Ledger(budget, DELTA)
    for path, event, count in charged:
        ledger.add(Entry(path, event), count)
    return ledger


def _curve(ledger: Ledger, **parts: str) -> Curve:
    curve = tradeoff_curve(ledger, parts)
    assert curve is not None
    return curve


def test_one_point_by_hand() -> None:
    """Kairouz, Oh and Viswanath 2015: at a = 0 all but delta is missed; the curve is symmetric."""
    curve = Curve((math.log(3),), (0.1,))
    assert curve.smallest_false_negatives([0.0, 0.1, 0.3, 1.0]) == pytest.approx(
        [0.9, 0.6, 0.2, 0.0]
    )
    corner = (1 - 0.1) / (1 + 3)
    assert curve.smallest_false_negatives([corner]) == pytest.approx([corner])


def test_gaussians_have_the_gaussian_curve() -> None:
    """9 of multiplier 6 and 4 of multiplier 4 are one of mu = sqrt(9/36 + 4/16)."""
    ledger = _ledger(((), gaussian(6.0), 9), ((), gaussian(4.0), 4))
    expected = gaussian_frontier(math.sqrt(0.5))(GRID)
    frontier = _curve(ledger).frontier(GRID)
    assert (frontier >= expected - 1e-12).all()
    assert frontier == pytest.approx(expected, abs=1e-3)


def test_a_client_takes_part_in_the_events_of_all_parts() -> None:
    charged = [((("split", split),), gaussian(4.0), 1) for split in ("train", "validation")]
    for unit, mu in (("row", 0.25), ("client", 0.25 * math.sqrt(2.0))):
        ledger = _ledger(*charged)
        ledger.unit = unit
        frontier = _curve(ledger, split="train").frontier(GRID)
        assert frontier == pytest.approx(gaussian_frontier(mu)(GRID), abs=1e-3)


def test_laplace_curve_is_the_exact_one() -> None:
    """Testing Laplace(0, 1) against Laplace(1, 1): the likelihood ratio cuts at x."""
    cut = np.linspace(-3, 4, 60)
    false = np.where(cut > 0, np.exp(-np.abs(cut)) / 2, 1 - np.exp(-np.abs(cut)) / 2)
    true = np.where(cut > 1, np.exp(-np.abs(cut - 1)) / 2, 1 - np.exp(-np.abs(cut - 1)) / 2)
    frontier = _curve(_ledger(((), laplace(1.0), 1))).frontier(false)
    assert (frontier >= true - 1e-9).all()
    assert frontier == pytest.approx(true, abs=3e-3)


def test_sampled_gaussian_curve_is_that_of_its_integrals() -> None:
    """delta(epsilon) integrated by hand for both orders of the worlds; the larger one counts."""
    rate, multiplier = 0.3, 0.8
    curve = _curve(_ledger(((), sampled_gaussian(rate, multiplier), 1)))
    x = np.linspace(-9, 11, 20_001)
    without = norm.pdf(x)
    with_it = (1 - rate) * without + rate * norm.pdf(x - 1 / multiplier)
    for epsilon in (0.0, 0.1, 0.3, 0.8, 1.5):
        forth = np.maximum(with_it - math.exp(epsilon) * without, 0.0).sum() * (x[1] - x[0])
        back = np.maximum(without - math.exp(epsilon) * with_it, 0.0).sum() * (x[1] - x[0])
        proven = float(np.interp(epsilon, curve.epsilons[:-1], curve.deltas[:-1]))
        assert proven == pytest.approx(max(forth, back), abs=1e-4)
    cut = np.linspace(-3, 5, 60)
    true = (1 - rate) * norm.sf(cut) + rate * norm.sf(cut - 1 / multiplier)
    assert (curve.frontier(norm.sf(cut)) >= true - 1e-9).all()


def test_curve_contains_the_reported_point() -> None:
    ledger = _ledger(((), sampled_gaussian(0.01, 1.0), 500))
    proof, curve = ledger.proof(), _curve(ledger)
    assert (proof.epsilon, proof.delta) in zip(curve.epsilons, curve.deltas, strict=True)
    assert (curve.frontier(GRID) <= Curve((proof.epsilon,), (DELTA,)).frontier(GRID) + 1e-12).all()
    assert np.diff(curve.deltas[:-1]).max() <= 1e-12, "delta falls as epsilon grows"


def test_zero_concentrated_dp_goes_through_rdp() -> None:
    """Of a library: it may be any mechanism, while that of the kernel is a selection."""
    ledger = Ledger(None, DELTA)
    ledger.add(Entry((), dp_event.ZCDpEvent(0.05), trust="a library"), 2)
    curve = _curve(ledger)
    # rho-zCDP is weaker than the Gaussian mechanism of the same rho = mu^2 / 2.
    assert (curve.frontier(GRID) >= gaussian_frontier(math.sqrt(0.2))(GRID) - 1e-9).all()
    assert len(curve.epsilons) > 1


def test_parts_take_the_worst_curve_and_a_named_part_its_curve() -> None:
    ledger = _ledger(
        ((), gaussian(10.0), 1),
        ((("class", "0"),), gaussian(2.0), 1),
        ((("class", "1"),), gaussian(5.0), 1),
    )
    worst, weak = math.sqrt(0.01 + 0.25), math.sqrt(0.01 + 0.04)
    assert _curve(ledger).frontier(GRID) == pytest.approx(gaussian_frontier(worst)(GRID), abs=1e-3)
    named = _curve(ledger, **{"class": "1"})
    assert named.frontier(GRID) == pytest.approx(gaussian_frontier(weak)(GRID), abs=1e-3)
    assert ledger.proof().epsilon == pytest.approx(gaussian_epsilon(worst, DELTA), rel=2e-3)


def test_compositions_that_cross_are_both_covered() -> None:
    """Neither Laplace nor Gaussian dominates: the curve lies above both."""
    parts = (((("c", "a"),), gaussian(1.0), 1), ((("c", "b"),), laplace(1.0), 1))
    both = _curve(_ledger(*parts)).frontier(GRID)
    for part in parts:
        assert (both >= _curve(_ledger(part)).frontier(GRID) - 1e-3).all()


def test_nothing_proven_has_no_curve() -> None:
    ledger = Ledger(None, DELTA)
    ledger.add(Entry((), non_private(), reason="rows were read"))
    assert tradeoff_curve(ledger) is None


def test_untouched_rows_give_no_attack_a_chance() -> None:
    curve = _curve(Ledger(None, DELTA))
    assert curve.frontier(GRID) == pytest.approx(GRID)
    assert tradeoff_p_value(Tally(90, 100, 10, 100), curve) < 1e-10


def test_adaptive_ledger_proves_its_budget_only() -> None:
    ledger = Ledger(Budget(2.0, DELTA), DELTA)
    ledger.add(Entry((), gaussian(50.0), adaptive=True), 1)
    assert _curve(ledger) == Curve((2.0,), (DELTA,))


def test_full_batch_gaussians_are_recognised() -> None:
    assert is_full_batch_gaussian(_ledger(((("class", "0"),), gaussian(1.0), 3)))
    assert not is_full_batch_gaussian(_ledger(((), sampled_gaussian(0.5, 1.0), 1)))
    assert not is_full_batch_gaussian(_ledger(((), gaussian(1.0), 1), ((), laplace(1.0), 1)))
    assert not is_full_batch_gaussian(_ledger())
    adaptive = Ledger(Budget(1.0, DELTA), DELTA)
    adaptive.add(Entry((), gaussian(9.0), adaptive=True), 1)
    assert not is_full_batch_gaussian(adaptive)


def test_curve_refutes_what_one_point_cannot() -> None:
    """Noise halved under a ledger for epsilon 1, 20,000 trials, cut in the middle."""
    ledger = _ledger(((), gaussian(3.7304), 1))
    epsilon = ledger.proof().epsilon
    assert epsilon == pytest.approx(1.0, rel=5e-3)
    mu, half = 2 / 3.7304, 5000
    hits, alarms = round(half * norm.cdf(mu / 2)), round(half * norm.cdf(-mu / 2))
    tally = Tally(hits, half, alarms, half)
    assert tradeoff_p_value(tally, _curve(ledger)) < 1e-6
    assert p_value(tally, epsilon, DELTA) > 0.5


def test_curve_lets_the_exact_mechanism_pass() -> None:
    ledger = _ledger(((), sampled_gaussian(0.2, 1.0), 20))
    rng = np.random.default_rng(3)
    curve, trials = _curve(ledger), 400
    rejected = 0
    for _ in range(200):
        noise = rng.standard_normal((2, trials))
        shift = rng.binomial(20, 0.2, trials) / math.sqrt(20)
        tally = Tally(
            int((noise[0] + shift >= 0.5).sum()), trials, int((noise[1] >= 0.5).sum()), trials
        )
        rejected += tradeoff_p_value(tally, curve) < 0.05
    assert rejected <= 18


def test_a_curve_needs_points() -> None:
    with pytest.raises(InputError, match="at least one point"):
        Curve((), ())


class TestSelections:
    """Selections of the kernel: log-likelihood ratios in an interval of length epsilon."""

    def test_the_envelope_is_above_every_pair_of_outcomes(self) -> None:
        for epsilon in (0.05, 0.5, 4.0):
            at = np.linspace(-epsilon, epsilon, 41)
            deltas = selection_deltas(epsilon, at)
            for tilt in np.random.default_rng(0).uniform(1e-6, epsilon - 1e-6, 300):
                share = -math.expm1(tilt - epsilon) / (math.exp(tilt) - math.exp(tilt - epsilon))
                # The two outcomes have the ratios e^tilt and e^(tilt - epsilon).
                other = share * math.exp(tilt), 1.0 - share * math.exp(tilt)
                own = share, 1.0 - share
                exact = sum(
                    np.maximum(0.0, p - np.exp(at) * q) for p, q in zip(other, own, strict=True)
                )
                assert (deltas >= exact - 1e-12).all()
            assert selection_deltas(epsilon, np.zeros(1)) == pytest.approx(math.tanh(epsilon / 4.0))

    @pytest.mark.parametrize("epsilon", [0.02, 1.0, 4.0, 16.0])
    def test_the_envelope_is_the_supremum_up_to_both_ends(self, epsilon: float) -> None:
        """Against fine grids of tilts between max(a, 0) and epsilon, also for a near epsilon."""
        near = epsilon * np.array([0.9, 0.99, 0.998, 0.999, 0.9999])
        for at in (*np.linspace(-epsilon, epsilon, 21), *near, *-near):
            tilts = np.linspace(max(at, 0.0), epsilon, 20_001)[:-1]
            tilts = tilts[tilts > 0.0]
            # Without differences of nearly equal numbers, which rounding would spoil.
            share = np.expm1(tilts - epsilon) / np.expm1(-epsilon) * np.exp(-tilts)
            other = share * np.exp(tilts) * -np.expm1(at - tilts)
            brute = max(float(other.max(initial=0.0)), -math.expm1(at), 0.0)
            (delta,) = selection_deltas(epsilon, np.array([at]))
            assert delta >= brute * (1.0 - 1e-12)
            assert delta == pytest.approx(brute, rel=1e-6, abs=1e-15)
            if at < 0.9999 * epsilon:
                assert delta > 0.0

    def test_beyond_the_interval_all_or_nothing_is_left(self) -> None:
        at = np.array([-900.0, -2.5, -2.0, 2.0, 2.5, 900.0])
        expected = [1.0, -math.expm1(-2.5), -math.expm1(-2.0), 0.0, 0.0, 0.0]
        assert selection_deltas(2.0, at).tolist() == pytest.approx(expected)

    def test_many_small_ones_are_about_a_gaussian(self) -> None:
        """Between mu^2 = epsilon^2 / 4 and epsilon^2 / 3 each, the variance of the envelope."""
        ledger = _ledger(((), exponential(0.1), 100))
        middle = np.array([0.5])
        expected = gaussian_frontier(0.5)(middle)
        envelope = gaussian_frontier(math.sqrt(100 * 0.1**2 / 3.0))(middle)
        assert expected < _curve(ledger).frontier(middle) < envelope + 0.001
        trusted = Ledger(None, DELTA)
        trusted.add(Entry((), exponential(0.1), trust="a library"), 100)
        assert _curve(trusted).frontier(middle) > envelope + 0.02

    def test_the_curve_of_one_selection_and_a_sum_holds_for_their_exact_rates(self) -> None:
        epsilon, multiplier = 0.8, 3.0
        curve = _curve(_ledger(((), exponential(epsilon), 1), ((), gaussian(multiplier), 1)))
        # Two outcomes of ratios e^(+-epsilon / 2), beside a sum that moves by the whole clip.
        share = 1.0 / (1.0 + math.exp(epsilon / 2.0))
        cuts = np.linspace(-12.0, 12.0, 801)[:, None]
        ratios = np.array([epsilon / 2.0, -epsilon / 2.0])
        mu = 1.0 / multiplier
        tails = (cuts - ratios) / mu
        false = (norm.sf(tails + mu / 2) * [share, 1.0 - share]).sum(axis=1)
        true = (norm.sf(tails - mu / 2) * [1.0 - share, share]).sum(axis=1)
        allowed = curve.frontier(false)
        assert (true <= allowed + 1e-9).all() and (allowed - true).max() < 0.02
