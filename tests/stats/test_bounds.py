"""Bounds on epsilon: closed forms, other libraries, soundness and power by simulation."""

import bisect
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, norm

from bench.errors import InputError
from bench.privacy.accounting import compose_events, pld_epsilon
from bench.privacy.events import gaussian
from bench.stats.bounds import (
    Threshold,
    best_threshold,
    epsilon_bound,
    gaussian_bound,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_frontier,
    gaussian_mu,
    max_detectable,
    middle_threshold,
    p_value,
)
from bench.stats.exact_test import Tally, exact_p_value

DELTA = 1e-5
Bound = Callable[[Tally, float], float]


def _gaussian_p_value(tally: Tally, epsilon: float, delta: float) -> float:
    """p-value of a Gaussian mechanism with this exact epsilon at delta."""
    return exact_p_value(tally, gaussian_frontier(gaussian_mu(epsilon, delta)))


def _drawn(
    mu: float, cut: float, trials: int, rng: np.random.Generator, repetitions: int
) -> list[Tally]:
    """Counts of `score >= cut` on a Gaussian mechanism, half of the trials in each world."""
    half = trials // 2
    hits = rng.binomial(half, norm.sf(cut - mu), repetitions)
    alarms = rng.binomial(half, norm.sf(cut), repetitions)
    return [Tally(int(h), half, int(k), half) for h, k in zip(hits, alarms, strict=True)]


def _attacked(
    inside: np.ndarray, outside: np.ndarray, gaussian_curve: bool
) -> tuple[Tally, Threshold]:
    """Threshold on the first half, counts on the second."""
    half = len(inside) // 2
    first = inside[:half], outside[:half]
    chosen = middle_threshold(*first) if gaussian_curve else best_threshold(*first, DELTA)
    return chosen.tally(inside[half:], outside[half:]), chosen


def test_bound_by_hand() -> None:
    """No error in n trials: the ends are error^(1/n), so epsilon is log(low / (1 - low))."""
    low = 0.025 ** (1 / 1000)
    assert max_detectable(1000, 1000, 0.0) == pytest.approx(math.log(low / (1 - low)), rel=1e-9)
    assert epsilon_bound(Tally(1000, 1000, 0, 1000), 1e-5) == pytest.approx(
        math.log((low - 1e-5) / (1 - low)), rel=1e-9
    )


def test_both_directions_count() -> None:
    """Few misses are as strong evidence as few false alarms."""
    rare_alarms, rare_misses = Tally(50, 1000, 0, 1000), Tally(1000, 1000, 950, 1000)
    assert epsilon_bound(rare_alarms, DELTA) == pytest.approx(epsilon_bound(rare_misses, DELTA))
    assert epsilon_bound(rare_alarms, DELTA) > 2.0


@pytest.mark.parametrize("bound", [epsilon_bound, gaussian_bound])
def test_nothing_seen_is_zero(bound: Bound) -> None:
    assert bound(Tally(50, 100, 50, 100), DELTA) == 0.0
    assert bound(Tally(0, 100, 100, 100), DELTA) == 0.0
    assert bound(Tally(0, 100, 0, 100), DELTA) == 0.0


def test_large_delta_explains_everything() -> None:
    assert epsilon_bound(Tally(5, 100, 0, 100), 0.2) == 0.0
    assert p_value(Tally(5, 100, 0, 100), 0.0, 0.2) == 1.0


@pytest.mark.parametrize("multiplier", [0.4, 1.0, 3.7, 20.0])
def test_gaussian_epsilon_is_that_of_dp_accounting(multiplier: float) -> None:
    convolved = pld_epsilon(compose_events([(gaussian(multiplier), 1)]), DELTA)
    assert gaussian_epsilon(1 / multiplier, DELTA) == pytest.approx(convolved, rel=2e-3)


def test_gaussian_epsilon_composes_and_inverts() -> None:
    convolved = pld_epsilon(compose_events([(gaussian(5.0), 9)]), DELTA)
    assert gaussian_epsilon(3 / 5.0, DELTA) == pytest.approx(convolved, rel=2e-3)
    for epsilon in (0.01, 1.0, 8.0, 40.0):
        assert gaussian_epsilon(gaussian_mu(epsilon, DELTA), DELTA) == pytest.approx(epsilon)
    assert gaussian_delta(1.0, 0.0) == pytest.approx(2 * norm.cdf(0.5) - 1)  # total variation
    assert gaussian_epsilon(1e-6, DELTA) == 0.0
    with pytest.raises(InputError, match="delta"):
        gaussian_mu(1.0, 0.0)


def test_gaussian_bound_by_hand() -> None:
    tally = Tally(900, 1000, 100, 1000)
    low = binom_low(900, 1000, 0.025)
    mu = norm.ppf(low) - norm.ppf(1 - low)
    assert gaussian_bound(tally, DELTA) == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-6)


def binom_low(count: int, trials: int, error: float) -> float:
    """The Clopper-Pearson end from its definition, by bisection."""
    low, high = 0.0, count / trials
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binom.sf(count - 1, trials, middle) < error else (low, middle)
    return low


@pytest.mark.parametrize("counts", [(160, 400, 40, 400), (400, 400, 0, 400), (20, 400, 0, 400)])
@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_p_values_are_never_above_the_error_of_the_rectangle(
    counts: tuple[int, int, int, int], confidence: float
) -> None:
    """At the bound of a confidence the exact test rejects at least at that level, and beyond."""
    tally = Tally(*counts)
    bound = epsilon_bound(tally, DELTA, confidence)
    assert p_value(tally, bound, DELTA) <= 1 - confidence
    assert p_value(tally, bound + 0.02, DELTA) < 1 - confidence, "strictly sharper"
    bound = gaussian_bound(tally, DELTA, confidence)
    assert _gaussian_p_value(tally, bound, DELTA) <= 1 - confidence


def test_p_value_of_an_attack_without_error_by_hand() -> None:
    """Randomised response is all right with probability (e/(1+e))^2n; set that to 5%."""
    rate = 0.05 ** (1 / 400)
    epsilon = math.log(rate / (1 - rate))
    assert p_value(Tally(200, 200, 0, 200), epsilon, 0.0) == pytest.approx(0.05, rel=0.04)


def test_p_values_without_a_number_to_refute() -> None:
    assert p_value(Tally(10, 10, 0, 10), math.inf, DELTA) == 1.0


@pytest.mark.parametrize(
    "bound, epsilon, trials",
    [
        (epsilon_bound, 0.5, 2000),
        (epsilon_bound, 4.0, 2000),
        (gaussian_bound, 0.5, 2000),
        (gaussian_bound, 4.0, 2000),
    ],
)
def test_soundness_over_200_repetitions(bound: Bound, epsilon: float, trials: int) -> None:
    """At most 5% of 200 (+ binomial noise) lie above the true epsilon."""
    mu, rng = gaussian_mu(epsilon, DELTA), np.random.default_rng(5)
    tallies = _drawn(mu, mu / 2, trials, rng, 200)
    exceeded = sum(value > epsilon for value in _of_each(tallies, bound))
    assert exceeded <= binom.isf(0.01, 200, 0.05)


@pytest.mark.parametrize("test", [p_value, _gaussian_p_value])
def test_p_values_of_few_trials_are_sound(test: Callable[[Tally, float, float], float]) -> None:
    mu, rng = gaussian_mu(1.0, DELTA), np.random.default_rng(5)
    tallies = _drawn(mu, mu / 2, 20, rng, 200)
    rejected = _of_each(tallies, lambda tally, delta: test(tally, 1.0, delta) < 0.05)
    assert sum(rejected) <= binom.isf(0.01, 200, 0.05)


def _of_each(tallies: list[Tally], bound: Bound) -> list[float]:
    """Equal counts have equal bounds: computed once."""
    known = {tally: bound(tally, DELTA) for tally in set(tallies)}
    return [known[tally] for tally in tallies]


def test_size_of_the_joint_test_is_near_its_level() -> None:
    """By enumeration: never above 5% under the null, and not far below, or it had no power."""
    epsilon, trials = 1.0, 40
    frontier = gaussian_frontier(gaussian_mu(epsilon, DELTA))
    steps = [
        bisect.bisect_left(
            range(trials + 1),
            True,
            key=lambda hits, k=k: exact_p_value(Tally(hits, trials, k, trials), frontier) < 0.05,
        )
        for k in range(trials + 1)
    ]
    sizes = []
    for false in np.linspace(0.05, 0.9, 60):
        true = float(frontier(np.array([false]))[0])
        tails = binom.sf(np.array(steps) - 1, trials, true)
        sizes.append(float((binom.pmf(np.arange(trials + 1), trials, false) * tails).sum()))
    assert max(sizes) <= 0.05
    assert max(sizes) > 0.045 and np.median(sizes) > 0.03


def test_threshold_finds_the_gap_and_the_side() -> None:
    inside, outside = np.array([5.0, 6.0, 7.0, 8.0]), np.array([1.0, 2.0, 3.0, 4.0])
    high, low = best_threshold(inside, outside, 0.0), best_threshold(outside, inside, 0.0)
    assert (high.value, high.above) == (4.5, True) and (low.value, low.above) == (4.5, False)
    assert high.tally(inside, outside) == low.tally(outside, inside) == Tally(4, 4, 0, 4)
    assert high.bound == low.bound


def test_threshold_with_ties_and_infinite_scores() -> None:
    inside = np.array([0.0] * 90 + [np.inf] * 10)
    outside = np.array([0.0] * 99 + [-np.inf])
    chosen = best_threshold(inside, outside, 0.0)
    assert chosen.tally(inside, outside) == Tally(10, 100, 0, 100)
    same = best_threshold(np.zeros(5), np.zeros(7), 0.0)
    assert same.bound == -1.0 and same.tally(np.zeros(5), np.zeros(7)) == Tally(5, 5, 7, 7)
    near = np.nextafter(1.0, 2.0)
    assert best_threshold([near] * 9, [1.0] * 9, 0.0).tally([near], [1.0]) == Tally(1, 1, 0, 1)
    with pytest.raises(InputError, match="not a number"):
        best_threshold([np.nan], [1.0], 0.0)


def test_threshold_is_the_best_of_all_cuts() -> None:
    rng = np.random.default_rng(7)
    inside, outside = rng.normal(1.5, 1, 300).round(1), rng.normal(0, 1, 300).round(1)
    chosen = best_threshold(inside, outside, DELTA)
    bounds = [
        epsilon_bound(Threshold(cut, above, 0.0).tally(inside, outside), DELTA, 0.99)
        for cut in np.unique(np.concatenate([inside, outside])) + 0.05
        for above in (True, False)
    ]
    assert chosen.bound == pytest.approx(max(bounds), rel=1e-9)


def test_weak_signal_is_ranked_by_how_sure_it_is() -> None:
    """No cut shows a positive epsilon: the ranking continues below zero, the stronger first."""
    grid = norm.ppf((np.arange(60) + 0.5) / 60)
    weak, weaker = best_threshold(grid + 0.3, grid, DELTA), best_threshold(grid + 0.1, grid, DELTA)
    assert weaker.bound < weak.bound < 0.0


def test_exact_epsilon_8_within_30_percent_at_2000_trials() -> None:
    epsilon, rng = 8.0, np.random.default_rng(8)
    mu = gaussian_mu(epsilon, DELTA)
    bounds = [
        gaussian_bound(
            _attacked(rng.normal(mu, 1, 1000), rng.normal(0, 1, 1000), gaussian_curve=True)[0],
            DELTA,
        )
        for _ in range(20)
    ]
    assert 0.7 * epsilon <= np.median(bounds) <= epsilon


def test_halved_noise_is_refuted_at_20000_trials() -> None:
    mu, rng = gaussian_mu(1.0, DELTA), np.random.default_rng(9)
    for noise, refuted in ((0.5, True), (1.0, False)):
        inside, outside = rng.normal(mu / noise, 1, 10_000), rng.normal(0, 1, 10_000)
        tally, _ = _attacked(inside, outside, gaussian_curve=True)
        assert (_gaussian_p_value(tally, 1.0, DELTA) < 1e-6) is refuted


def test_copying_one_percent_is_refuted_at_20000_trials() -> None:
    """On top of a mechanism that spends its whole epsilon 1."""
    mu, rng = gaussian_mu(1.0, DELTA), np.random.default_rng(10)
    inside, outside = rng.normal(mu, 1, 10_000), rng.normal(0, 1, 10_000)
    inside[rng.random(10_000) < 0.01] = 1e3
    tally, chosen = _attacked(inside, outside, gaussian_curve=False)
    assert chosen.value > 3.0
    assert p_value(tally, 1.0, DELTA) < 1e-6
    assert epsilon_bound(tally, DELTA) > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("gaussian_curve", [False, True])
def test_soundness_with_chosen_thresholds(epsilon: float, gaussian_curve: bool) -> None:
    """200 whole audits of 2,000 trials, threshold chosen on the first half; bound and p-value."""
    mu, rng = gaussian_mu(epsilon, DELTA), np.random.default_rng([11, int(10 * epsilon)])
    bound = gaussian_bound if gaussian_curve else epsilon_bound
    test = _gaussian_p_value if gaussian_curve else p_value
    exceeded = rejected = 0
    for _ in range(200):
        inside, outside = rng.normal(mu, 1, 1000), rng.normal(0, 1, 1000)
        tally, _ = _attacked(inside, outside, gaussian_curve)
        exceeded += bound(tally, DELTA) > epsilon
        rejected += test(tally, epsilon, DELTA) < 0.05
    assert exceeded <= rejected <= binom.isf(0.01, 200, 0.05)


@pytest.mark.slow
def test_verdicts_on_broken_mechanisms_do_not_depend_on_a_seed() -> None:
    """20 audits each: all of the halved noise and the copies found, all exact ones let through."""
    mu, rng = gaussian_mu(1.0, DELTA), np.random.default_rng(12)
    for _ in range(20):
        exact, outside = rng.normal(mu, 1, 10_000), rng.normal(0, 1, 10_000)
        halved = _attacked(rng.normal(2 * mu, 1, 10_000), outside, gaussian_curve=True)[0]
        assert _gaussian_p_value(halved, 1.0, DELTA) < 1e-4
        copied = np.where(rng.random(10_000) < 0.01, 1e3, exact)
        # The level at which a refutation begins: of 80 such audits two had more than 1e-3.
        assert p_value(_attacked(copied, outside, gaussian_curve=False)[0], 1.0, DELTA) < 0.05
        assert p_value(_attacked(exact, outside, gaussian_curve=False)[0], 1.0, DELTA) > 0.05
