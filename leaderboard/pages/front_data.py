"""What the front page's script draws from: all rows as compact JSON.

A column of numbers is one text with commas, empty where there is none: the script reads a column
when it is first asked for, and twenty thousand cells stay a few megabytes. Texts stand once, in a
table; rows hold their places in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from markupsafe import Markup
from scipy import stats

from bench.leaderboard.pages import links, show
from bench.leaderboard.pages.front_columns import Column
from bench.leaderboard.pages.front_models import Models, ceilings, ratio
from bench.leaderboard.ranking.rank import DEPENDS_ON_OTHERS, FLOOR, SAMPLE
from bench.leaderboard.ranking.significance import FEWEST_BLOCKS, Comparison
from bench.leaderboard.tables.aggregate import Measure, Row, Span, severity, size_order
from bench.leaderboard.tables.board import Board
from bench.results.records import Status

_MOST_UNITS = 200
"""Beyond so many units Student's interval is the normal one."""


@final
class Places:
    """A table of different values, and where each stands."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._places: dict[Any, int] = {}
        for value in values:
            self.of(value)

    def of(self, value: Any) -> int:
        """The place of a value, which is added where it is new."""
        return self._places.setdefault(value, len(self._places))

    @property
    def values(self) -> list[Any]:
        """In the order of their places."""
        return list(self._places)


def document(board: Board, columns: Sequence[Column], models: Models) -> Markup:
    """JSON for a data block of the page: no sign in it can end the block."""
    rows = board.rows
    texts = Places([""])
    entrants = Places(sorted({row.entrant for row in rows}))
    cohorts = Places(sorted({row.cohort for row in rows}))
    task_of = {row.cohort: row.task for row in rows}
    reference_of = {row.entrant: row.reference for row in rows}
    tables = {
        "texts": texts,
        "entrants": entrants,
        "cohorts": cohorts,
        "tasks": Places(sorted(set(task_of.values()))),
        "sizes": Places(sorted({row.size for row in rows}, key=size_order)),
        "targets": Places(
            sorted({row.epsilons.target for row in rows if row.epsilons.target is not None})
        ),
        "kinds": Places(sorted({row.verdict_kind for row in rows}, key=severity)),
        "seeds": Places(),
    }
    content: dict[str, Any] = {
        "rows": _facts(rows, tables) | _lines(rows),
        "utility": _utilities(board, models, tables["seeds"]),
        "measures": {
            column.metric: _measures([row.measures.get(column.metric) for row in rows], texts)
            for column in columns
            if column.metric
        },
        "headlines": [models.headlines.get(name, "") for name in cohorts.values],
        "models": {
            model: [own.get(name, "") for name in cohorts.values]
            for model, own in models.metrics.items()
        },
        "pages": _pages(board),
        "tests": [_told(found, entrants) for found in board.found.comparisons],
        "tails": _tails(board.alpha),
        "level": f"{100 * (1 - board.alpha):g}%",
    }
    content["directions"] = {
        name: row.measures[name].direction
        for name in (*models.all_metrics, *content["measures"])
        for row in rows
        if name in row.measures
    }
    content |= {name: table.values for name, table in tables.items()}
    content["methodPaths"] = [links.method_path(name) for name in entrants.values]
    content["datasetPaths"] = [links.dataset_path(name) for name in cohorts.values]
    content["references"] = [reference_of[name] for name in entrants.values]
    content["cohortTasks"] = [task_of[name] for name in cohorts.values]
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def _facts(rows: Sequence[Row], tables: Mapping[str, Places]) -> dict[str, str]:
    texts = tables["texts"]

    def span(read: Callable[[Row], Span | None]) -> tuple[str, str]:
        spans = [read(row) for row in rows]
        return (
            _numbers(None if own is None else own.low for own in spans),
            _numbers(None if own is None else own.high for own in spans),
        )

    claimed, proven = span(lambda row: row.epsilons.claimed), span(lambda row: row.epsilons.proven)
    audited, released = span(lambda row: row.epsilons.audited), span(lambda row: row.rows_released)
    groups = Places()
    return {
        "entrant": _counts(tables["entrants"].of(row.entrant) for row in rows),
        "cohort": _counts(tables["cohorts"].of(row.cohort) for row in rows),
        "size": _counts(tables["sizes"].of(row.size) for row in rows),
        "target": ",".join(
            "" if row.epsilons.target is None else str(tables["targets"].of(row.epsilons.target))
            for row in rows
        ),
        "kind": _counts(tables["kinds"].of(row.verdict_kind) for row in rows),
        "verdict": _counts(texts.of(row.verdict) for row in rows),
        "why": _counts(texts.of("; ".join(row.verdict_reasons)) for row in rows),
        "warned": _counts(texts.of("; ".join(row.warnings)) for row in rows),
        "variant": _counts(texts.of(row.variant) for row in rows),
        "barred": _counts(texts.of(_barred(row)) for row in rows),
        "group": _counts(groups.of(group(row)) for row in rows),
        "study": _counts(int(row.study_only) for row in rows),
        "finished": _counts(row.finished for row in rows),
        "failed": _counts(row.failed for row in rows),
        "skipped": _counts(row.skipped for row in rows),
        "claimedLow": claimed[0],
        "claimed": claimed[1],
        "provenLow": proven[0],
        "proven": proven[1],
        "auditedLow": audited[0],
        "audited": audited[1],
        "releasedLow": released[0],
        "released": released[1],
        "fit": _numbers(row.fit_seconds for row in rows),
        "memory": _numbers(row.peak_memory_mb for row in rows),
        "detail": ",".join(_detail(row, texts) for row in rows),
    }


def group(row: Row) -> tuple[Any, ...]:
    """What rows that are ranked together have in common."""
    setting = (row.split, row.delta, row.private_counts, row.study_only, row.adjacency, row.unit)
    return (row.cohort, row.size, row.epsilons.target, *setting)


def _barred(row: Row) -> str:
    """Why a row cannot be ranked in any company."""
    return "" if row.place.reason in DEPENDS_ON_OTHERS else row.place.reason


def _lines(rows: Sequence[Row]) -> dict[str, str]:
    """For each row the places of the rows that say what it must beat and what it could reach."""
    floors = {group(row): place for place, row in enumerate(rows) if row.reference == FLOOR}
    samples = {
        (row.cohort, row.split, row.size): place
        for place, row in enumerate(rows)
        if row.reference == SAMPLE
    }
    best = ceilings(rows)
    places = {id(row): place for place, row in enumerate(rows)}
    tops = {own: places[id(row)] for own, row in best.items()}
    return {
        "ceiling": ",".join(str(tops.get((row.cohort, row.split), "")) for row in rows),
        "sample": ",".join(str(samples.get((row.cohort, row.split, row.size), "")) for row in rows),
        "floor": ",".join(str(floors.get(group(row), "")) for row in rows),
    }


def _detail(row: Row, texts: Places) -> str:
    """Places of heading and text, turn by turn: what is shown when a row is opened."""
    counts = "private" if row.private_counts else "public"
    privacy = f"delta {row.delta:g}, {row.adjacency} of one {row.unit or 'row'}, {counts} counts"
    if row.accountants:
        privacy += f", by {', '.join(row.accountants)}"
    no_reason = "no reason given" if row.verdict else "no cell finished"
    pairs = [("Why", "; ".join(row.verdict_reasons) or no_reason)]
    pairs += [
        (f"{problem.status}, {show.seeds(problem.seeds)}", problem.reason or "no reason given")
        for problem in row.problems
    ]
    pairs += [("Warning", text) for text in row.warnings]
    pairs += [("Claim", text) for text in row.claim_sources]
    pairs += [("Privacy", privacy), ("Method", f"{row.method} {row.parameters}")]
    pairs += [("Seeds", show.seeds(row.seeds))]
    pairs += [(f"No {', '.join(names)}", reason) for reason, names in row.absences.items()]
    return " ".join(str(texts.of(text)) for pair in pairs for text in pair)


def _utilities(board: Board, models: Models, repetitions: Places) -> dict[str, dict[str, str]]:
    """Of each metric that a choice of the model can show: rows, ratios, and seed by seed."""
    scores = board.results.scores
    wanted = scores[scores["metric"].isin(models.all_metrics)]
    values = {
        (key, metric): value
        for key, metric, value in zip(wanted["key"], wanted["metric"], wanted["value"], strict=True)
    }
    cells = board.results.cells
    seeds = {
        key: repetitions.of(repetition)
        for key, repetition, status in zip(
            cells["key"], cells["repetition"], cells["status"], strict=True
        )
        if status != Status.SKIPPED.value
    }
    tops = ceilings(board.rows)
    found = {}
    for metric in models.all_metrics:
        own_cohorts = models.cohorts(metric)
        ratios = [ratio(row, metric, tops.get((row.cohort, row.split))) for row in board.rows]
        measures = [row.measures.get(metric) for row in board.rows]
        spans = [None if m is None else m.seeds for m in measures]
        found[metric] = {
            **_measures(measures),
            "least": _numbers(None if own is None else own.low for own in spans),
            "largest": _numbers(None if own is None else own.high for own in spans),
            "count": ",".join("" if m is None else str(m.count) for m in measures),
            "ratio": _numbers(None if own is None else own.value for own in ratios),
            "ratioLow": _numbers(None if own is None else own.low for own in ratios),
            "ratioHigh": _numbers(None if own is None else own.high for own in ratios),
            "derived": ",".join("1" if own is not None and own.derived else "" for own in ratios),
            "seeds": ",".join(
                # Enough digits that no two utilities become a tie.
                " ".join(
                    f"{seeds[key]}:{_number(values.get((key, metric)), 12)}"
                    for key in row.keys
                    if key in seeds
                )
                if row.cohort in own_cohorts and not _barred(row)
                else ""
                for row in board.rows
            ),
        }
    return found


def _measures(measures: Sequence[Measure | None], texts: Places | None = None) -> dict[str, str]:
    columns = {
        name: _numbers(None if m is None else getattr(m, name) for m in measures)
        for name in ("value", "low", "high", "deviation", "limit")
    }
    # A column without any number is not written out.
    columns = {name: text for name, text in columns.items() if text.strip(",")}
    if texts is not None and any(m is not None and m.remark for m in measures):
        columns["remark"] = _counts(texts.of("" if m is None else m.remark) for m in measures)
    return columns


def _pages(board: Board) -> dict[str, list[tuple[int, str]]]:
    """Seed and page of the cells that have one, by the row's place."""
    found = {
        str(place): [
            (seed, board.cell_pages[key])
            for seed, key in zip(row.seeds, row.keys, strict=True)
            if key in board.cell_pages
        ]
        for place, row in enumerate(board.rows)
    }
    return {place: own for place, own in found.items() if own}


def _told(found: Comparison, entrants: Places) -> dict[str, dict[int, Any]]:
    """What the paired tests say: the places left open to each entrant, and whom it beats."""
    return {
        "places": {entrants.of(own.entrant): own.place for own in found.standings},
        "better": {
            entrants.of(own.entrant): [entrants.of(other) for other in own.better_than]
            for own in found.standings
        },
    }


def _tails(alpha: float) -> list[float]:
    """Share of resamples below the interval, for so many units that were drawn again.

    Expanded percentiles, as in `significance`: plain ones are too narrow for few units.
    """
    tails = [0.0] * FEWEST_BLOCKS
    for count in range(FEWEST_BLOCKS, _MOST_UNITS + 1):
        reach = stats.t.ppf(1 - alpha / 2, count - 1) * math.sqrt(count / (count - 1))
        tails.append(round(float(stats.norm.cdf(-reach)), 6))
    return tails


def _numbers(values: Iterable[float | None]) -> str:
    return ",".join([_number(value) for value in values])


def _counts(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _number(value: float | None, digits: int = 5) -> str:
    if value is None or value != value:
        return ""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:.{digits}g}"
