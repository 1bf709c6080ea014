"""Reading the files of a cell, whoever wrote them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.leaderboard.tables import details
from bench.leaderboard.tables.details import CellFiles, NoSuchFile, Unavailable
from bench.leaderboard.tables.show import shortened


@pytest.fixture
def files(tmp_path) -> CellFiles:
    (tmp_path / "run" / "details" / "k1").mkdir(parents=True)
    return CellFiles(tmp_path / "run", "k1")


def write(files: CellFiles, name: str, **columns) -> Path:
    assert files.home is not None
    path = files.home / "details" / files.key / f"{name}.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_numbers_and_texts(files):
    write(
        files, "km", time=[1, 2], real=[0.5, None], flag=[True, False], rows=["a", "b"], more=[1, 2]
    )
    table = files.read("km", ("time", "real", "flag"), ("rows",))
    assert table.rows == 2
    assert table.numbers["time"].tolist() == [1.0, 2.0]
    assert table.numbers["flag"].tolist() == [1.0, 0.0]
    assert np.isnan(table.numbers["real"][1])
    assert table.texts["rows"] == ("a", "b")
    assert "more" not in table.numbers


def test_texts_of_a_category(files):
    coded = pa.array(["x", "y", "x"]).dictionary_encode()
    write(files, "t", rows=coded)
    assert files.read("t", (), ("rows",)).texts["rows"] == ("x", "y", "x")


def test_what_cannot_be_drawn_is_dropped_or_refused(files):
    write(files, "t", a=[1.0, float("nan"), 1e200, float("inf")], rows=["p", "q", "r", "s"])
    table = files.read("t", ("a",), ("rows",))
    assert table.drawable("a").texts["rows"] == ("p",)
    with pytest.raises(Unavailable, match="column a"):
        table.finite("a")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"time": [1.0]}, "column real is missing"),
        ({"time": [1.0], "real": ["high"]}, "column real is string"),
        ({"time": [1.0], "real": [[1.0]]}, "column real is list"),
        ({"time": [], "real": []}, "column time is null"),
        ({"time": pa.array([], pa.float64()), "real": pa.array([], pa.float64())}, "no rows"),
        ({"time": [1.0], "real": [b"x"]}, "column real is binary"),
    ],
)
def test_other_columns_are_refused_with_the_reason(files, columns, said):
    write(files, "km", **columns)
    with pytest.raises(Unavailable, match=said):
        files.read("km", ("time", "real"))


def test_a_column_twice(files):
    path = write(files, "t", a=[1.0], b=[2.0])
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    pq.write_table(table, path)
    with pytest.raises(Unavailable, match="column a is twice"):
        files.read("t", ("a",))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\0" * 40 + b"PAR1", b"a,b\n1,2\n"])
def test_no_parquet(files, content):
    write(files, "t", a=[1.0]).write_bytes(content)
    with pytest.raises(Unavailable, match="Parquet"):
        files.read("t", ("a",))


def test_a_torn_file(files):
    path = write(files, "t")
    pq.write_table(
        pa.table({"a": np.random.default_rng(0).random(20_000)}), path, write_page_checksum=True
    )
    content = bytearray(path.read_bytes())
    content[200:4000] = b"\xff" * 3800
    path.write_bytes(bytes(content))
    with pytest.raises(Unavailable, match="cannot be read"):
        files.read("t", ("a",))
    path.write_bytes(bytes(content[:4000]))
    with pytest.raises(Unavailable, match="no Parquet file"):
        files.read("t", ("a",))


def test_a_text_column_that_is_not_there(files):
    write(files, "t", a=[1.0])
    with pytest.raises(Unavailable, match="column rows is missing"):
        files.read("t", ("a",), ("rows",))


def test_an_absent_file_and_a_key_that_is_no_folder(files, tmp_path):
    with pytest.raises(NoSuchFile, match=r"holds no km\.parquet"):
        files.read("km", ("time",))
    for key in ("../k1", "", "a/b", ".", "x" * 200, "k1\n"):
        with pytest.raises(NoSuchFile, match="key"):
            CellFiles(tmp_path / "run", key).read("km", ("time",))
    with pytest.raises(NoSuchFile):
        CellFiles(None, "k1").read("km", ("time",))


def test_links_to_elsewhere_are_not_followed(files, tmp_path):
    """A stranger's run must not publish a table of whoever renders it."""
    secret = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"time": [1.0]}), secret)
    folder = tmp_path / "run" / "details"
    (folder / "k1" / "km.parquet").symlink_to(secret)
    with pytest.raises(Unavailable, match="plain file"):
        files.read("km", ("time",))
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "km.parquet").write_bytes(secret.read_bytes())
    (folder / "k2").symlink_to(tmp_path / "away")
    with pytest.raises(Unavailable, match="plain file"):
        CellFiles(tmp_path / "run", "k2").read("km", ("time",))
    (folder / "k1" / "dir.parquet").mkdir()
    with pytest.raises(Unavailable, match="plain file"):
        files.read("dir", ("time",))


def test_sizes_are_capped(files, monkeypatch):
    write(files, "t", a=[1.0, 2.0], rows=["one", "two"])
    monkeypatch.setattr(details, "MOST_ROWS", 1)
    with pytest.raises(Unavailable, match="more than 1 rows"):
        files.read("t", ("a",))
    monkeypatch.setattr(details, "MOST_ROWS", 2)
    monkeypatch.setattr(details, "LARGEST_TEXTS", 3)
    with pytest.raises(Unavailable, match="texts"):
        files.read("t", ("a",), ("rows",))
    monkeypatch.setattr(details, "LARGEST_FILE", 10)
    with pytest.raises(Unavailable, match="larger"):
        files.read("t", ("a",))


def test_long_texts_are_cut_and_absent_ones_refused(files):
    write(files, "t", rows=["x" * 5000, "y"], other=["a", None])
    found = files.read("t", (), ("rows",)).texts["rows"]
    assert [len(text) for text in found] == [details.LONGEST_TEXT, 1]
    assert found[0].endswith("…")
    assert shortened("abc", 3) == "abc"
    with pytest.raises(Unavailable, match="texts"):
        files.read("t", (), ("other",))
