"""What was spent on a table: composed from events, charged first, held by one process."""

from __future__ import annotations

import json
import math
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from bench.errors import InputError, StoreError
from bench.privacy.accounting import Budget
from bench.privacy.events import gaussian, non_private
from bench.privacy.ledger import Entry, Ledger, compose_ledgers
from bench.results.spending import (
    RELEASED,
    SpendingLedger,
    Spent,
    held,
    read_spending,
    spending_file,
)

DELTA = 1e-5


def ledger_of(noise: float, path: tuple[tuple[str, str], ...] = (), **more: object) -> Ledger:
    ledger = Ledger(Budget(1.0, DELTA))
    ledger.add(Entry(path, gaussian(noise), **more))  # type: ignore[arg-type]
    return ledger


def spent(name: str, ledger: Ledger | None, epsilon: float = 1.0) -> Spent:
    state = RELEASED if ledger is not None else "started"
    budget = Budget(epsilon, DELTA)
    return Spent(name, "2026-01-01", "m", budget, "row", "o.csv", state, ledger)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Balle and Wang 2018, theorem 8: the exact curve of a Gaussian mechanism."""

    def gap(epsilon: float) -> float:
        upper = norm.cdf(mu / 2 - epsilon / mu)
        return float(upper - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(gap, 0.0, 50.0))


def test_two_releases_compose_as_one_gaussian_of_both() -> None:
    """Closed form: multipliers s and t together are one of 1 / sqrt(1/s^2 + 1/t^2)."""
    known = SpendingLedger("t", (spent("a", ledger_of(5.0)), spent("b", ledger_of(8.0))))
    total = known.total()
    exact = gaussian_epsilon(math.hypot(1 / 5.0, 1 / 8.0), 2 * DELTA)
    assert total.delta == pytest.approx(2 * DELTA)
    assert total.epsilon == pytest.approx(exact, rel=2e-3) and total.epsilon >= exact * (1 - 1e-6)
    assert total.epsilon < sum(one.epsilon for one in known.releases)


def test_a_row_may_be_in_the_worst_part_of_every_release() -> None:
    first = ledger_of(5.0, (("class", "0"),))
    first.add(Entry((("class", "1"),), gaussian(9.0)))
    second = ledger_of(9.0, (("random", "0"),))
    second.add(Entry((("random", "1"),), gaussian(5.0)))
    together = compose_ledgers([first, second], DELTA)[0]
    assert together == pytest.approx(gaussian_epsilon(math.hypot(0.2, 0.2), DELTA), rel=2e-3)


def test_a_lost_or_adaptive_release_adds_its_epsilon() -> None:
    exact = SpendingLedger("t", (spent("a", ledger_of(5.0)),)).total().epsilon
    lost = SpendingLedger("t", (spent("a", ledger_of(5.0)), spent("b", None, 2.0))).total()
    assert lost.epsilon == pytest.approx(exact + 2.0) and lost.delta == pytest.approx(2 * DELTA)
    adaptive = spent("c", ledger_of(5.0, adaptive=True))
    total = SpendingLedger("t", (spent("a", ledger_of(5.0)), adaptive)).total()
    assert total.epsilon == pytest.approx(exact + 1.0)  # an adaptive ledger proves its budget


def test_a_release_without_a_proof_makes_the_total_infinite() -> None:
    ledger = Ledger(Budget(1.0, DELTA))
    ledger.add(Entry((), non_private(), reason="looked"))
    assert math.isinf(SpendingLedger("t", (spent("a", ledger),)).total().epsilon)


def test_the_limit_refuses_and_another_unit_too() -> None:
    known = SpendingLedger("t.csv", (spent("a", None),), limit=2.0)
    known.planned(Budget(1.0, DELTA), "row", "m", "o.csv")
    with pytest.raises(InputError, match=r"up to 2\.5, over the limit of 2 that its owner set"):
        known.planned(Budget(1.5, DELTA), "row", "m", "o.csv")
    with pytest.raises(InputError, match="protect a row, this one would protect a patient"):
        known.planned(Budget(0.1, DELTA), "patient", "m", "o.csv")


def test_the_file_is_its_owners_and_says_the_same_when_read_again(tmp_path: Path) -> None:
    path = spending_file(tmp_path / "my.csv")
    assert path.name == "my.csv.spending.json"
    with held(path, "my.csv") as spending:
        planned = spending.known.planned(Budget(1.0, DELTA), "row", "m", "o.csv")
        spending.write(spending.known.with_release(planned))
        assert read_spending(path, "my.csv").total().epsilon == 1.0  # charged before the fit
        made = replace(planned, state=RELEASED, ledger=ledger_of(8.0))
        spending.write(spending.known.with_release(made))
    assert path.stat().st_mode & 0o777 == 0o600
    again = read_spending(path, "my.csv")
    assert len(again.releases) == 1 and again.total().epsilon == made.epsilon < 1.0


def _try(path: Path, told: multiprocessing.queues.Queue[str]) -> None:
    try:
        with held(path, "my.csv"):
            told.put("held")
    except StoreError as problem:
        told.put(str(problem))


def test_two_processes_do_not_spend_at_once(tmp_path: Path) -> None:
    path = spending_file(tmp_path / "my.csv")
    context = multiprocessing.get_context("spawn")
    told: multiprocessing.queues.Queue[str] = context.Queue()
    with held(path, "my.csv"):
        other = context.Process(target=_try, args=(path, told))
        other.start()
        assert "is in use by another `bench synthesize`" in told.get()
        other.join()
    _try(path, told)
    assert told.get() == "held"


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("limit"),
        lambda document: document.update(format_version=9),
        lambda document: document["releases"][0].update(epsilon=-1),
        lambda document: document["releases"][0].update(state="gone"),
        lambda document: document["releases"][0].update(ledger={"entries": []}),
        lambda document: document.update(limit="1"),
    ],
)
def test_a_damaged_file_stops_all_spending(tmp_path: Path, change: object) -> None:
    path = spending_file(tmp_path / "my.csv")
    document = json.loads(SpendingLedger("my.csv", (spent("a", None),)).to_json())
    change(document)  # type: ignore[operator]
    path.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="nothing more is spent"):
        read_spending(path, "my.csv")
    path.write_text("{")
    with pytest.raises(StoreError, match="nothing more is spent"):
        read_spending(path, "my.csv")
