"""`bench check --self-test`: every known mistake is caught, and the sound methods are not."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.conformance import self_test
from bench.conformance.kit import KERNEL
from bench.conformance.mistakes import MISTAKES, SOUND
from bench.conformance.self_test import Examined, SelfTest, examine, to_text
from bench.plugins import registry
from bench.plugins.method import Method

COUPLED = "coupled neighbours"
BLIND = "rows reach the release through recorded calls only"

# The seven that a review found to be missed by earlier checks, and what finds them.
REVIEWED = {
    "fitted-scaler": {COUPLED},
    "shared-teachers": {COUPLED},
    "early-stopping": {COUPLED, BLIND},
    "divided-by-sample": {COUPLED, BLIND},
    "divided-by-count": {COUPLED, BLIND},
    "soft-labels-from-rows": {COUPLED, BLIND},
    "rows-in-notes": {COUPLED, BLIND},
}
OTHERS = {
    "batch-norm": {KERNEL},
    "private-attribute": {"source", COUPLED, BLIND},
    "fixed-noise": {"budget"},
}


def test_there_are_24_mistakes_with_names_and_reasons_and_none_is_registered() -> None:
    assert len({kind.name for kind in MISTAKES}) == len({kind.title for kind in MISTAKES}) == 24
    assert all(kind.__doc__ for kind in (*MISTAKES, *SOUND))
    assert not {kind.name for kind in (*MISTAKES, *SOUND)} & {*registry.method_names()}


@pytest.mark.parametrize("kind", MISTAKES, ids=lambda kind: kind.name)
def test_a_mistake_has_a_proof_and_is_caught(kind: type[Method]) -> None:
    examined = examine(kind)
    assert 0.9 < examined.proven <= 1.0
    assert examined.failed
    assert {*examined.failed} >= {**REVIEWED, **OTHERS}.get(kind.name, set())


@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.name)
def test_a_sound_example_is_not_reported(kind: type[Method]) -> None:
    assert examine(kind).failed == ()


def test_the_table_names_what_was_missed_and_what_was_reported_wrongly() -> None:
    good = SelfTest((Examined(MISTAKES[0], 0.999, ("budget",)),), (Examined(SOUND[0], 1.0, ()),))
    assert good.passed and "1 of 1 mistakes caught; 0 of 1 sound" in to_text(good)
    missed = SelfTest((Examined(MISTAKES[0], 0.999, ()),), ())
    assert not missed.passed and "0.999   MISSED" in to_text(missed)
    wrong = SelfTest((), (Examined(SOUND[0], 1.0, ("budget",)),))
    assert not wrong.passed and "1 of 1 sound methods reported" in to_text(wrong)


@pytest.mark.parametrize(("failed", "code"), [(("budget",), 0), ((), 1)])
def test_the_command_prints_the_table_and_fails_where_a_mistake_is_missed(
    failed: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_test, "SOUND", ())
    monkeypatch.setattr(self_test, "examine", lambda kind: Examined(kind, 1.0, failed))
    result = CliRunner().invoke(main, ["check", "--self-test"])
    assert result.exit_code == code
    assert f"{24 * bool(failed)} of 24 mistakes caught" in result.stdout


@pytest.mark.parametrize("arguments", [[], ["ldpdc", "--self-test"]])
def test_a_method_or_the_self_test_is_asked_for(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["check", *arguments])
    assert result.exit_code == 2
    assert "give the name of a method, or --self-test without one" in result.stderr
