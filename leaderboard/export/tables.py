"""The leaderboard as CSV, Parquet and Markdown tables."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from bench.leaderboard.ranking.quantities import Standing, headline_of_real
from bench.leaderboard.ranking.rows import Row, ceilings
from bench.leaderboard.ranking.significance import RankComparison
from bench.leaderboard.tables import show
from bench.leaderboard.tables.measures import Measure, Span

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~$])")

_TEXT, _NUMBER, _COUNT = pa.string(), pa.float64(), pa.int64()
_COLUMNS: Mapping[str, pa.DataType] = {
    "label": _TEXT,
    "method": _TEXT,
    "parameters": _TEXT,
    "reference": _TEXT,
    "dataset": _TEXT,
    "task": _TEXT,
    "ipc": _TEXT,
    "split": _TEXT,
    "eps_target": _NUMBER,
    "eps_claimed": _NUMBER,
    "eps_proven": _NUMBER,
    "eps_audited": _NUMBER,
    "delta": _NUMBER,
    "adjacency": _TEXT,
    "unit": _TEXT,
    "private_counts": pa.bool_(),
    "study_only": pa.bool_(),
    "verdict": _TEXT,
    "verdict_reason": _TEXT,
    "rank": _NUMBER,
    "rank_among": _COUNT,
    "not_ranked_because": _TEXT,
    "headline_metric": _TEXT,
    "headline": _NUMBER,
    "headline_low": _NUMBER,
    "headline_high": _NUMBER,
    "headline_seed_min": _NUMBER,
    "headline_seed_max": _NUMBER,
    "headline_seed_sd": _NUMBER,
    "headline_seeds": _COUNT,
    "headline_of_real": _NUMBER,
    "defaults_chosen_here": pa.bool_(),
    "rows_released": _COUNT,
    "fit_seconds": _NUMBER,
    "score_seconds": _NUMBER,
    "peak_memory_mb": _NUMBER,
    "cells": _COUNT,
    "cells_ok": _COUNT,
    "cells_failed": _COUNT,
    "cells_skipped": _COUNT,
    "problems": _TEXT,
    "warnings": _TEXT,
}


def to_csv(rows: Sequence[Row]) -> str:
    """Return one line per row; epsilons and released rows are maxima over seeds, scores means.

    Text that a spreadsheet would interpret as a formula gets a leading apostrophe; infinity is
    `inf`, a missing value is empty.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_text(name) for name in _schema(rows).names])
    writer.writerows([[_text(value) for value in line] for line in _lines(rows)])
    return buffer.getvalue()


def to_parquet(rows: Sequence[Row]) -> bytes:
    """Return the columns of the CSV with their types and unchanged text."""
    schema = _schema(rows)
    columns = list(zip(*_lines(rows), strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), sink)
    return bytes(sink.getvalue().to_pybytes())


def _schema(rows: Sequence[Row]) -> pa.Schema:
    columns = dict(_COLUMNS)
    for metric in metric_names(rows):
        for name in (metric, f"{metric} low", f"{metric} high"):
            # Some readers cannot read a table with duplicate column names.
            while name in columns:
                name += " (metric)"
            columns[name] = _NUMBER
    return pa.schema(columns.items())


def _lines(rows: Sequence[Row]) -> list[list[object]]:
    metrics, tops = metric_names(rows), ceilings(rows)
    return [
        _facts(row, headline_of_real(row, tops))
        + [end for name in metrics for end in _measured(row.measures.get(name))]
        for row in rows
    ]


def metric_names(rows: Sequence[Row], beside_headlines: bool = False) -> list[str]:
    """Return all metrics by family and name; optionally without the headline and hidden ones."""
    families = ["utility", "fidelity", "privacy", "cost"]
    names = {
        (families.index(m.family) if m.family in families else len(families), m.metric)
        for row in rows
        for m in row.measures.values()
        if not (beside_headlines and (row.headline is m or not m.shown))
    }
    return [metric for _, metric in sorted(names)]


def describe_problems(row: Row) -> str:
    """Return what did not finish, and why, in one line."""
    return "; ".join(
        f"{problem.status} ({show.seeds(problem.seeds)}): {problem.reason or 'no reason given'}"
        for problem in row.problems
    )


def _facts(row: Row, of_real: float | None) -> list[object]:
    epsilons, headline = row.epsilons, row.headline
    measured: list[object] = [None] * 8
    if headline is not None:
        measured = [headline.metric, *_measured(headline)]
        measured += [
            None if headline.seeds is None else headline.seeds.low,
            _largest(headline.seeds),
            headline.deviation,
            headline.count,
        ]
    return [
        row.label,
        row.method,
        row.parameters,
        row.reference,
        row.dataset,
        row.task,
        row.ipc,
        row.split,
        epsilons.target,
        _largest(epsilons.claimed),
        _largest(epsilons.proven),
        _largest(epsilons.audited),
        row.delta,
        row.adjacency,
        row.unit,
        row.private_counts,
        row.study_only,
        row.verdict,
        "; ".join(row.verdict_reasons),
        row.place.rank,
        row.place.among or None,
        row.place.reason,
        *measured,
        of_real,
        row.tuned,
        None if row.rows_released is None else int(row.rows_released.high),
        row.fit_seconds,
        row.score_seconds,
        row.peak_memory_mb,
        row.cells,
        row.finished,
        row.failed,
        row.skipped,
        describe_problems(row),
        "; ".join(row.warnings),
    ]


def _measured(measure: Measure | None) -> list[object]:
    return [None] * 3 if measure is None else [measure.value, measure.low, measure.high]


def _largest(span: Span | None) -> float | None:
    return None if span is None else span.high


def _text(value: object) -> object:
    """Return text that no spreadsheet interprets as a formula; numbers unchanged."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def to_markdown(
    rows: Sequence[Row],
    standings: Sequence[Standing],
    comparisons: Sequence[RankComparison],
    notes: Sequence[str],
) -> str:
    """Return win rates, comparisons and all rows as Markdown."""
    lines = ["# Leaderboard", ""]
    for note in notes:
        lines += [f"> {_escape(note)}", ""]
    lines += ["## Win rate of sound methods", ""]
    if not standings:
        lines += ["No two sound methods were run on the same dataset, IPC and target epsilon.", ""]
    else:
        lines += _table(
            [
                *("method", "win rate ↑", "mean rank ↓", "of real ↑", "among"),
                *("datasets", "groups", "cells", "failed"),
            ],
            (
                [
                    _escape(one.label),
                    show.share(one.beaten),
                    show.mean_rank(one.mean_rank),
                    show.share(one.of_real),
                    show.short(one.among),
                    *map(str, (one.datasets, one.groups, one.cells, one.failing)),
                ]
                for one in standings
            ),
        )
    lines += _who_is_better(comparisons)
    metrics = metric_names(rows, beside_headlines=True)
    arrows = {m.metric: show.arrow(m.direction) for row in rows for m in row.measures.values()}
    lines += ["## Results", ""]
    header = ["method", "dataset", "rows per class", "ε target", "ε claimed", "ε proven"]
    header += ["ε audited", "verdict", "why", "rank ↓", "utility", "95% test interval"]
    header += [
        "over seeds",
        "seeds sd",
        "seeds",
        *(f"{_escape(name)} {arrows[name]}" for name in metrics),
    ]
    header += ["rows released", "fit seconds ↓", "ok", "failed", "skipped", "problems"]
    lines += _table(header, (_markdown_row(row, metrics) for row in rows))
    return "\n".join(lines)


def _who_is_better(comparisons: Sequence[RankComparison]) -> list[str]:
    lines = ["## Who is better?", ""] if comparisons else []
    for result in comparisons:
        caution = f" {result.caution}" if result.caution else ""
        lines += [_escape(f"{result.finding}{caution}"), ""]
        level = f"{1 - result.alpha:.0%} interval"
        blocks = f"{result.blocks} block{'' if result.blocks == 1 else 's'}"
        lines += _table(
            ["place", "method", f"mean rank over {blocks} ↓", level],
            (
                [
                    standing.place,
                    _escape(standing.label),
                    show.mean_rank(standing.mean_rank),
                    show.rank_interval(standing.low, standing.high),
                ]
                for standing in result.standings
            ),
        )
    return lines


def _markdown_row(row: Row, metrics: Sequence[str]) -> list[str]:
    headline = row.headline
    utility = [show.ABSENT] * 5
    if headline is not None:
        utility = [
            f"{_escape(headline.metric)} {show.number(headline.value)} "
            f"{show.arrow(headline.direction)}",
            show.interval(headline) or show.ABSENT,
            show.spread(headline) or show.ABSENT,
            show.deviation(headline.deviation),
            str(headline.count),
        ]
    measures = {name: row.measures.get(name) for name in metrics}
    stamps = [row.reference, "study only" if row.study_only else ""]
    stamp = "".join(f" ({text})" for text in stamps if text)
    return [
        _escape(row.label) + stamp,
        _escape(f"{row.dataset} ({row.variant})" if row.variant else row.dataset),
        show.ipc(row.ipc),
        show.epsilon(row.epsilons.target),
        show.epsilon_span(row.epsilons.claimed),
        show.epsilon_span(row.epsilons.proven),
        show.epsilon_span(row.epsilons.audited),
        _escape(row.verdict) or show.ABSENT,
        _escape("; ".join(row.verdict_reasons)) or show.ABSENT,
        show.place(row.place.rank, row.place.among) or _escape(f"not ranked: {row.place.reason}"),
        *utility,
        *(
            show.ABSENT if m is None or m is headline else show.number(m.value)
            for m in measures.values()
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
    """Return text without Markdown or HTML markup."""
    return _MARKDOWN.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
