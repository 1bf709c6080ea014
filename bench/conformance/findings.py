"""What a check found, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


class Outcome(enum.StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "FAILED"
    WARNING = "warning"
    NOT_CHECKED = "not checked"


@final
@dataclass(frozen=True)
class Finding:
    """One check of one method."""

    check: str
    outcome: Outcome
    detail: str = ""
    """What was seen."""
    fix: str = ""
    """What its author can do."""


@final
@dataclass(frozen=True)
class Report:
    """All findings about one method."""

    method: str
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> bool:
        """True if anything must be mended."""
        return any(finding.outcome is Outcome.FAILED for finding in self.findings)


def to_text(report: Report) -> str:
    """The report as a terminal shows it: what passed in one line each, what did not with why."""
    width = max(len(finding.check) for finding in report.findings)
    lines = [f"Check of {report.method}", ""]
    for finding in report.findings:
        first, *more = finding.detail.splitlines() or [""]
        lines.append(f"  {finding.outcome.value:<11}  {finding.check:<{width}}  {first}".rstrip())
        lines += [" " * (width + 17) + line for line in more]
        if finding.fix and finding.outcome in (Outcome.FAILED, Outcome.WARNING):
            lines.append(" " * (width + 17) + f"-> {finding.fix}")
    lines += ["", _summary(report.findings)]
    return "\n".join(lines)


def _summary(findings: Sequence[Finding]) -> str:
    counted = {
        outcome: sum(finding.outcome is outcome for finding in findings) for outcome in Outcome
    }
    words = [f"{count} {outcome.value}" for outcome, count in counted.items() if count]
    if counted[Outcome.FAILED]:
        return f"{', '.join(words)}: mend what FAILED before anybody relies on it."
    return f"{', '.join(words)}. A green check finds mistakes that are common; it proves nothing."
