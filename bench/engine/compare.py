"""Methods of a run directory compared pair by pair, as `bench compare` shows them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import final

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from bench.errors import InputError, NotComputable, StoreError, UnknownNameError
from bench.metrics.utility import paired
from bench.plugins.metric import HEADLINES
from bench.results.journal import read_journal
from bench.results.records import CellRow, Status
from bench.results.run_directory import RunStore
from bench.stats.multiple_testing import holm

LEVEL = 0.05
RESAMPLES = 1000


@final
@dataclass(frozen=True)
class Comparison:
    """First minus second on one dataset, at one size and target epsilon."""

    dataset: str
    size: str
    eps_target: float | None
    metric: str
    first: str
    second: str
    seeds: int
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    """Corrected for all comparisons made together."""
    first_verdict: str
    second_verdict: str
    p_seeds: float | None = None
    """Paired t-test over seeds, not corrected; None for fewer than two."""


@final
@dataclass(frozen=True)
class _Entrant:
    label: str
    verdict: str
    keys: Mapping[int, str]
    """By seed."""


def compare_run(
    directory: Path, metric: str | None = None, methods: Sequence[str] = ()
) -> tuple[list[Comparison], list[str]]:
    """Every pair of methods in every group, and what could not be compared.

    A group is one dataset, size and target epsilon. Methods without a budget, or with a size of
    their own, take part in every group of their dataset. Seeds that not both have are left out.
    """
    if metric is not None and metric not in paired.COMPARABLE:
        raise UnknownNameError("metric to compare by", metric, paired.COMPARABLE)
    RunStore.existing(directory)
    rows = [row for row, _ in read_journal(directory / "journal.jsonl").values()]
    rows = [row for row in rows if row.status == Status.OK.value]
    for name in methods:
        if name not in {row.label for row in rows}:
            raise UnknownNameError("method in this run", name, {row.label for row in rows})
    planned = [
        (group, chosen, first, second)
        for group, chosen, entrants in _groups(rows, metric)
        for first, second in itertools.combinations(entrants, 2)
        if not methods or {first.label, second.label} <= set(methods)
    ]
    # The smallest p-value that so many resamples can show must pass the correction.
    resamples = max(RESAMPLES, round(2 / LEVEL * len(planned)))
    found: list[Comparison] = []
    notices: list[str] = []
    for group, chosen, first, second in planned:
        try:
            found.append(_compared(directory, group, chosen, first, second, resamples))
        except NotComputable as reason:
            where = f"{group.dataset}, {_size(group)}, eps {group.eps_target}"
            notices.append(f"{first.label} and {second.label} on {where}: {reason}")
    adjusted = holm([one.p for one in found])
    return [replace(one, p_holm=float(p)) for one, p in zip(found, adjusted, strict=True)], notices


def to_json(found: Sequence[Comparison], notices: Sequence[str]) -> str:
    """Machine-readable."""
    document = {"comparisons": [asdict(one) for one in found], "not_compared": list(notices)}
    return json.dumps(document, indent=1)


def to_text(found: Sequence[Comparison]) -> str:
    """An aligned table; a star marks what the correction leaves significant."""
    heads = ["dataset", "rows", "eps", "metric", "first", "second", "first - second"]
    heads += ["95% interval", "p", "p (Holm)", "seeds", "p (t, seeds)", "verdicts"]
    lines = [heads]
    for one in found:
        verdicts = {one.first_verdict, one.second_verdict}
        star = "*" if one.p_holm < LEVEL else ""
        lines.append(
            [
                one.dataset,
                one.size,
                "-" if one.eps_target is None else f"{one.eps_target:g}",
                one.metric,
                one.first,
                one.second,
                f"{one.difference:+.4f}",
                f"[{one.low:+.4f}, {one.high:+.4f}]",
                f"{one.p:.3g}",
                f"{one.p_holm:.3g}{star}",
                str(one.seeds),
                "-" if one.p_seeds is None else f"{one.p_seeds:.3g}",
                one.first_verdict
                if len(verdicts) == 1
                else f"{one.first_verdict} / {one.second_verdict}",
            ]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _groups(
    rows: Sequence[CellRow], metric: str | None
) -> Iterator[tuple[CellRow, str, list[_Entrant]]]:
    """One row that stands for the group, the metric, and who takes part."""
    cohorts: dict[tuple[object, ...], list[CellRow]] = {}
    for row in rows:
        cohort = (row.dataset, row.dataset_parameters, row.split, row.split_seed, row.delta)
        cohorts.setdefault((*cohort, row.private_counts), []).append(row)
    for own in cohorts.values():
        chosen = metric or HEADLINES.get(own[0].task, "")
        sizes = list(dict.fromkeys(_size(row) for row in own if _size(row) != "own")) or ["own"]
        spends: list[float | None] = list(
            dict.fromkeys(row.eps_target for row in own if row.eps_target is not None)
        )
        for size, spend in itertools.product(sizes, spends or [None]):
            members: dict[str, list[CellRow]] = {}
            for row in own:
                if _size(row) in (size, "own") and row.eps_target in (spend, None):
                    members.setdefault(row.label, []).append(row)
            entrants = [
                _Entrant(label, cells[0].verdict, {row.seed: row.key for row in cells})
                for label, cells in members.items()
            ]
            sized = next(row for row in own if _size(row) == size)
            yield replace(sized, eps_target=spend), chosen, entrants


def _size(row: CellRow) -> str:
    return "full" if row.full_size else ("own" if row.ipc is None else str(row.ipc))


def _compared(
    directory: Path,
    group: CellRow,
    metric: str,
    first: _Entrant,
    second: _Entrant,
    resamples: int,
) -> Comparison:
    if metric not in paired.COMPARABLE:
        raise NotComputable(f"nothing to compare a {group.task} task by; name it with --metric")
    seeds = sorted(set(first.keys) & set(second.keys))
    if not seeds:
        raise NotComputable("no seed was run with both")
    name = paired.COMPARABLE[metric].details
    tables = [
        [_details(directory, entrant.keys[seed], name) for seed in seeds]
        for entrant in (first, second)
    ]
    # The same resamples for all pairs of a dataset.
    rng = np.random.default_rng(np.random.SeedSequence([group.split_seed, len(tables[0][0])]))
    estimate = paired.compare(metric, tables[0], tables[1], rng, resamples)
    low, high = estimate.interval
    return Comparison(
        dataset=group.dataset,
        size=_size(group),
        eps_target=group.eps_target,
        metric=metric,
        first=first.label,
        second=second.label,
        seeds=len(seeds),
        difference=estimate.value,
        low=low,
        high=high,
        p=estimate.p_value,
        p_holm=estimate.p_value,
        first_verdict=first.verdict,
        second_verdict=second.verdict,
        p_seeds=paired.t_test(*(paired.by_seed(metric, frames) for frames in tables)),
    )


def _details(directory: Path, key: str, name: str) -> pd.DataFrame:
    path = directory / "details" / key / f"{name}.parquet"
    if not path.is_file():
        raise NotComputable(f"no predictions were kept for {key}: score it with `bench score`")
    try:
        frame: pd.DataFrame = pq.ParquetFile(path).read().to_pandas()
    except (OSError, ValueError) as problem:
        raise StoreError(f"{path}: cannot be read ({problem})") from None
    return frame


def check_some(found: Sequence[Comparison], notices: Sequence[str]) -> None:
    """Refuse an empty answer, saying why it is empty."""
    if not found:
        why = notices[0] if notices else "no two methods finished on one dataset and size"
        raise InputError(f"nothing to compare: {why}")
