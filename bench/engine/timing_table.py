"""Timings of cells for estimates: read from run directories, kept as a small table in the package.

    python -m bench.engine.timing_table DIR... -o bench/engine/timings.csv

writes the table from `timings.parquet` and `cells.parquet` of run directories (`make timings` runs
the cells first). Each line is the mean over some cells, in seconds of processor time with one
thread:

- `fit`: fitting and proving, per method, dataset, IPC and epsilon;
- `skip`: a method and a dataset whose cells were all skipped, which costs nothing;
- `score`: scoring and writing, per dataset and IPC, for releases of rows and of models, without
  what depends on the real rows alone;
- `reference`: that, and loading the dataset: once per dataset;
- `share`: what part of `score` a metric takes, per dataset and kind of release.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from bench.errors import InputError
from bench.plugins import registry
from bench.results.reading import check_run, read_tables
from bench.results.records import Status, ipc_text
from bench.results.writing import FOR_ALL, write_atomically, writing

if TYPE_CHECKING:
    import pandas as pd

KINDS: Final = ("fit", "skip", "score", "reference", "share")
FILE: Final = "timings.csv"
_LOW, _HIGH = 0.1, 0.9


@final
@dataclass(frozen=True)
class TimingLine:
    """A line of the table: the mean of some cells that are alike."""

    kind: str
    method: str
    """Label of the method; empty for what does not depend on it."""
    dataset: str
    task: str
    ipc: str
    """As `CellRow.ipc_text`; empty for what does not depend on it."""
    epsilon: float | None
    result: str
    """`rows` or `model`."""
    metric: str
    rows: int
    """Declared training rows of the dataset."""
    columns: int
    released: int | None
    """Released rows, where the release has some."""
    cells: int
    seconds: float
    low: float
    """With `high`: between them lie four of five cells."""
    high: float


@final
@dataclass(frozen=True)
class DatasetSize:
    """What the cost of a cell depends on, as declared: no row is read."""

    task: str
    rows: int
    columns: int
    classes: int


def size_of(name: str, parameters: Mapping[str, Any]) -> DatasetSize:
    """Return the declared size of a dataset."""
    declared = registry.build_source(name, dict(parameters)).declare()
    schema = declared.schema
    return DatasetSize(
        schema.task.value, sum(declared.by_class), len(schema.features), len(declared.by_class)
    )


# From run directories -----------------------------------------------------------------------------


def lines_of(directory: Path) -> list[TimingLine]:
    """Return what the cells of a run directory took; none for a directory without timings."""
    check_run(directory)
    tables = read_tables(directory)
    cells = tables.cells[tables.cells["attack"] == ""]
    timings = tables.timings
    if not len(timings):
        return list(_skips(cells))
    whole = timings[timings["metric"] == ""]
    spent = whole.pivot_table(
        index="key", columns="phase", values="processor_seconds", aggfunc="sum", fill_value=0.0
    ).reindex(columns=["load", "fit", "prove", "score", "write"], fill_value=0.0)
    reference = whole.groupby("key")["reference_seconds"].sum()
    frame = cells.merge(spent, left_on="key", right_index=True)
    frame = frame[frame["status"] == Status.OK.value].assign(
        reference=lambda table: table["key"].map(reference),
        fitting=lambda table: table["fit"] + table["prove"],
        scoring=lambda table: (table["score"] + table["write"] - table["key"].map(reference)).clip(
            lower=0.0
        ),
        ipc_text=lambda table: _ipcs(table),
        result=lambda table: table["rows_released"].isna().map({True: "model", False: "rows"}),
    )
    return [
        *_grouped(frame, "fit", ["label", "ipc_text", "eps_target", "result"], "fitting"),
        *_skips(cells),
        *_grouped(frame, "score", ["ipc_text", "result"], "scoring"),
        *_references(frame, timings),
        *_shares(frame, timings),
    ]


def _ipcs(cells: pd.DataFrame) -> list[str]:
    import pandas as pd

    return [
        ipc_text(None if pd.isna(ipc) else int(ipc), bool(full))
        for ipc, full in zip(cells["ipc"], cells["full_size"], strict=True)
    ]


def _datasets(cells: pd.DataFrame) -> Iterator[tuple[str, DatasetSize, pd.DataFrame]]:
    """Return the datasets of a table with their cells; those that are not known here are left."""
    for (label, name, given), group in cells.groupby(
        ["dataset", "dataset_name", "dataset_parameters"], sort=True
    ):
        try:
            size = size_of(str(name) or str(label), json.loads(str(given)))
        except InputError:
            continue
        yield str(label), size, group


def _grouped(
    cells: pd.DataFrame, kind: str, by: Sequence[str], column: str
) -> Iterator[TimingLine]:
    import pandas as pd

    for label, size, group in _datasets(cells):
        for values, alike in group.groupby(list(by), dropna=False, sort=True):
            named: dict[str, Any] = dict(zip(by, values, strict=True))
            epsilon, seconds = named.get("eps_target"), alike[column]
            released = alike["rows_released"].dropna()
            yield TimingLine(
                kind=kind,
                method=str(named.get("label", "")),
                dataset=label,
                task=size.task,
                ipc=str(named["ipc_text"]),
                epsilon=None if epsilon is None or pd.isna(epsilon) else float(epsilon),
                result=str(named["result"]),
                metric="",
                rows=size.rows,
                columns=size.columns,
                released=int(released.median()) if len(released) else None,
                cells=len(alike),
                seconds=float(seconds.mean()),
                low=float(seconds.quantile(_LOW)),
                high=float(seconds.quantile(_HIGH)),
            )


def _skips(cells: pd.DataFrame) -> Iterator[TimingLine]:
    for label, size, group in _datasets(cells):
        for method, alike in group.groupby("label", sort=True):
            if (alike["status"] == Status.SKIPPED.value).all():
                yield _line("skip", size, label, method=str(method), cells=len(alike))


def _references(cells: pd.DataFrame, timings: pd.DataFrame) -> Iterator[TimingLine]:
    """What is built once: per metric the most that a cell spent, and loading."""
    per_metric = timings[timings["metric"] != ""]
    for label, size, group in _datasets(cells):
        mine = per_metric[per_metric["key"].isin(group["key"])]
        built = mine.groupby("metric")["reference_seconds"].max().sum()
        seconds = float(built + group["load"].max())
        yield _line("reference", size, label, cells=len(group), seconds=seconds)


def _shares(cells: pd.DataFrame, timings: pd.DataFrame) -> Iterator[TimingLine]:
    per_metric = timings[timings["metric"] != ""]
    for label, size, group in _datasets(cells):
        for result, alike in group.groupby("result", sort=True):
            mine = per_metric[per_metric["key"].isin(alike["key"])]
            net = mine["processor_seconds"] - mine["reference_seconds"]
            total = net.sum()
            for metric, seconds in net.groupby(mine["metric"]).sum().items() if total else ():
                yield _line(
                    "share",
                    size,
                    label,
                    result=str(result),
                    metric=str(metric),
                    cells=len(alike),
                    seconds=float(seconds / total),
                )


def _line(kind: str, size: DatasetSize, dataset: str, **facts: Any) -> TimingLine:
    given = {"method": "", "result": "", "metric": "", "seconds": 0.0, **facts}
    return TimingLine(
        kind=kind,
        dataset=dataset,
        task=size.task,
        ipc="",
        epsilon=None,
        rows=size.rows,
        columns=size.columns,
        released=None,
        low=given["seconds"],
        high=given["seconds"],
        **given,
    )


# The file -----------------------------------------------------------------------------------------


def shipped() -> list[TimingLine]:
    """Return the table of the package."""
    return parse((resources.files("bench.engine") / FILE).read_text(encoding="utf-8"))


def shipped_origin() -> str:
    """Return on which processor the timings of the package were measured."""
    first = (resources.files("bench.engine") / FILE).read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("# ")


def to_text(lines: Iterable[TimingLine], origin: str) -> str:
    """Return the table as CSV after one line about where it comes from."""
    output = io.StringIO()
    output.write(f"# {origin}\n")
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(item.name for item in fields(TimingLine))
    for line in lines:
        writer.writerow(
            "" if value is None else f"{value:.4g}" if isinstance(value, float) else value
            for value in astuple(line)
        )
    return output.getvalue()


def parse(text: str) -> list[TimingLine]:
    """Read the table from CSV."""
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    lines = []
    for number, row in enumerate(rows):
        try:
            line = TimingLine(**{item.name: _read(item, row) for item in fields(TimingLine)})
            if line.kind not in KINDS or not 0 <= line.seconds < math.inf:
                raise ValueError(f"kind {line.kind!r}, {line.seconds} s")
        except (KeyError, TypeError, ValueError) as problem:
            raise InputError(f"{FILE}: line {number + 3} cannot be read ({problem})") from None
        lines.append(line)
    return lines


def _read(item: Any, row: Mapping[str, str]) -> Any:
    text, kind = row[item.name], str(item.type)
    if text == "" and kind.endswith("| None"):
        return None
    return {"str": str, "int": int, "float": float}[kind.removesuffix(" | None")](text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table from run directories."""
    from bench.engine.options import cpu_model

    parser = argparse.ArgumentParser(prog="python -m bench.engine.timing_table")
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args(arguments)
    lines = [line for directory in asked.directories for line in lines_of(directory)]
    cells = sum(line.cells for line in lines if line.kind in ("fit", "skip"))
    text = to_text(lines, f"{cells} cells on one thread of {cpu_model()}")
    with writing(asked.output, "and run the command again"):
        write_atomically(asked.output, text.encode(), FOR_ALL)
    print(f"wrote {asked.output}: {len(lines)} lines from {cells} cells")


if __name__ == "__main__":
    main()
