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

from bench.errors import InputError, NotComputable, UnknownNameError
from bench.metrics.utility import paired
from bench.plugins.metric import HEADLINES
from bench.results.integrity import Ledgers, checked_row
from bench.results.parquet_files import read_parquet
from bench.results.reading import check_run, open_journal
from bench.results.records import CellRow, Status
from bench.stats.inference import holm

LEVEL = 0.05
RESAMPLES = 1000


@final
@dataclass(frozen=True)
class MethodComparison:
    """First minus second on one dataset, at one IPC and target epsilon."""

    dataset: str
    ipc: str
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
class _Method:
    label: str
    verdict: str
    keys: Mapping[int, str]
    """Keys of the cells, by seed."""


def compare_run(
    directory: Path, metric: str | None = None, methods: Sequence[str] = ()
) -> tuple[list[MethodComparison], list[str]]:
    """Compare every pair of methods in every group; also return what could not be compared.

    A group is one dataset, IPC and target epsilon. Methods without a budget, or that decide the
    size themselves, take part in every group of their dataset. Seeds that not both have are left
    out.
    """
    if metric is not None and metric not in paired.COMPARABLE:
        raise UnknownNameError("metric to compare by", metric, paired.COMPARABLE)
    check_run(directory)
    finished = (row for row, _ in open_journal(directory).all() if not row.attack)
    ledgers = Ledgers()
    rows = [
        checked_row(directory, row, ledgers) for row in finished if row.status == Status.OK.value
    ]
    for name in methods:
        if name not in {row.label for row in rows}:
            raise UnknownNameError("method in this run", name, {row.label for row in rows})
    planned = [
        (group, chosen, first, second)
        for group, chosen, members in _groups(rows, metric)
        for first, second in itertools.combinations(members, 2)
        if not methods or {first.label, second.label} <= set(methods)
    ]
    # The smallest p-value that so many resamples can show must pass the correction.
    resamples = max(RESAMPLES, round(2 / LEVEL * len(planned)))
    comparisons: list[MethodComparison] = []
    notices: list[str] = []
    for group, chosen, first, second in planned:
        try:
            comparisons.append(_compared(directory, group, chosen, first, second, resamples))
        except NotComputable as reason:
            where = f"{group.dataset}, {group.ipc_text}, eps {group.eps_target}"
            notices.append(f"{first.label} and {second.label} on {where}: {reason}")
    adjusted = holm([one.p for one in comparisons])
    corrected = zip(comparisons, adjusted, strict=True)
    return [replace(one, p_holm=float(p)) for one, p in corrected], notices


def to_json(comparisons: Sequence[MethodComparison], notices: Sequence[str]) -> str:
    """Return the comparisons as JSON."""
    document = {"comparisons": [asdict(one) for one in comparisons], "not_compared": list(notices)}
    return json.dumps(document, indent=1)


def to_text(comparisons: Sequence[MethodComparison]) -> str:
    """Return an aligned table; a star marks what the correction leaves significant."""
    heads = ["dataset", "rows", "eps", "metric", "first", "second", "first - second"]
    heads += ["95% interval", "p", "p (Holm)", "seeds", "p (t, seeds)", "verdicts"]
    lines = [heads]
    for one in comparisons:
        verdicts = {one.first_verdict, one.second_verdict}
        star = "*" if one.p_holm < LEVEL else ""
        lines.append(
            [
                one.dataset,
                one.ipc,
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
) -> Iterator[tuple[CellRow, str, list[_Method]]]:
    """One row that stands for the group, the metric, and who takes part."""
    datasets: dict[tuple[object, ...], list[CellRow]] = {}
    for row in rows:
        dataset = (row.dataset, row.dataset_parameters, row.split, row.split_seed, row.delta)
        datasets.setdefault((*dataset, row.private_counts), []).append(row)
    for cells_of in datasets.values():
        chosen = metric or HEADLINES.get(cells_of[0].task, "")
        ipcs = list(dict.fromkeys(row.ipc_text for row in cells_of if row.ipc_text != "own"))
        spends: list[float | None] = list(
            dict.fromkeys(row.eps_target for row in cells_of if row.eps_target is not None)
        )
        for ipc, spend in itertools.product(ipcs or ["own"], spends or [None]):
            members: dict[str, list[CellRow]] = {}
            for row in cells_of:
                if row.ipc_text in (ipc, "own") and row.eps_target in (spend, None):
                    members.setdefault(row.label, []).append(row)
            methods = [
                _Method(label, cells[0].verdict, {row.seed: row.key for row in cells})
                for label, cells in members.items()
            ]
            sized = next(row for row in cells_of if row.ipc_text == ipc)
            yield replace(sized, eps_target=spend), chosen, methods


def _compared(
    directory: Path,
    group: CellRow,
    metric: str,
    first: _Method,
    second: _Method,
    resamples: int,
) -> MethodComparison:
    if metric not in paired.COMPARABLE:
        raise NotComputable(f"nothing to compare a {group.task} task by; name it with --metric")
    seeds = sorted(set(first.keys) & set(second.keys))
    if not seeds:
        raise NotComputable("no seed was run with both")
    name = paired.COMPARABLE[metric].details
    tables = [
        [_details(directory, method.keys[seed], name) for seed in seeds]
        for method in (first, second)
    ]
    # The same resamples for all pairs of a dataset.
    rng = np.random.default_rng(np.random.SeedSequence([group.split_seed, len(tables[0][0])]))
    estimate = paired.compare(metric, tables[0], tables[1], rng, resamples)
    low, high = estimate.interval
    return MethodComparison(
        dataset=group.dataset,
        ipc=group.ipc_text,
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
    table = read_parquet(directory, "details", key, f"{name}.parquet")
    if table is None:
        raise NotComputable(f"no predictions were kept for {key}: score it with `bench score`")
    frame: pd.DataFrame = table.to_pandas()
    return frame


def check_some(comparisons: Sequence[MethodComparison], notices: Sequence[str]) -> None:
    """Refuse an empty answer, saying why it is empty."""
    if not comparisons:
        why = notices[0] if notices else "no two methods finished on one dataset and size"
        raise InputError(f"nothing to compare: {why}")
