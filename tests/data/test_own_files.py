"""A user's file, whatever is in it: read in pieces, or refused in one line."""

from __future__ import annotations

import gzip
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.data.own_files import column_names, pieces, table_file
from bench.errors import DataError
from tests.support.memory import megabytes_taken


def read(path: Path, *columns: str, separator: str = ",") -> pd.DataFrame:
    file = table_file(path, separator=separator)
    return pd.concat(list(pieces(file, columns or column_names(file))))


def csv(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_entries_are_read_one_by_one(tmp_path: Path) -> None:
    """With pandas' guess of types, the last row would decide whether 01 is a number."""
    frame = read(csv(tmp_path, '\ufeffid, x\n01,1\n02,NA\n\nx3, "a,\nb"\n'))
    assert frame["id"].tolist() == ["01", "02", "x3"]
    assert frame["x"].iloc[0] == "1" and pd.isna(frame["x"].iloc[1])
    assert frame["x"].iloc[2] == "a,\nb"
    assert frame.index.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("a,b\n", "a header and no rows"),
        ("a,b\n1,2,3\n", "the header has 2 columns and row 1 has 3"),
        ("a,b\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
        ('a,b\n1,"2\n', "not a regular table"),
        ("a,a \n1,2\n", "'a' is there twice"),
        ("a,b\n1,\xe9\n".encode("latin1"), "not UTF-8 text"),
        ("a," + "b" * 2_000 + "\n1,2\n", "the name of column 2 is 'bbb"),
        # Where a library has raised the limit of the csv module, the name itself is too long.
        ("a," + "b" * 200_000 + "\n1,2\n", "header cannot be read.*131072|names have at most"),
        ("a,\x1b[2J\n1,2\n", "control characters"),
        (",".join(f"c{place}" for place in range(10_001)) + "\n1\n", "10001 columns"),
    ],
)
def test_text_that_is_no_table(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as raised:
        read(csv(tmp_path, content))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 600


@pytest.mark.parametrize("separator", ["", ",,", "a", "1", '"', "\n", ".", "é", "(a+)+$"])
def test_what_cannot_separate_columns(tmp_path: Path, separator: str) -> None:
    with pytest.raises(DataError, match="separator"):
        read(csv(tmp_path, "a,b\n1,2\n"), separator=separator)


def test_a_tab_can_be_typed(tmp_path: Path) -> None:
    assert read(csv(tmp_path, "a\tb\n1\t2\n"), "b", separator="\\t")["b"].tolist() == ["2"]


END = gzip.compress(b"\n")
"""A second part of a gzip file, whose size is all that the end of the file states."""


@pytest.mark.parametrize("end", [b"", END], ids=["stated size", "hidden size"])
@pytest.mark.parametrize(
    ("head", "block", "message"),
    [
        (b"", b"a" * (1 << 20), "line 1 is longer than 16 MiB"),
        (b"", b"a," * (1 << 19), "line 1 is longer than 16 MiB"),
        (b"age,y\n1,a\n", b"a" * (1 << 20), "line 3 is longer than 16 MiB"),
        (b"age,y\n1,a\n", b"1,a\n" * (1 << 18), "over 100 times its size"),
        (b'age,y\n1,"', b"\n" * (1 << 20), "over 100 times its size"),
    ],
    ids=["endless header", "endless names", "endless line", "endless rows", "endless quote"],
)
def test_bombs_are_refused_early(
    tmp_path: Path, head: bytes, block: bytes, message: str, end: bytes
) -> None:
    """A gigabyte once unpacked: reading it took minutes and gigabytes."""
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(head)
        for _ in range(200):
            file.write(block)
    path.write_bytes(path.read_bytes() + end)
    with megabytes_taken() as taken:
        started = time.process_time()
        with pytest.raises(
            DataError, match=f"{message}|over 100 times its size|row 1 cannot be read"
        ):
            read(path)
        assert time.process_time() - started < 30
        assert taken() < 1000


def test_an_endless_line_of_a_plain_file(tmp_path: Path) -> None:
    for head, line in ((b"", 1), (b"age,y\n1,a\n", 3), (b"age,y\r1,a\r", 3)):
        path = csv(tmp_path, head + b"a" * (20 << 20))
        with pytest.raises(DataError, match=f"line {line} is longer than 16 MiB"):
            read(path)


def test_a_zip_bomb_and_strange_zips(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive,
        archive.open("t.csv", "w") as file,
    ):
        file.write(b"a,b\n")
        for _ in range(40):
            file.write(b"1,2\n" * (1 << 18))
    with pytest.raises(DataError, match="over 100 times its size"):
        read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("t.csv", "a,b\n1,2\n")
    content = bytearray(path.read_bytes())
    for marker in (b"PK\x03\x04", b"PK\x01\x02"):
        start = content.index(marker) + (6 if marker[2] == 3 else 8)
        content[start] |= 1  # the flag of an encrypted member
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"packed in a way that cannot be read .*encrypted"):
        read(path)


def parquet(tmp_path: Path, table: pa.Table, **options: object) -> Path:
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, **options)
    return path


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("struct", [{"q": 1}]),
        ("list", [[1, 2]]),
        ("map", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))),
        ("binary", [b"\xff\xfe"]),
    ],
)
def test_nested_columns_are_refused_by_name(tmp_path: Path, kind: str, values: object) -> None:
    path = parquet(tmp_path, pa.table({"a": [1], "s": values}))
    with pytest.raises(DataError, match=rf"column 's' is of the Parquet type ['\"]{kind}"):
        read(path)
    assert read(path, "a")["a"].tolist() == [1]


def test_two_parquet_columns_of_one_name(tmp_path: Path) -> None:
    path = parquet(tmp_path, pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(DataError, match="'a' is there twice"):
        read(path)


def test_plain_types_of_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {
            "large": pa.array([2**62 + 1, None]),
            "word": pa.array(["é", None]).dictionary_encode(),
            "text": pa.array(["a", "b"], pa.large_string()),
            "day": pa.array([0, 1], pa.date32()),
            "far": pa.array([2**45, None], pa.timestamp("s")),
            "money": pa.array([1, 2], pa.decimal128(20, 2)),
            "yes": pa.array([True, None]),
        }
    )
    frame = read(parquet(tmp_path, table))
    assert frame["large"].iloc[0] == 2**62 + 1  # as a float it would be another id
    assert frame["word"].iloc[0] == "é" and pd.isna(frame["word"].iloc[1])
    assert frame["day"].tolist() == ["1970-01-01", "1970-01-02"]
    assert frame["money"].tolist() == [1.0, 2.0]


def test_a_broken_page_names_column_and_rows(tmp_path: Path) -> None:
    table = pa.table({"age": list(range(1_000)), "y": ["a", "b"] * 500})
    path = parquet(tmp_path, table, compression=None, use_dictionary=False, row_group_size=500)
    content = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(1).column(1).data_page_offset
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: column 'y', rows 501 to 1000 cannot be read"):
        read(path)


def no_parquet(content: bytes) -> bytes:
    return b"PAR1" + b"\0" * 40 + b"PAR1"


@pytest.mark.parametrize(
    "change",
    [no_parquet, lambda content: content[:-7], lambda content: b"", lambda content: b"PAR1" * 3],
    ids=["no footer", "cut", "empty", "marks only"],
)
def test_what_is_no_parquet_file(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = parquet(tmp_path, pa.table({"a": [1]}))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match="cannot be read"):
        read(path)


def test_parquet_that_would_fill_the_memory(tmp_path: Path) -> None:
    """A billion equal numbers take some kilobytes; one long text can be in every row."""
    many = pa.table({"a": pa.array([1] * 1_000_000)})
    with pq.ParquetWriter(tmp_path / "many.parquet", many.schema) as writer:
        for _ in range(40):
            writer.write_table(many)
    with pytest.raises(DataError, match="far more than a file of that size can"):
        read(tmp_path / "many.parquet")
    codes = pa.array([0] * 100_000, pa.int32())
    long = pa.DictionaryArray.from_arrays(codes, pa.array(["x" * 1_000_000]))
    path = parquet(tmp_path, pa.table({"t": long}), store_schema=False)
    with megabytes_taken() as taken:
        assert len(read(path)) == 100_000  # 100 GB, if every row had its own copy
        assert taken() < 1000


def test_files_that_are_none(tmp_path: Path) -> None:
    import os

    with pytest.raises(DataError, match="no such file"):
        table_file(tmp_path / "none.csv")
    with pytest.raises(DataError, match="not a regular file"):
        table_file(tmp_path)
    os.mkfifo(tmp_path / "pipe.csv")  # reading it would wait for ever
    with pytest.raises(DataError, match="not a regular file"):
        table_file(tmp_path / "pipe.csv")
