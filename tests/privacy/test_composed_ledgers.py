"""Several releases of one table: their events are composed, in every combination of parts."""

from __future__ import annotations

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from bench.errors import InputError
from bench.privacy import ledger as ledgers
from bench.privacy.events import gaussian, non_private
from bench.privacy.ledger import Entry, Ledger, PartPath, compose_ledgers

DELTA = 1e-5


def charged(*entries: tuple[PartPath, float]) -> Ledger:
    """Return a ledger of Gaussian mechanisms, each in a part."""
    ledger = Ledger(delta=DELTA)
    for path, multiplier in entries:
        ledger.add(Entry(path, gaussian(multiplier)))
    return ledger


def epsilon_of_gaussians(*multipliers: float) -> float:
    """Epsilon of all of them on one row, by the formula of Balle and Wang 2018."""
    mu = math.sqrt(sum(1.0 / multiplier**2 for multiplier in multipliers))

    def excess(epsilon: float) -> float:
        above = norm.cdf(-epsilon / mu + mu / 2.0)
        return float(above - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2.0) - DELTA)

    return float(brentq(excess, 0.0, 50.0))


def test_events_of_all_releases_are_composed() -> None:
    epsilon, accountant = compose_ledgers(
        [charged(((), 5.0)), charged(((), 7.0)), charged(((), 9.0))], DELTA
    )
    assert epsilon == pytest.approx(epsilon_of_gaussians(5.0, 7.0, 9.0), rel=2e-3)
    assert accountant == "PLD"


def test_a_row_may_be_in_the_worst_part_of_each_release() -> None:
    first = charged(((("class", "a"),), 4.0), ((("class", "b"),), 8.0))
    second = charged(((("class", "a"),), 8.0), ((("class", "b"),), 4.0))
    epsilon, _ = compose_ledgers(iter([first, second]), DELTA)
    assert epsilon == pytest.approx(epsilon_of_gaussians(4.0, 4.0), rel=2e-3)


def test_no_release_spends_nothing() -> None:
    assert compose_ledgers([], DELTA) == (0.0, "none")


def test_one_release_without_a_proof_leaves_nothing_proven() -> None:
    leak = Ledger(delta=DELTA)
    leak.add(Entry((), non_private(), reason="rows were read"))
    for kept in ([leak], [charged(((), 5.0)), leak], [leak, charged(((), 5.0))]):
        assert compose_ledgers(kept, DELTA) == (math.inf, "none")


def test_one_release_with_adaptive_events_is_refused() -> None:
    adaptive = Ledger(delta=DELTA)
    adaptive.add(Entry((), gaussian(5.0), adaptive=True))
    for kept in ([adaptive], [charged(((), 5.0)), adaptive], [adaptive, charged(((), 5.0))]):
        with pytest.raises(InputError, match="events chosen from earlier answers"):
            compose_ledgers(kept, DELTA)


class TestTooManyCombinations:
    """A shortened list of combinations could miss the worst one: nothing is proven then."""

    @pytest.mark.parametrize(("at_most", "proven"), [(3, False), (4, True)])
    def test_of_releases(self, at_most: int, proven: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ledgers, "_COMPOSITIONS_AT_MOST", at_most)
        parts = charged(((("class", "a"),), 6.0), ((("class", "b"),), 8.0))
        epsilon, accountant = compose_ledgers([parts, parts], DELTA)
        if proven:
            assert epsilon == pytest.approx(epsilon_of_gaussians(6.0, 6.0), rel=2e-3)
        else:
            assert (epsilon, accountant) == (math.inf, "none")

    def test_of_parts_within_a_release(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ledgers, "_COMPOSITIONS_AT_MOST", 3)
        crossed = charged(
            *(
                ((((key, part),)), multiplier)
                for key in "xy"
                for part, multiplier in (("a", 6.0), ("b", 8.0))
            )
        )
        for kept in ([crossed], [charged(((), 5.0)), crossed]):
            assert compose_ledgers(kept, DELTA) == (math.inf, "none")

    def test_twenty_thousand_are_the_limit(self) -> None:
        """3 x 59 x 113 is one more."""
        one_more = charged(
            *(
                (((key, str(number)),), 5.0 + number)
                for key, parts in (("x", 3), ("y", 59), ("z", 113))
                for number in range(parts)
            )
        )
        assert ledgers.compositions(one_more.entries, "row") is None
