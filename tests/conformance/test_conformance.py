"""The conformance kit finds the mistake in a mistaken method, and none in a sound one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from bench.conformance import contract, privacy
from bench.conformance.kit import Check, CheckReport, check_method, check_subject, to_text
from bench.conformance.subject import CheckResult, CheckStatus, Subject
from bench.engine import code
from bench.errors import InputError, UnknownNameError
from bench.plugins import registry
from bench.plugins.method import Method
from bench.plugins.release import Release
from bench.results.records import AuditSpec
from tests.support import mistaken

CHECKS: tuple[tuple[Check, type[Method]], ...] = (
    (contract.has_a_description, mistaken.Unwritable),
    (contract.fits_some_task, mistaken.Silent),
    (contract.releases_what_was_asked, mistaken.Stingy),
    (contract.repeats_under_a_seed, mistaken.Forgetful),
    (contract.survives_difficult_tables, mistaken.Fragile),
    (privacy.noise_falls_with_epsilon, mistaken.Backwards),
    (privacy.rows_come_through_the_kernel, mistaken.Peeks),
    (privacy.rows_come_through_the_kernel, mistaken.Hoards),
    (contract.grows_with_epsilon, mistaken.Averse),
)


def on_tables(kind: type[Method]) -> Subject:
    """A subject that is tried on one kind of table only: the others say the same, slower."""
    return Subject(kind, tables=("table",))


def failed(results: list[CheckResult]) -> list[CheckResult]:
    return [result for result in results if result.status is CheckStatus.FAILED]


@pytest.mark.parametrize(
    ("check", "kind"), CHECKS, ids=[f"{kind.name}-{check.__name__}" for check, kind in CHECKS]
)
def test_a_mistake_is_found_and_the_same_check_passes_a_sound_method(
    check: Check, kind: type[Method]
) -> None:
    whole = check is contract.fits_some_task
    (problem, *_) = failed(list(check(Subject(kind) if whole else on_tables(kind))))
    assert problem.detail and problem.fix
    assert not failed(list(check(on_tables(mistaken.Sound))))


def test_a_method_that_asks_other_questions_at_another_budget_is_no_mistake() -> None:
    """Its counts have multiplier 3.7 at epsilon 1, where they are all, and 4.4 at 3, where not."""
    subject = on_tables(registry.method_class("private-teacher-dc"))
    asked = [len(subject.run("table", epsilon).ledger.entries) for epsilon in (1.0, 3.0)]
    assert asked[0] < asked[1]
    (result,) = privacy.noise_falls_with_epsilon(subject)
    assert result.status is CheckStatus.PASSED, result.detail
    assert "3.73 at 1," in result.detail


def test_a_method_for_many_rows_is_tried_on_more() -> None:
    subject = Subject(mistaken.Choosy)
    assert subject.fitting == ("large table",)
    (result,) = contract.fits_some_task(subject)
    assert result.status is CheckStatus.PASSED and "needs 1000 rows" in result.detail


def test_a_method_over_budget_fails_with_the_budget_named() -> None:
    subject = on_tables(mistaken.Overspends)
    report = check_subject(subject)
    assert report.failed
    assert "over the budget" in to_text(report)


def test_noise_and_sampling_of_the_kernel_are_as_recorded() -> None:
    for name in ("ldpdc", "marginals"):
        (result,) = privacy.noise_is_as_recorded(on_tables(registry.method_class(name)))
        assert result.status is CheckStatus.PASSED
        assert "measured" in result.detail


def test_noise_that_is_not_as_recorded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    halved = privacy._Streams.normal
    monkeypatch.setattr(
        privacy._Streams, "normal", lambda self, scale, size: halved(self, scale / 2, size)
    )
    (result,) = privacy.noise_is_as_recorded(on_tables(mistaken.Sound))
    assert result.status is CheckStatus.FAILED


@pytest.mark.parametrize(
    ("kind", "status"),
    [(mistaken.Copies, CheckStatus.FAILED), (mistaken.Sound, CheckStatus.PASSED)],
    ids=["copies", "sound"],
)
def test_the_quick_audit_detects_a_copied_row(
    kind: type[Method], status: CheckStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privacy, "_affordable", lambda subject, name: AuditSpec("two-world", 120))
    (result,) = privacy.quick_audit(on_tables(kind))
    assert result.status is status, result.detail
    assert "maximum detectable epsilon" in result.detail


def test_a_slow_method_gets_a_quick_audit_of_few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    real = mistaken.Sound.synthesize

    def counted(self: Method, *arguments: Any) -> Release:
        fits.append(1)
        return real(self, *arguments)

    monkeypatch.setattr(mistaken.Sound, "synthesize", counted)
    monkeypatch.setattr(privacy, "_SECONDS", 1e-9)
    (result,) = privacy.quick_audit(on_tables(mistaken.Sound))
    assert result.status is CheckStatus.PASSED and "24 canaries" in result.detail
    # One to see that it fits the table, two to measure the time, five of the audit.
    assert len(fits) == 1 + 2 + 5


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("np.random.seed(3)", "a global seed"),
        ("torch.manual_seed(3)", "a global seed"),
        ("torch.cuda.manual_seed(3)", "a global seed"),
        ("own = torch.Generator().manual_seed(3)", ""),
        ("own = torch.Generator(device='cpu').manual_seed(int(rng.integers(9)))", ""),
        ("x = np.random.normal(size=3)", "numpy's global generator"),
        ("rows = private._rows", "private attribute of another object"),
        ("import pickle", "imports pickle"),
        ("from random import gauss", "imports from random"),
        ("from bench.privacy.noise import SystemNoise", "noise belongs to the kernel"),
        ("from bench.privacy.kernel import Vault", "noise belongs to the kernel"),
        ("key = os.urandom(8)", "cannot be seeded"),
        ("x = self._helper(rng.normal(size=3))", ""),
        ("generator = np.random.default_rng(3)", ""),
    ],
)
def test_source_is_read_for_ways_around_the_kernel(line: str, problem: str) -> None:
    texts = [text for _, text in contract.suspicious(line)]
    assert any(problem in text for text in texts) if problem else not texts


def test_helper_modules_of_a_folder_are_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "brand_new_bypass"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""A method in a folder."""\n')
    (folder / "plugin.py").write_text(
        "from brand_new_bypass import _helper\n"
        "from tests.support.mistaken import Sound\n\n\n"
        "def kind() -> type:\n"
        "    return type('Bypass', (Sound.__bases__[0],), {'__module__': __name__})\n"
        "helper = _helper\n"
    )
    helper = folder / "_helper.py"
    monkeypatch.syspath_prepend(str(tmp_path))

    def result(line: str) -> CheckResult:
        helper.write_text(f"def rows(private, network):\n    return {line}\n")
        code.forget()
        plugin = importlib.import_module("brand_new_bypass.plugin").kind()
        subject = Subject(mistaken.Sound)
        subject.kind = plugin
        (checked,) = contract.source_has_no_bypass(subject)
        return checked

    bad = result("private._vault")
    assert bad.status is CheckStatus.FAILED
    assert bad.detail == "_helper.py, line 2: private._vault: private attribute of another object"
    assert result("private._vault  # library internals").status is CheckStatus.FAILED
    marked = result("network._layers  # library internals")
    assert marked.status is CheckStatus.PASSED and "_helper.py, line 2" in marked.detail
    good = result("network.layers")
    assert good.status is CheckStatus.PASSED
    assert good.detail == "no violations in plugin.py, _helper.py"


def test_no_shipped_method_has_a_violation_in_any_of_its_modules() -> None:
    for name in registry.method_names():
        (result,) = contract.source_has_no_bypass(Subject(registry.method_class(name)))
        assert result.status is CheckStatus.PASSED, result.detail


def test_a_check_that_cannot_run_gives_its_reason() -> None:
    subject = on_tables(registry.method_class("real"))
    results = {
        result.check: result
        for check in (privacy.rows_come_through_the_kernel, contract.grows_with_epsilon)
        for result in check(subject)
    }
    assert {result.status for result in results.values()} == {CheckStatus.NOT_CHECKED}
    assert all(result.detail for result in results.values())


def test_an_error_of_the_method_is_a_result_with_its_last_lines() -> None:
    report = check_subject(on_tables(mistaken.Fragile), further=(_raises,))
    (result,) = [item for item in report.results if item.check == "raises"]
    assert result.status is CheckStatus.FAILED and "KeyError" in result.detail


def _raises(subject: Subject) -> list[CheckResult]:
    raise KeyError("gone")


def test_the_report_says_what_to_do_and_promises_nothing() -> None:
    good = CheckReport("m", (CheckResult("one", CheckStatus.PASSED, "fine"),))
    bad = CheckReport("m", (CheckResult("one", CheckStatus.FAILED, "broken\nhere", "fix it"),))
    assert "not a proof of privacy" in to_text(good) and not good.failed
    assert "-> fix it" in to_text(bad) and bad.failed


def test_unknown_methods_and_parameters_are_refused_by_name() -> None:
    with pytest.raises(UnknownNameError, match="ldpdc"):
        check_method("ldpcd")
    with pytest.raises(UnknownNameError, match="group_size"):
        check_method("ldpdc", {"group_sizes": 3})
    with pytest.raises(InputError, match="bench env python smartnoise"):
        check_method("mst")
