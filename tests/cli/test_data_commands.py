"""`bench data list`, `check` and `get`, against a server on loopback."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.data.files import DataFile
from bench.errors import DataError
from bench.plugins.data_files import download

CONTENT = bytes(range(256)) * 500


class _Server(BaseHTTPRequestHandler):
    """Serves one file, with ranges; /plain without them; /gone answers 404.

    /broken, and /cut of which nothing more ever comes, end the connection too early.
    """

    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        if self.path == "/gone":
            self.send_error(404)
            return
        body = CONTENT
        if self.path.endswith(".gz"):
            body = gzip.compress(CONTENT, mtime=0)
        elif self.path.endswith(".zip"):
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as archive:
                archive.writestr("inside/file.bin", CONTENT)
            body = packed.getvalue()
        start = 0
        asked = self.headers.get("Range")
        if asked and self.path != "/plain":
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if self.path == "/broken":
            body = body[: start + len(CONTENT) // 2]
        elif self.path == "/cut":
            body = body[: max(start, 100)]
        self.wfile.write(body[start:])

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def data_file(url: str) -> DataFile:
    return DataFile("file.bin", hashlib.sha256(CONTENT).hexdigest(), url)


def quiet(file: str, done: int, total: int | None) -> None:
    """No display."""


@pytest.mark.parametrize("already", [0, 1000, len(CONTENT)])
@pytest.mark.parametrize("path", ["/file", "/plain"])
def test_a_download_resumes_where_it_stopped(
    tmp_path: Path, address: str, already: int, path: str
) -> None:
    if already:
        (tmp_path / ".part-file.bin").write_bytes(CONTENT[:already])
    seen: list[int] = []
    place = download(data_file(address + path), tmp_path, lambda _, done, __: seen.append(done))
    assert place.read_bytes() == CONTENT
    assert not list(tmp_path.glob(".part-*"))
    if path == "/file" and 0 < already < len(CONTENT):
        assert seen[0] > already


def test_the_checksum_of_a_packed_download_is_of_its_content(tmp_path: Path, address: str) -> None:
    place = download(data_file(f"{address}/file.gz"), tmp_path, quiet)
    assert place.name == "file.bin.gz" and gzip.decompress(place.read_bytes()) == CONTENT


def test_a_zip_is_kept_and_found_again(tmp_path: Path, address: str) -> None:
    from bench.data.files import find_file, fingerprint

    place = download(data_file(f"{address}/all.zip"), tmp_path, quiet)
    assert place.name == "all.zip"
    assert find_file("file.bin", [tmp_path]) == place
    assert fingerprint(place, "file.bin") == hashlib.sha256(CONTENT).hexdigest()


def test_a_download_with_another_checksum_is_deleted(tmp_path: Path, address: str) -> None:
    (tmp_path / ".part-file.bin").write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match="checksum differs"):
        download(data_file(f"{address}/file"), tmp_path, quiet)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_connection_is_resumed(tmp_path: Path, address: str) -> None:
    place = download(data_file(f"{address}/broken"), tmp_path, quiet)
    assert place.read_bytes() == CONTENT


def test_what_came_in_part_is_never_taken_for_the_file(tmp_path: Path, address: str) -> None:
    """Even where no checksum is known; the part stays for a later attempt."""
    file = DataFile("file.bin", url=f"{address}/cut")
    with pytest.raises(DataError, match=r"ended after 100 of \d+ bytes.*to resume"):
        download(file, tmp_path, quiet)
    assert [path.name for path in tmp_path.iterdir()] == [".part-file.bin"]


def test_a_server_that_refuses_or_does_not_answer_is_explained(
    tmp_path: Path, address: str
) -> None:
    with pytest.raises(DataError, match="the server answered 404"):
        download(data_file(f"{address}/gone"), tmp_path, quiet)
    with pytest.raises(DataError, match=r"cannot be reached.*by hand"):
        download(data_file("http://127.0.0.1:1/file"), tmp_path, quiet)
    with pytest.raises(DataError, match="only https"):
        download(data_file("ftp://example.org/file"), tmp_path, quiet)


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_the_list_shows_what_is_ready_and_how_to_obtain_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    rows = {row["name"]: row for row in json.loads(bench("data", "list", "--json").output)}
    assert rows["digits"]["state"] == "ready"
    assert not [row for row in rows.values() if row["state"] == "broken"]
    for row in rows.values():
        if row["state"] == "missing":
            assert row["publisher"] and row["page"] and row["agreement"]
    text = bench("data", "list").output
    assert all(name in text for name in rows)


def test_check_of_a_built_in_dataset() -> None:
    result = bench("data", "check", "gbsg2")
    assert result.exit_code == 0, result.output
    assert "686 rows" in result.output and "as published" in result.output
    assert bench("data", "check", "gbsg3").exit_code == 2


def test_a_packaged_dataset_needs_no_download() -> None:
    result = bench("data", "get", "digits")
    assert result.exit_code == 2 and "nothing to get" in result.stderr
