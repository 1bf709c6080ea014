"""All checks of one method, in the order in which its author fixes problems, and their report."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from bench.conformance import contract, coupling, privacy
from bench.conformance.subject import CheckResult, CheckStatus, Subject
from bench.environments import overlays
from bench.errors import InputError, PrivacyContractError, text_of
from bench.plugins import registry
from bench.plugins.dataframe import DataFrameMethod

Check = Callable[[Subject], Iterator[CheckResult]]

KERNEL = "rules of the kernel"
"""Name of what the kernel itself refuses, such as a row function that does not act row by row."""

FIRST: tuple[Check, ...] = (contract.source_has_no_bypass, contract.has_a_description)
CHECKS: tuple[Check, ...] = (
    contract.releases_what_was_asked,
    contract.repeats_under_a_seed,
    contract.survives_difficult_tables,
    privacy.keeps_the_budget,
    privacy.noise_falls_with_epsilon,
    privacy.rows_come_through_the_kernel,
    coupling.coupled_neighbours,
    privacy.noise_is_as_recorded,
    contract.grows_with_epsilon,
)


@final
@dataclass(frozen=True)
class CheckReport:
    """Results of all checks of one method."""

    method: str
    results: tuple[CheckResult, ...]
    meaning: str = ""
    """What a passed check says about this kind of method, where that is less than usual."""

    @property
    def failed(self) -> bool:
        """True if anything must be fixed."""
        return any(result.status is CheckStatus.FAILED for result in self.results)


def to_text(report: CheckReport) -> str:
    """Return the report for a terminal: one line per passed check, details of the others."""
    width = max(len(result.check) for result in report.results)
    lines = [f"Check of {report.method}", ""]
    for result in report.results:
        first, *more = result.detail.splitlines() or [""]
        lines.append(f"  {result.status.value:<11}  {result.check:<{width}}  {first}".rstrip())
        lines += [" " * (width + 17) + line for line in more]
        if result.fix and result.status in (CheckStatus.FAILED, CheckStatus.WARNING):
            lines.append(" " * (width + 17) + f"-> {result.fix}")
    lines += ["", _summary(report.results)]
    if report.meaning:
        lines += ["", report.meaning]
    return "\n".join(lines)


def _summary(results: Sequence[CheckResult]) -> str:
    counted = {status: sum(result.status is status for result in results) for status in CheckStatus}
    words = [f"{count} {status.value}" for status, count in counted.items() if count]
    if counted[CheckStatus.FAILED]:
        return f"{', '.join(words)}: fix what FAILED before using the method."
    return f"{', '.join(words)}. Passing finds only common mistakes and is not a proof of privacy."


def check_method(
    name: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    further: tuple[Check, ...] = (),
    say: Callable[[str], None] = lambda text: None,
) -> CheckReport:
    """Run every check of a registered method; one that fails does not stop the others."""
    kind = registry.method_class(name)
    environment = kind.environment
    if environment is not None and not overlays.inside(environment):
        raise InputError(
            f"method {name} is fitted in its own environment {environment.name}; check it there: "
            f'"$(bench env python {environment.name})" -P -m bench check {name}'
        )
    registry.build_method(name, parameters)  # refuses unknown parameters
    return check_subject(Subject(kind, parameters), further=further, say=say)


def check_subject(
    subject: Subject,
    *,
    checks: tuple[Check, ...] = CHECKS,
    further: tuple[Check, ...] = (),
    say: Callable[[str], None] = lambda text: None,
) -> CheckReport:
    """Run every check of a method that is given as a class."""
    results: list[CheckResult] = []
    for check in FIRST:
        results += _carried_out(check, subject, say)
    applicable = _carried_out(contract.fits_some_task, subject, say)
    results += applicable
    if all(result.status is CheckStatus.PASSED for result in applicable):
        for check in (*checks, *further):
            results += _carried_out(check, subject, say)
    return CheckReport(subject.name, tuple(results), _meaning(subject))


WRAPPED = (
    "What passing means for a wrapped library: it runs on difficult tables, returns what the "
    "schema allows and the same rows for the same seed, and its verdict is `unproven`. Checks of "
    "noise, budget and neighbouring tables see the calls of the kernel, and it makes none: "
    "whether {package} adds the noise that it claims was not checked. `bench audit {name}` attacks "
    "it; docs/wrapping.md says how it can get a proof."
)


def _meaning(subject: Subject) -> str:
    kind = subject.kind
    if not issubclass(kind, DataFrameMethod):
        return ""
    return WRAPPED.format(package=kind.package, name=subject.name)


def _carried_out(check: Check, subject: Subject, say: Callable[[str], None]) -> list[CheckResult]:
    say((check.__doc__ or check.__name__).splitlines()[0])
    try:
        return list(check(subject))
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        # The error of the method is what its author must see; it is a result, not a crash.
        last = traceback.format_exc().strip().splitlines()[-7:]
        text = "\n".join([f"{type(problem).__name__}: {text_of(problem)}", *last[:-1]])
        # What the kernel refuses, it refuses in whichever check comes first.
        refused = isinstance(problem, PrivacyContractError)
        name = KERNEL if refused else check.__name__.replace("_", " ").strip()
        return [CheckResult(name, CheckStatus.FAILED, text, "fix this error")]
