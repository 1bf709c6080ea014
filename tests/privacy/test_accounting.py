"""Epsilons against the paper's table, closed forms and the accountants themselves."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from scipy.optimize import brentq
from scipy.stats import norm

from bench.errors import InputError, PrivacyContractError
from bench.privacy import accounting as accountant
from bench.privacy.accounting import Budget, compose_events, pld_epsilon, rdp_epsilon
from bench.privacy.events import gaussian, laplace, sampled_gaussian
from bench.privacy.ledger import Entry, Ledger

DELTA = 1e-5

# NDPDC paper, table I: (smallest class, LDPDC with M=50, NDPDC with I=10,000); L=50, sigma=1.
TABLE_I = {
    "MNIST": (5421, 1.10, 6.12),
    "FMNIST": (6000, 1.06, 5.45),
    "CIFAR10": (5000, 1.14, 6.72),
}
# PLD of the same events: what the harness certifies. Values of dp-accounting at its default grid.
TIGHTER = {"MNIST": (0.536, 5.63), "FMNIST": (0.483, 5.01), "CIFAR10": (0.583, 6.19)}


@pytest.mark.parametrize("dataset", TABLE_I)
@pytest.mark.parametrize("method", [0, 1], ids=["LDPDC", "NDPDC"])
def test_table_one_of_the_ndpdc_paper(dataset: str, method: int) -> None:
    smallest, *claimed = TABLE_I[dataset]
    composition = compose_events([(sampled_gaussian(50 / smallest, 1.0), (50, 10_000)[method])])
    assert rdp_epsilon(composition, DELTA) == pytest.approx(claimed[method], abs=0.02)
    tight = pld_epsilon(composition, DELTA)
    assert tight == pytest.approx(TIGHTER[dataset][method], rel=0.002)
    assert tight < rdp_epsilon(composition, DELTA)


def test_adult_sigma_of_the_ndpdc_paper_spends_more_than_claimed() -> None:
    """Section V-D claims epsilon 1 for sigma 2.09 on Adult; the ledger proves more."""
    composition = compose_events([(sampled_gaussian(50 / 7841, 2.09), 10_000)])
    assert rdp_epsilon(composition, DELTA) == pytest.approx(1.36, abs=0.02)
    assert pld_epsilon(composition, DELTA) == pytest.approx(1.24, abs=0.02)


@pytest.mark.parametrize(
    "event",
    [gaussian(3.0), laplace(5.0), sampled_gaussian(0.1, 2.0), dp_event.ZCDpEvent(0.01)],
    ids=lambda event: type(event).__name__,
)
@pytest.mark.parametrize("epsilon", [rdp_epsilon, pld_epsilon])
def test_composing_k_times_equals_k_events(event: dp_event.DpEvent, epsilon) -> None:  # type: ignore[no-untyped-def]
    times = 7
    at_once = epsilon(((event, times),), DELTA)
    one_by_one = epsilon(tuple((event, 1) for _ in range(times)), DELTA)
    nested = epsilon(compose_events([(dp_event.SelfComposedDpEvent(event, times), 1)]), DELTA)
    if math.isinf(at_once):
        assert math.isinf(one_by_one)
        assert epsilon is pld_epsilon, "RDP supports every event in use"
    else:
        assert one_by_one == pytest.approx(at_once, rel=2e-3)
        assert nested == pytest.approx(at_once, rel=1e-9)


@pytest.mark.parametrize("multiplier", [0.7, 1.0, 5.0])
def test_gaussian_against_the_closed_form(multiplier: float) -> None:
    """Balle and Wang 2018, Theorem 8: the exact (epsilon, delta) curve of the Gaussian."""

    def delta(epsilon: float) -> float:
        first = norm.cdf(1 / (2 * multiplier) - epsilon * multiplier)
        second = norm.cdf(-1 / (2 * multiplier) - epsilon * multiplier)
        return float(first - math.exp(epsilon) * second)

    exact = brentq(lambda epsilon: delta(epsilon) - DELTA, 1e-6, 100)
    composition = compose_events([(gaussian(multiplier), 1)])
    assert exact <= pld_epsilon(composition, DELTA) <= exact * 1.001
    assert rdp_epsilon(composition, DELTA) >= exact


def test_coarse_pld_is_an_upper_bound_of_the_fine_one() -> None:
    from dp_accounting import pld

    for rate, multiplier, count in ((0.01, 1.0, 50), (0.28, 1.66, 50), (1.0, 0.5, 1)):
        event = sampled_gaussian(rate, multiplier)
        fine = pld.PLDAccountant().compose(event, count).get_epsilon(DELTA)
        ours = pld_epsilon(compose_events([(event, count)]), DELTA)
        assert fine - 1e-9 <= ours <= fine * 1.001


def test_parallel_composition_takes_the_worst_part_and_adds_what_is_shared() -> None:
    ledger = Ledger(delta=DELTA)
    shared, strong, weak = gaussian(4.0), sampled_gaussian(0.2, 2.0), sampled_gaussian(0.1, 2.0)
    ledger.add(Entry((), shared))
    ledger.add(Entry((("class", "0"),), weak), 10)
    ledger.add(Entry((("class", "1"),), strong), 10)
    alone = pld_epsilon(compose_events([(shared, 1), (strong, 10)]), DELTA)
    assert ledger.proof().epsilon == pytest.approx(alone, rel=1e-9)


def test_two_partitions_cross_and_nested_parts_add_up() -> None:
    a, b, c = gaussian(3.0), gaussian(4.0), gaussian(5.0)
    crossed = Ledger(delta=DELTA)
    crossed.add(Entry((("class", "0"),), a))
    crossed.add(Entry((("site", "x"),), b))
    assert crossed.proof().epsilon == pytest.approx(
        pld_epsilon(compose_events([(a, 1), (b, 1)]), DELTA), rel=1e-9
    )
    nested = Ledger(delta=DELTA)
    nested.add(Entry((("class", "0"),), a))
    nested.add(Entry((("class", "0"), ("site", "x")), b))
    nested.add(Entry((("class", "1"), ("site", "x")), c))
    assert nested.proof().epsilon == pytest.approx(
        pld_epsilon(compose_events([(a, 1), (b, 1)]), DELTA), rel=1e-9
    )


def test_dominated_compositions_never_change_the_answer() -> None:
    rng = np.random.default_rng(0)
    compositions = {
        compose_events(
            [
                (sampled_gaussian(float(rng.choice([0.05, 0.2])), float(rng.choice([1.5, 3.0]))), 5)
                for _ in range(int(rng.integers(1, 3)))
            ]
        )
        for _ in range(12)
    }
    brute = max(min(rdp_epsilon(one, DELTA), pld_epsilon(one, DELTA)) for one in compositions)
    assert accountant.worst_epsilon(compositions, DELTA)[0] == pytest.approx(brute, rel=1e-12)
    assert len(accountant.undominated(compositions)) < len(compositions)


def test_unsupported_and_non_private_events_prove_nothing() -> None:
    ledger = Ledger(delta=DELTA)
    ledger.add(Entry((), dp_event.UnsupportedDpEvent()))
    proof = ledger.proof()
    assert math.isinf(proof.epsilon) and "no accountant supports" in proof.reasons[0]
    accessed = Ledger(delta=DELTA)
    accessed.add(Entry((), dp_event.NonPrivateDpEvent(), reason="because"))
    assert accessed.proof().reasons == ("because",)
    assert accessed.spent()[0] == 0.0


def test_adaptive_entries_are_accounted_by_rdp_at_one_fixed_order() -> None:
    budget = Budget(2.0, DELTA)
    fixed, adaptive = Ledger(budget), Ledger(budget)
    event = gaussian(6.0)
    fixed.add(Entry((), event), 3)
    adaptive.add(Entry((), event, adaptive=True), 3)
    order = adaptive.order
    # RDP of a Gaussian at order a is a / (2 sigma^2); Proposition 12 of Canonne et al. 2020.
    rdp = 3 * order / (2 * 36)
    expected = rdp + math.log1p(-1 / order) - (math.log(DELTA) + math.log(order)) / (order - 1)
    assert adaptive.spent()[0] == pytest.approx(expected, rel=1e-6)
    assert adaptive.spent()[0] >= fixed.spent()[0]
    assert "adaptive" in adaptive.proof().accountant
    # A filter proves its budget, not the part of it that happened to be spent.
    assert adaptive.proof().epsilon == 2.0
    unbounded = Ledger(delta=DELTA)
    unbounded.add(Entry((), event, adaptive=True))
    assert math.isinf(unbounded.proof().epsilon)
    assert "without a budget" in unbounded.proof().reasons[0]


def test_order_of_the_filter_is_near_the_best_one_for_a_gaussian() -> None:
    budget = Budget(1.0, DELTA)
    order = accountant.adaptive_order(budget)
    multiplier = brentq(
        lambda m: rdp_epsilon(compose_events([(gaussian(m), 1)]), DELTA) - 1.0, 1.0, 20.0
    )
    at_order = rdp_epsilon(compose_events([(gaussian(multiplier), 1)]), DELTA, order)
    assert at_order == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(
    "epsilon, delta", [(0, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (1, 0), (1, 1)]
)
def test_an_invalid_budget_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InputError):
        Budget(epsilon, delta)


def test_absl_warnings_do_not_reach_the_user(caplog: pytest.LogCaptureFixture) -> None:
    composition = compose_events([(gaussian(1000.0), 1)])
    rdp_epsilon.cache_clear()
    rdp_epsilon(composition, DELTA)
    assert not [record for record in caplog.records if record.name == "absl"]


@pytest.mark.parametrize(
    "event",
    [
        gaussian(math.nan),
        gaussian(0.0),
        gaussian(1e-160),
        gaussian(-1.0),
        gaussian(math.inf),
        laplace(math.nan),
        dp_event.ZCDpEvent(math.nan),
        dp_event.ZCDpEvent(-1.0),
        dp_event.PoissonSampledDpEvent(0.5, gaussian(math.nan)),
        dp_event.PoissonSampledDpEvent(1.5, gaussian(1.0)),
        dp_event.PoissonSampledDpEvent(math.nan, gaussian(1.0)),
        dp_event.ComposedDpEvent([gaussian(1.0), gaussian(math.nan)]),
    ],
    ids=str,
)
def test_unusable_parameters_never_become_an_epsilon_of_zero(event: dp_event.DpEvent) -> None:
    with pytest.raises(PrivacyContractError):
        Ledger(delta=DELTA).add(Entry((), event))


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_ledger_only_grows_by_whole_events(count: object) -> None:
    with pytest.raises(PrivacyContractError, match="positive whole number"):
        Ledger(delta=DELTA).add(Entry((), gaussian(1.0)), count)  # type: ignore[arg-type]


def test_almost_no_noise_is_refused_without_gigabytes() -> None:
    ledger = Ledger(Budget(1.0, DELTA))
    ledger.add(Entry((), gaussian(1e-3)))
    assert ledger.spent()[0] > 1e5


def test_composed_events_are_split_into_single_ones() -> None:
    ledger, plain = Ledger(delta=DELTA), Ledger(delta=DELTA)
    inner = dp_event.ComposedDpEvent([gaussian(3.0), dp_event.SelfComposedDpEvent(laplace(9.0), 2)])
    ledger.add(Entry((), inner), 2)
    plain.add(Entry((), gaussian(3.0)), 2)
    plain.add(Entry((), laplace(9.0)), 4)
    assert ledger.entries == plain.entries
    assert Ledger.from_json(ledger.to_json()).proof() == plain.proof()


def test_too_many_combinations_of_parts_prove_nothing() -> None:
    """A truncated list of compositions could miss the worst one."""
    ledger = Ledger(delta=DELTA)
    for number in range(150):
        for key in ("a", "b"):
            ledger.add(Entry(((key, str(number)),), gaussian(10.0 - number / 16)))
    proof = ledger.proof()
    assert math.isinf(proof.epsilon) and proof.reasons


def test_an_edited_order_or_count_is_refused() -> None:
    import json

    ledger = Ledger(Budget(2.0, DELTA))
    ledger.add(Entry((), gaussian(6.0), adaptive=True), 3)
    document = json.loads(ledger.to_json())
    for change in ({"order": 15.0}, {"entries": [{**document["entries"][0], "count": -2}]}):
        with pytest.raises(InputError, match="not a ledger"):
            Ledger.from_json(json.dumps({**document, **change}))


@pytest.mark.parametrize("epsilon", [0.005, 0.05, 1.0, 20.0])
def test_the_adaptive_order_serves_small_and_large_targets(epsilon: float) -> None:
    order = accountant.adaptive_order(Budget(epsilon, DELTA))
    assert order == int(order) >= 2
    assert rdp_epsilon(compose_events([(gaussian(1e6), 1)]), DELTA, order) < epsilon
