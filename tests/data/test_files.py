"""Files as people have them: packed, damaged, renamed."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from bench.data.files import find_file, fingerprint, read_csv
from bench.errors import DataError

TEXT = "age,y\n1,0\n2,1\n"


def test_packing_does_not_matter(tmp_path: Path) -> None:
    plain, packed, zipped = tmp_path / "plain", tmp_path / "packed", tmp_path / "zipped"
    for folder in (plain, packed, zipped):
        folder.mkdir()
    (plain / "a.csv").write_text(TEXT)
    (packed / "a.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    with zipfile.ZipFile(zipped / "all.zip", "w") as archive:
        archive.writestr("inside/a.csv", TEXT)
    prints = set()
    for folder in (plain, packed, zipped):
        path = find_file("a.csv", [folder])
        assert path is not None
        assert read_csv(path, "a.csv")["age"].tolist() == [1, 2]
        prints.add(fingerprint(path, "a.csv"))
    assert len(prints) == 1
    assert find_file("b.csv", [plain, tmp_path / "nowhere"]) is None


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "the file is empty"),
        (b"\n", "the file is empty"),
        (b"age,y\n", "a header and no rows"),
        (b"age;y;z\n1;2;3\n", "separator seems to be ';', expected ','"),
        (b"age\ty\tz\n1\t2\t3\n", "separator seems to be"),
        (b"age,z\n1,0\n", "missing, first 'y'"),
        (b"ages,y\n1,0\n", r"first 'age' \(found 'ages': renamed\?\)"),
        (b"age,y,y\n1,0,0\n", "'y' is there twice"),
        (b"age,y\n1,\xe9\n", "not UTF-8 text"),
        (b"age,y\n1,0\n2,1,5,6\n", "not a regular table"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        read_csv(path, columns=["age", "y"])
    assert "\n" not in str(raised.value).strip()


def test_a_truncated_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress((TEXT * 2000).encode())[:-20])
    with pytest.raises(DataError, match="truncated or damaged"):
        read_csv(path)
    path.write_bytes(b"this is no gzip")
    with pytest.raises(DataError, match="truncated or damaged"):
        read_csv(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_csv(tmp_path / "none.csv")
