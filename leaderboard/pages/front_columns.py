"""The columns of the front page's table: what each says, and which way is better."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from bench.leaderboard.export import tables as export
from bench.leaderboard.pages import show
from bench.leaderboard.tables.aggregate import Row
from bench.plugins.metric import Direction, Family

METRIC = "metric:"
"""What the name of a metric's column starts with."""

_UP, _DOWN = Direction.HIGHER.value, Direction.LOWER.value
_GROUPS: Mapping[str, str] = {
    Family.UTILITY.value: "More utility",
    Family.FIDELITY.value: "Fidelity",
    Family.PRIVACY.value: "Attacks",
    Family.COST.value: "Cost",
}


@final
@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    """In the page's address and in `data-column`."""
    title: str
    hint: str
    group: str
    direction: str = Direction.NEUTRAL.value
    numeric: bool = True
    metric: str = ""

    @property
    def head(self) -> str:
        """The title with the sign for which way is better."""
        return f"{self.title} {show.arrow(self.direction)}"

    @property
    def first(self) -> str:
        """How the first click sorts: the best on top."""
        return "descending" if self.direction == _UP else "ascending"


_FIRST = (
    Column("method", "Method", "the method's label in the grid", "", numeric=False),
    Column("dataset", "Dataset", "with its task", "", numeric=False),
    Column("size", "Rows per class", "synthetic rows per class that were asked for", ""),
    Column("target", "target", "asked for by the grid", "Epsilon"),
    Column("claimed", "claimed", "what the method says it spent: not trusted", "Epsilon", _DOWN),
    Column(
        "proven",
        "proven",
        "upper bound computed from the ledger; infinite where rows were read without noise",
        "Epsilon",
        _DOWN,
    ),
    Column("audited", "audited", "lower bound measured by attacks", "Epsilon", _DOWN),
    Column("verdict", "Verdict", "with its reason; sorts from sound to refuted", ""),
    Column(
        "rank",
        "Rank",
        "among the sound methods shown, at the same dataset, size and target epsilon; 1 is best",
        "Utility on real test rows",
        _DOWN,
    ),
    Column(
        "utility",
        "Utility",
        "headline metric of the task, or that of the chosen model, with its 95% interval from the "
        "test rows",
        "Utility on real test rows",
        _UP,
    ),
    Column(
        "ratio",
        "Of real",
        "utility over that of the same model trained on the real rows; 1 is as good as real",
        "Utility on real test rows",
        _UP,
    ),
    Column(
        "deviation",
        "Seeds sd",
        "standard deviation of the utility over seeds: the method's own randomness, apart from "
        "the choice of test rows",
        "Utility on real test rows",
        _DOWN,
    ),
    Column("failed", "Failed", "share of cells that did not finish; skipped ones apart", "", _DOWN),
)

_COST = (
    Column("released", "Rows released", "synthetic rows", "Cost"),
    Column("fit", "Fit seconds", "mean over seeds", "Cost", _DOWN),
    Column("memory", "Peak MB", "the largest over seeds", "Cost", _DOWN),
)


def columns(rows: Sequence[Row], ratios: frozenset[str]) -> tuple[Column, ...]:
    """All columns; `ratios` are metrics that the column of ratios shows already."""
    known = {m.metric: m for row in rows for m in row.measures.values() if m.shown}
    found: dict[str, list[Column]] = {}
    for name in export.metric_names(rows, beside_headlines=True):
        if name in ratios:
            continue
        direction = known[name].direction
        group = _GROUPS.get(known[name].family, "Other")
        hint = f"{name}: {show.better(direction)}"
        found.setdefault(group, []).append(
            Column(f"{METRIC}{name}", name, hint, group, direction, metric=name)
        )
    order = [*_GROUPS.values(), "Other"]
    found["Cost"] = [*_COST, *found.get("Cost", [])]
    return (*_FIRST, *(column for group in order for column in found.get(group, [])))


@final
@dataclass(frozen=True)
class Group:
    """Columns side by side under one heading."""

    title: str
    count: int


def groups(found: Sequence[Column]) -> tuple[Group, ...]:
    """The line above the columns; the first, which stays in place, stands alone."""
    runs = itertools.groupby(found[1:], key=lambda column: column.group)
    return (Group("", 1), *(Group(title, len(list(own))) for title, own in runs))
