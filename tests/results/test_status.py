"""`bench status` tells how a run is going from what it has written, and leaves it alone."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.cli.runs import status as command
from bench.engine.cell import failed_row
from bench.errors import StoreError
from bench.results.journal import plain
from bench.results.reading import in_use
from bench.results.records import Cell, CellRow, Status, Variant
from bench.results.run_directory import RunStore
from bench.results.status import normalised, read_status, to_text

CELL = Cell(
    Variant("marginals", "marginals"), Variant("toy", "toy"), 10, False, 1.0, 1e-5, 0, "default", 0
)
BASE = failed_row(CELL, "base", None, Status.OK, "")
START = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)


def minute(number: float) -> datetime.datetime:
    return START + datetime.timedelta(minutes=number)


def ended(key: str, at: float, status: str = "ok", **facts: Any) -> CellRow:
    return replace(BASE, key=key, status=status, finished_at=minute(at).isoformat(), **facts)


def written(directory: Path, rows: list[CellRow], progress: dict[str, Any] | None) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "run.json").write_text('{"form": 1}')
    lines = [json.dumps({"cell": plain(asdict(row)), "scores": []}) + "\n" for row in rows]
    (directory / "journal.jsonl").write_text("".join(lines))
    if progress is not None:
        (directory / "progress.json").write_text(json.dumps(progress))
    return directory


def test_counts_rate_and_expected_end_by_hand(tmp_path: Path) -> None:
    # Before the start: cached. Then one cell a minute for 20 minutes; one of them twice.
    rows = [ended("old", -60)]
    rows += [ended(f"k{number}", number, seed=number) for number in range(1, 21)]
    rows.append(ended("k20", 20, "error", reason="late"))
    progress = {"total": 51, "cached": 1, "started_at": START.isoformat(), "ended": None}
    run = written(tmp_path, rows, progress)
    with RunStore(run):
        found = read_status(run, now=minute(20))
    assert (found.state, found.planned, found.cached) == ("running", 51, 1)
    assert (found.done, found.left, found.failed) == (20, 30, 1)
    assert found.counts == {"ok": 19, "error": 1}
    assert found.stored == {"ok": 20, "error": 1}
    # 15 cells in the last 15 minutes (6 to 20): one a minute, 30 left.
    assert found.per_minute == pytest.approx(1.0)
    assert found.expected_end == minute(50)


def test_a_slow_run_is_timed_over_its_whole_length(tmp_path: Path) -> None:
    progress = {"total": 10, "cached": 0, "started_at": START.isoformat()}
    run = written(tmp_path, [ended("a", 40), ended("b", 80)], progress)
    with RunStore(run):
        found = read_status(run, now=minute(100))
    assert found.per_minute == pytest.approx(2 / 100)
    assert found.expected_end == minute(100 + 8 * 50)


@pytest.mark.parametrize(
    "said, state", [(None, "died"), ("finished", "finished"), ("interrupted", "interrupted")]
)
def test_the_lock_tells_the_living_from_the_dead(
    tmp_path: Path, said: str | None, state: str
) -> None:
    run = written(tmp_path, [ended("a", 1)], {"total": 2, "ended": said, "host": "h", "pid": 7})
    with RunStore(run):
        assert in_use(run)
        assert read_status(run).state == "running"
    assert not in_use(run)
    found = read_status(run)
    assert found.state == state and found.expected_end is None
    assert state in to_text(found)


def test_asking_leaves_no_trace_and_no_lock(tmp_path: Path) -> None:
    run = written(tmp_path, [ended("a", 1)], None)
    (run / "journal.jsonl").open("a").write('{"cell": {"key": "b", "sta')
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    found = read_status(run)
    assert found.stored == {"ok": 1} and found.damaged_lines == 0
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    with RunStore(run):
        pass


def test_what_is_missing_or_nonsense_is_unknown(tmp_path: Path) -> None:
    run = written(tmp_path, [ended("a", 1)], None)
    found = read_status(run)
    assert (found.state, found.planned, found.left, found.done) == ("not running", None, None, 1)
    assert "how many were planned is not known" in to_text(found)
    progress = {"total": "many", "started_at": 3, "running": [{"key": "x"}, "y"], "pid": None}
    written(tmp_path, [ended("a", 1)], progress)
    with RunStore(run):
        found = read_status(run)
    assert found.planned is None and found.started_at is None
    assert [cell.cell for cell in found.running] == ["x"]
    (run / "progress.json").write_text("{")
    assert read_status(run).done == 1
    (run / "journal.jsonl").unlink()
    assert read_status(run).done == 0 and to_text(read_status(run))


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    run = written(tmp_path, [ended("a", 1)], None)
    with (run / "journal.jsonl").open("a") as file:
        file.write('nonsense\n{"cell": 3}\n[]\n')
    assert read_status(run).damaged_lines == 3


@pytest.mark.parametrize(
    "one, two",
    [
        ("needs n >= 1000, got 512", "needs n >= 500, got 12"),
        ("loss 1e-05 at step 3", "loss -2.5E+3 at step 40"),
        ("cell 02883fbf466bd4b86d75 was lost", "cell bf667ac9648f79bef5f2 was lost"),
        ("<object at 0x7f3a12>", "<object at 0x1>"),
    ],
)
def test_reasons_that_differ_in_numbers_and_keys_are_one(one: str, two: str) -> None:
    assert normalised(one) == normalised(two)
    assert normalised(one) != one


def test_reasons_that_differ_in_words_stay_apart() -> None:
    assert normalised("metric ks: failed") != normalised("metric tvd: failed")
    assert normalised("float32 of deadbeat defaced") == "float32 of deadbeat defaced"


def test_failures_are_grouped_with_an_example_and_the_last_log(tmp_path: Path) -> None:
    log = "\n".join(f"line {number}" for number in range(30))
    rows = [
        ended("s", 1, "skipped", reason="not for survival"),
        ended("e0", 2, "timeout", reason="over 60 s"),
        *(ended(f"f{n}", 3 + n, "error", reason=f"row {n} is bad", seed=n) for n in range(3)),
        ended("last", 9, "error", reason="row 9 is bad", log_tail=log, seed=9),
        ended("slow", 10, fit_seconds=70.0, score_seconds=30.0, seed=4),
    ]
    found = read_status(written(tmp_path, rows, None))
    assert [(group.status, group.reason, group.cells) for group in found.groups] == [
        ("error", "row # is bad", 4),
        ("timeout", "over # s", 1),
        ("skipped", "not for survival", 1),
    ]
    assert found.groups[0].example.cell == "marginals on toy ipc=10 eps=1 seed=0"
    assert found.last_failure is not None and found.last_failure.key == "last"
    assert found.last_log[-1] == "line 29" and len(found.last_log) == 12
    assert (found.slowest[0].key, found.slowest[0].seconds) == ("slow", 100.0)
    text = to_text(found)
    assert "4 x error: row # is bad" in text and "| line 29" in text


def test_running_cells_and_json(tmp_path: Path) -> None:
    since = minute(2).isoformat()
    running = [{"key": "k", "cell": "gats on toy seed=1", "phase": "score mia", "since": since}]
    progress = {"total": 2, "cached": 0, "started_at": START.isoformat(), "running": running}
    run = written(tmp_path, [], progress)
    with RunStore(run):
        found = read_status(run, now=minute(5))
        assert "gats on toy seed=1, for 3 min, in score mia" in to_text(found, minute(5))
        assert "no cell has ended yet" in to_text(found, minute(5))
        result = CliRunner().invoke(command, [str(run), "--json"])
    document = json.loads(result.output)
    assert document["left"] == 2 and document["state"] == "running"
    assert document["running"][0]["since"] == "2026-03-01T12:02:00+00:00"
    # A cell that has just ended is not running, and a dead run runs nothing.
    written(run, [ended("k", 4)], progress)
    with RunStore(run):
        assert read_status(run).running == ()
    written(run, [], progress)
    assert read_status(run).running == ()


def test_a_strangers_text_is_not_obeyed_by_the_terminal(tmp_path: Path) -> None:
    rows = [ended("a", 1, "error", reason="\x1b[2J\x1b]0;title\x07", log_tail="x\x1b[1m")]
    assert "\x1b" not in to_text(read_status(written(tmp_path, rows, None)))


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run directory"):
        read_status(tmp_path)
    (tmp_path / "run.json").write_text('{"form": 99}')
    with pytest.raises(StoreError, match="format version 99"):
        read_status(tmp_path)


def test_lines_of_another_layout_are_read_as_well(tmp_path: Path) -> None:
    run = written(tmp_path, [ended("a", 1)], None)
    other = json.dumps({"scores": [], "cell": plain(asdict(ended("b", 2, "error")))}, indent=None)
    torn = json.dumps({"cell": plain(asdict(ended("c", 3))), "scores": []})[:-1]
    with (run / "journal.jsonl").open("a") as file:
        file.write(f"{other}\n{torn}\n")
    found = read_status(run)
    assert found.stored == {"ok": 1, "error": 1} and found.damaged_lines == 1
