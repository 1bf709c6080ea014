"""The result schema: what a run directory's tables hold. The leaderboard depends on it alone."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any, final

import pyarrow as pa


class Status(enum.StrEnum):
    """How a cell ended."""

    OK = "ok"
    SKIPPED = "skipped"
    ERROR = "error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"


@final
@dataclass(frozen=True)
class CellRow:
    """One row of `cells.parquet`. JSON texts hold what has no fixed columns."""

    key: str
    method: str
    label: str
    """The method's name in this grid: tells variants with other parameters apart."""
    parameters: str
    """JSON: hyperparameters of the method."""
    dataset: str
    dataset_parameters: str
    task: str
    ipc: int | None
    """Synthetic rows per class; None where the release has one size or full size was asked."""
    full_size: bool
    eps_target: float | None
    eps_claimed: float | None
    eps_proven: float | None
    """Infinity where nothing is proven; None where the cell did not finish."""
    eps_audited: float | None
    delta: float
    verdict: str
    """The verdict with the trusted library, if any; empty where the cell did not finish."""
    verdict_reason: str
    claim_source: str
    accountant: str
    adjacency: str
    unit: str
    study_only: bool
    """True for seeded noise: no conclusion about releasing may be drawn."""
    private_counts: bool
    warnings: str
    seed: int
    split: str
    split_seed: int
    status: str
    reason: str
    log_tail: str
    rows_released: int | None
    notes: str
    """JSON: facts the method reported about itself."""
    fit_seconds: float | None
    score_seconds: float | None
    peak_memory_mb: float | None
    fingerprint: str
    """Of the dataset with its split."""
    source_hash: str
    """Of the method's source."""
    metrics_hash: str
    """Of all metrics that scored the release."""
    versions: str
    """JSON: versions of Python and the libraries that computed the cell."""
    finished_at: str
    dataset_name: str = ""
    """The dataset plugin behind the label."""
    metrics: str = "{}"
    """JSON: metrics that scored the release, each with the hash of its source."""


@final
@dataclass(frozen=True)
class ScoreRow:
    """One row of `scores.parquet`: one metric of one cell. Absent scores carry a reason."""

    key: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    direction: str
    family: str
    reason: str
    limit: float | None = None
    """The paper's acceptance threshold, where it has one: a worse value is not acceptable."""
    remark: str = ""
    shown: bool = True
    """On the leaderboard's page; the others are in its tables."""


def required(item: Field[Any]) -> bool:
    """True for a column that every version has written."""
    return item.default is MISSING


_ARROW = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
}


def arrow_schema(record: type[CellRow] | type[ScoreRow]) -> pa.Schema:
    """Columns of a result table."""
    return pa.schema(
        [
            pa.field(item.name, _ARROW[str(item.type).removesuffix(" | None")])
            for item in fields(record)
        ]
    )


def to_table(rows: Iterable[CellRow] | Iterable[ScoreRow], record: type[Any]) -> pa.Table:
    """Rows as an Arrow table with the fixed schema, also when there are none."""
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=arrow_schema(record))
