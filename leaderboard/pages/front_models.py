"""Which downstream models stand behind utility, and how it compares with real rows.

A metric `kind/model` of the same kind as a dataset's headline is that number of another model
(`auroc/forest`); `auroc` alone is XGBoost's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from bench.leaderboard.ranking.rank import CEILING
from bench.leaderboard.tables.aggregate import Measure, Row
from bench.plugins.metric import Direction, Family

_UNNAMED: Mapping[str, str] = {"auroc": "xgboost"}
"""Models of metrics whose name has no model."""

_NO_MODEL = ("ratio", "prevalence")
"""What may stand where a model does."""


@final
@dataclass(frozen=True)
class Ratio:
    """Utility over that on the real rows."""

    value: float
    low: float | None
    high: float | None
    derived: bool
    """True for the quotient of two rows, which has no interval of its own."""


@final
@dataclass(frozen=True)
class Models:
    """The metric of each model and dataset."""

    headlines: Mapping[str, str]
    """By cohort."""
    metrics: Mapping[str, Mapping[str, str]]
    """By model, then by cohort."""

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """Every metric that some choice shows."""
        own = {name for by_cohort in self.metrics.values() for name in by_cohort.values()}
        return tuple(sorted(own | set(self.headlines.values())))

    def cohorts(self, metric: str) -> frozenset[str]:
        """Where a metric is some choice's."""
        return frozenset(
            cohort
            for by_cohort in (self.headlines, *self.metrics.values())
            for cohort, name in by_cohort.items()
            if name == metric
        )


def models(rows: Sequence[Row]) -> Models:
    """The choices, from the names of the metrics."""
    headlines = {row.cohort: row.headline.metric for row in rows if row.headline is not None}
    found: dict[str, dict[str, str]] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        for measure in row.measures.values():
            if (row.cohort, measure.metric) in seen or measure.value is None:
                continue
            seen.add((row.cohort, measure.metric))
            model = _model(measure, headlines.get(row.cohort, ""))
            if model:
                found.setdefault(model, {})[row.cohort] = measure.metric
    return Models(headlines, {model: found[model] for model in sorted(found)})


def _model(measure: Measure, headline: str) -> str:
    """The model behind a metric of the same kind as the headline; empty for every other metric."""
    kind, _, model = measure.metric.partition("/")
    if measure.family != Family.UTILITY.value or kind != headline.partition("/")[0]:
        return ""
    if not model:
        return _UNNAMED.get(kind, "")
    return "" if model in _NO_MODEL or model.endswith("-ratio") else model


def ratio_metrics(metric: str, headline: bool) -> tuple[str, ...]:
    """Names under which the ratio of a metric to real rows may be found."""
    kind = metric.partition("/")[0]
    return (f"{metric}/ratio", f"{metric}-ratio", *((f"{kind}/ratio",) if headline else ()))


def ceilings(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """The real rows of each cohort and split."""
    return {(row.cohort, row.split): row for row in rows if row.reference == CEILING}


def ratio(row: Row, metric: str, ceiling: Row | None) -> Ratio | None:
    """As scored on the same test rows; otherwise the quotient of the two rows' means."""
    is_headline = row.headline is not None and row.headline.metric == metric
    for name in ratio_metrics(metric, is_headline):
        scored = row.measures.get(name)
        if scored is not None and scored.value is not None:
            return Ratio(scored.value, scored.low, scored.high, derived=False)
    own = row.measures.get(metric)
    best = None if ceiling is None else ceiling.measures.get(metric)
    if own is None or best is None or own.value is None or not best.value:
        return None
    if own.direction != Direction.HIGHER.value:
        return None
    return Ratio(own.value / best.value, None, None, derived=True)
