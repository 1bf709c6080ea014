"""The front page: the table of results, the ranking and the comparison of methods."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from markupsafe import Markup

from bench.leaderboard.charts.overview import front_picture, rank_intervals
from bench.leaderboard.charts.sheet import SCRIPT, Sheet
from bench.leaderboard.export import tables as export
from bench.leaderboard.pages.board import Board
from bench.leaderboard.pages.edition import Edition
from bench.leaderboard.pages.lead import lead
from bench.leaderboard.ranking import quantities
from bench.leaderboard.ranking.quantities import group_of, of_real
from bench.leaderboard.ranking.rank import (
    CHOSEN_HERE,
    DEPENDS_ON_OTHERS,
    FLOOR,
    REFERENCES,
    SAMPLE,
)
from bench.leaderboard.ranking.rows import Row, ceilings, severity
from bench.leaderboard.ranking.significance import RankComparison
from bench.leaderboard.tables import show
from bench.leaderboard.tables.measures import Measure, Span
from bench.leaderboard.tables.show import ipc_order
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import Page
from bench.plugins.metric import Direction, Family
from bench.results.records import Status

INCIDENTS = 300
"""Number of kinds of failure that the page lists; the exported tables hold all."""

_SCRIPTS = (
    "tables.js",
    "front_state.js",
    "front_rank.js",
    "front_rows.js",
    "front_lede.js",
    "front_page.js",
)


def pages(board: Board, edition: Edition | None = None) -> Iterator[Page]:
    """Yield the front page; that of a published version says first what its `edition` says."""
    rows, results = board.rows, board.results
    finished = [text for text in results.cells["finished_at"] if text]
    choices = models(rows)
    shown = columns(rows, choices.all_metrics)
    tuned = any(row.tuned for row in rows)
    leaders = [one.label for one in quantities.leaders(board.standings)]
    ranks = Sheet("ranks-")
    # Of one dataset the test rows are resampled; two or three blocks of it say little.
    comparisons = [
        (result, ranks.place(rank_intervals(result, board.styles)))
        for result in (() if _tests_rows(board) else board.comparisons)
    ]
    yield rendering.page(
        rendering.FRONT,
        "index.html",
        front_style=Markup(rendering.asset("front.css") + rendering.asset("edition.css")),
        edition=edition,
        scripts=(*_SCRIPTS, SCRIPT) if rows else _SCRIPTS[:1],
        runs=results.runs,
        counts=board.counts,
        notes=board.notes,
        public=board.public,
        alpha=board.alpha,
        last_finished=show.moment(max(finished, default="")),
        document=document(board, shown, choices),
        any_rows=bool(rows),
        columns=shown,
        groups=groups(shown),
        lead=lead(board),
        front_chart=front_picture(rows, board.styles) if rows else "",
        front_tuned=front_picture(rows, board.styles, with_tuned=True) if tuned else "",
        paired=board.paired,
        paired_finding="" if board.paired is None else board.paired.finding(leaders),
        identity=quantities.identity,
        fewest=quantities.FEWEST,
        tuned=tuned,
        comparisons=comparisons,
        charts=ranks.data(),
        uncompared=board.uncompared,
        datasets=sorted({row.dataset for row in rows}),
        methods=sorted({(row.label, row.reference) for row in rows}),
        tasks=sorted({row.task for row in rows}),
        models=tuple(choices.metrics),
        ipcs=sorted({row.ipc for row in rows}, key=ipc_order),
        targets=sorted({row.epsilons.target for row in rows if row.epsilons.target is not None}),
        budgetless=any(row.epsilons.target is None for row in rows),
        verdicts=sorted({row.verdict_kind for row in rows}, key=severity),
        unranked=board.unranked,
        incidents=board.incidents[:INCIDENTS],
        more_incidents=max(0, len(board.incidents) - INCIDENTS),
        references=REFERENCES,
    )


def _tests_rows(board: Board) -> bool:
    return board.paired is not None and bool(board.paired.differences)


# Columns of the table -----------------------------------------------------------------------------


METRIC = "metric:"
"""Prefix of the name of a column of a metric."""

_UP, _DOWN = Direction.HIGHER.value, Direction.LOWER.value
_GROUPS: Mapping[str, str] = {
    Family.UTILITY.value: "More utility",
    Family.FIDELITY.value: "Fidelity",
    Family.PRIVACY.value: "Attacks",
    Family.COST.value: "Cost",
}


@final
@dataclass(frozen=True)
class TableColumn:
    """One column of the table."""

    name: str
    """Name in the address of the page and in `data-column`."""
    title: str
    hint: str
    group: str
    direction: str = Direction.NEUTRAL.value
    numeric: bool = True
    metric: str = ""

    @property
    def extra(self) -> bool:
        """Whether the column is shown on request only, so that the table fits the page."""
        return self not in _FIRST

    @property
    def head(self) -> str:
        """The title with an arrow for the better direction."""
        return f"{self.title} {show.arrow(self.direction)}"

    @property
    def first(self) -> str:
        """Order of the first click: the best on top."""
        return "descending" if self.direction == _UP else "ascending"


_FIRST = (
    TableColumn("method", "Method", "the method's label in the grid", "", numeric=False),
    TableColumn("dataset", "Dataset", "with its task", "", numeric=False),
    TableColumn("ipc", "Rows per class", "requested number of synthetic rows per class (IPC)", ""),
    TableColumn("target", "target", "set by the grid", "Epsilon"),
    TableColumn("claimed", "claimed", "reported by the method; not trusted", "Epsilon", _DOWN),
    TableColumn(
        "proven",
        "proven",
        "upper bound computed from the ledger; infinite if rows were read without noise",
        "Epsilon",
        _DOWN,
    ),
    TableColumn("audited", "audited", "lower bound measured by attacks", "Epsilon", _DOWN),
    TableColumn("verdict", "Verdict", "with its reason; sorted from sound to tampered", ""),
    TableColumn(
        "rank",
        "Rank",
        "among the sound methods shown, at the same dataset, IPC and target epsilon; 1 is best",
        "Utility on real test rows",
        _DOWN,
    ),
    TableColumn(
        "utility",
        "Utility",
        "headline metric of the task, or that of the selected model, with its 95% interval over "
        "test rows",
        "Utility on real test rows",
        _UP,
    ),
    TableColumn(
        "ratio",
        "Of real",
        "utility divided by that of the row `real` of the same dataset and split",
        "Utility on real test rows",
        _UP,
    ),
    TableColumn(
        "deviation",
        "Seeds sd",
        "standard deviation of the utility over seeds: the randomness of the method, without that "
        "of the test rows",
        "Utility on real test rows",
        _DOWN,
    ),
    TableColumn(
        "failed", "Failed", "share of cells that did not finish, without skipped ones", "", _DOWN
    ),
    TableColumn("fit", "Fit seconds", "mean over seeds", "", _DOWN),
)

_COST = (
    TableColumn("released", "Rows released", "synthetic rows", "Cost"),
    TableColumn("memory", "Peak MB", "maximum over seeds", "Cost", _DOWN),
)


def columns(rows: Sequence[Row], utilities: Sequence[str]) -> tuple[TableColumn, ...]:
    """Return all columns.

    Metrics that divide one of the `utilities` by a model of their own are left out: the column
    `ratio` has one reference for all. A metric without a value in any row has no column: the
    details of a row give the reason.
    """
    known = {
        measure.metric: measure
        for row in rows
        for measure in row.measures.values()
        if measure.shown and measure.value is not None
    }
    by_group: dict[str, list[TableColumn]] = {}
    for name in export.metric_names(rows, beside_headlines=True):
        if name not in known or quantities.is_ratio_of(name, utilities):
            continue
        direction = known[name].direction
        group = _GROUPS.get(known[name].family, "Other")
        hint = f"{name}: {show.better(direction)}"
        by_group.setdefault(group, []).append(
            TableColumn(f"{METRIC}{name}", name, hint, group, direction, metric=name)
        )
    order = [*_GROUPS.values(), "Other"]
    by_group["Cost"] = [*_COST, *by_group.get("Cost", [])]
    return (*_FIRST, *(column for group in order for column in by_group.get(group, [])))


@final
@dataclass(frozen=True)
class ColumnGroup:
    """Adjacent columns under one heading."""

    title: str
    count: int
    extra: bool = False
    """Whether its columns are shown on request only."""


def groups(columns: Sequence[TableColumn]) -> tuple[ColumnGroup, ...]:
    """Return the headings above the columns; the first, pinned column has none."""
    runs = itertools.groupby(columns[1:], key=lambda column: (column.group, column.extra))
    return (
        ColumnGroup("", 1),
        *(ColumnGroup(title, len(list(members)), extra) for (title, extra), members in runs),
    )


# Downstream models --------------------------------------------------------------------------------


_UNNAMED: Mapping[str, str] = {"auroc": "xgboost"}
"""Models of metrics whose name contains none."""

_NO_MODEL = ("ratio", "prevalence")
"""Suffixes that are not models."""


@final
@dataclass(frozen=True)
class Models:
    """The metric of each model and dataset."""

    headlines: Mapping[str, str]
    """Headline metric by dataset."""
    metrics: Mapping[str, Mapping[str, str]]
    """Metric by model and dataset."""

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """All metrics that a choice of model can show."""
        chosen = {name for by_dataset in self.metrics.values() for name in by_dataset.values()}
        return tuple(sorted(chosen | set(self.headlines.values())))

    def datasets(self, metric: str) -> frozenset[str]:
        """Return the datasets on which a choice of model shows the metric."""
        return frozenset(
            dataset
            for by_dataset in (self.headlines, *self.metrics.values())
            for dataset, name in by_dataset.items()
            if name == metric
        )


def models(rows: Sequence[Row]) -> Models:
    """Return the models, derived from the names of the metrics."""
    headlines = {row.dataset: row.headline.metric for row in rows if row.headline is not None}
    by_model: dict[str, dict[str, str]] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        for measure in row.measures.values():
            if (row.dataset, measure.metric) in seen or measure.value is None:
                continue
            seen.add((row.dataset, measure.metric))
            model = _model(measure, headlines.get(row.dataset, ""))
            if model:
                by_model.setdefault(model, {})[row.dataset] = measure.metric
    return Models(headlines, {model: by_model[model] for model in sorted(by_model)})


def _model(measure: Measure, headline: str) -> str:
    """Return the model of a metric of the same kind as the headline; otherwise empty."""
    kind, _, model = measure.metric.partition("/")
    if measure.family != Family.UTILITY.value or kind != headline.partition("/")[0]:
        return ""
    if not model:
        return _UNNAMED.get(kind, "")
    return "" if model in _NO_MODEL or model.endswith("-ratio") else model


# Data of the script -------------------------------------------------------------------------------


_MOST_DATASETS = 200
"""Beyond this number of datasets Student's quantile hardly changes."""


@final
class Vocabulary:
    """Distinct values and their indices."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._places: dict[Any, int] = {}
        for value in values:
            self.of(value)

    def of(self, value: Any) -> int:
        """Return the index of a value, which is added if it is new."""
        return self._places.setdefault(value, len(self._places))

    @property
    def values(self) -> list[Any]:
        """Values in the order of their indices."""
        return list(self._places)


def document(board: Board, columns: Sequence[TableColumn], models: Models) -> Markup:
    """Return JSON for a data block of the page, in which nothing can end the block.

    A column of numbers is one text with commas, empty where there is no value: the script parses a
    column when it is first used, and twenty thousand cells stay a few megabytes. Texts are stored
    once; rows hold their indices.
    """
    rows = board.rows
    texts = Vocabulary([""])
    labels = Vocabulary(sorted({row.label for row in rows}))
    datasets = Vocabulary(sorted({row.dataset for row in rows}))
    task_of = {row.dataset: row.task for row in rows}
    reference_of = {row.label: row.reference for row in rows}
    tables = {
        "texts": texts,
        "labels": labels,
        "datasets": datasets,
        "tasks": Vocabulary(sorted(set(task_of.values()))),
        "ipcs": Vocabulary(sorted({row.ipc for row in rows}, key=ipc_order)),
        "targets": Vocabulary(
            sorted({row.epsilons.target for row in rows if row.epsilons.target is not None})
        ),
        "kinds": Vocabulary(sorted({row.verdict_kind for row in rows}, key=severity)),
        "seeds": Vocabulary(),
    }
    content: dict[str, Any] = {
        "rows": _facts(rows, tables) | _lines(rows),
        "utility": _utilities(board, models, tables["seeds"]),
        "measures": {
            column.metric: _measures([row.measures.get(column.metric) for row in rows], texts)
            for column in columns
            if column.metric
        },
        "headlines": [models.headlines.get(name, "") for name in datasets.values],
        "models": {
            model: [by_dataset.get(name, "") for name in datasets.values]
            for model, by_dataset in models.metrics.items()
        },
        "pages": _pages(board),
        "tests": [_test_result(comparison, labels) for comparison in board.comparisons],
        "student": _student(board.alpha),
        "fewest": quantities.FEWEST,
        "ownSize": quantities.OWN_SIZE,
        "paired": _paired(board, labels),
        "chosenHere": CHOSEN_HERE,
        # Said once at the top where it holds for all rows.
        "allStudy": all(row.study_only for row in rows),
        "level": f"{100 * (1 - board.alpha):g}%",
    }
    content["directions"] = {
        name: row.measures[name].direction
        for name in (*models.all_metrics, *content["measures"])
        for row in rows
        if name in row.measures
    }
    content |= {name: table.values for name, table in tables.items()}
    content["methodPaths"] = [rendering.method_path(name) for name in labels.values]
    content["datasetPaths"] = [rendering.dataset_path(name) for name in datasets.values]
    method_of = {row.label: row.method for row in rows}
    cards = board.about.methods
    content["own"] = [
        int(method_of[name] in cards and cards[method_of[name]].by_maintainers)
        for name in labels.values
    ]
    content["references"] = [reference_of[name] for name in labels.values]
    content["datasetTasks"] = [task_of[name] for name in datasets.values]
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def _facts(rows: Sequence[Row], tables: Mapping[str, Vocabulary]) -> dict[str, str]:
    texts = tables["texts"]

    def span(read: Callable[[Row], Span | None]) -> tuple[str, str]:
        spans = [read(row) for row in rows]
        return (
            _numbers((None if item is None else item.low for item in spans), show.epsilon),
            _numbers((None if item is None else item.high for item in spans), show.epsilon),
        )

    # Numbers are sent as they are printed: the script cannot round them otherwise.
    claimed, proven = span(lambda row: row.epsilons.claimed), span(lambda row: row.epsilons.proven)
    audited, released = span(lambda row: row.epsilons.audited), span(lambda row: row.rows_released)
    detectable = _numbers((row.epsilons.detectable for row in rows), show.epsilon)
    groups = Vocabulary()
    return {
        "label": _counts(tables["labels"].of(row.label) for row in rows),
        "dataset": _counts(tables["datasets"].of(row.dataset) for row in rows),
        "ipc": _counts(tables["ipcs"].of(row.ipc) for row in rows),
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
        "group": _counts(groups.of(group_of(row)) for row in rows),
        "tuned": _counts(int(row.tuned) for row in rows),
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
        "detectable": detectable,
        "releasedLow": released[0],
        "released": released[1],
        "fit": _numbers((row.fit_seconds for row in rows), show.seconds),
        "memory": _numbers((row.peak_memory_mb for row in rows), show.whole),
        "detail": ",".join(_detail(row, texts) for row in rows),
    }


def _barred(row: Row) -> str:
    """Return why a row cannot be ranked among any methods."""
    return "" if row.place.reason in DEPENDS_ON_OTHERS else row.place.reason


def _lines(rows: Sequence[Row]) -> dict[str, str]:
    """Return for each row the indices of its floor, real sample and ceiling."""
    floors = {group_of(row): place for place, row in enumerate(rows) if row.reference == FLOOR}
    samples = {
        (row.dataset, row.split, row.ipc): place
        for place, row in enumerate(rows)
        if row.reference == SAMPLE
    }
    best = ceilings(rows)
    places = {id(row): place for place, row in enumerate(rows)}
    tops = {pair: places[id(row)] for pair, row in best.items()}
    return {
        "ceiling": ",".join(str(tops.get((row.dataset, row.split), "")) for row in rows),
        "sample": ",".join(str(samples.get((row.dataset, row.split, row.ipc), "")) for row in rows),
        "floor": ",".join(str(floors.get(group_of(row), "")) for row in rows),
    }


def _detail(row: Row, texts: Vocabulary) -> str:
    """Return alternating indices of headings and texts of an expanded row."""
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


def _utilities(board: Board, models: Models, repetitions: Vocabulary) -> dict[str, dict[str, str]]:
    """Return values, ratios and values per seed of each metric that a choice can show."""
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
    by_metric = {}
    for metric in models.all_metrics:
        own_datasets = models.datasets(metric)
        shares = [of_real(row, metric, tops.get((row.dataset, row.split))) for row in board.rows]
        measures = [row.measures.get(metric) for row in board.rows]
        spans = [None if m is None else m.seeds for m in measures]
        by_metric[metric] = {
            **_measures(measures),
            "least": _numbers(None if item is None else item.low for item in spans),
            "largest": _numbers(None if item is None else item.high for item in spans),
            "count": ",".join("" if m is None else str(m.count) for m in measures),
            "ratio": ",".join(
                "" if share is None else show.share(share).removesuffix("%") for share in shares
            ),
            "seeds": ",".join(
                " ".join(
                    f"{seeds[key]}:{_number(values.get((key, metric)))}"
                    for key in row.keys
                    if key in seeds
                )
                if row.dataset in own_datasets and not _barred(row)
                else ""
                for row in board.rows
            ),
        }
    return by_metric


def _measures(
    measures: Sequence[Measure | None], texts: Vocabulary | None = None
) -> dict[str, str]:
    columns = {
        name: _numbers(None if m is None else getattr(m, name) for m in measures)
        for name in ("value", "low", "high", "deviation", "limit")
    }
    # A column without any number is left out.
    columns = {name: text for name, text in columns.items() if text.strip(",")}
    if texts is not None and any(m is not None and m.remark for m in measures):
        columns["remark"] = _counts(texts.of("" if m is None else m.remark) for m in measures)
    return columns


def _pages(board: Board) -> dict[str, list[tuple[int, str]]]:
    """Return seed and page of the cells that have one, by index of the row."""
    by_row = {
        str(place): [
            (seed, board.cell_pages[key])
            for seed, key in zip(row.seeds, row.keys, strict=True)
            if key in board.cell_pages
        ]
        for place, row in enumerate(board.rows)
    }
    return {place: links for place, links in by_row.items() if links}


def _test_result(comparison: RankComparison, labels: Vocabulary) -> dict[str, dict[int, Any]]:
    """Return the result of the paired tests: places of each method, and which it beats."""
    return {
        "places": {labels.of(method.label): method.place for method in comparison.standings},
        "better": {
            labels.of(method.label): [labels.of(other) for other in method.better_than]
            for method in comparison.standings
        },
    }


def _paired(board: Board, labels: Vocabulary) -> dict[int, list[list[Any]]]:
    """Return for each method those it was compared with on the test rows.

    Of each: the method, groups in which the first is significantly better, in which the other is,
    all groups, and the largest corrected p-value as text.
    """
    if board.paired is None:
        return {}
    return {
        labels.of(row.label): [
            [labels.of(one.label), one.won, one.lost, one.groups, show.p_value(one.largest_p)]
            for one in board.paired.rivals(row.label)
        ]
        for row in board.rows
    }


def _student(alpha: float) -> list[float]:
    """Return Student's quantile for the mean of so many datasets, by their number."""
    quantiles = [0.0] * quantities.FEWEST
    for count in range(quantities.FEWEST, _MOST_DATASETS + 1):
        quantiles.append(quantities.quantile(count, alpha))
    return quantiles


def _numbers(
    values: Iterable[float | None], write: Callable[[float | None], str] = show.number
) -> str:
    return ",".join([_number(value, write) for value in values])


def _counts(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _number(value: float | None, write: Callable[[float | None], str] = show.number) -> str:
    """Return a number for the script with the digits that are printed."""
    if value is None or value != value:
        return ""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return write(value).replace(",", "")
