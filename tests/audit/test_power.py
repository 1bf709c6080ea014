"""An audit that misses its planted bug says in words that it has no power."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.audit.report import markdown_table, report
from bench.engine.cell import blank_row, ended
from bench.leaderboard.dossier.cell import cell_report
from bench.results.audits import power_in_a_table, power_in_words
from bench.results.records import AuditRow, AuditSpec, Cell, Outcome, Status, Variant

CELL = Cell(
    Variant("marginals", "marginals"), Variant("gbsg2", "gbsg2"), 50, False, 1.0, 1e-5, 0,
    "default", 0, audit=AuditSpec("two-world", 100),
)  # fmt: skip
NUMBERS = AuditRow(
    key="k", trials=100, refits=300, canary="outlier", scorer="nearest row", threshold=1.0,
    false_positives=0.02, false_negatives=0.9, eps_gaussian=None, eps_detectable=3.5,
    p_claim=0.5, p_proof=0.5, planted=0.0, planted_bug="the canary copied",
)  # fmt: skip


def outcome(planted: float | None) -> Outcome:
    row = replace(
        blank_row(CELL, "k", None),
        eps_claimed=1.0,
        eps_proven=0.9,
        eps_audited=0.0,
        verdict="sound",
    )
    return Outcome(ended(row, Status.OK, ""), audit=replace(NUMBERS, planted=planted))


@pytest.mark.parametrize(
    "planted, cell, weak",
    [(0.0, "0% (no power)", True), (0.05, "5%", False), (1.0, "100%", False), (None, "-", False)],
)
def test_it_is_said_on_the_terminal_on_the_page_and_in_the_table(
    planted: float | None, cell: str, weak: bool
) -> None:
    one = outcome(planted)
    assert one.audit is not None
    assert power_in_a_table(one.audit) == cell
    assert f"| {cell} |" in markdown_table([one])
    terminal = report(one, None)
    page = cell_report(one.row, (), one.audit)
    for text in (terminal, page, power_in_words(one.audit)):
        assert ("This audit has no power" in text) is weak
    assert ("It has no power: it misses the planted bug as well." in terminal) is weak
