"""The ledger's file: what it says, and what is refused when it is read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from dp_accounting import dp_event

from bench.errors import InputError
from bench.privacy import ledger as module
from bench.privacy.accounting import Budget
from bench.privacy.events import gaussian, laplace, non_private
from bench.privacy.ledger import Entry, Ledger

BUDGET = Budget(2.0, 1e-6)


def example() -> Ledger:
    ledger = Ledger(BUDGET, unit="patient")
    ledger.add(Entry((("split", "train"), ("class", "1")), gaussian(6.0), trust="numpy 2"), 3)
    return ledger


def document() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(example().to_json())
    return read


def test_the_file_holds_all_that_an_officer_reads() -> None:
    ledger = example()
    proof = ledger.proof()
    assert document() == {
        "format_version": 1,
        "adjacency": "add-remove",
        "unit": "patient",
        "target_epsilon": 2.0,
        "delta": 1e-6,
        "order": ledger.order,
        "proven_epsilon": proof.epsilon,
        "accountant": "PLD",
        "reasons": [],
        "entries": [
            {
                "path": [["split", "train"], ["class", "1"]],
                "event": {"kind": "Gaussian", "noise_multiplier": 6.0},
                "in_words": "Gaussian noise, multiplier 6",
                "count": 3,
                "adaptive": False,
                "reason": "",
                "trust": "numpy 2",
            }
        ],
    }
    text = ledger.to_json()
    assert text == json.dumps(json.loads(text), indent=1), "one entry a line"


def test_without_a_proof_the_file_says_why() -> None:
    ledger = Ledger(unit="row")
    ledger.add(Entry((), non_private(), reason="looked at the rows"))
    ledger.add(Entry((), non_private(), reason="looked at the rows"))
    read = json.loads(ledger.to_json())
    assert read["proven_epsilon"] is None and read["target_epsilon"] is None
    assert read["accountant"] == "none"
    assert read["reasons"] == ["looked at the rows"]


def test_everything_is_read_back() -> None:
    ledger = example()
    ledger.add(Entry((), laplace(50.0), adaptive=True), 2)
    ledger.add(Entry((("split", "train"),), non_private(), reason="because"))
    again = Ledger.from_json(ledger.to_json())
    assert again.entries == ledger.entries
    assert (again.budget, again.delta, again.unit) == (BUDGET, 1e-6, "patient")
    assert again == ledger


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format_version": 2}, "format version 2, adjacency add-remove; expected"),
        ({"adjacency": "replace-one"}, "adjacency replace-one; expected"),
        ({"delta": True}, "delta True is not between"),
        ({"delta": 0}, "delta 0 is not between"),
        ({"delta": 1}, "delta 1 is not between"),
        ({"delta": 1.5}, "delta 1.5 is not between"),
        ({"unit": 3}, "unit of privacy is no text"),
        ({"target_epsilon": -1.0}, "epsilon -1.0 is not"),
        ({"order": 3.0}, "order 3.0: the target fixes it"),
        ({"entries": [1]}, "not a ledger"),
        ({"entries": [{"path": []}]}, "'event'"),
    ],
)
def test_an_altered_file_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        Ledger.from_json(json.dumps({**document(), **change}))
    assert message in str(refusal.value)


@pytest.mark.parametrize("delta", [True, 0, 1, 1.5, -1.0])
def test_a_delta_is_checked_without_a_target_too(delta: object) -> None:
    unbounded = {**document(), "target_epsilon": None, "order": Ledger().order}
    assert Ledger.from_json(json.dumps(unbounded)).budget is None
    with pytest.raises(InputError, match="not between 0 and 1"):
        Ledger.from_json(json.dumps({**unbounded, "delta": delta}))


@pytest.mark.parametrize("delta", [1e-300, 1.0 - 2.0**-53])
def test_any_delta_between_zero_and_one_is_read(delta: float) -> None:
    text = json.dumps({**document(), "target_epsilon": None, "delta": delta, "order": None})
    fixed = json.loads(text)
    fixed["order"] = Ledger().order
    assert Ledger.from_json(json.dumps(fixed)).delta == delta


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-5],
        lambda text: "[" * 100_000,
        lambda text: text.replace('"noise_multiplier": 6.0', '"noise_multiplier": "six"'),
        lambda text: text.replace('"noise_multiplier": 6.0', '"noise_multiplier": 0.0'),
        lambda text: text.replace('"count": 3', '"count": 0'),
        lambda text: text.replace('"count": 3', '"count": 1e999'),
        lambda text: text.replace('"count": 3', '"count": null'),
    ],
)
def test_damaged_files_are_refused_in_one_line(spoil: Callable[[str], str]) -> None:
    with pytest.raises(InputError, match="not a ledger") as refusal:
        Ledger.from_json(spoil(example().to_json()))
    assert refusal.value.__cause__ is None


class TestProof:
    def test_delta_is_that_of_the_budget(self) -> None:
        assert Ledger(BUDGET, delta=0.5).delta == 1e-6
        assert Ledger(delta=0.5).delta == 0.5
        assert Ledger().delta == 1e-5 and Ledger().unit == "row"
        assert example().proof().delta == 1e-6

    def test_events_without_a_finite_bound_prove_nothing(self) -> None:
        """Each of these has an accountant, but none has both."""
        ledger = Ledger()
        ledger.add(Entry((), dp_event.ZCDpEvent(0.1)))
        ledger.add(Entry((), dp_event.DiscreteLaplaceDpEvent(1.0, 1)))
        proof = ledger.proof()
        assert math.isinf(proof.epsilon)
        assert proof.reasons == ("the noisy events have no finite bound",)

    def test_unreserved_calls_without_a_budget_prove_nothing(self) -> None:
        ledger = Ledger()
        ledger.add(Entry((), gaussian(6.0), adaptive=True))
        proof = ledger.proof()
        assert (proof.epsilon, proof.accountant) == (math.inf, "none")
        assert proof.reasons == (
            "calls were not reserved, and without a budget nothing bounds them",
        )

    def test_each_reason_and_each_trusted_library_is_named_once(self) -> None:
        ledger = Ledger()
        for path in ((), (("class", "0"),)):
            ledger.add(Entry(path, non_private(), reason="why"))
            ledger.add(Entry(path, dp_event.UnsupportedDpEvent(), trust="b"))
            ledger.add(Entry(path, gaussian(5.0), trust="a"))
        proof = ledger.proof()
        assert proof.reasons == ("why", "no accountant supports: UnsupportedDpEvent")
        assert proof.trust == ("a", "b") and proof.accountant == "none"

    def test_too_many_combinations_are_no_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two parts of one partition and three of another: six kinds of rows."""
        ledger = Ledger()
        for key, noises in (("a", (10.0, 11.0)), ("b", (20.0, 21.0, 22.0))):
            for noise in noises:
                ledger.add(Entry(((key, f"{noise}"),), gaussian(noise)))
        monkeypatch.setattr(module, "_COMPOSITIONS_AT_MOST", 6)
        assert math.isfinite(ledger.spent()[0])
        composed = module.compositions(ledger.entries, "row")
        assert composed is not None and len(composed) == 6
        assert {len(one) for one in composed} == {2}
        monkeypatch.setattr(module, "_COMPOSITIONS_AT_MOST", 5)
        assert ledger.spent() == (math.inf, "none")

    def test_a_copy_with_more_entries_leaves_the_ledger_as_it_was(self) -> None:
        ledger = example()
        more = ledger.with_entries([(Entry((), gaussian(9.0)), 2), (next(iter(ledger.entries)), 1)])
        assert list(more.entries.values()) == [4, 2] and list(ledger.entries.values()) == [3]
        assert (more.budget, more.delta, more.unit) == (BUDGET, 1e-6, "patient")
