"""Lines of a journal: torn, long, spelled, and noted in words."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from bench.errors import StoreError
from bench.results import journal
from bench.results.journal import Journal, cut_torn_line, json_lines, plain, unplain

BLOCK = 1 << 16
"""The end of a file is read backwards in pieces of this size."""


class TestTornLines:
    @pytest.mark.parametrize("torn", [0, 1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
    @pytest.mark.parametrize("whole", [b"", b"\n", b"one\n", b"one\ntwo\n", b"x" * BLOCK + b"\n"])
    def test_all_whole_lines_stay_and_the_rest_is_cut(
        self, whole: bytes, torn: int, tmp_path: Path
    ) -> None:
        path = tmp_path / "journal.jsonl"
        path.write_bytes(whole + b"t" * torn)
        cut_torn_line(path)
        assert path.read_bytes() == whole

    def test_a_file_without_a_torn_line_is_not_written(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        path.write_bytes(b"one\n")
        before = path.stat().st_mtime_ns
        cut_torn_line(path)
        assert path.stat().st_mtime_ns == before

    def test_a_missing_file_is_not_created(self, tmp_path: Path) -> None:
        cut_torn_line(tmp_path / "journal.jsonl")
        assert not list(tmp_path.iterdir())

    def test_a_line_that_would_fill_the_memory_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "LONGEST_LINE", 2 * BLOCK)
        path = tmp_path / "journal.jsonl"
        path.write_bytes(b"t" * (2 * BLOCK))
        cut_torn_line(path)
        assert path.read_bytes() == b""
        path.write_bytes(b"t" * (3 * BLOCK))
        with pytest.raises(StoreError, match="not written by bench"):
            cut_torn_line(path)


def test_lines_up_to_the_first_that_is_not_whole() -> None:
    assert json_lines(b"") == ([], 0)
    assert json_lines(b'1\n{"a": 2}\n') == ([1, {"a": 2}], 11)
    assert json_lines(b"1\n2") == ([1], 2)
    assert json_lines(b"1\n{\n3\n") == ([1], 2)
    assert json_lines(b"[" * 100_000 + b"\n") == ([], 0)


def test_numbers_that_json_lacks_are_spelled() -> None:
    record = {"a": math.inf, "b": -math.inf, "c": math.nan, "d": 1.5, "e": "text", "f": None}
    spelled = plain(record)
    assert spelled == {**record, "a": "Infinity", "b": "-Infinity", "c": "NaN"}
    json.loads(json.dumps(spelled, allow_nan=False))
    again = unplain(spelled)
    assert math.isnan(again.pop("c")) and again == {k: v for k, v in record.items() if k != "c"}


class TestNotices:
    def test_lines_are_numbered_from_one_and_five_are_named(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        for bad, more in ((5, 0), (6, 1), (9, 4)):
            path.write_bytes(b"not JSON\n" * bad)
            notices = Journal(path).notices
            named = [f"{path}: line {n} is not that of a cell (not JSON)" for n in range(1, 6)]
            rest = [f"{path}: {more} more such lines"] if more else []
            assert list(notices) == named + rest

    @pytest.mark.parametrize("line", ["1", "[]", "null", '{"cell": 3}', '{"scores": []}', '""'])
    def test_any_json_that_is_no_cell_is_passed_over(self, line: str, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        path.write_text(line + "\n")
        found = Journal(path)
        assert len(found) == 0 and len(found.notices) == 1 and not found.lost_audits

    def test_a_damaged_audit_is_named_apart(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        path.write_text('{"cell": {}, "audit": {}, "scores": []}\n1\n')
        found = Journal(path)
        assert len(found.notices) == 2 and len(found.lost_audits) == 1
        assert "line 1 " in found.lost_audits[0]

    def test_a_line_that_is_just_being_written_is_no_damage(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.jsonl"
        path.write_text('{"cell": ')
        assert not Journal(path).notices

    def test_the_writer_moves_them_away_and_readers_do_not(self, tmp_path: Path) -> None:
        path, kept = tmp_path / "journal.jsonl", tmp_path / "quarantine.jsonl"
        path.write_bytes(b"bad\nworse\nto")
        Journal(path)
        assert path.read_bytes() == b"bad\nworse\nto" and not kept.exists()
        found = Journal(path, write=True)
        found.close()
        assert (path.read_bytes(), kept.read_bytes()) == (b"", b"bad\nworse\n")
        assert all(text.endswith("; moved to quarantine.jsonl") for text in found.notices)
        assert len(found.notices) == 2 and not Journal(path).notices

    def test_nothing_is_recorded_in_a_journal_that_was_opened_to_read(self, tmp_path: Path) -> None:
        found = Journal(tmp_path / "journal.jsonl")
        with pytest.raises(StoreError, match="not open"):
            found["x"] = None, ()  # type: ignore[assignment]


def test_opening_a_journal_to_write_syncs_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut loses the name of the file, with all synced lines in it."""
    synced: list[tuple[int, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.append((found.st_dev, found.st_ino))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = (tmp_path.stat().st_dev, tmp_path.stat().st_ino)
    for _ in range(2):  # created, and there already: who created it may have been killed
        synced.clear()
        Journal(tmp_path / "journal.jsonl", write=True).close()
        assert folder in synced


def test_lines_that_are_no_cells_are_moved_away_when_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"cell": 1}\n')
    Journal(path, write=True).close()
    assert path.read_bytes() == b""
