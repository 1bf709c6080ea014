"""What every page about one cell says: what was asked, epsilons, scores, cost, how to repeat it.

The cell pages of the site, the report that a tracking server stores, and the dossier of a release
take these parts from here; `cell_parts.html` lays them out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from bench.errors import printable
from bench.leaderboard.tables import show
from bench.plugins.metric import Direction, Family
from bench.results.audits import power_in_words
from bench.results.private_rows import may_travel
from bench.results.records import PHASES, AuditRow, CellRow, ScoreRow, TimingRow
from bench.results.reproduce import Repeat, json_object, repeat

_LONGEST_TEXT = 4_000
_LONGEST_COMMAND = 20_000


@final
@dataclass(frozen=True)
class EpsilonLine:
    """One of the four epsilons, and what it means for this cell."""

    name: str
    value: float | None
    meaning: str


@final
@dataclass(frozen=True)
class ScoreLine:
    """One score as a page shows it."""

    metric: str
    arrow: str
    better: str
    value: str
    interval: str
    limit: str
    accepted: bool | None
    """Whether the paper's threshold is met; None where there is none."""
    remark: str


@final
@dataclass(frozen=True)
class ScoreFamily:
    """The scores of one family: those that the leaderboard shows, and the others."""

    family: str
    first: tuple[ScoreLine, ...]
    others: tuple[ScoreLine, ...]


@final
@dataclass(frozen=True)
class MissingScores:
    """A reason with all metrics that have no value for it."""

    reason: str
    metrics: tuple[str, ...]


def cell_report(
    row: CellRow,
    scores: Sequence[ScoreRow],
    audit: AuditRow | None = None,
    timings: Sequence[TimingRow] = (),
) -> str:
    """Return a self-contained HTML page about a cell, without scripts or links."""
    from markupsafe import Markup

    from bench.leaderboard.templates import rendering

    page = rendering.page(
        "report.html",
        "report.html",
        cell_style=Markup(rendering.asset("cell.css")),
        title=cell_title(row),
        row=row,
        kind=verdict_class(row.verdict),
        warnings=warnings_of(row.warnings),
        epsilons=four_epsilons(row),
        audit=audit_lines(row, audit),
        families=score_families(scores),
        missing=missing_scores(scores),
        cost=cost(row),
        timing=timing_lines(timings),
        repeated=repeated(row),
        facts=facts(row),
    )
    return page.content.decode()


def audit_lines(row: CellRow, audit: AuditRow | None) -> list[tuple[str, str]]:
    """Return what an audit measured; what it refutes is decided over all audits together."""
    if audit is None:
        return []
    replicated = (
        "" if audit.replicated_eps is None else f"{show.number(audit.replicated_eps)} or more"
    )
    lines = (
        ("attack", f"{row.attack}, {audit.trials} trials counted, {audit.refits} refits"),
        ("maximum detectable epsilon", show.number(audit.eps_detectable)),
        ("epsilon if its noise is Gaussian", show.number(audit.eps_gaussian)),
        ("canary and scorer", f"{audit.canary}; {audit.scorer}"),
        ("p-values of claim and proof", f"{audit.p_claim:.2g}, {audit.p_proof:.2g}"),
        ("replicated epsilon", replicated),
        ("planted bug", power_in_words(audit)),
    )
    return [(name, text) for name, text in lines if text]


def cell_title(row: CellRow) -> str:
    """Return the cell in one line."""
    ipc = "full size" if row.full_size else "" if row.ipc is None else f"ipc {row.ipc}"
    target = "" if row.eps_target is None else f"epsilon {row.eps_target:g}"
    attack = f"{row.attack} audit" if row.attack else ""
    parts = (f"{row.label} on {row.dataset}", ipc, target, f"seed {row.seed}", attack)
    return ", ".join(part for part in parts if part)


def verdict_class(verdict: str) -> str:
    """Return the verdict without the library it trusts, as a class of the style sheet."""
    return "-".join(verdict.split(" ")[:2]).replace(",", "") if verdict else "none"


def warnings_of(text: str) -> list[str]:
    """Return the warnings of a cell one by one."""
    return [warning for warning in text.split("; ") if warning]


def four_epsilons(row: CellRow, *, withheld: bool = False) -> tuple[EpsilonLine, ...]:
    """Return target, claimed, proven and audited epsilon with their meanings.

    `withheld` says that an audited epsilon may exist and is left out of a public page.
    """
    source = f" Source: {row.claim_source}." if row.claim_source else ""
    by = f" by {row.accountant}" if row.accountant else ""
    if row.eps_proven is None:
        proven = "Not computed: the cell did not get that far."
    elif math.isinf(row.eps_proven):
        proven = "No bound: rows were read without noise, or no accountant supports a step."
    else:
        proven = f"Upper bound computed from the ledger{by}: the number to decide by."
    if row.eps_audited is not None:
        audited = "Lower bound measured by an attack on the method. A low value proves nothing."
    elif withheld:
        audited = "Left out of a public page, if there is one."
    else:
        audited = "Not audited: no attack on the method was run, which is neither good nor bad."
    return (
        EpsilonLine(
            "target",
            row.eps_target,
            "No limit was set."
            if row.eps_target is None
            else "What the method was allowed to spend.",
        ),
        EpsilonLine(
            "claimed",
            row.eps_claimed,
            "The method claims no protection."
            if row.eps_claimed is None
            else f"The epsilon that the method reports: recorded, not trusted.{source}",
        ),
        EpsilonLine("proven", row.eps_proven, proven),
        EpsilonLine("audited", row.eps_audited, audited),
    )


def score_families(scores: Sequence[ScoreRow]) -> tuple[ScoreFamily, ...]:
    """Return all scores with a value, by family."""
    known = [family.value for family in Family]
    names = [*known, *sorted({score.family for score in scores} - set(known))]
    families = []
    for name in names:
        members = sorted(
            (s for s in scores if s.family == name and s.value is not None), key=lambda s: s.metric
        )
        if members:
            first = tuple(_score_line(score) for score in members if score.shown)
            others = tuple(_score_line(score) for score in members if not score.shown)
            families.append(ScoreFamily(name, first, others))
    return tuple(families)


def missing_scores(scores: Sequence[ScoreRow]) -> tuple[MissingScores, ...]:
    """Return the metrics without a value, by reason."""
    missing = sorted((s for s in scores if s.value is None), key=lambda s: (s.reason, s.metric))
    return tuple(
        MissingScores(reason or "no reason given", tuple(score.metric for score in members))
        for reason, members in itertools.groupby(missing, key=lambda score: score.reason)
    )


def _score_line(score: ScoreRow) -> ScoreLine:
    interval = ""
    if score.low is not None and score.high is not None:
        interval = f"[{show.number(score.low)}, {show.number(score.high)}]"
    return ScoreLine(
        score.metric,
        show.arrow(score.direction),
        show.better(score.direction),
        show.number(score.value),
        interval,
        "" if score.limit is None else show.number(score.limit),
        _accepted(score),
        score.remark,
    )


def _accepted(score: ScoreRow) -> bool | None:
    if score.limit is None or score.value is None or score.direction == Direction.NEUTRAL.value:
        return None
    if score.direction == Direction.HIGHER.value:
        return score.value >= score.limit
    return score.value <= score.limit


def cost(row: CellRow) -> tuple[tuple[str, str], ...]:
    """Return what the cell cost: name and amount."""
    return (
        ("Fit", f"{show.seconds(row.fit_seconds)} s"),
        ("Scores", f"{show.seconds(row.score_seconds)} s"),
        ("Peak memory", f"{show.whole(row.peak_memory_mb)} MB"),
    )


@final
@dataclass(frozen=True)
class TimingLines:
    """What the steps of a cell took: phases in order, and metrics, the slowest first."""

    phases: tuple[TimingLine, ...] = ()
    metrics: tuple[TimingLine, ...] = ()


@final
@dataclass(frozen=True)
class TimingLine:
    """One step."""

    step: str
    wall: str
    processor: str
    reference: str
    """Part of the processor time for what depends on the real rows alone; empty for none."""
    share: str
    """Of the processor time of all phases, or of all metrics."""


def timing_lines(timings: Sequence[TimingRow]) -> TimingLines:
    """Return what a page shows of the timings of a cell."""
    phases = sorted((t for t in timings if not t.metric), key=lambda t: PHASES.index(t.phase))
    metrics = sorted((t for t in timings if t.metric), key=lambda t: -t.processor_seconds)
    return TimingLines(_timing_lines(phases), _timing_lines(metrics))


def _timing_lines(timings: Sequence[TimingRow]) -> tuple[TimingLine, ...]:
    total = sum(one.processor_seconds for one in timings)
    return tuple(
        TimingLine(
            one.metric or one.phase,
            _short_seconds(one.wall_seconds),
            _short_seconds(one.processor_seconds),
            _short_seconds(one.reference_seconds) if one.reference_seconds >= 0.0005 else "",
            f"{one.processor_seconds / total:.0%}" if total else "",
        )
        for one in timings
    )


def _short_seconds(seconds: float) -> str:
    """Return seconds to the millisecond; in tenths from ten on."""
    return f"{seconds:.3f}" if seconds < 10 else f"{seconds:,.1f}"


def repeated(row: CellRow) -> Repeat:
    """Return how to repeat the cell, as text that a page can hold."""
    how = repeat(row)
    return Repeat(
        _beginning(how.command, _LONGEST_COMMAND),
        _beginning(how.grid, _LONGEST_COMMAND),
    )


def facts(
    row: CellRow, *, public: bool = False, withheld: bool = False
) -> tuple[tuple[str, str], ...]:
    """Return name and value of everything else that identifies the cell.

    A `public` page leaves out key and fingerprint, which are hashes of the data; notes of the
    method go where what was computed from the rows is `withheld`.
    """
    versions = ", ".join(f"{name} {version}" for name, version in json_object(row.versions).items())
    dataset = row.dataset_name or row.dataset
    lines = [
        ("Method", f"{row.method} {_in_brackets(row.parameters)}"),
        ("Dataset", f"{dataset} {_in_brackets(row.dataset_parameters)}"),
        ("Split", f"{row.split}, seed {row.split_seed}"),
        ("Finished", row.finished_at),
    ]
    # Notes of a method that reads rows without noise may hold values of rows, as its release may.
    if not withheld and may_travel(row):
        lines += [(f"Note of the method: {k}", str(v)) for k, v in json_object(row.notes).items()]
    lines += [("Versions", versions), ("Hash of the method's source", row.source_hash)]
    if not public:
        lines += [("Fingerprint of the data", row.fingerprint), ("Key", row.key)]
    return tuple((_beginning(name, 120), _beginning(text, _LONGEST_TEXT)) for name, text in lines)


def parameters_in_words(document: str) -> str:
    """Return the parameters of a JSON object; empty where there are none."""
    return ", ".join(f"{name} = {value}" for name, value in json_object(document).items())


def _in_brackets(document: str) -> str:
    given = parameters_in_words(document)
    return f"({given})" if given else ""


def _beginning(text: str, most: int) -> str:
    """Return the beginning of a text of others, for a page."""
    return printable(show.shortened(text, most))
