"""`bench data list`, `check` and `get`, against a server on loopback."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.data.downloads import download
from bench.data.files import DataFile
from bench.errors import DataError

CONTENT = bytes(range(256)) * 500


STOP = threading.Event()
"""Ends the servers that never end by themselves."""


def _drip(head: bytes) -> Iterator[bytes]:
    yield head
    while not STOP.wait(0.05):
        yield b"x"


def _flood(head: bytes) -> Iterator[bytes]:
    yield head
    while not STOP.is_set():
        yield b"x" * 65_536


OK = b"HTTP/1.0 200 OK\r\n"
HOSTILE: dict[str, Callable[[], Iterable[bytes]]] = {
    "/nonsense": lambda: [b"\xff\xfe\0 not http\r\n\r\n"],
    "/silent": lambda: [],
    "/words": lambda: [OK + b"Content-Length: many\r\n\r\n"],
    "/negative": lambda: [OK + b"Content-Length: -5\r\n\r\nabc"],
    "/huge": lambda: [OK + b"Content-Length: 99999999999999\r\n\r\nabc"],
    "/digits": lambda: [OK + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\nabc"],
    "/chunks": lambda: [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc"],
    "/cut-chunk": lambda: [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc"],
    "/headers": lambda: [OK + b"".join(b"X-%d: y\r\n" % number for number in range(500))],
    "/long-header": lambda: [OK + b"X: " + b"y" * 100_000 + b"\r\n\r\n"],
    "/other-part": lambda: [
        b"HTTP/1.0 206 Partial\r\nContent-Range: bytes 7-9/10\r\nContent-Length: 3\r\n\r\nabc"
    ],
    "/drip": lambda: _drip(OK + b"\r\n"),
    "/drip-header": lambda: _drip(OK + b"X-Slow: "),
    "/flood": lambda: _flood(OK + b"\r\n"),
}


class _Server(BaseHTTPRequestHandler):
    """Serves one file, with ranges; /plain without them; /gone answers 404.

    /broken, and /cut of which nothing more ever comes, end the connection too early. The others are
    servers that are wrong or hostile.
    """

    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        if self.path == "/gone":
            self.send_error(404)
            return
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.end_headers()
            return
        if self.path in HOSTILE:
            with contextlib.suppress(OSError):  # the client gives up
                for piece in HOSTILE[self.path]():
                    self.wfile.write(piece)
                    self.wfile.flush()
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
    STOP.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    STOP.set()
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


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/file",
        "http://example.org/file",
        "http://127.0.0.1.example.org/file",
        "http://127.0.0.1@example.org/file",
        "http://localhost.example.org/file",
        "file:///etc/hostname",
        "https:///file",
        "https://[::1/file",
        "",
    ],
)
def test_only_https_is_downloaded(tmp_path: Path, url: str) -> None:
    """`http://127.0.0.1.example.org` begins like an address of this machine."""
    with pytest.raises(DataError, match=r"only https|not an address"):
        download(data_file(url), tmp_path, quiet)


@pytest.mark.parametrize(
    "url", ["http://example.org/file", "ftp://example.org/x", "file:///etc/hostname"]
)
def test_a_redirect_does_not_leave_https(tmp_path: Path, address: str, url: str) -> None:
    with pytest.raises(DataError, match=r"only https|the server answered 302"):
        download(data_file(f"{address}/to?{url}"), tmp_path, quiet)
    assert list(tmp_path.iterdir()) == []


def test_a_server_elsewhere_does_not_redirect_to_this_machine() -> None:
    from bench.data.downloads import _check_address

    _check_address("http://127.0.0.1:8/x", "http://127.0.0.1:8/y")
    with pytest.raises(DataError, match=r"only https .*redirected from 'https://example.org/x'"):
        _check_address("http://127.0.0.1:8/x", "https://example.org/x")


def test_a_redirect_on_this_machine_is_followed(tmp_path: Path, address: str) -> None:
    place = download(data_file(f"{address}/to?{address}/file"), tmp_path, quiet)
    assert place.read_bytes() == CONTENT


@pytest.mark.parametrize("path", sorted(HOSTILE))
@pytest.mark.parametrize("already", [0, 1_000])
def test_a_broken_server_is_one_line_in_bounded_time(
    tmp_path: Path, address: str, path: str, already: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("_ANSWER_SECONDS", 0.5),
        ("_WINDOW_SECONDS", 0.5),
        ("_MOST_BYTES", 5_000_000),
    ):
        monkeypatch.setattr(f"bench.data.downloads.{name}", value)
    if already:
        (tmp_path / ".part-file.bin").write_bytes(CONTENT[:already])
    started = time.monotonic()
    with pytest.raises(DataError) as raised:
        download(data_file(address + path), tmp_path, quiet)
    assert time.monotonic() - started < 20
    text = str(raised.value)
    assert text.startswith(f"{address}{path}: ") and "\n" not in text and len(text) < 800
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 5_000_000
    assert {file.name for file in tmp_path.iterdir()} <= {".part-file.bin"}


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adult").write_text("a file where the folder should be")
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    result = bench("data", "get", "adult")
    assert result.exit_code == 2 and "cannot be written" in result.stderr


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
