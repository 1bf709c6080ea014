"""The leaderboard as CSV and as Markdown."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable, Sequence

import pandas as pd

from bench.leaderboard import show
from bench.leaderboard.aggregate import Measure, Row, Span

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~$])")

_COLUMNS = [
    "label",
    "method",
    "parameters",
    "reference",
    "dataset",
    "task",
    "rows_per_class",
    "split",
    "eps_target",
    "eps_claimed",
    "eps_proven",
    "eps_audited",
    "delta",
    "adjacency",
    "unit",
    "private_counts",
    "study_only",
    "verdict",
    "verdict_reason",
    "rank",
    "rank_among",
    "not_ranked_because",
    "headline_metric",
    "headline",
    "headline_low",
    "headline_high",
    "headline_seed_min",
    "headline_seed_max",
    "headline_seed_sd",
    "headline_seeds",
    "rows_released",
    "fit_seconds",
    "score_seconds",
    "peak_memory_mb",
    "cells",
    "cells_ok",
    "cells_failed",
    "cells_skipped",
    "problems",
    "warnings",
]


def to_csv(rows: Sequence[Row]) -> str:
    """One line a row; epsilons and sizes are the largest over seeds, scores the mean.

    Text that a spreadsheet would take for a formula gets a leading apostrophe; numbers stay as
    they are, infinity is `inf`, absent is empty.
    """
    metrics = metric_names(rows)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    header = [*_COLUMNS]
    for metric in metrics:
        header += [_text(metric), _text(f"{metric} low"), _text(f"{metric} high")]
    writer.writerow(header)
    for row in rows:
        line = _facts(row)
        for metric in metrics:
            line += _measured(row.measures.get(metric))
        writer.writerow(line)
    return buffer.getvalue()


def metric_names(rows: Sequence[Row], beside_headlines: bool = False) -> list[str]:
    """All metrics by family and name; optionally only those shown beside the headline."""
    families = ["utility", "fidelity", "privacy", "cost"]
    found = {
        (families.index(m.family) if m.family in families else len(families), m.metric)
        for row in rows
        for m in row.measures.values()
        if not (beside_headlines and (row.headline is m or not m.shown))
    }
    return [metric for _, metric in sorted(found)]


def describe_problems(row: Row) -> str:
    """What did not finish, and why, in one line."""
    return "; ".join(
        f"{problem.status} ({show.seeds(problem.seeds)}): {problem.reason or 'no reason given'}"
        for problem in row.problems
    )


def _facts(row: Row) -> list[object]:
    epsilons, headline = row.epsilons, row.headline
    measured: list[object] = [None] * 8
    if headline is not None:
        measured = [_text(headline.metric), *_measured(headline)]
        measured += [
            None if headline.seeds is None else headline.seeds.low,
            _largest(headline.seeds),
            headline.deviation,
            headline.count,
        ]
    return [
        _text(row.entrant),
        _text(row.method),
        _text(row.parameters),
        row.reference,
        _text(row.cohort),
        _text(row.task),
        row.size,
        _text(row.split),
        epsilons.target,
        _largest(epsilons.claimed),
        _largest(epsilons.proven),
        _largest(epsilons.audited),
        row.delta,
        _text(row.adjacency),
        _text(row.unit),
        row.private_counts,
        row.study_only,
        _text(row.verdict),
        _text("; ".join(row.verdict_reasons)),
        row.place.rank,
        row.place.entrants or None,
        _text(row.place.reason),
        *measured,
        None if row.rows_released is None else int(row.rows_released.high),
        row.fit_seconds,
        row.score_seconds,
        row.peak_memory_mb,
        row.cells,
        row.finished,
        row.failed,
        row.skipped,
        _text(describe_problems(row)),
        _text("; ".join(row.warnings)),
    ]


def _measured(measure: Measure | None) -> list[object]:
    return [None] * 3 if measure is None else [measure.value, measure.low, measure.high]


def _largest(span: Span | None) -> float | None:
    return None if span is None else span.high


def _text(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def to_markdown(rows: Sequence[Row], standings: pd.DataFrame, notes: Sequence[str]) -> str:
    """The same for people who read text: mean ranks, then all rows."""
    lines = ["# Leaderboard", ""]
    for note in notes:
        lines += [f"> {_escape(note)}", ""]
    lines += ["## Mean rank of sound methods", ""]
    if standings.empty:
        lines += ["No two sound methods met at the same dataset, size and target epsilon.", ""]
    else:
        lines += _table(
            ["method", "mean rank ↓", "among", "beaten ↑", "datasets", "groups", "cells", "failed"],
            (
                [
                    _escape(standing["entrant"]),
                    f"{standing['mean_rank']:.2f}",
                    f"{standing['entrants']:.1f}",
                    f"{standing['beaten']:.0%}",
                    *(str(standing[name]) for name in ("datasets", "groups", "cells", "failing")),
                ]
                for standing in standings.to_dict("records")
            ),
        )
    metrics = metric_names(rows, beside_headlines=True)
    arrows = {m.metric: show.arrow(m.direction) for row in rows for m in row.measures.values()}
    lines += ["## Results", ""]
    header = ["method", "dataset", "rows per class", "ε target", "ε claimed", "ε proven"]
    header += ["ε audited", "verdict", "why", "rank ↓", "utility", "95% test interval"]
    header += ["over seeds", "seeds", *(f"{_escape(name)} {arrows[name]}" for name in metrics)]
    header += ["rows released", "fit seconds ↓", "ok", "failed", "skipped", "problems"]
    lines += _table(header, (_markdown_row(row, metrics) for row in rows))
    return "\n".join(lines)


def _markdown_row(row: Row, metrics: Sequence[str]) -> list[str]:
    headline = row.headline
    utility = [show.ABSENT] * 4
    if headline is not None:
        utility = [
            f"{_escape(headline.metric)} {show.number(headline.value)} "
            f"{show.arrow(headline.direction)}",
            show.interval(headline) or show.ABSENT,
            show.spread(headline) or show.ABSENT,
            str(headline.count),
        ]
    own = {name: row.measures.get(name) for name in metrics}
    stamps = [row.reference, "study only" if row.study_only else ""]
    stamp = "".join(f" ({text})" for text in stamps if text)
    return [
        _escape(row.entrant) + stamp,
        _escape(f"{row.cohort} ({row.variant})" if row.variant else row.cohort),
        show.size(row.size),
        show.epsilon(row.epsilons.target),
        show.epsilon_span(row.epsilons.claimed),
        show.epsilon_span(row.epsilons.proven),
        show.epsilon_span(row.epsilons.audited),
        _escape(row.verdict) or show.ABSENT,
        _escape("; ".join(row.verdict_reasons)) or show.ABSENT,
        show.place(row.place.rank, row.place.entrants)
        or _escape(f"not ranked: {row.place.reason}"),
        *utility,
        *(
            show.ABSENT if m is None or m is headline else show.number(m.value)
            for m in own.values()
        ),
        show.whole_span(row.rows_released),
        show.seconds(row.fit_seconds),
        str(row.finished),
        str(row.failed),
        str(row.skipped),
        _escape(describe_problems(row)) or show.ABSENT,
    ]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return [*lines, ""]


def _escape(text: str) -> str:
    """Text that neither Markdown nor the HTML inside it takes for anything else."""
    return _MARKDOWN.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
