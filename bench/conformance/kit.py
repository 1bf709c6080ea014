"""All checks of one method, in the order in which a reader mends them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.conformance import contract, noise, privacy, source_scan, utility
from bench.conformance.findings import Finding, Outcome, Report
from bench.conformance.subject import Subject
from bench.environments import overlays
from bench.errors import InputError
from bench.plugins import registry

Check = Callable[[Subject], Iterator[Finding]]

FIRST: tuple[Check, ...] = (source_scan.reads_clean, contract.says_what_it_is)
CHECKS: tuple[Check, ...] = (
    contract.gives_what_was_asked,
    contract.repeats_under_a_seed,
    contract.survives_awkward_tables,
    privacy.keeps_the_budget,
    privacy.noise_falls_with_epsilon,
    privacy.rows_come_through_the_kernel,
    noise.noise_is_as_recorded,
    utility.grows_with_epsilon,
)


def check_method(
    name: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    further: tuple[Check, ...] = (),
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run every check. One that cannot be carried out says so and does not stop the others."""
    kind = registry.method_class(name)
    environment = kind.environment
    if environment is not None and not overlays.inside(environment):
        raise InputError(
            f"method {name} is fitted in its own environment {environment.name}; check it there: "
            f'"$(bench env python {environment.name})" -P -m bench check {name}'
        )
    registry.build_method(name, parameters)  # refuses unknown ones with the known ones listed
    return check_subject(Subject(kind, parameters), further=further, say=say)


def check_subject(
    subject: Subject,
    *,
    further: tuple[Check, ...] = (),
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """The same for a method that is at hand as a class."""
    findings: list[Finding] = []
    for check in FIRST:
        findings += _carried_out(check, subject, say)
    applicable = _carried_out(contract.fits_some_task, subject, say)
    findings += applicable
    if all(finding.outcome is Outcome.PASSED for finding in applicable):
        for check in (*CHECKS, *further):
            findings += _carried_out(check, subject, say)
    return Report(subject.name, tuple(findings))


def _carried_out(check: Check, subject: Subject, say: Callable[[str], None]) -> list[Finding]:
    say((check.__doc__ or check.__name__).splitlines()[0])
    try:
        return list(check(subject))
    except Exception as problem:
        # The method's own error is what its author must see; it is a finding, not a crash.
        last = traceback.format_exc().strip().splitlines()[-7:]
        text = "\n".join([f"{type(problem).__name__}: {problem}", *last[:-1]])
        return [Finding(check.__name__.replace("_", " "), Outcome.FAILED, text, "mend this error")]
