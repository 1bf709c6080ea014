"""Refutations: replication, Holm over methods, and the number that the verdict gets."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from bench.errors import InputError
from bench.plugins.release import Claim
from bench.privacy.accounting import Budget, Proof
from bench.results.audits import Refutation, refutations
from bench.results.records import AuditRow, CellRow, Outcome
from bench.results.verdicts import Verdict, judge

BLANK = {"str": "", "int": 0, "float": 1.0, "bool": False}


def audit_outcome(key: str, method: str = "", **values: object) -> Outcome:
    """An audit that says nothing against its method, but for what is given."""
    given = {"key": key, "method": method or key, "eps_claimed": 1.0, "eps_proven": 1.0}
    given |= {"status": "ok", "attack": "two-world", "trials": 100, **values}
    objects = dict.fromkeys(("parameters", "dataset_parameters", "metrics", "versions"), "{}")
    given = {**objects, "study_only": True, **given}
    row, audit = (
        record(
            **{
                item.name: given.get(
                    item.name, None if "None" in str(item.type) else BLANK[str(item.type)]
                )
                for item in fields(record)
            }
        )
        for record in (CellRow, AuditRow)
    )
    assert isinstance(row, CellRow) and isinstance(audit, AuditRow)
    return Outcome(row, audit=audit if row.status == "ok" else None)


def _against_claim(key: str, first: float, second: float, **values: object) -> Outcome:
    values = {"eps_proven": math.inf, "replicated_eps": 2.0, **values}
    return audit_outcome(key, p_claim=first, replicated_p_claim=second, **values)


def _changed(outcome: Outcome, **values: str) -> Outcome:
    return replace(outcome, row=replace(outcome.row, **values))


def _verdict(outcome: Outcome, refutation: Refutation) -> Verdict:
    row = outcome.row
    claim = None if row.eps_claimed is None else Claim(row.eps_claimed, 1e-5, "paper")
    proven = math.inf if row.eps_proven is None else row.eps_proven
    return judge(Budget(8.0, 1e-5), claim, Proof(proven, 1e-5, "PLD"), refutation.audited).verdict


def test_both_runs_must_contradict_the_number() -> None:
    for first, second, refuted in (
        (0.01, 0.01, True),
        (0.01, 0.2, False),
        (0.2, 0.01, False),
        (0.05, 0.01, False),
        (1.0, 1.0, False),
    ):
        row = _against_claim("a", first, second)
        refutation = refutations([row])["a"]
        assert refutation.claim is refuted and not refutation.proof
        assert (_verdict(row, refutation) is Verdict.CLAIM_REFUTED) is refuted


def test_holm_over_all_methods_replicated_or_not() -> None:
    """0.01 stands alone or among 4 others, not among 5; those not replicated count."""
    row = _against_claim("a", 0.001, 0.01)
    for others, refuted in ((0, True), (3, True), (4, False), (9, False)):
        rows = [row, *(audit_outcome(f"quiet{number}") for number in range(others))]
        refutation = refutations(rows)["a"]
        assert refutation.p_claim == pytest.approx(0.01 * (others + 1))
        assert refutation.methods == others + 1
        assert refutation.claim is refuted


def test_audits_that_did_not_finish_are_not_counted() -> None:
    rows = [
        _against_claim("a", 0.001, 0.04),
        audit_outcome("b", status="skipped"),
        audit_outcome("c", status="error"),
    ]
    by_key = refutations(rows)
    assert list(by_key) == ["a"] and by_key["a"].claim and by_key["a"].methods == 1


def test_holm_steps_down() -> None:
    rows = [_against_claim("a", 0.001, 0.001), _against_claim("b", 0.001, 0.02), audit_outcome("c")]
    by_key = refutations(rows)
    assert by_key["a"].p_claim == pytest.approx(0.003)
    assert by_key["b"].p_claim == pytest.approx(0.04)
    assert by_key["a"].claim and by_key["b"].claim and not by_key["c"].claim


def test_a_method_is_its_name_parameters_and_source() -> None:
    same = [audit_outcome(f"quiet{number}", "one") for number in range(9)]
    row = _against_claim("a", 0.001, 0.01)
    assert refutations([row, *same])["a"].methods == 2
    other = [_changed(item, parameters=item.row.key) for item in same]
    assert refutations([row, *other])["a"].methods == 10
    other = [_changed(item, source_hash=item.row.key) for item in same]
    assert refutations([row, *other])["a"].methods == 10


def test_many_audits_of_one_method_pay_for_it() -> None:
    """Three replicated audits: the smallest p counts three times, the quiet one does not."""
    rows = [
        _against_claim("a", 0.01, 0.004, method="one"),
        _against_claim("b", 0.01, 0.02, method="one"),
        _against_claim("c", 0.01, 0.5, method="one"),
        audit_outcome("d", "one"),
        audit_outcome("e", "two"),
    ]
    by_key = refutations(rows)
    assert by_key["a"].p_claim == pytest.approx(0.004 * 3 * 2)
    assert by_key["b"].p_claim == pytest.approx(0.02 * 3 * 2)
    assert [by_key[key].claim for key in "abcde"] == [True, False, False, False, False]


def test_proof_refuted_overrides_and_its_number_exceeds_the_proof() -> None:
    row = audit_outcome("a", p_proof=1e-6, replicated_p_proof=1e-6, replicated_eps=3.0)
    refutation = refutations([row])["a"]
    assert refutation.proof and not refutation.claim and refutation.audited == 3.0
    assert _verdict(row, refutation) is Verdict.PROOF_REFUTED


def test_curve_refuted_elsewhere_still_changes_the_verdict() -> None:
    row = audit_outcome("a", p_proof=1e-6, replicated_p_proof=1e-6, replicated_eps=0.4)
    refutation = refutations([row])["a"]
    assert refutation.audited is not None and 1.0 < refutation.audited < 1.0 + 1e-9
    assert _verdict(row, refutation) is Verdict.PROOF_REFUTED


def test_claim_below_the_proof_is_refuted_without_the_proof() -> None:
    """Replicated bound 5, claim 1, proof 4 whose p-value does not survive the correction."""
    row = _against_claim(
        "a", 1e-6, 1e-6, eps_proven=4.0, p_proof=0.01, replicated_p_proof=0.04, replicated_eps=5.0
    )
    refutation = refutations([row, audit_outcome("b")])["a"]
    assert refutation.claim and not refutation.proof and refutation.audited == 4.0
    assert _verdict(row, refutation) is Verdict.CLAIM_REFUTED


def test_refuted_claim_refutes_every_smaller_number() -> None:
    row = _against_claim("a", 1e-6, 1e-6, eps_proven=0.5)
    refutation = refutations([row])["a"]
    assert (
        refutation.claim and refutation.proof and _verdict(row, refutation) is Verdict.PROOF_REFUTED
    )


def test_nothing_claimed_or_proven_cannot_be_refuted() -> None:
    row = audit_outcome("a", eps_claimed=None, eps_proven=None, p_claim=0.0, p_proof=0.0,
               replicated_p_claim=0.0, replicated_p_proof=0.0)  # fmt: skip
    refutation = refutations([row])["a"]
    assert not refutation.claim and not refutation.proof and refutation.audited is None


def test_a_high_bound_without_refutation_changes_nothing() -> None:
    row = audit_outcome(
        "a", eps_audited=9.0, p_claim=0.01, replicated_p_claim=0.3, replicated_eps=9.0
    )
    assert refutations([row])["a"].audited is None


def test_the_same_audit_twice_counts_once() -> None:
    row = _against_claim("a", 0.001, 0.01)
    assert refutations([row, _changed(row, finished_at="later")]) == refutations([row])
    with pytest.raises(InputError, match="one key is one audit"):
        refutations([row, _against_claim("a", 0.5, 0.01)])


def test_no_audits_and_bad_levels() -> None:
    assert refutations([]) == {}
    with pytest.raises(InputError, match="alpha"):
        refutations([], alpha=0.0)


def test_family_error_by_simulation() -> None:
    """20 innocent methods with two audits each: without rule 1 at most 5%, with it 0.25%."""
    rng = np.random.default_rng(1)
    false = {0.0: 0, 1.0: 0}
    for _ in range(400):
        second = rng.random((20, 2))
        first = rng.random((20, 2))
        for gate in false:
            rows = [
                _against_claim(f"{m}-{a}", gate * first[m, a], second[m, a], method=str(m))
                for m in range(20)
                for a in range(2)
            ]
            false[gate] += any(refutation.claim for refutation in refutations(rows).values())
    assert 5 < false[0.0] <= 33  # 20 expected; 33 has p < 0.3%
    assert false[1.0] <= 6
