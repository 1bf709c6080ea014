"""All figures of a cell together: every one is drawn, or says why not, whatever the files hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.leaderboard.charts.cell import KINDS, figures
from bench.leaderboard.charts.sheet import Sheet
from bench.leaderboard.tables.details import CellFiles
from bench.results.records import ScoreRow
from tests.support.cell_files import new_files, sides, write
from tests.support.charts import drawing

EVIL = '<script>alert("1")</script>'


@pytest.fixture
def files(tmp_path) -> CellFiles:
    return new_files(tmp_path)


def everything(files: CellFiles, name: str = "col") -> None:
    """Details of every figure, with a name of the stranger's choice wherever one stands."""
    write(files, "km", time=[0.0, 1.0], real=[1.0, 0.5], released=[1.0, 0.4])
    write(files, "predictions", label=[0, 1, 0, 1], score=[0.1, 0.9, 0.2, 0.3])
    write(files, "predictions-convnet", label=[0, 1], predicted=[0, 1])
    write(files, "mia-roc", fpr=[0.0, 1.0], tpr=[0.0, 1.0])
    bins = {"low": [0.0], "high": [1.0]}
    write(files, "histograms", column=[name], **bins, real=[1.0], released=[1.0])
    write(files, "shares", column=[name], category=[name], real=[1.0], released=[1.0])
    write(files, "correlations", first=[name], second=["b"], real=[0.5], released=[0.1])
    write(files, "embedding", x=[0.0, 1.0], y=[0.0, 1.0], rows=["real", "released"])
    kinds = ["matched", "control", name]
    write(files, "dcr-distribution", rows=kinds, low=[0.0] * 3, high=[1.0] * 3, count=[1, 1, 1])
    write(files, "shap", column=[name], **sides([1.0], [1.0]))
    write(files, "hazards", covariate=[name], per=[name], **sides([1.0], [2.0]))
    write(
        files,
        "aia",
        attribute=[name, name],
        number=["accuracy", "accuracy-control"],
        value=[0.5, 0.4],
        low=[0.4, 0.3],
        high=[0.6, 0.5],
    )


def test_every_figure_is_drawn_and_named(files):
    everything(files)
    found = figures(files, "", (), ())
    assert {figure.kind.name for figure in found if figure.figure} == {kind.name for kind in KINDS}
    for figure in found:
        assert figure.figure is not None
        for chart in figure.figure.charts:
            assert chart.text
            assert Sheet().place(chart).count('role="img" aria-label="') == 1
            assert drawing(chart) is not None


def test_names_of_a_stranger_are_escaped_in_every_figure(files):
    everything(files, EVIL)
    for figure in figures(files, "", (), ()):
        assert figure.figure is not None, figure
        sheet = Sheet()
        for chart in figure.figure.charts:
            assert "<script" not in sheet.place(chart)
            assert not [part for part in drawing(chart).iter() if part.tag.endswith("script")]
        assert sheet.data().count("<") == 2  # the element of the data itself


BROKEN: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello"),
    "other columns": lambda path: pq.write_table(pa.table({"z": [1]}), path),
    "texts for numbers": lambda path: _changed(path, lambda c: pa.array(["x"] * len(c))),
    "numbers for texts": lambda path: _changed(path, lambda c: pa.array([1.0] * len(c))),
    "not a number": lambda path: _changed(path, lambda c: _numbers(c, float("nan"))),
    "huge": lambda path: _changed(path, lambda c: _numbers(c, 1e308)),
    "infinite": lambda path: _changed(path, lambda c: _numbers(c, float("-inf"))),
    "negative": lambda path: _changed(path, lambda c: _numbers(c, -1.0)),
    "all the same": lambda path: _changed(path, lambda c: _numbers(c, 0.0)),
    "absent": lambda path: _changed(path, lambda c: pa.nulls(len(c), c.type)),
    "no rows": lambda path: pq.write_table(pq.read_table(path).slice(0, 0), path),
}


def _numbers(column: pa.ChunkedArray, value: float) -> Any:
    return column if pa.types.is_string(column.type) else pa.array([value] * len(column))


def _changed(path: Path, change: Callable[[pa.ChunkedArray], Any]) -> None:
    table = pq.read_table(path)
    pq.write_table(
        pa.table({name: change(table.column(name)) for name in table.column_names}), path
    )


@pytest.mark.parametrize("how", BROKEN)
def test_damaged_details_leave_a_reason_and_never_an_error(files, how):
    everything(files)
    assert files.home is not None
    for path in (files.home / "details" / "k").iterdir():
        BROKEN[how](path)
    for figure in figures(files, "", (), ()):
        if figure.figure is None:
            assert figure.reason
            continue
        sheet = Sheet()
        for chart in figure.figure.charts:
            sheet.place(chart)
        assert not re.search(r"\bNaN\b|Infinity", sheet.data())


def test_why_a_figure_is_not_there(files):
    absent = ScoreRow(
        "k", "km/distance", None, None, None, "lower", "fidelity", "nobody had events"
    )
    found = {f.kind.name: f for f in figures(files, "survival", (absent,), ("km", "mia"))}
    assert found["survival"].reason == "nobody had events"
    assert "bench score RUN --metrics embedding" in found["embedding"].reason
    assert found["attacks"].reason == "the run holds no mia-roc.parquet of this cell"
    assert "roc" not in found
    assert "confusion" not in found
