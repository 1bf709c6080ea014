"""The leaderboard as LaTeX tables (booktabs), one per dataset and IPC, one column per epsilon."""

from __future__ import annotations

from collections.abc import Sequence

from bench.leaderboard.ranking.inference import (
    VarianceComponent,
    difference,
    from_interval,
    from_seeds,
)
from bench.leaderboard.ranking.rank import is_sound
from bench.leaderboard.ranking.rows import Row
from bench.leaderboard.tables import show
from bench.leaderboard.tables.measures import Measure
from bench.leaderboard.tables.show import ipc_order
from bench.stats.inference import holm

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    # Two hyphens would become a dash.
    "-": "{-}",
    "ε": r"$\varepsilon$",
    show.ABSENT: "--",
    show.INFINITE: r"$\infty$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "·": r"$\cdot$",
}

_HEAD = r"""% Needs \usepackage{booktabs} and \usepackage[T1]{fontenc}.
% Bold: the best sound method of a column, and those that are not significantly worse than it."""


def to_latex(rows: Sequence[Row], alpha: float = 0.05) -> str:
    """Return all tables; results of methods without a budget fill every column."""
    tables = sorted(
        {(row.dataset, row.variant, row.ipc) for row in rows if row.epsilons.target is not None},
        key=lambda table: (table[0], table[1], ipc_order(table[2])),
    )
    parts = [_HEAD]
    for number, (dataset, variant, ipc) in enumerate(tables, 1):
        budgeted = [
            row
            for row in rows
            if (row.dataset, row.variant, row.ipc) == (dataset, variant, ipc)
            and row.epsilons.target is not None
        ]
        beside = [
            row
            for row in rows
            if (row.dataset, row.split) == (dataset, budgeted[0].split)
            and row.ipc in (ipc, "own")
            and row.epsilons.target is None
        ]
        parts.append(_table(budgeted, beside, number, alpha))
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return text without LaTeX commands; characters that fonts may lack become code points."""
    return "".join(_sign(sign) for sign in " ".join(text.split()))


def _sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if not sign.isprintable():
        return ""
    return sign if ord(sign) < 0x100 else rf"\texttt{{U+{ord(sign):04X}}}"


def _table(budgeted: Sequence[Row], beside: Sequence[Row], number: int, alpha: float) -> str:
    targets = sorted({row.epsilons.target for row in budgeted if row.epsilons.target is not None})
    best = [
        _best([row for row in budgeted if row.epsilons.target == target], alpha)
        for target in targets
    ]
    sound = {row.label for row in budgeted if _competes(row)}
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_caption(budgeted, alpha)}}}",
        rf"\label{{tab:leaderboard-{number}}}",
        rf"\begin{{tabular}}{{ll{'r' * len(targets)}}}",
        r"\toprule",
        " & ".join(["Method", "Verdict", *(rf"$\varepsilon = {show.epsilon(t)}$" for t in targets)])
        + r" \\",
    ]
    ceilings = [row for row in beside if row.reference]
    others = [row for row in budgeted if row.label not in sound]
    others += [row for row in beside if not row.reference]
    for section in (ceilings, [row for row in budgeted if row.label in sound], others):
        lines += [r"\midrule"] if section else []
        for label in dict.fromkeys(row.label for row in section):
            mine = [row for row in section if row.label == label]
            cells = [_cell(mine, t, bold) for t, bold in zip(targets, best, strict=True)]
            verdicts = dict.fromkeys(row.verdict or "no verdict" for row in mine)
            names = [escape(label), escape(" / ".join(verdicts))]
            lines.append(" & ".join([*names, *cells]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines)


def _caption(budgeted: Sequence[Row], alpha: float) -> str:
    first = next((row.headline for row in budgeted if row.headline is not None), None)
    metric = "No score" if first is None else f"{first.metric} {show.arrow(first.direction)}"
    place = (
        f"{budgeted[0].dataset} ({budgeted[0].variant})"
        if budgeted[0].variant
        else budgeted[0].dataset
    )
    text = f"{metric} on {place}, {show.ipcs((budgeted[0].ipc,))}"
    return escape(text) + (
        r": mean $\pm$ standard deviation over seeds. Bold: best sound method, and those "
        rf"not significantly worse (level {alpha:g}, Holm; unpaired, from the test-set intervals "
        r"and the seeds). $\dagger$: some cells failed and are excluded from the mean."
    )


def _cell(rows: Sequence[Row], target: float, best: frozenset[str]) -> str:
    row = next((row for row in rows if row.epsilons.target in (target, None)), None)
    if row is None or row.headline is None or row.headline.value is None:
        return "--"
    value = escape(show.number(row.headline.value))
    if row.label in best and row.epsilons.target is not None:
        value = rf"\textbf{{{value}}}"
    if row.headline.deviation is not None:
        value += rf" $\pm$ {escape(show.number(row.headline.deviation))}"
    return value + (r"$^\dagger$" if row.failed else "")


def _competes(row: Row) -> bool:
    """Return whether a row is sound with a proven epsilon within the target."""
    target, proven = row.epsilons.target, row.epsilons.proven
    if target is None or proven is None:
        return False
    return is_sound(row.verdict) and proven.high <= target * (1 + 1e-9)


def _best(rows: Sequence[Row], alpha: float) -> frozenset[str]:
    """Return the best sound method of a group and all that are statistically tied with it."""
    competitors = [
        (row.label, row.headline, value if row.headline.direction == "higher" else -value)
        for row in rows
        if _competes(row) and row.headline is not None
        for value in [row.headline.value]
        if value is not None
    ]
    if not competitors:
        return frozenset()
    leader, top, highest = max(competitors, key=lambda item: item[2])
    others = [item for item in competitors if item[0] != leader]
    tests = [
        difference(highest - value, _parts(top, headline), alpha) for _, headline, value in others
    ]
    # If the error is unknown, a lower value counts as lower.
    plain = [
        test.p if test else float(value == highest)
        for test, (_, _, value) in zip(tests, others, strict=True)
    ]
    adjusted = holm(plain)
    tied = {name for (name, _, _), p in zip(others, adjusted, strict=True) if p >= alpha}
    return frozenset({leader, *tied})


def _parts(first: Measure, second: Measure) -> list[VarianceComponent]:
    """Return the variance components of the difference of two measures.

    Both were tested on the same rows, so two separate intervals overestimate the error: ties are
    declared generously.
    """
    parts = []
    for measure in (first, second):
        if measure.low is not None and measure.high is not None:
            parts.append(from_interval(measure.low, measure.high))
        if measure.deviation is not None:
            parts.append(from_seeds(measure.deviation, measure.count))
    return parts
