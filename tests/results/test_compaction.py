"""Tables of a run that is going: cheap to keep up to date, and never wrong when cut short."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.errors import StoreError
from bench.results import compaction
from bench.results.compaction import TABLES, Compaction, mark_of
from bench.results.journal import Journal
from bench.results.reading import load_results, read_tables
from bench.results.records import Outcome, TimingRow
from bench.results.run_directory import RunStore
from tests.support.tracked_runs import opened, outcome


def timed(key: str, seconds: float = 1.0, **changes: object) -> Outcome:
    rows = (
        TimingRow(key, "fit", "", seconds, seconds),
        TimingRow(key, "score", "", 2.0, 1.5, 0.5),
        TimingRow(key, "score", "auroc", 2.0, 1.5, 0.5),
    )
    return dataclasses.replace(outcome(key, **changes), timings=rows)  # type: ignore[arg-type]


def in_tables(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """What the files hold, without looking at the journal."""
    return {name: pq.read_table(directory / name).to_pylist() for name, _ in TABLES}


def as_if_at_once(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """What one compaction of the whole journal gives."""
    Compaction(directory, Journal(directory / "journal.jsonl")).compact()
    return in_tables(directory)


def test_timings_go_the_way_of_scores(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.record(timed("a"), None)
        store.record(outcome("b"), None)  # as of an earlier version
        assert len(load_results(tmp_path).timings) == 3, "from the journal"
        store.compact()
    tables = load_results(tmp_path)
    assert tables.timings.to_dict("records") == [
        dataclasses.asdict(timing) for timing in timed("a").timings
    ]
    with RunStore(tmp_path) as store:
        assert store.journal.outcome("a").timings == timed("a").timings
        assert store.journal.outcome("b").timings == ()


def test_directories_without_timings_are_read(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.record(outcome("a"), None)
        store.compact()
    (tmp_path / "timings.parquet").unlink()
    for name in ("cells.parquet", "scores.parquet"):  # as an earlier version writes them
        table = pq.read_table(tmp_path / name)
        pq.write_table(table.replace_schema_metadata(None), tmp_path / name)
    assert len(load_results(tmp_path).timings) == 0
    assert list(load_results(tmp_path).cells["key"]) == ["a"]


def test_what_was_added_is_compacted_and_the_rest_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_GROUP", 3)
    read: list[int] = []
    real = Journal.outcomes

    def counted(self: Journal, start: int = 0) -> Any:
        for item in real(self, start):
            read.append(1)
            yield item

    monkeypatch.setattr(Journal, "outcomes", counted)
    with opened(tmp_path) as store:
        for step, keys in enumerate((["a", "b"], ["c", "a"], [], ["d"])):
            read.clear()
            for key in keys:
                store.record(timed(key, step, seed=step), None)
            store.compact()
            assert len(read) == len(keys), "lines that were compacted before are not read again"
        found = in_tables(tmp_path)
    assert [(row["key"], row["seed"]) for row in found["cells.parquet"]] == [
        ("b", 0), ("c", 1), ("a", 1), ("d", 3),
    ]  # fmt: skip
    assert found == as_if_at_once(tmp_path)
    groups = [pq.ParquetFile(tmp_path / name).num_row_groups for name, _ in TABLES]
    assert groups == [2, 3, 4], "groups of rows do not follow the compactions"


def test_tables_that_somebody_changed_are_written_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.record(timed("a"), None)
        store.compact()
        table = pq.read_table(tmp_path / "scores.parquet")
        pq.write_table(table.slice(0, 1), tmp_path / "scores.parquet")
        store.record(timed("b"), None)
        store.compact()
    assert in_tables(tmp_path) == as_if_at_once(tmp_path)
    assert len(pq.read_table(tmp_path / "scores.parquet")) == 4


@pytest.mark.parametrize("survived", [0, 1, 2, 3])
def test_a_compaction_that_is_killed_leaves_results_that_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    """Tables appear one after the other: whatever a kill leaves, readers give all cells."""
    replace, done = os.replace, itertools.count()

    def killed(*names: Any) -> None:
        if next(done) >= survived:
            raise SystemExit
        replace(*names)

    with opened(tmp_path) as store:
        store.record(timed("a"), None)
        store.record(timed("b"), None)
        store.compact()
        store.record(timed("a", 7.0, seed=9), None)
        store.record(timed("c"), None)
        with monkeypatch.context() as broken, contextlib.suppress(SystemExit):
            broken.setattr(os, "replace", killed)
            store.compact()
        assert next(done) >= survived
    # As on a file system with coarse times, or a fast machine.
    for path in (tmp_path / "journal.jsonl", *tmp_path.glob("*.parquet")):
        os.utime(path, (0, 1e9))
    tables = read_tables(tmp_path)
    assert sorted(tables.cells["key"]) == ["a", "b", "c"]
    assert tables.cells.set_index("key").loc["a", "seed"] == 9
    assert len(tables.scores) == 6 and len(tables.timings) == 9
    of_a = tables.timings[(tables.timings["key"] == "a") & (tables.timings["phase"] == "fit")]
    assert list(of_a["wall_seconds"]) == [7.0]
    assert as_if_at_once(tmp_path)["cells.parquet"][0]["key"] == "b", "and it is put right"


def test_a_reader_takes_the_lines_after_the_last_compaction(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.record(timed("a"), None)
        store.compact()
        store.record(timed("b"), None)
        store.record(timed("a", 3.0, seed=8), None)
        on_disk = pd.read_parquet(tmp_path / "cells.parquet")
        assert list(on_disk["key"]) == ["a"]
        with (tmp_path / "journal.jsonl").open("ab") as file:
            file.write(b'{"cell": {"key": "torn"')
        tables = read_tables(tmp_path)
    assert list(tables.cells["key"]) == ["b", "a"] and list(tables.cells["seed"]) == [3, 8]
    assert len(tables.scores) == 4 and len(tables.timings) == 6


def test_tables_of_another_journal_do_not_count(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.record(timed("a"), None)
        store.record(timed("b"), None)
        store.compact()
    path = tmp_path / "journal.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second.replace(b'"b"', b'"c"'))  # as long as before
    assert sorted(read_tables(tmp_path).cells["key"]) == ["a", "c"]


def test_a_run_that_is_going_is_compacted_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(compaction.time, "monotonic", lambda: now[0])
    with opened(tmp_path) as store:
        store.record(timed("a"), None)
        store.compact_now_and_then()
        assert not (tmp_path / "cells.parquet").exists()
        now[0] += 61
        store.compact_now_and_then()
        assert list(pd.read_parquet(tmp_path / "cells.parquet")["key"]) == ["a"]
        store.record(timed("b"), None)
        now[0] += 59
        store.compact_now_and_then()
        assert len(pd.read_parquet(tmp_path / "cells.parquet")) == 1
        now[0] += 2
        store.compact_now_and_then()
        assert len(pd.read_parquet(tmp_path / "timings.parquet")) == 6


def test_a_slow_compaction_comes_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(compaction.time, "monotonic", lambda: now[0])
    real = Compaction._write

    def slow(self: Compaction, *arguments: Any) -> None:
        real(self, *arguments)
        now[0] += 10  # of 300 seconds, at most

    monkeypatch.setattr(Compaction, "_write", slow)
    with opened(tmp_path) as store:
        store.record(timed("a"), None)
        store.compact()
        store.record(timed("b"), None)
        now[0] += 299
        store.compact_now_and_then()
        assert len(pd.read_parquet(tmp_path / "cells.parquet")) == 1
        now[0] += 2
        store.compact_now_and_then()
        assert len(pd.read_parquet(tmp_path / "cells.parquet")) == 2


@pytest.mark.parametrize(
    "timings",
    [
        "none",
        [["fit", "", 1.0]],
        [["fit", "", 1.0, 1.0, "0"]],
        [["nap", "", 1.0, 1.0, 0.0]],
        [["fit", "auroc", 1.0, 1.0, 0.0]],
        [["fit", "", -1.0, 1.0, 0.0]],
        [["fit", "", 10**400, 1.0, 0.0]],
        [["fit", "", 1.0, 1.0, 0.0], ["fit", "", 2.0, 1.0, 0.0]],
        [["score", "\ud800", 1.0, 1.0, 0.0]],
    ],
)
def test_a_line_with_timings_that_nobody_writes_costs_its_cell(
    tmp_path: Path, timings: object
) -> None:
    with opened(tmp_path) as store:
        store.record(timed("a"), None)
        store.record(timed("b"), None)
    path = tmp_path / "journal.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    document = json.loads(second) | {"timings": timings}
    path.write_bytes(first + json.dumps(document).encode() + b"\n")
    journal = Journal(path)
    assert list(journal) == ["a"] and len(journal.notices) == 1


def test_a_table_of_timings_that_nobody_writes_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.record(timed("a"), None)
        store.compact()
    table = pd.read_parquet(tmp_path / "timings.parquet")
    table["wall_seconds"] = -1.0
    mark = pq.read_schema(tmp_path / "timings.parquet").metadata
    changed = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(mark)
    pq.write_table(changed, tmp_path / "timings.parquet")
    with pytest.raises(StoreError, match=r"timings\.parquet: a phase that is not known, or a time"):
        read_tables(tmp_path)


def test_a_mark_of_a_stranger_is_read_with_care() -> None:
    for text in (b"", b"[]", b'{"end": true, "digest": ""}', b'{"end": 1}', b"{" * 10_000):
        assert mark_of(pa.schema([], metadata={b"bench.journal": text})) is None
