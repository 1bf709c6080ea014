"""Rows of the leaderboard: one row per method, dataset, IPC, target epsilon and setting.

Only seeds are averaged. Cells that did not finish are counted in their row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import pandas as pd

from bench.leaderboard.ranking.rank import (
    CEILING,
    REFERENCES,
    group_identity,
    headline_metrics,
    placements,
    ranking_table,
)
from bench.leaderboard.tables.load import SETTING, TUNED, Results, records
from bench.leaderboard.tables.measures import Measure, Span, measures_by_row
from bench.leaderboard.tables.show import ipc_order
from bench.results.records import Status
from bench.results.verdicts import Verdict

_SEVERITY = [
    Verdict.SOUND,
    Verdict.SOUND_TRUSTING,
    Verdict.UNPROVEN,
    Verdict.NON_PRIVATE,
    Verdict.CLAIM_REFUTED,
    Verdict.PROOF_REFUTED,
    Verdict.TAMPERED,
]

_CODE = {
    "source_hash": "versions of the method's source",
    "metrics_hash": "versions or sets of metrics",
    "fingerprint": "contents or splits of the dataset",
}


@final
@dataclass(frozen=True)
class Epsilons:
    """The four epsilons of a row; None where there is none."""

    target: float | None
    claimed: Span | None
    proven: Span | None
    audited: Span | None
    detectable: float | None = None
    """The largest epsilon that the trials of the audit could have shown; None where not audited."""


@final
@dataclass(frozen=True)
class FailedCells:
    """Cells of one row that ended the same way and were not ok."""

    status: str
    reason: str
    seeds: tuple[int, ...]
    key: str
    """Key of one of these cells."""


@final
@dataclass(frozen=True)
class GroupRank:
    """Rank within the group, or the reason why there is none."""

    rank: float | None
    among: int
    """How many methods were ranked together."""
    reason: str

    @property
    def beaten(self) -> float | None:
        """Return the share of the others that it beats; None without a rank, which takes two."""
        return None if self.rank is None else (self.among - self.rank) / (self.among - 1)


@final
@dataclass(frozen=True)
class Row:
    """One row of the leaderboard."""

    label: str
    method: str
    parameters: str
    reference: str
    """`ceiling`, `real sample`, `floor` or empty."""
    dataset: str
    task: str
    ipc: str
    """Rows per class; `full`, or `own` for a method that sets its own size."""
    epsilons: Epsilons
    split: str
    delta: float
    private_counts: bool
    study_only: bool
    adjacency: str
    unit: str
    variant: str
    """Setting that distinguishes this row from others of its dataset; mostly empty."""
    verdict: str
    """The worst verdict over seeds; empty where no cell finished."""
    verdict_kind: str
    """The verdict without the trusted library: one of `Verdict`, `unknown` or empty."""
    verdict_reasons: tuple[str, ...]
    claim_sources: tuple[str, ...]
    accountants: tuple[str, ...]
    place: GroupRank
    headline: Measure | None
    measures: Mapping[str, Measure]
    """All metrics by name, the headline among them."""
    rows_released: Span | None
    fit_seconds: float | None
    score_seconds: float | None
    peak_memory_mb: float | None
    """Maximum over seeds."""
    seeds: tuple[int, ...]
    keys: tuple[str, ...]
    """Keys of the cells, in the order of `seeds`."""
    finished: int
    failed: int
    skipped: int
    problems: tuple[FailedCells, ...]
    warnings: tuple[str, ...]
    tuned: bool = False
    """Whether the dataset was in view when the defaults of the method were chosen."""

    @property
    def cells(self) -> int:
        """Number of cells of this row."""
        return self.finished + self.failed + self.skipped

    @property
    def absences(self) -> Mapping[str, tuple[str, ...]]:
        """Reasons for missing values, each with its metrics."""
        by_reason: dict[str, tuple[str, ...]] = {}
        for measure in self.measures.values():
            for reason in measure.reasons:
                by_reason[reason] = (*by_reason.get(reason, ()), measure.metric)
        return by_reason


_LEFT_OUT = GroupRank(None, 0, "scores on this dataset are left out of the public site")


def aggregate(results: Results) -> tuple[tuple[Row, ...], pd.DataFrame]:
    """Return the rows in reading order and the placements that they were ranked by."""
    cells, scores = results.cells, results.scores
    places = placements(ranking_table(cells, scores))
    place_of = {
        (record["shown_label"], group_identity(record)): GroupRank(
            _number(record["rank"]),
            0 if pd.isna(record["among"]) else int(record["among"]),
            record["reason"],
        )
        for record in records(places)
    }
    headlines = headline_metrics(cells, scores)
    variants = _variants(cells)
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in records(cells.sort_values(["seed", "split_seed"])):
        grouped.setdefault((cell["shown_label"], group_identity(cell)), []).append(cell)
    keys = [cell["key"] for members in grouped.values() for cell in members]
    numbers = [number for number, members in enumerate(grouped.values()) for _ in members]
    measured = measures_by_row(scores, keys, numbers)
    rows = []
    for (identity, members), measures in zip(grouped.items(), measured, strict=True):
        rows.append(
            _row(
                members,
                measures,
                measures.get(headlines.get(members[0]["shown_dataset"], "")),
                place_of.get(identity, _LEFT_OUT),
                _variant(members[0], variants),
            )
        )
    return tuple(sorted(rows, key=_reading_order)), places


def _row(
    cells: Sequence[dict[str, Any]],
    measures: Mapping[str, Measure],
    headline: Measure | None,
    place: GroupRank,
    variant: str,
) -> Row:
    first = cells[0]
    statuses = [cell["status"] for cell in cells]
    finished = statuses.count(Status.OK.value)
    skipped = statuses.count(Status.SKIPPED.value)
    verdict = max((cell["verdict"] for cell in cells), key=severity)
    memory = _span(cell["peak_memory_mb"] for cell in cells)
    detectable = _span(cell.get("eps_detectable") for cell in cells)
    return Row(
        label=first["shown_label"],
        method=first["method"],
        parameters=first["parameters"],
        reference=REFERENCES.get(first["method"], ""),
        dataset=first["shown_dataset"],
        task=first["task"],
        ipc=first["shown_ipc"],
        epsilons=Epsilons(
            _number(first["eps_target"]),
            _span(cell["eps_claimed"] for cell in cells),
            _span(cell["eps_proven"] for cell in cells),
            _span(cell["eps_audited"] for cell in cells),
            None if detectable is None else detectable.high,
        ),
        split=first["split"],
        delta=float(first["delta"]),
        private_counts=bool(first["private_counts"]),
        study_only=bool(first["study_only"]),
        adjacency=first["adjacency"],
        unit=first["unit"],
        variant=variant,
        verdict=verdict,
        verdict_kind=_verdict_kind(verdict),
        verdict_reasons=_verdict_reasons(cells),
        claim_sources=_distinct(cell["claim_source"] for cell in cells),
        accountants=_distinct(cell["accountant"] for cell in cells),
        place=place,
        headline=headline,
        measures=measures,
        rows_released=_span(cell["rows_released"] for cell in cells),
        fit_seconds=_mean(cell["fit_seconds"] for cell in cells),
        score_seconds=_mean(cell["score_seconds"] for cell in cells),
        peak_memory_mb=None if memory is None else memory.high,
        seeds=tuple(int(cell["seed"]) for cell in cells),
        keys=tuple(cell["key"] for cell in cells),
        finished=finished,
        failed=len(cells) - finished - skipped,
        skipped=skipped,
        problems=_problems(cells),
        warnings=(*_distinct(cell["warnings"] for cell in cells), *_mixed(cells)),
        tuned=bool(first.get(TUNED, False)),
    )


def _problems(cells: Sequence[dict[str, Any]]) -> tuple[FailedCells, ...]:
    alike: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in cells:
        if cell["status"] != Status.OK.value:
            alike.setdefault((cell["status"], cell["reason"]), []).append(cell)
    return tuple(
        FailedCells(status, reason, tuple(int(cell["seed"]) for cell in members), members[0]["key"])
        for (status, reason), members in alike.items()
    )


def _mixed(cells: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return warnings about seeds that were computed with different code or data."""
    notes = []
    for column, name in _CODE.items():
        splits: dict[int, set[str]] = {}
        for cell in cells:
            if cell[column]:
                splits.setdefault(int(cell["split_seed"]), set()).add(cell[column])
        if any(len(hashes) > 1 for hashes in splits.values()):
            notes.append(f"the seeds were computed with different {name}")
    return tuple(notes)


def _variants(cells: pd.DataFrame) -> dict[str, list[str]]:
    """Return for each dataset the parts of the setting that differ among its budgeted cells."""
    budgeted = cells[cells["eps_target"].notna()]
    counts = budgeted.groupby("shown_dataset")[SETTING].nunique()
    return {
        str(dataset): [name for name in SETTING if row[name] > 1]
        for dataset, row in counts.iterrows()
    }


def _variant(cell: Mapping[str, Any], variants: Mapping[str, list[str]]) -> str:
    words = []
    for name in variants.get(cell["shown_dataset"], []):
        value = cell[name]
        if name == "private_counts":
            words.append("private counts" if value else "public counts")
        elif name == "study_only":
            words.append("seeded noise" if value else "secure noise")
        else:
            words.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(words)


def _verdict_kind(verdict: str) -> str:
    if verdict.startswith(Verdict.SOUND_TRUSTING.value):
        return Verdict.SOUND_TRUSTING.value
    return verdict if verdict in {*Verdict, ""} else "unknown"


def severity(verdict: str) -> int:
    """Return a sort key from sound to tampered; unfinished first, unknown last."""
    kind = _verdict_kind(verdict)
    if not kind:
        return -1
    return len(_SEVERITY) if kind == "unknown" else _SEVERITY.index(Verdict(kind))


def _verdict_reasons(cells: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the reasons of the worst verdict first, with the verdict where seeds disagree."""
    reasons = [(cell["verdict"], cell["verdict_reason"]) for cell in cells]
    reasons = [pair for pair in reasons if pair[0]]
    several = len({verdict for verdict, _ in reasons}) > 1
    reasons.sort(key=lambda pair: -severity(pair[0]))
    return _distinct(f"{verdict}: {reason}" if several else reason for verdict, reason in reasons)


def ceilings(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """Return the row of the real data of each dataset and split."""
    return {(row.dataset, row.split): row for row in rows if row.reference == CEILING}


def _reading_order(row: Row) -> tuple[Any, ...]:
    target = row.epsilons.target
    return (
        row.dataset,
        row.reference != "ceiling",
        ipc_order(row.ipc),
        row.variant,
        math.inf if target is None else target,
        math.inf if row.place.rank is None else row.place.rank,
        row.label,
    )


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _present(values: Iterable[Any]) -> list[float]:
    return [number for number in map(_number, values) if number is not None]


def _mean(values: Iterable[Any]) -> float | None:
    present = _present(values)
    return _number(sum(present) / len(present)) if present else None


def _span(values: Iterable[Any]) -> Span | None:
    present = _present(values)
    return Span(min(present), max(present)) if present else None


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))
