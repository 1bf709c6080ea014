"""An audit as a person reads it, and the table of all audits for the docs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bench.auditor.conclusion import Conclusion, conclude
from bench.core.auditing.refutation import Refutation, refutations
from bench.core.result import AuditRow, Status


def report(row: AuditRow, refutation: Refutation | None, directory: Path) -> str:
    """A page of text."""
    conclusion = conclude(row, refutation, directory)
    head = f"{row.label} on {row.dataset}, {_size(row)}delta {row.delta:g}: {row.kind} audit"
    if row.status != Status.OK.value:
        return f"{head}\n\n  {conclusion.verdict}: {conclusion.sentence}"
    lines = [
        ("eps target", _epsilon(row.eps_target)),
        ("eps claimed", _epsilon(row.eps_claimed)),
        ("eps proven", _epsilon(row.eps_proven)),
        ("eps audited", f"{_epsilon(row.eps_audited)}  or more, with 95% confidence"),
    ]
    if row.eps_gaussian is not None:
        lines.append(
            ("  as Gaussian", f"{_epsilon(row.eps_gaussian)}  or more, if its noise is Gaussian")
        )
    lines += [("ceiling", f"{_epsilon(row.ceiling)}  is the most that these trials could show")]
    lines += _attack_lines(row)
    lines += [("verdict", conclusion.verdict), ("", conclusion.sentence)]
    width = max(len(name) for name, _ in lines) + 3
    body = "\n".join(f"  {name:<{width}}{text}" for name, text in lines)
    return f"{head}\n\n{body}"


def _attack_lines(row: AuditRow) -> list[tuple[str, str]]:
    where = "" if row.threshold is None else f", threshold {row.threshold:.4g}"
    lines = [("attack", f"canary: {row.canary}; scorer: {row.scorer}{where}")]
    if row.false_positives is not None and row.false_negatives is not None:
        true = 1.0 - row.false_negatives
        lines.append(
            (
                "called in",
                f"{100 * true:.1f}% with the canary, {100 * row.false_positives:.1f}% without, of "
                f"{row.trials} refits that chose nothing",
            )
        )
    lines.append(("p-values", f"claim {_p(row, 'claim')}, proof {_p(row, 'proof')}"))
    if row.replicated_eps is not None:
        lines.append(
            (
                "replication",
                f"eps {_epsilon(row.replicated_eps)} or more, p-values: claim "
                f"{row.replicated_p_claim:.2g}, proof {row.replicated_p_proof:.2g}",
            )
        )
    power = "-" if row.planted is None else f"found in {100 * row.planted:.0f}%"
    lines.append(("planted bug", f"{power}: {row.planted_bug}"))
    seconds = 0.0 if row.seconds is None else row.seconds
    lines.append(("cost", f"{row.refits} refits, {seconds:.0f} s"))
    return lines


def _p(row: AuditRow, what: str) -> str:
    number = row.eps_claimed if what == "claim" else row.eps_proven
    if number is None or math.isinf(number):
        return "-"
    return f"{row.p_claim if what == 'claim' else row.p_proof:.2g}"


def markdown_table(rows: Sequence[AuditRow], directory: Path, alpha: float = 0.05) -> str:
    """Claimed, proven, audited, power and verdict of every method and dataset, in Markdown.

    Of several audits of one setting (other code, other trials) the newest is shown; the correction
    is over all of them.
    """
    found = refutations(rows, alpha)
    heads = (
        "method",
        "dataset",
        "target",
        "claimed",
        "proven",
        "audited",
        "ceiling",
        "trials",
        "power",
        "verdict",
    )
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    notes: list[str] = []
    for row in _newest(rows):
        conclusion = conclude(row, found.get(row.key), directory)
        lines.append(f"| {' | '.join(map(_cell, _cells(row, conclusion)))} |")
        if row.status != Status.OK.value:
            notes.append(f"- {_cell(row.label)} on {_cell(row.dataset)}: {_cell(row.reason)}")
    text = "\n".join(lines)
    return f"{text}\n\n" + "\n".join(notes) + "\n" if notes else f"{text}\n"


def _newest(rows: Sequence[AuditRow]) -> list[AuditRow]:
    newest: dict[tuple[object, ...], AuditRow] = {}
    for row in rows:
        where = (row.dataset, row.dataset_parameters, row.eps_target, row.delta)
        setting = (row.label, *where, row.ipc, row.full_size)
        known = newest.get(setting)
        if known is None or row.finished_at > known.finished_at:
            newest[setting] = row
    return list(newest.values())


def _cells(row: AuditRow, conclusion: Conclusion) -> Sequence[str]:
    trials = f"{row.trials} canaries, {row.refits} fits" if row.kind == "one-run" else row.trials
    gaussian = "" if row.eps_gaussian is None else f" ({row.eps_gaussian:.2g} as Gaussian)"
    done = row.status == Status.OK.value
    return (
        row.label,
        row.dataset,
        _epsilon(row.eps_target),
        _epsilon(row.eps_claimed),
        _epsilon(row.eps_proven),
        f"≥ {_epsilon(row.eps_audited)}{gaussian}" if done else "-",
        _epsilon(row.ceiling),
        str(trials) if done else "-",
        "-" if row.planted is None else f"{100 * row.planted:.0f}%",
        conclusion.verdict,
    )


def _cell(text: str) -> str:
    """Markdown has tables by bars and line ends."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _size(row: AuditRow) -> str:
    if row.full_size:
        return "full size, "
    return "" if row.ipc is None else f"{row.ipc} rows per class, "


def _epsilon(value: float | None) -> str:
    if value is None:
        return "-"
    return "infinite" if math.isinf(value) else f"{value:.3g}"
