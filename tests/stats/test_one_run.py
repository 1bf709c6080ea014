"""The one-run audit: closed form without delta, the paper's formula by loops, simulation."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from bench.errors import InputError
from bench.stats.bounds import gaussian_mu
from bench.stats.one_run import (
    Guesses,
    guesses,
    one_run_bound,
    one_run_max_detectable,
    one_run_p_value,
)

DELTA = 1e-5


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_without_delta_it_is_the_tail_of_randomised_response(epsilon: float) -> None:
    rate = math.exp(epsilon) / (1 + math.exp(epsilon))
    expected = sum(binom.pmf(right, 50, rate) for right in range(40, 51))
    assert one_run_p_value(Guesses(80, 50, 40), epsilon, 0.0) == pytest.approx(expected)


def test_bound_without_delta_in_closed_form() -> None:
    """All of r right: q^r = 5%."""
    rate = 0.05 ** (1 / 100)
    assert one_run_max_detectable(100, 100, 0.0) == pytest.approx(
        math.log(rate / (1 - rate)), abs=1e-6
    )


@pytest.mark.parametrize("right", [1, 30, 45, 60])
def test_delta_term_written_out(right: int) -> None:
    canaries, made, epsilon, delta = 100, 60, 0.7, 1e-3
    rate = 1 / (1 + math.exp(-epsilon))
    steepest = max(
        sum(binom.pmf(count, made, rate) for count in range(right - step, right)) / step
        for step in range(1, right + 1)
    )
    expected = binom.sf(right - 1, made, rate) + 2 * canaries * delta * steepest
    p_value = one_run_p_value(Guesses(canaries, made, right), epsilon, delta)
    assert p_value == pytest.approx(min(1.0, expected))


def test_bound_falls_with_delta_and_with_abstained_canaries() -> None:
    counted = Guesses(1000, 200, 170)
    bounds = [one_run_bound(counted, delta) for delta in (0.0, 1e-5, 1e-4, 1e-3)]
    assert bounds == sorted(bounds, reverse=True) and bounds[0] > 1.0 > bounds[-1]
    assert one_run_bound(Guesses(20_000, 200, 170), 1e-5) < bounds[1]


def test_p_value_at_the_bound_is_the_level() -> None:
    counted = Guesses(500, 300, 220)
    bound = one_run_bound(counted, DELTA)
    assert one_run_p_value(counted, bound, DELTA) == pytest.approx(0.05, abs=1e-6)


def test_randomised_response_is_audited_soundly_and_nearly_tightly() -> None:
    """The mechanism that attains the bound, 200 runs of 1,000 canaries."""
    epsilon, rng = 1.5, np.random.default_rng(1)
    right = rng.binomial(1000, 1 / (1 + math.exp(-epsilon)), 200)
    bounds = np.array([one_run_bound(Guesses(1000, 1000, int(c)), 0.0) for c in right])
    assert (bounds > epsilon).sum() <= binom.isf(0.01, 200, 0.05)
    assert np.median(bounds) > 0.85 * epsilon


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_gaussian_mechanism_is_audited_soundly(epsilon: float) -> None:
    """Orthogonal canaries of norm 1, noise for the true epsilon at delta: 200 runs."""
    mu, rng, canaries = gaussian_mu(epsilon, DELTA), np.random.default_rng(2), 500
    bounds = []
    for _ in range(200):
        coins = rng.random(canaries) < 0.5
        scores = mu * coins + rng.standard_normal(canaries)
        bounds.append(one_run_bound(guesses(scores, coins, 0.2, rng), DELTA))
    assert (np.array(bounds) > epsilon).sum() <= binom.isf(0.01, 200, 0.05)
    if epsilon == 4.0:
        assert np.median(bounds) > 0.3, "an audit that always says 0 would be sound too"


def test_mechanism_that_fails_with_delta_stays_within_the_bound() -> None:
    """With probability delta everything is published, else randomised response.

    That is (epsilon, delta)-DP, and all canaries fall together: what the delta term is for.
    """
    epsilon, canaries, together, rng = 0.5, 100, 0.02, np.random.default_rng(3)
    rate = 1 / (1 + math.exp(-epsilon))
    right = rng.binomial(canaries, rate, 20_000)
    right[rng.random(20_000) < together] = canaries
    p_values = {
        c: one_run_p_value(Guesses(canaries, canaries, int(c)), epsilon, together)
        for c in np.unique(right)
    }
    rejected = np.mean([p_values[c] < 0.05 for c in right])
    assert rejected <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 20_000)


def test_guesses_by_hand() -> None:
    scores = [9.0, 8.0, 7.0, 3.0, 2.0, 1.0]
    coins = [True, False, True, True, False, False]
    rng = np.random.default_rng(4)
    assert guesses(scores, coins, 2 / 3, rng) == Guesses(6, 4, 3)
    assert guesses(scores, coins, 0.01, rng) == Guesses(6, 2, 2)


def test_ties_do_not_follow_the_coins() -> None:
    coins = np.arange(1000) >= 500
    counted = guesses(np.zeros(1000), coins, 1.0, np.random.default_rng(5))
    assert abs(counted.right - 500) < 100


def test_reference_value_of_a_half_guessed_run() -> None:
    """Half of 200 guessed, 80 right, delta 0: by the normal approximation of the tail, nearly."""
    bound = one_run_bound(Guesses(200, 100, 80), 0.0)
    rate = 1 / (1 + math.exp(-bound))
    z = (79.5 - 100 * rate) / math.sqrt(100 * rate * (1 - rate))
    assert norm.sf(z) == pytest.approx(0.05, abs=0.01)


def test_bad_input_is_refused() -> None:
    rng = np.random.default_rng(6)
    with pytest.raises(InputError, match="right <= made"):
        Guesses(10, 5, 6)
    with pytest.raises(InputError, match="one score"):
        guesses([1.0, float("nan")], [True, False], 1.0, rng)
    with pytest.raises(InputError, match="share"):
        guesses([1.0, 2.0], [True, False], 0.0, rng)
    with pytest.raises(InputError, match="too few"):
        guesses([1.0], [True], 1.0, rng)
    with pytest.raises(InputError, match="epsilon"):
        one_run_p_value(Guesses(2, 2, 1), -1.0, 0.0)
