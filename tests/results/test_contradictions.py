"""What a row may say about its ledger: each fact alone, at the edge of its tolerance."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from bench.errors import StoreError
from bench.plugins.release import Claim
from bench.privacy.accounting import Budget, Proof
from bench.privacy.events import gaussian
from bench.privacy.ledger import Entry, Ledger
from bench.results import integrity
from bench.results.integrity import (
    Checked,
    Digest,
    Ledgers,
    Stated,
    StoredClaim,
    accounting_version,
    changed_files,
    check_release,
    contradictions,
    digest_of,
    judgement,
    recorded_digests,
    release_hashes,
    stored_claim,
)
from bench.results.verdicts import Verdict, judge

BUDGET = Budget(2.0, 1e-5)
LEDGER = Ledger(BUDGET, unit="row")
LEDGER.add(Entry((("split", "train"),), gaussian(4.0)))
PROOF = LEDGER.proof()
STATED = Stated(
    key="abc",
    eps_target=2.0,
    eps_claimed=1.5,
    eps_proven=PROOF.epsilon,
    delta=1e-5,
    verdict="sound",
    verdict_reason="stored before",
    claim_source="the paper",
    accountant=PROOF.accountant,
    adjacency="add-remove",
    unit="row",
    dp_accounting=metadata.version("dp-accounting"),
    release_hashes="",
)


def said(stated: Stated, proof: Proof = PROOF) -> list[str]:
    return list(contradictions(stated, LEDGER, proof))


class TestRows:
    def test_an_honest_one_contradicts_nothing(self) -> None:
        assert said(STATED) == []

    @pytest.mark.parametrize(
        "change, start",
        [
            ({"delta": 2e-5}, "The ledger is for delta 1e-05, the result table says 2e-05."),
            ({"unit": "patient"}, "The ledger protects each row, the result table says patient."),
            ({"unit": ""}, "The ledger protects each row, the result table says (nothing)."),
            ({"adjacency": "replace-one"}, "The ledger is for add-remove adjacency, the result"),
            (
                {"eps_target": 3.0},
                "The ledger was kept for a target of 2, the result table says 3.",
            ),
            (
                {"eps_target": None},
                "The ledger was kept for a target of 2, the result table says n",
            ),
            ({"accountant": "RDP"}, "The ledger is accounted by PLD, the result table says RDP."),
            ({"verdict": "unproven"}, "From the ledger the verdict is 'sound', the result table"),
            (
                {"eps_proven": math.inf},
                f"The ledger proves epsilon {PROOF.epsilon:.6g}, the result table says inf",
            ),
        ],
    )
    def test_every_fact_is_compared(self, change: dict[str, Any], start: str) -> None:
        assert [text for text in said(replace(STATED, **change)) if text.startswith(start)]

    @pytest.mark.parametrize("share, agrees", [(0.9e-6, True), (1.1e-6, False), (-1.1e-6, False)])
    def test_an_epsilon_agrees_to_a_millionth(self, share: float, agrees: bool) -> None:
        stated = replace(STATED, eps_proven=PROOF.epsilon * (1.0 + share))
        assert (said(stated) == []) is agrees

    @pytest.mark.parametrize("share, agrees", [(0.9e-2, True), (1.1e-2, False)])
    def test_of_another_version_of_the_accountant_to_a_hundredth(
        self, share: float, agrees: bool
    ) -> None:
        stated = replace(
            STATED, eps_proven=PROOF.epsilon * (1.0 + share), dp_accounting="0.0.1", accountant="x"
        )
        # Another version may also choose another accountant.
        assert (said(stated) == []) is agrees
        unknown = replace(stated, dp_accounting="")
        assert len(said(unknown)) == 2, "without a version it is taken for ours"

    def test_delta_and_target_agree_to_a_millionth_whatever_the_version(self) -> None:
        for change in ({"delta": 1e-5 * 1.00001}, {"eps_target": 2.00001}):
            assert said(replace(STATED, dp_accounting="0.0.1", **change))

    @pytest.mark.parametrize("verdict", ["claim refuted", "proof refuted"])
    def test_a_refutation_is_not_in_the_ledger(self, verdict: str) -> None:
        assert said(replace(STATED, verdict=verdict)) == []
        assert said(replace(STATED, verdict=verdict, eps_proven=0.5))

    def test_what_proves_nothing_has_no_accountant(self) -> None:
        nothing = Proof(math.inf, 1e-5, "none", ("rows were read",))
        stated = replace(STATED, eps_proven=math.inf, accountant="", verdict="unproven")
        assert said(stated, nothing) == []


class TestVerdicts:
    def test_rounding_does_not_move_a_release_over_its_target(self) -> None:
        """The row says exactly the target, and the ledger a little more."""
        stated = replace(STATED, eps_proven=2.0)
        above = Proof(2.0 * (1.0 + 5e-7), 1e-5, "PLD")
        assert judgement(stated, above).verdict is Verdict.SOUND
        assert judgement(stated, Proof(2.1, 1e-5, "PLD")).verdict is Verdict.UNPROVEN

    def test_target_and_claim_come_from_the_row(self) -> None:
        nothing = Proof(math.inf, 1e-5, "none", ("why", "and why"))
        assert judgement(STATED, nothing).reason == (
            "claims epsilon 1.5 (the paper), but why; and why"
        )
        unclaimed = replace(STATED, eps_claimed=None)
        assert judgement(unclaimed, nothing).verdict is Verdict.NON_PRIVATE
        free = replace(STATED, eps_target=None)
        assert judgement(free, Proof(50.0, 1e-5, "PLD")).verdict is Verdict.SOUND
        # A target that no budget has is none.
        odd = replace(STATED, eps_target=-1.0)
        assert judgement(odd, Proof(50.0, 1e-5, "PLD")).verdict is Verdict.SOUND

    @pytest.mark.parametrize(
        "epsilon, audited, verdict",
        [
            (1.0, 1.0, Verdict.SOUND),
            (1.0 + 0.5e-9, None, Verdict.SOUND),
            (1.0 + 2e-9, None, Verdict.UNPROVEN),
            (0.5, 0.5, Verdict.SOUND),
            (0.5, 0.500001, Verdict.PROOF_REFUTED),
            (math.inf, 1.0, Verdict.UNPROVEN),
            (math.inf, 1.000001, Verdict.CLAIM_REFUTED),
        ],
    )
    def test_bounds_belong_to_the_better_verdict(
        self, epsilon: float, audited: float | None, verdict: Verdict
    ) -> None:
        claim, proof = Claim(1.0, 1e-5, "the paper"), Proof(epsilon, 1e-5, "PLD")
        assert judge(Budget(1.0, 1e-5), claim, proof, audited).verdict is verdict

    def test_reasons(self) -> None:
        proof = Proof(0.51239, 1e-6, "PLD", (), ("a 1", "b 2"))
        judged = judge(BUDGET, None, proof)
        assert judged.text == "sound, trusting a 1 and b 2"
        assert judged.reason == "epsilon 0.5124 at delta 1e-06 by PLD"
        assert judge(None, None, Proof(math.inf, 1e-5, "none")).reason == "nothing is proven"


class TestWithoutALedger:
    def test_only_what_claims_a_proof_loses_it(self, tmp_path: Path) -> None:
        for verdict in ("sound", "sound, trusting numpy 2"):
            found = check_release(tmp_path, replace(STATED, verdict=verdict), Ledgers())
            assert (found.verdict, found.eps_proven) == ("unproven", math.inf)
            assert f"the table says {verdict!r} with epsilon {PROOF.epsilon:.6g}" in found.reason
            assert found.reason.endswith("but its ledger.json is not stored with the results")
            assert not found.contradictions
        for verdict in ("unproven", "non-private", "claim refuted"):
            found = check_release(tmp_path, replace(STATED, verdict=verdict), Ledgers())
            assert found == Checked(verdict, "stored before", PROOF.epsilon)

    @pytest.mark.parametrize("key", ["", "..", "a/b", "../x"])
    def test_a_key_that_leads_elsewhere_has_none(self, key: str, tmp_path: Path) -> None:
        found = check_release(tmp_path, replace(STATED, key=key), Ledgers())
        assert found.verdict == "unproven" and "names no folder" in found.reason


def stored(folder: Path, **documents: object) -> Path:
    release = folder / "releases" / "abc"
    release.mkdir(parents=True)
    (release / "ledger.json").write_text(LEDGER.to_json())
    for name, document in documents.items():
        (release / f"{name}.json").write_text(json.dumps(document))
    return folder


class TestFiles:
    def test_an_honest_release_has_the_reason_of_its_ledger(self, tmp_path: Path) -> None:
        run = stored(tmp_path, release={"claim": {"epsilon": 1.5}})
        stated = replace(STATED, release_hashes=release_hashes(run, "abc"))
        assert check_release(run, stated, Ledgers()) == Checked(
            "sound", judge(BUDGET, None, PROOF).reason, PROOF.epsilon
        )

    def test_digests_are_size_and_sha256_of_what_is_there(self, tmp_path: Path) -> None:
        run = stored(tmp_path)
        content = LEDGER.to_json().encode()
        expected = {"ledger.json": [len(content), hashlib.sha256(content).hexdigest()]}
        assert json.loads(release_hashes(run, "abc")) == expected
        assert digest_of(run, "releases", "abc", "ledger.json") == Digest(*expected["ledger.json"])
        assert digest_of(run, "releases", "abc", "release.json") is None

    def test_a_changed_file_is_named(self, tmp_path: Path) -> None:
        run = stored(tmp_path, release={"claim": {"epsilon": 1.5}})
        stated = replace(STATED, release_hashes=release_hashes(run, "abc"))
        assert changed_files(run, stated) == ()
        file = run / "releases" / "abc" / "release.json"
        file.write_text(file.read_text().replace("1.5", "1.4"))
        assert changed_files(run, stated) == (integrity.other_file("release.json"),)
        file.write_text(file.read_text() + " ")
        assert changed_files(run, stated) == (integrity.other_file("release.json"),)
        found = check_release(run, stated, Ledgers())
        assert found.verdict == "tampered" and math.isinf(found.eps_proven or 0.0)
        assert len(found.contradictions) == 2, "the file, and the claim in it"

    def test_a_file_that_was_not_recorded_is_another(self, tmp_path: Path) -> None:
        run = stored(tmp_path)
        recorded = release_hashes(run, "abc")
        (run / "releases" / "abc" / "release.json").write_text('{"claim": null}')
        stated = replace(STATED, release_hashes=recorded)
        assert changed_files(run, stated) == (integrity.other_file("release.json"),)
        # Earlier versions recorded nothing, and a copy may lack files.
        assert changed_files(run, replace(STATED, release_hashes="")) == ()
        (run / "releases" / "abc" / "ledger.json").unlink()
        (run / "releases" / "abc" / "release.json").unlink()
        assert changed_files(run, stated) == ()

    @pytest.mark.parametrize("column", ["[", "[]", '{"a": 1}', '{"a": [1]}', '{"a": ["x", "y"]}'])
    def test_digests_that_cannot_be_read_are_a_contradiction(
        self, column: str, tmp_path: Path
    ) -> None:
        assert recorded_digests(column) is None
        stated = replace(STATED, release_hashes=column)
        assert changed_files(stored(tmp_path), stated) == (integrity.UNREADABLE_DIGESTS,)

    def test_a_ledger_that_cannot_be_read_is_no_proof(self, tmp_path: Path) -> None:
        run = stored(tmp_path)
        recorded = release_hashes(run, "abc")
        (run / "releases" / "abc" / "ledger.json").write_text("{}")
        found = check_release(run, STATED, Ledgers())
        assert (
            found.verdict == "unproven" and "its ledger cannot be replayed: not a" in found.reason
        )
        altered = check_release(run, replace(STATED, release_hashes=recorded), Ledgers())
        assert altered.verdict == "tampered"


class TestClaims:
    @pytest.mark.parametrize(
        "document, claim",
        [
            ({"claim": {"epsilon": 1.5}}, StoredClaim(True, 1.5)),
            ({"claim": {"epsilon": 2}}, StoredClaim(True, 2.0)),
            ({"claim": {"epsilon": "Infinity"}}, StoredClaim(True, math.inf)),
            ({"claim": None}, StoredClaim(True, None)),
            ({}, StoredClaim(False, None)),
        ],
    )
    def test_are_read(self, document: object, claim: StoredClaim, tmp_path: Path) -> None:
        assert stored_claim(stored(tmp_path, release=document), "abc") == claim

    @pytest.mark.parametrize("epsilon", [True, "1.5", None, [1.5], 10**400])
    def test_that_are_no_numbers_are_refused(self, epsilon: object, tmp_path: Path) -> None:
        run = stored(tmp_path, release={"claim": {"epsilon": epsilon}})
        with pytest.raises(StoreError, match="its claim is no number"):
            stored_claim(run, "abc")
        assert check_release(run, STATED, Ledgers()).verdict == "tampered"

    def test_are_compared_with_the_row(self, tmp_path: Path) -> None:
        assert list(StoredClaim(True, 1.5).contradictions(STATED)) == []
        assert list(StoredClaim(False).contradictions(STATED)) == []
        assert list(StoredClaim(True, 1.4).contradictions(STATED)) == [
            "The method claimed epsilon 1.4, the result table says 1.5."
        ]
        assert list(StoredClaim(True).contradictions(STATED)) == [
            "The method claimed epsilon none, the result table says 1.5."
        ]
        infinite = list(StoredClaim(True, math.inf).contradictions(STATED))
        assert infinite == ["The method claimed epsilon infinite, the result table says 1.5."]
        assert stored_claim(tmp_path, "abc") == StoredClaim(False)


class TestReplays:
    def test_equal_ledgers_are_accounted_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []
        original = Ledger.proof

        def proof(self: Ledger) -> Proof:
            asked.append(self)
            return original(self)

        text = LEDGER.to_json()
        monkeypatch.setattr(Ledger, "proof", proof)
        ledgers = Ledgers()
        assert ledgers.replay(text) is ledgers.replay(text)
        assert len(asked) == 1 and ledgers.replay(text).proof == PROOF
        ledgers.replay(text.replace('"count": 1', '"count": 2'))
        assert len(asked) == 2

    def test_one_that_takes_too_long_is_given_up_and_after_three_none_is_tried(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def proof(self: Ledger) -> Proof:
            end = time.monotonic() + 60.0
            while time.monotonic() < end:
                pass
            raise AssertionError("no alarm went off")

        monkeypatch.setattr(integrity, "_SECONDS", 0.01)
        text = LEDGER.to_json()
        variants = [text.replace('"count": 1', f'"count": {n}') for n in range(1, 6)]
        monkeypatch.setattr(Ledger, "proof", proof)
        ledgers = Ledgers()
        problems = [ledgers.replay(one).problem for one in variants]
        slow = "its accounting takes more than 0.01 s"
        too_many = "too many ledgers of these runs take too long to account"
        assert problems == [slow] * 3 + [too_many] * 2

    def test_another_alarm_is_set_again(self) -> None:
        rings: list[int] = []
        before = signal.signal(signal.SIGALRM, lambda number, frame: rings.append(number))
        try:
            signal.setitimer(signal.ITIMER_REAL, 1000.0)
            Ledgers().replay("{}")
            left, _ = signal.getitimer(signal.ITIMER_REAL)
            assert 0.0 < left <= 1000.0
            signal.raise_signal(signal.SIGALRM)
            assert rings == [signal.SIGALRM]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    def test_whatever_the_accountants_do_it_proves_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = LEDGER.to_json()

        def proof(self: Ledger) -> Proof:
            raise ZeroDivisionError("secret")

        monkeypatch.setattr(Ledger, "proof", proof)
        replay = Ledgers().replay(text)
        assert replay.proof is None
        assert replay.problem == "its accounting fails with ZeroDivisionError"


def test_the_version_of_the_accountant_is_in_the_row() -> None:
    assert accounting_version('{"dp-accounting": "0.6.0", "numpy": "2"}') == "0.6.0"
    for versions in ("", "{}", "[]", '{"dp-accounting": 6}', "not JSON"):
        assert accounting_version(versions) == ""
